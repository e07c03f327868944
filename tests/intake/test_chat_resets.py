"""Resets in chats: each one commit that moves the route, ends and links, and tells the person and the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansard.domain.chats import Began
from hansard.domain.messages import Role
from hansard.domain.requests import UserSaid
from hansard.domain.sessions import SessionState, TurnState
from hansard.domain.settings import Busy, Resets
from hansard.journal.entries import log_name
from tests.engine.stage import Gate, PlayedModel
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, Town, settings_of, town

HOUR = 3600.0
RESETS = {
    Began.IDLE: Resets(idle_minutes=60),
    Began.DAILY: Resets(daily_hour=4, time_zone="Europe/Berlin"),
    Began.NEW: Resets(),
}
SENTENCES = {
    Began.IDLE: "nobody had said anything for a while",
    Began.DAILY: "a new day began",
    Began.NEW: "the person asked for a new session",
}
ALL = pytest.mark.parametrize("reason", RESETS)


async def bring_about(here: Town, reason: Began) -> None:
    """Let the reset become due, or ask for it."""
    if reason is Began.NEW:
        await here.say("/new")
    else:
        here.clock.advance(24 * HOUR)


@ALL
@pytest.mark.loss("H7", "H8", "H10", "H1")
async def test_a_reset_between_turns(home: Path, reason: Began) -> None:
    """The next message is in a new session, linked to the old one; the person is told both ids, the model why.

    The old one ended with its reason, and keeps its words. Each request begins as the one before.
    """
    async with town(home, settings_of(resets=RESETS[reason]), PlayedModel(["ok"])) as here:
        await here.ask("old words")
        old = await here.session()
        await bring_about(here, reason)
        await here.ask("new words")
        new = await here.session()
        assert new != old
        ended, child = await here.record.sessions.read(old), await here.record.sessions.read(new)
        assert (ended.state, ended.end_reason) == (SessionState.ENDED, reason)
        assert child.parent is not None
        assert (child.parent.session_id, child.parent.link) == (old, "reset")
        route = await here.record.routes.read(HOME_OF_ANN)
        assert route is not None
        assert (route.generation, route.reason) == (2, reason)
        (told,) = await here.notices(new)
        assert old in told
        assert new in told
        assert await here.words(old) == ["old words", "ok"]
        assert await here.words(new) == ["new words", "ok"]
        await here.ask("more words")
        first, second = (request.messages for request in here.model.requests[-2:])
        assert isinstance(first[0], UserSaid)
        assert SENTENCES[reason] in first[0].text
        assert first[0].text.endswith("new words")
        assert "old words" not in repr(first)
        assert second[: len(first)] == first
        await here.check()


@ALL
@pytest.mark.loss("H8")
async def test_a_reset_is_one_commit(home: Path, reason: Began) -> None:
    """Every line that the reset wrote, in both sessions and the home, is of one transaction and one unit."""
    async with town(home, settings_of(resets=RESETS[reason])) as here:
        await here.ask("old words")
        old = await here.session()
        here.clock.advance(24 * HOUR)
        await here.say("/new" if reason is Began.NEW else "new words")
        new = await here.session()
        logs = {name: (home / name).read_text().splitlines() for name in ("home.jsonl", log_name(old), log_name(new))}
        lines = [json.loads(line) for texts in logs.values() for line in texts]
        (moved,) = [line for line in lines if line["kind"] == "route.moved" and line["body"]["session_id"] == new]
        kinds = [line["kind"] for line in lines if (line["tx"], line.get("unit")) == (moved["tx"], moved["unit"])]
        assert {"route.moved", "intake.accepted", "cursor.moved", "session.ended", "session.created"} <= set(kinds)
        assert kinds.count("message.added") == 2
        await here.check()


@pytest.mark.parametrize("reason", [Began.IDLE, Began.DAILY])
@pytest.mark.parametrize("busy", list(Busy))
@pytest.mark.loss("H1", "H5")
async def test_a_timer_during_a_turn_waits_for_the_turn(home: Path, reason: Began, busy: Busy) -> None:
    """While a turn runs somebody is owed an answer there: what is said then stays in its session.

    The daily reset comes with the first message afterwards; the idle one does not, as the session was not idle.
    """
    gate = Gate()
    model = PlayedModel(["first", gate], ["second"], ["third"])
    async with town(home, settings_of(resets=RESETS[reason], busy=busy), model) as here:
        (wake,) = await here.say("one")
        here.runner.wake(wake.session_id, wake.turn_id)
        await gate.reached()
        here.clock.advance(24 * HOUR)
        for again in await here.say("two"):
            here.runner.wake(again.session_id, again.turn_id)
        old = await here.session()
        assert old == wake.session_id
        gate.open()
        await here.runner.settled(old)
        await here.ask("three")
        assert (await here.session() == old) == (reason is Began.IDLE)
        assert (await here.words(old, Role.USER))[:2] == ["one", "two"]
        await here.check()


@pytest.mark.loss("H1")
async def test_new_during_a_turn_ends_it_where_it_belongs(home: Path) -> None:
    """What runs is interrupted in the old session, what waits there is ended, and the new one has no word of it."""
    gate = Gate()
    model = PlayedModel(["half an answer", gate], ["second"])
    async with town(home, settings_of(busy=Busy.QUEUE), model) as here:
        (wake,) = await here.say("one")
        here.runner.wake(wake.session_id, wake.turn_id)
        await gate.reached()
        await here.say("two")
        await here.say("/new")
        await here.runner.settled(wake.session_id)
        old = wake.session_id
        assert [turn.state for turn in await here.record.turns.list(old)] == [
            TurnState.INTERRUPTED,
            TurnState.INTERRUPTED,
        ]
        await here.ask("three")
        assert await here.words(old) == ["one", "half an answer", "two"]
        assert await here.words() == ["three", "second"]
        await here.check()


async def test_timers_are_off_by_default(home: Path) -> None:
    """A year passes: the same session."""
    async with town(home) as here:
        await here.ask("one")
        old = await here.session()
        here.clock.advance(365 * 24 * HOUR)
        await here.ask("two")
        assert await here.session() == old


async def test_a_session_in_which_nothing_was_said_is_not_reset(home: Path) -> None:
    """/new in the evening, the first words in the morning: one new session, not two."""
    async with town(home, settings_of(resets=Resets(idle_minutes=60, daily_hour=4))) as here:
        await here.ask("one")
        await here.say("/new Tomorrow")
        new = await here.session()
        here.clock.advance(24 * HOUR)
        await here.ask("two")
        assert await here.session() == new
        assert (await here.record.sessions.read(new)).title == "Tomorrow"


async def test_a_resumed_session_is_not_reset_by_the_hour_of_before(home: Path) -> None:
    """Somebody who takes up last week's session goes on in it: the day counts from then on."""
    async with town(home, settings_of(resets=Resets(daily_hour=4))) as here:
        await here.ask("last week")
        old = await here.session()
        here.clock.advance(7 * 24 * HOUR)
        await here.ask("today")
        await here.say(f"/resume {old}")
        await here.ask("and now")
        assert await here.session() == old
        here.clock.advance(24 * HOUR)
        await here.ask("tomorrow")
        assert await here.session() != old


async def test_a_reset_comes_once(home: Path) -> None:
    """The event that brought it comes again, and so does its batch: no other session begins."""
    async with town(home, settings_of(resets=Resets(idle_minutes=1))) as here:
        await here.ask("one")
        here.clock.advance(HOUR)
        event = here.event("two")
        await here.take(event)
        here.clock.advance(HOUR)
        await here.take(event)
        here.new_intake(here.settings)
        await here.take(event)
        assert await here.count_sessions() == 2
        new = here.event("/new")
        for _ in range(3):
            await here.take(new)
        assert await here.count_sessions() == 3
        await here.check()


@pytest.mark.loss("H9")
async def test_nothing_else_resets(home: Path) -> None:
    """Every command but those that say so, and every kind of event, leaves a chat in its session."""
    async with town(home, settings_of(resets=Resets(idle_minutes=60), observe=True)) as here:
        await here.ask("one", ANN, ROOM, is_for_agent=True)
        session_id = await here.session(ROOM)
        for text in (
            "/help",
            "/status",
            "/usage",
            "/sessions",
            "/title A",
            "/busy queue",
            "/stop",
            "/undo",
            "/nonsense",
        ):
            here.clock.advance(2 * HOUR)
            await here.say(text, ANN, ROOM, is_for_agent=True)
            await here.say("among us", BOB, ROOM)
            assert await here.session(ROOM) == session_id
        await here.check()


@pytest.mark.loss("H1", "J1")
async def test_each_word_is_where_its_chat_was(home: Path) -> None:
    """Chats are reset all the time, by timer and by hand: every word is in the session that its chat led to then."""
    chats = [f"matrix:room:!{number}:example.org" for number in range(20)]
    async with town(home, settings_of(resets=Resets(idle_minutes=60))) as here:
        expected: dict[str, list[str]] = {}
        for number in range(120):
            chat = chats[number * 7 % len(chats)]
            if number % 5 == 0:
                here.clock.advance(2 * HOUR)
            if number % 3 == 0:
                await here.say("/new", ANN, chat)
            (wake,) = await here.say(f"word {number}", ANN, chat)
            await here.record.turns.stop(wake.session_id, "answered elsewhere", queued=True)
            assert wake.session_id == await here.session(chat)
            expected.setdefault(wake.session_id, []).append(f"word {number}")
        assert len(expected) > 60
        for session_id, words in expected.items():
            assert await here.words(session_id) == words
        await here.check()
