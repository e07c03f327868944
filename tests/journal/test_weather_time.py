"""Bad weather: clocks that jump. Order is the order of commits; clocks only label."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hansard import Message, Record, ToolCall
from hansard.journal.store import Wiring
from hansard.testing import FakeClock
from tests.record.helpers_facts import SESSION, assert_clean, assert_contiguous, ids_of, new_session

HOUR = 3600.0


@pytest.mark.loss("C6", "I5")
async def test_order_is_append_order_whatever_the_clock_says(home: Path, seed: int) -> None:
    """The clock jumps by an hour forth and back between appends: transcript, entries and follow keep the order."""
    chance = random.Random(seed)
    clock = FakeClock()
    ids = [f"m{number}" for number in range(60)]
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        await new_session(record)
        for id in ids:
            clock.jump(chance.choice([-HOUR, HOUR, -1, 1, 0, -20 * HOUR]))
            await record.append(SESSION, Message.user(id, id=id))
        assert await ids_of(record) == ids
        entries = [entry for entry in await record.sessions.read_entries(SESSION) if entry.kind == "message.added"]
        assert [entry.id for entry in entries] == ids
        times = [entry.at_microseconds for entry in entries]
        assert times != sorted(times)
        await assert_contiguous(record)
        await assert_clean(record)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        assert await ids_of(record) == ids


@pytest.mark.loss("C6")
async def test_a_tool_result_never_comes_before_its_call(home: Path) -> None:
    """The clock steps back an hour between call and result, in the turn: the pair stays a pair."""
    clock = FakeClock()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        await new_session(record)
        async with record.turn(SESSION) as turn:
            async with turn.reply(id="call") as reply:
                await reply.write("let me look")
                reply.add(ToolCall(id="1", name="look"))
            clock.jump(-HOUR)
            await turn.append(Message.tool("1", "found", id="result"))
            clock.jump(-HOUR)
        assert await ids_of(record) == ["call", "result"]
        await assert_clean(record)


@pytest.mark.loss("C6", "H3")
async def test_latest_activity_is_by_commit(home: Path) -> None:
    """The list of sessions is by activity in the record, so that `continue` never picks an old one after a jump."""
    clock = FakeClock()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        for id in ("one", "two", "three"):
            await new_session(record, id)
            clock.jump(-HOUR)
        await record.append("one", Message.user("latest"))
        assert [session.id for session in await record.sessions()] == ["one", "three", "two"]
        page = await record.sessions(limit=1)
        rest = await record.sessions(before=page[-1].id)
        assert [session.id for session in page + rest] == ["one", "three", "two"]


@pytest.mark.loss("H3")
async def test_generated_ids_are_new_even_when_time_stands_still(home: Path) -> None:
    """A hundred sessions in the same second, and again after the clock was set back: all different."""
    clock = FakeClock()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        made = [(await record.create_session(source="test")).id for _ in range(50)]
        clock.jump(HOUR)
        clock.jump(-HOUR)
        made += [(await record.create_session(source="test")).id for _ in range(50)]
        assert len(set(made)) == 100
        assert len(await record.sessions()) == 100


async def test_time_of_the_event_is_kept_beside_the_time_of_writing(home: Path) -> None:
    """A message that was said earlier keeps its own time as a label, through a rebuild, and is not moved by it."""
    clock = FakeClock()
    async with Record.open(home, wiring=Wiring(clock=clock)) as record:
        await new_session(record)
        await record.append(SESSION, Message.user("now", id="now"))
        said = (await record.load_transcript(SESSION))[0].at
        clock.jump(HOUR)
        await record.append(SESSION, Message.user("earlier", id="earlier", at=said))
        first, second = await record.load_transcript(SESSION)
        assert (first.id, second.id) == ("now", "earlier")
        assert second.at == said
