"""S1: whoever asks for a turn lends it their rights and their budget, not whoever spoke last.

Ann may pay; Bob, who is in the same room, may not.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from hansard.domain.budgets import budget_of
from hansard.domain.messages import Message, Role, ToolOutcome
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, TurnLimits
from hansard.record.messages.operations import ImportedMessage
from hansard.record.turns.entries import TurnStarted
from hansard.testing.fakes import Counting
from tests.engine.stage import WAIT_SECONDS_MAX, Gate, PlayedModel
from tests.intake.town import ANN, BOB, ROOM, Town, settings_of, town
from tests.security.tools import PAY, PAYS, equip, outcomes


async def wake_all(here: Town, text: str, sender: str) -> None:
    """Somebody says something in the room; what waits is run, and nobody waits for it."""
    for wake in await here.say(text, sender, ROOM, is_for_agent=True):
        here.runner.wake(wake.session_id, wake.turn_id)


async def settle(here: Town, session_id: str) -> None:
    """Wait until nothing is left to run."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await here.runner.settled(session_id)


async def test_a_retry_has_the_rights_of_whoever_asks_for_it(home: Path) -> None:
    """Bob's /retry of Ann's payment pays nothing; Ann's own does."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["paid"], PAY, ["no"], PAY, ["paid again"])) as here:
        equip(here, tool)
        await here.ask("Pay 100 euros", ANN, ROOM, is_for_agent=True)
        assert tool.count == 1
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        assert tool.count == 1
        await here.ask("/retry", ANN, ROOM, is_for_agent=True)
        assert tool.count == 2
        room = await here.session(ROOM)
        assert await outcomes(here, room) == [ToolOutcome.OK, ToolOutcome.NOT_STARTED, ToolOutcome.OK]
        await here.check()


async def test_a_retry_of_what_another_person_asked_for(home: Path) -> None:
    """Bob asks for a payment, which is not made. Ann, who may pay, has it asked again: it is still Bob's wish."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["no"], PAY, ["no"])) as here:
        equip(here, tool)
        await here.ask("Pay 100 euros", BOB, ROOM, is_for_agent=True)
        await here.ask("/retry", ANN, ROOM, is_for_agent=True)
        assert tool.count == 0
        assert await outcomes(here, await here.session(ROOM)) == [ToolOutcome.NOT_STARTED] * 2
        await here.check()


async def test_a_retry_of_what_nobody_is_recorded_to_have_said(home: Path) -> None:
    """Ann has an imported message answered again: it lends her no right, and she none to it."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["no"])) as here:
        equip(here, tool)
        session = await here.record.create_session(source="matrix", owner=f"person:matrix:{ANN}", title="Old")
        await here.record.messages.import_messages(
            session.id, [ImportedMessage(Message.user("Pay", id="m1", author=ANN, chat=ROOM))]
        )
        await here.ask("/resume Old")
        await here.ask("/retry")
        assert tool.count == 0
        assert await outcomes(here, session.id) == [ToolOutcome.NOT_STARTED]
        await here.check()


@pytest.mark.parametrize("first", [ANN, BOB])
async def test_everybody_who_joins_a_queued_turn_is_needed(home: Path, first: str) -> None:
    """Ann asks for a payment and Bob speaks before it is answered, or the other way round: it is not made."""
    tool = Counting()
    gate = Gate()
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel([gate, "hello"], PAY, ["no"])) as here:
        equip(here, tool)
        await wake_all(here, "hello", ANN)
        await gate.reached()
        await wake_all(here, "Pay 100 euros", first)
        await wake_all(here, "yes, do", BOB if first == ANN else ANN)
        gate.open()
        room = await here.session(ROOM)
        await settle(here, room)
        assert tool.count == 0
        assert await outcomes(here, room) == [ToolOutcome.NOT_STARTED]
        await here.check()


async def test_a_retry_that_joins_a_queued_turn_is_needed_too(home: Path) -> None:
    """A turn of Ann's waits; Bob's /retry ends it and asks for another: Bob alone asked for that one."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["no"])) as here:
        equip(here, tool)
        await here.say("Pay 100 euros", ANN, ROOM, is_for_agent=True)
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        assert tool.count == 0
        await here.check()


async def test_whoever_steers_a_turn_is_needed(home: Path) -> None:
    """Bob steers a turn of Ann's: from then on it makes no payment."""
    tool = Counting()
    gate = Gate()
    settings = settings_of(ANN, BOB, busy=Busy.STEER)
    async with town(home, settings, PlayedModel([gate, *PAY], ["no"])) as here:
        equip(here, tool)
        await wake_all(here, "What do I owe?", ANN)
        await gate.reached()
        await wake_all(here, "Pay it!", BOB)
        gate.open()
        room = await here.session(ROOM)
        await settle(here, room)
        assert tool.count == 0
        await here.check()


async def test_a_turn_records_who_asked(home: Path) -> None:
    """Person, chat and how stand in the entry that begins the turn, and in verify's comparison."""
    async with town(home, settings_of(ANN, BOB), PlayedModel(["hello"])) as here:
        await here.ask("hello", ANN, ROOM, is_for_agent=True)
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        entries = await here.entries(await here.session(ROOM))
        started = [entry.body for entry in entries if isinstance(entry.body, TurnStarted)]
        by = [[(each.person, each.chat, each.how) for each in body.by or ()] for body in started]
        assert by == [[(ANN, ROOM, "message")], [(BOB, ROOM, "retry")]]
        assert await here.words(await here.session(ROOM), Role.ASSISTANT) == ["hello"]
        await here.check()


async def test_a_retry_is_charged_to_whoever_asks_for_it(home: Path) -> None:
    """Each may have two turns a day. Bob's /retry of Ann's question is his own, and his second; a third is refused."""
    budget = budget_of(TurnLimits(person_turns_day_max=2))
    assert budget is not None
    async with town(home, settings_of(ANN, BOB), PlayedModel(["hello"])) as here:
        equip(here, Counting(), msgspec.structs.replace(PAYS, budget=budget))
        await here.ask("hello", BOB, ROOM, is_for_agent=True)
        await here.ask("hello", ANN, ROOM, is_for_agent=True)
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        spent = [(await here.record.budgets.day(f"person:matrix:{who}", budget)).person.turns for who in (ANN, BOB)]
        assert spent == [1, 2]
        await here.ask("/retry", BOB, ROOM, is_for_agent=True)
        states = [turn.state for turn in await here.record.turns.list(await here.session(ROOM))]
        assert sorted(states) == [TurnState.COMPLETED] * 3 + [TurnState.FAILED]
        await here.ask("hello", ANN, ROOM, is_for_agent=True)
        assert (await here.record.budgets.day(f"person:matrix:{ANN}", budget)).person.turns == 2
        await here.check()


async def test_a_turn_of_two_people_is_charged_to_both(home: Path) -> None:
    """Who joins a turn that waits has asked for it, too."""
    budget = budget_of(TurnLimits(person_turns_day_max=5))
    assert budget is not None
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel(["hello"])) as here:
        equip(here, Counting(), msgspec.structs.replace(PAYS, budget=budget))
        await here.say("hello", ANN, ROOM, is_for_agent=True)
        await here.ask("hello, too", BOB, ROOM, is_for_agent=True)
        spent = [(await here.record.budgets.day(f"person:matrix:{who}", budget)).person.turns for who in (ANN, BOB)]
        assert spent == [1, 1]
        await here.check()


async def test_a_summary_is_asked_for_by_whoever_gives_the_command(home: Path) -> None:
    """/compact records its person, and is charged to them; nobody asks for one that comes by itself."""
    words = "the harbour at noon " * 400
    async with town(home, settings_of(ANN, BOB), PlayedModel([words], [words], ["A summary of the harbour."])) as here:
        equip(here, Counting())
        for _ in range(2):
            await here.ask(words, ANN, ROOM, is_for_agent=True)
        await here.ask("/compact", BOB, ROOM, is_for_agent=True)
        room = await here.session(ROOM)
        await here.runner.beside.compacted(room)
        entries = await here.entries(room)
        chores = [entry.body for entry in entries if isinstance(entry.body, TurnStarted) and entry.body.purpose]
        assert [[(each.person, each.how) for each in body.by or ()] for body in chores] == [[(BOB, "compact")]]
        await here.check()
