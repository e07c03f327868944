"""Turns that answer nobody: they hold the session, leave the queue and the chats alone, and end like any other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from hansard.domain.messages import Message
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.errors import LeaseHeld, RecordUnavailable
from hansard.intake.speak import speak
from hansard.record.api import Record
from hansard.record.conversation import SessionCompacted
from hansard.record.turns.entries import TurnSteered, TurnStopping
from hansard.testing import abandon_store
from tests.record.helpers_lost import CHAT, asked, is_notice, lose, states

COMPACTED = SessionCompacted(summary="They talked.", through="m", from_seq=1, to_seq=2, read_seq=2)


async def test_the_queue_stays(home: Path) -> None:
    """A queued turn waits on, is not run by it, and runs afterwards; nobody else holds the session meanwhile."""
    async with Record.open(home) as record:
        session = await record.create_session(source="test")
        said = Message.user("hello", id="m")
        accepted = await record.accept([(session.id, said)], queue_turn=True)
        async with record.turn(session.id, purpose="compaction") as turn:
            assert turn.id != accepted.turns[0].id
            with pytest.raises(LeaseHeld):
                async with record.turn(session.id):
                    pass
            with pytest.raises(LeaseHeld):
                async with record.turn(session.id, purpose="compaction"):
                    pass
        async with record.turn(session.id, waiting="") as queued:
            assert queued.id == accepted.turns[0].id
        states = [info.state for info in await record.turns.list(session.id)]
        assert states == [TurnState.COMPLETED, TurnState.COMPLETED]
        assert (await record.verify()).ok


async def test_a_summary_is_recorded_with_its_notice(home: Path) -> None:
    """One commit holds both; a turn that ends without another word records the summary with its end."""
    async with Record.open(home) as record:
        session = await record.create_session(source="test")
        await record.append(session.id, Message.user("hello", id="m"))
        for tells in (True, False):
            async with record.turn(session.id, purpose="compaction") as turn:
                turn.compact(COMPACTED)
                if tells:
                    await turn.append(Message.notice("summed up"))
        bodies = [entry.body for entry in await record.sessions.read_entries(session.id)]
        assert bodies.count(COMPACTED) == 2
        assert (await record.verify()).ok
    async with Record.open(home) as again:
        assert [entry.body for entry in await again.sessions.read_entries(session.id)].count(COMPACTED) == 2


async def lose_chore(home: Path, session_id: str) -> None:
    """Sum up in a process that is killed while it does."""
    async with Record.open(home) as record:
        with suppress(RecordUnavailable):  # nothing of what the dead process still tries is written
            async with record.turn(session_id, purpose="compaction"):
                abandon_store(record.store)


@pytest.mark.loss("G5", "A14")
async def test_one_that_is_lost_is_nobody_s_loss(home: Path) -> None:
    """Nobody is told or answered for it, and nobody goes on with it; a turn that is lost has its second try still."""
    session_id = await asked(home)
    async with Record.open(home) as record, record.turn(session_id, waiting=""):
        pass
    await lose_chore(home, session_id)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["completed", "lost"]
        assert await record.turns.list_lost() == []
        assert await record.deliveries.list_waiting("matrix") == []
        again = Message.user("and?", author="@ann:example.org", chat=CHAT)
        await record.accept([(session_id, again)], queue_turn=True)
    await lose_chore(home, session_id)
    await lose(home, session_id)
    async with Record.open(home) as record:
        assert await states(record, session_id) == ["completed", "lost", "lost", "lost", "queued"]
        assert not any(map(is_notice, await record.sessions.read_entries(session_id)))
        assert [turn.session_id for turn in await record.turns.list_queued("matrix")] == [session_id]
        assert (await record.verify()).ok


@pytest.mark.loss("A6")
async def test_one_that_ran_since_does_not_hide_what_was_lost(home: Path) -> None:
    """A turn that a crash ended is found, though something was summed up after it."""
    async with Record.open(home) as record:
        session = await record.create_session(source="cli")
        await record.accept([(session.id, Message.user("hello"))], queue_turn=True)
    await lose(home, session.id)
    async with Record.open(home) as record:
        async with record.turn(session.id, purpose="compaction"):
            pass
        assert [found for found, _ in await record.turns.list_lost()] == [session.id]


@pytest.mark.parametrize("busy", list(Busy))
async def test_who_speaks_meanwhile_is_answered_by_the_next_turn(home: Path, busy: Busy) -> None:
    """Whatever a message does to an answer: this turn is not stopped or steered by it, and not shown in its chat."""
    session_id = await asked(home)
    async with Record.open(home) as record:
        async with record.turn(session_id, waiting=""):
            pass
        async with record.turn(session_id, purpose="compaction") as turn:
            said = Message.user("and?", author="@ann:example.org", chat=CHAT)
            spoken = await speak(record, session_id, [said], busy)
            bodies = [entry.body for entry in await record.sessions.read_entries(session_id)]
            assert not any(isinstance(body, TurnStopping | TurnSteered) for body in bodies)
            assert await record.turns.list_running_chats("matrix") == []
            await turn.append(Message.notice("for nobody"))
        assert await record.deliveries.list_waiting("matrix") == []
        async with record.turn(session_id, waiting=spoken.turn_id) as answering:
            assert await record.turns.list_running_chats("matrix") == [CHAT]
            await answering.append(Message.notice("here"))
        assert [each.chat for each in await record.deliveries.list_waiting("matrix")] == [CHAT]
        assert (await record.verify()).ok
