"""Search while others write: complete, bounded in time, and in nobody's way."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from statistics import median

import apsw
import pytest

from hansard import Message, Record
from tests.search.oracle import Asked, scan
from tests.search.samples import WORDS
from tests.search.scene import check, drop_index, everything_said, index_all, index_held, look

ROOT = Path(__file__).parents[2]
WRITERS = 4
MESSAGES = 500 if os.environ.get("HANSARD_PROVE") else 60
SEARCH_SECONDS_MAX = 20.0
PACE_RATIO_MAX = 4.0
"""Appends while an index is made may take so many times as long as without: two cores, and others work on them."""


@asynccontextmanager
async def writers(home: Path, seed: int, count: int) -> AsyncIterator[list[Process]]:
    """Four processes that append, each having appended at least once."""
    started: list[Process] = []
    try:
        for number in range(WRITERS):
            arguments = ["-m", "tests.search.writer", str(home), f"w{number}", str(seed + number), str(count)]
            started.append(
                await create_subprocess_exec(sys.executable, *arguments, stdin=DEVNULL, stdout=PIPE, cwd=ROOT)
            )
        for process in started:
            assert process.stdout is not None
            await asyncio.wait_for(process.stdout.readline(), 60)
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


def random_asked(rng: random.Random) -> Asked:
    """A query that the writers' words may match."""
    words = rng.choices(WORDS, k=2)
    query = rng.choice(
        ("{0}", "{0} {1}", "{0} OR {1}", "{0} NOT {1}", "{0}*", '"{0} {1}"', '"said by"', "said NOT {0}")
    )
    return Asked(query.format(*words), everything=rng.random() < 0.3)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.loss("K8", "I1")
async def test_while_four_processes_append(home: Path, seed: int) -> None:
    """A search finds at least what was there before it and at most what is there after it, index or no index."""
    rng = random.Random(seed)
    async with Record.open(home) as record, writers(home, seed, MESSAGES) as processes:
        compared = 0
        while any(process.returncode is None and not at_end(process) for process in processes):
            asked = random_asked(rng)
            before = await everything_said(record)
            found = await asyncio.wait_for(look(record, asked), SEARCH_SECONDS_MAX)
            after = await everything_said(record)
            undone = {each.place for each in after if each.undone} - {each.place for each in before if each.undone}
            least, most = scan(before, asked), scan(after, asked)
            assert set(least) - undone <= set(found), asked
            assert set(found) <= set(most) | undone, asked
            compared += 1
            if compared % 5 == 0:
                drop_index(home)
            for process in processes:
                await drain(process)
        assert compared > 2, "too few searches to mean anything"
        assert [await asyncio.wait_for(process.wait(), 30) for process in processes] == [0] * WRITERS
        said = await everything_said(record)
        assert len(said) == WRITERS * MESSAGES
        askings = [random_asked(rng) for _ in range(30)]
        await check(record, askings, said)
        index_all(record)
        await check(record, askings, said)


def at_end(process: Process) -> bool:
    """Whether a process has closed its output."""
    assert process.stdout is not None
    return process.stdout.at_eof()


async def drain(process: Process) -> None:
    """Read what a process has told so far, without waiting for more than a moment."""
    assert process.stdout is not None
    try:
        await asyncio.wait_for(process.stdout.read(65536), 0.01)
    except TimeoutError:
        return


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_search_ends_although_others_go_on(home: Path, seed: int) -> None:
    """With nobody indexing and four processes appending all the time, a search still comes to its end."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        for number in range(30):
            await record.accept([("long", Message.user(f"word {number} {each} " * 20)) for each in range(100)])
        with index_held(home):
            async with writers(home, seed, 100_000) as processes:
                readers = [asyncio.create_task(read_all(process)) for process in processes]
                began = time.monotonic()
                for _ in range(3):
                    hits = await asyncio.wait_for(record.search("word", limit=1000), SEARCH_SECONDS_MAX)
                    assert len(hits) == 1000
                assert time.monotonic() - began < SEARCH_SECONDS_MAX
                assert all(process.returncode is None for process in processes)
                for process in processes:
                    process.kill()
                await asyncio.gather(*readers)


async def read_all(process: Process) -> None:
    """Read a process's output to its end."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loss("B24")
async def test_appends_keep_their_pace_during_a_rebuild(home: Path) -> None:
    """Making the index anew does not hold up whoever appends: the median stays near what it is without."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        for number in range(30):
            await record.accept([("long", Message.user(f"word {number} {each} " * 30)) for each in range(100)])
        with index_held(home):
            quiet = [await append_seconds(record) for _ in range(100)]
        drop_index(home)
        rebuild = asyncio.create_task(asyncio.to_thread(index_all, record))
        busy = [await append_seconds(record) for _ in range(20)]
        while not rebuild.done():
            busy.append(await append_seconds(record))
        await rebuild
        assert median(busy) < PACE_RATIO_MAX * median(quiet), (median(busy), median(quiet))
        assert max(busy) < max(1.0, 4 * max(quiet)), (max(busy), max(quiet))


async def append_seconds(record: Record) -> float:
    """How long one append takes."""
    began = time.perf_counter()
    await record.append("long", Message.user("one more"))
    return time.perf_counter() - began


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.db", "search.db"])
async def test_a_search_holds_no_long_read(home: Path, name: str) -> None:
    """While a search reads thousands of entries, there are moments in which nobody holds a snapshot of either file."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        await record.append("long", Message.user("first"))
        index_all(record)
        with index_held(home):
            for number in range(60):
                await record.accept([("long", Message.user(f"word {number} {each} " * 60)) for each in range(100)])
            searching = asyncio.create_task(record.search("word NOT first", limit=10))
            tried = [0, 0]
            with closing(apsw.Connection(str(home / name))) as connection:
                connection.set_busy_timeout(0)
                while not searching.done():
                    tried[await asyncio.to_thread(can_restart, connection)] += 1
                    await asyncio.sleep(0.005)
            assert len(await searching) == 10
            assert sum(tried) > 10, tried
            assert tried[True] > sum(tried) / 5, tried


def can_restart(connection: apsw.Connection) -> bool:
    """Whether the WAL can be started over: only when no reader needs it."""
    try:
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    except apsw.BusyError:
        return False
    return not busy
