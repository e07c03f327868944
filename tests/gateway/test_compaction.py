"""Summing up beside a gateway: nobody waits for it, nobody is shown it, and who asked for it is told where they did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, Channels, Resets, Settings
from hansard.domain.settings.agent import CompactionSettings
from hansard.domain.settings.channels import Matrix
from hansard.engine.compaction import INTERRUPTED
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.record.conversation import SessionCompacted
from hansard.record.messages.entries import Entry, MessageEdited, MessageRetracted
from hansard.record.turns.entries import TurnEnded, TurnStarted
from hansard.testing import RECORDING_CAPABILITIES, FakeClock, Platform
from tests.engine.stage import Gate
from tests.engine.summing import MANUAL, SETTINGS, SUMMARY, TOPIC, Summing
from tests.gateway.stage import AGENT, ANN, WAIT_SECONDS_MAX, Playing, app_with, entries_of, gateway_on

LOOK_SECONDS = 0.5
"""Longer than it takes until a sign of writing would be seen."""


@asynccontextmanager
async def talking(
    home: Path,
    model: Summing,
    compaction: CompactionSettings,
    busy: Busy = Busy.INTERRUPT,
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[Playing, str]]:
    """A gateway, and a chat in which six exchanges were had."""
    platform = Platform()
    settings = Settings(
        busy=busy,
        channels=Channels(matrix=Matrix(allow=("*:example.org",))),
        compaction=compaction,
        resets=Resets(idle_minutes=30) if clock is not None else Resets(),
    )
    async with (
        Record.open(home, wiring=Wiring(clock=clock) if clock is not None else None) as record,
        app_with(record, settings, model) as app,
        gateway_on(app, platform, RECORDING_CAPABILITIES) as play,
    ):
        chat = platform.create_room(ANN, AGENT)
        for number in range(6):
            platform.say(chat, ANN, f"marker-{number} {TOPIC}")
            await play.until(lambda: len(play.texts(chat)) > number)  # noqa: B023
            await play.settled()
        yield play, chat
        await play.settled()
        audit = await play.audit(chat)
        assert audit.ok, audit.differences
        report = await record.verify()
        assert report.ok, report.findings


async def chores(play: Playing) -> list[TurnState]:
    """How the turns ended that answer nobody, in all sessions."""
    found = []
    for session in await play.record.sessions(source="matrix"):
        await play.app.runner.beside.compacted(session.id)  # its notice comes before its end
        bodies = [entry.body for entry in await entries_of(play.record, session.id)]
        ids = {body.turn_id for body in bodies if isinstance(body, TurnStarted) and body.purpose}
        found += [body.state for body in bodies if isinstance(body, TurnEnded) and body.turn_id in ids]
    return found


@pytest.mark.loss("G4")
@pytest.mark.parametrize("busy", list(Busy))
async def test_a_message_meanwhile_is_answered_at_once(home: Path, busy: Busy) -> None:
    """There is no sign of writing while it runs; the message is answered where it was said, and who asked is told."""
    gate = Gate()
    async with talking(home, Summing([gate, SUMMARY]), MANUAL, busy) as (play, chat):
        play.platform.say(chat, ANN, "/compact")
        await gate.reached()
        await play.until(lambda: any("Summing up" in text for text in play.texts(chat)))
        await asyncio.sleep(LOOK_SECONDS)
        assert play.platform.room(chat).typing == set()
        assert await play.record.turns.list_running_chats("matrix") == []
        count = len(play.texts(chat))
        play.platform.say(chat, ANN, "something else")
        await play.until(lambda: len(play.texts(chat)) == count + 2)
        await play.settled()
        assert [TOPIC in text for text in play.texts(chat)[count:]].count(True) == 1
        assert play.texts(chat).count(INTERRUPTED) == 1
        assert await chores(play) == [TurnState.INTERRUPTED]


async def test_it_is_told_in_the_chat_where_it_was_asked_for(home: Path) -> None:
    """What became of it is a notice there; the summary itself is shown to nobody."""
    async with talking(home, Summing(), MANUAL) as (play, chat):
        play.platform.say(chat, ANN, "/compact the lamps")
        await play.until(lambda: any("were summed up for the model" in text for text in play.texts(chat)))
        await play.settled()
        assert not any(SUMMARY in text for text in play.texts(chat))
        assert await chores(play) == [TurnState.COMPLETED]


@pytest.mark.parametrize("works", [True, False])
async def test_what_nobody_asked_for(home: Path, *, works: bool) -> None:
    """Done by itself, it is not shown in the chat; when it fails people are told there, once, and nothing changed."""
    model = Summing([SUMMARY] if works else [""])
    async with talking(home, model, SETTINGS) as (play, chat):
        for number in range(6, 12):
            if TurnState.COMPLETED in await chores(play) or TurnState.FAILED in await chores(play):
                break
            count = len(play.texts(chat))
            play.platform.say(chat, ANN, f"marker-{number} {TOPIC}")
            await play.until(lambda: len(play.texts(chat)) > count)  # noqa: B023
            await play.settled()
            (session,) = await play.record.sessions(source="matrix")
            await play.app.runner.beside.compacted(session.id)
        await play.settled()
        told = [text for text in play.texts(chat) if "summed up" in text]
        assert len(told) == (0 if works else 1)
        assert all("could not be summed up" in text and "Nothing changed" in text for text in told)
        assert await chores(play) == [TurnState.COMPLETED if works else TurnState.FAILED]


@pytest.mark.parametrize("deleted", [True, False])
async def test_what_a_person_changes_meanwhile_is_in_no_summary(home: Path, *, deleted: bool) -> None:
    """Words that were deleted or changed while they were summed up are told to no model, and the person is told why."""
    gate = Gate()
    model = Summing([gate, SUMMARY], [SUMMARY])
    async with talking(home, model, MANUAL) as (play, chat):
        play.platform.say(chat, ANN, "/compact")
        await gate.reached()
        first = next(shown for shown in play.platform.room(chat).timeline if "marker-0" in shown.text)
        if deleted:
            play.platform.delete(chat, ANN, first.id)
        else:
            play.platform.edit(chat, ANN, first.id, "I said nothing")
        (session,) = await play.record.sessions(source="matrix")
        await changed(play, session.id)
        gate.open()
        await play.until(lambda: any("was changed meanwhile" in text for text in play.texts(chat)))
        count = len(model.told)
        play.platform.say(chat, ANN, "go on")
        await play.until(lambda: len(model.told) > count)
        await play.settled()
        told = str(model.told[-1].messages)
        assert ("marker-0" in told, SUMMARY in told, "marker-1" in told) == (False, False, True)
        play.platform.say(chat, ANN, "/compact")
        await play.until(lambda: any("were summed up for the model" in text for text in play.texts(chat)))
        assert "marker-0" not in str(model.asked[-1].messages)
        assert await chores(play) == [TurnState.FAILED, TurnState.COMPLETED]


async def changed(play: Playing, session_id: str) -> None:
    """Wait until somebody's change is recorded."""
    async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(play.record.follow(session_id, chunks=False)) as items:
        async for item in items:
            if isinstance(item, Entry) and isinstance(item.body, MessageEdited | MessageRetracted):
                return


@pytest.mark.loss("H7")
async def test_a_reset_that_is_due_does_not_wait_for_it(home: Path) -> None:
    """What is said after a pause begins the next session; what was being summed up in the last one ends there."""
    gate, clock = Gate(), FakeClock()
    async with talking(home, Summing([gate, SUMMARY]), MANUAL, clock=clock) as (play, chat):
        play.platform.say(chat, ANN, "/compact")
        await gate.reached()
        await play.until(lambda: any("Summing up" in text for text in play.texts(chat)))
        await play.settled()
        clock.advance(31 * 60)
        play.platform.say(chat, ANN, "a new day")
        await play.until(lambda: INTERRUPTED in play.texts(chat))
        await play.settled()
        assert len(await play.record.sessions(source="matrix")) == 2
        assert await chores(play) == [TurnState.INTERRUPTED]
        for session in await play.record.sessions(source="matrix"):
            bodies = [entry.body for entry in await entries_of(play.record, session.id)]
            assert not any(isinstance(body, SessionCompacted) for body in bodies)
