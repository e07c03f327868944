"""Bad weather: a program that knows nothing of us holds SQLite's write lock."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansard import OutcomeUnknown, Record, RecordUnavailable
from tests.clock import leap_until
from tests.counts import times
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    eventually,
    ids_of,
    new_session,
    outcome,
    say,
)
from tests.record.helpers_process import Worker, stranger

CLOSINGS_MAX = 5
HELD_SECONDS = times(test=3, long=20, prove=20)
MOMENT_SECONDS = 0.5
"""Long enough for a call that does not wait for the lock to end, on a quiet machine."""


@pytest.mark.loss("B2", "B5")
async def test_an_append_costs_nothing_but_the_wait(home: Path) -> None:
    """Held while we append: the call waits, succeeds, and reads go on meanwhile."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "before")
        with stranger(home / "state.db") as other:
            call = asyncio.create_task(say(record, "during"))
            await eventually(lambda: "lock" in record.trouble)  # the writer gave up waiting once, and says why
            assert not call.done()
            assert await ids_of(record) == ["before"]
            other.let_go()
            await call
        assert not record.trouble
        assert await ids_of(record) == ["before", "during"]
        await assert_clean(record)


@pytest.mark.loss("B2", "H5")
async def test_opening_costs_nothing_but_the_wait(home: Path) -> None:
    """Held before we start: opening, or the first append, waits; nothing is switched off for good."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "before")
    with stranger(home / "state.db") as other:
        opening = asyncio.create_task(open_and_say(home, "after"))
        await asyncio.wait({opening}, timeout=MOMENT_SECONDS)
        assert not opening.done()
        other.let_go()
        await opening
    async with Record.open(home) as record:
        assert await ids_of(record) == ["before", "after"]
        await assert_clean(record)


async def open_and_say(home: Path, text: str) -> None:
    """Open a home, and append to its session."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, text)


@pytest.mark.slow
@pytest.mark.loss("B2", "B5", "H5")
async def test_many_seconds_cost_nothing_but_the_wait(home: Path) -> None:
    """Held long, but within the patience: one process that appends and one that opens both succeed."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "before")
        with Worker(home, opened=False) as worker, stranger(home / "state.db") as other:
            worker.send("open")
            worker.send("append", session="talk", id="theirs")
            ours = asyncio.create_task(say(record, "ours"))
            await asyncio.wait({ours}, timeout=HELD_SECONDS)
            assert not ours.done()
            assert await ids_of(record) == ["before"]
            other.let_go()
            await ours
            await asyncio.to_thread(worker.receive)
            await asyncio.to_thread(worker.receive)
            assert set(await ids_of(record)) == {"before", "ours", "theirs"}
        await assert_clean(record)


async def test_closing_does_not_wait_for_a_second_patience(tmp_path: Path) -> None:
    """The end of a turn could not be written within the patience: closing gives up at once, and says no more.

    A second patience would make every closing slow; a machine that stalls makes only some.
    """
    patience_seconds = 4.0
    waits: list[float] = []
    while not waits or (waits[-1] >= patience_seconds and len(waits) < CLOSINGS_MAX):
        home = tmp_path / f"home{len(waits)}"
        async with AsyncExitStack() as opened, AsyncExitStack() as held:
            record = await opened.enter_async_context(Record.open(home, patience_seconds=patience_seconds))
            await new_session(record)
            await held.enter_async_context(record.turn(SESSION))
            with stranger(home / "state.db"):
                with pytest.raises(OutcomeUnknown):
                    await held.aclose()
                began = time.monotonic()
                await opened.aclose()
                waits.append(time.monotonic() - began)
    assert waits[-1] < patience_seconds, waits


@pytest.mark.loss("B2", "B4")
async def test_a_fresh_home_is_made_while_a_stranger_locks_it(home: Path) -> None:
    """Not even the schema is there yet: creation waits and is not half done."""
    home.mkdir()
    with stranger(home / "state.db") as other:
        opening = asyncio.create_task(open_and_say(home, "first"))
        await asyncio.wait({opening}, timeout=MOMENT_SECONDS)
        assert not opening.done()
        other.let_go()
        await opening
    async with Record.open(home) as record:
        assert await ids_of(record) == ["first"]
        await assert_clean(record)


@pytest.mark.loss("B2", "B15")
async def test_longer_than_the_patience_is_loud_and_heals(home: Path) -> None:
    """The caller is told, nothing of it is written late, and without reopening the next append works."""
    patience_seconds = 60.0
    async with Record.open(home, patience_seconds=patience_seconds) as record:
        await new_session(record)
        await say(record, "before")
        with stranger(home / "state.db"):
            for _ in range(2):
                call = asyncio.create_task(say(record, "refused"))
                await eventually(lambda: "lock" in record.trouble)
                await leap_until(call.done, patience_seconds)
                with pytest.raises(RecordUnavailable, match="locked"):
                    await call
            assert await ids_of(record) == ["before"]
        await say(record, "after")
        assert await ids_of(record) == ["before", "after"]
        assert not record.trouble
        await assert_clean(record)


@pytest.mark.loss("B2")
async def test_opening_longer_than_the_patience_is_refused_and_possible_later(home: Path) -> None:
    """A typed error from opening; the same process opens the home as soon as the lock is free."""
    async with Record.open(home) as record:
        await new_session(record)
    with Worker(home, crash="logged:1") as doomed, pytest.raises(EOFError):
        doomed.ask("append", session="talk", id="logged")  # leaves work for the next start
    with stranger(home / "state.db"):
        assert await outcome(open_once(home, 0.5)) == "RecordUnavailable"
    assert await outcome(open_once(home, 60)) == ""
    async with Record.open(home) as record:
        assert await ids_of(record) == ["logged"]
        await assert_clean(record)


async def open_once(home: Path, patience_seconds: float) -> None:
    """Open and close."""
    async with Record.open(home, patience_seconds=patience_seconds):
        pass


@pytest.mark.loss("B2", "B5", "A6")
async def test_a_reply_streams_through_a_short_lock(home: Path) -> None:
    """Chunks are queued in order and lose nothing; the caller has written all of them before the lock is free."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn("talk") as turn, turn.reply(id="reply") as reply:
            with stranger(home / "state.db") as other:
                for number in range(100):
                    await reply.write(f"{number} ")
                other.let_go()
        (message,) = await record.load_transcript("talk")
        assert message.text == "".join(f"{number} " for number in range(100))
        await assert_clean(record)
