"""Search while others write: complete, bounded in time, and in nobody's way."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import cast

import apsw
import pytest

from hansard import Message, Record
from hansard.journal.backend import Reads, Snapshots
from hansard.record.search.index import SearchIndex
from tests.counts import times
from tests.record.helpers_process import Worker
from tests.record.search.oracle import Asked, scan
from tests.record.search.samples import WORDS
from tests.record.search.scene import check, drop_index, everything_said, index_all, index_held, look

ROOT = Path(__file__).parents[3]
WRITERS = 4
SEARCHES = times(test=5, long=12, prove=50)
SHARE = 10
"""Messages that each writer may append beside one search."""

HANG_SECONDS = 120.0


@asynccontextmanager
async def writers(home: Path, seed: int) -> AsyncIterator[list[Process]]:
    """Four processes that append as many messages as they are told to, each having appended one."""
    started: list[Process] = []
    try:
        for number in range(WRITERS):
            arguments = ["-m", "tests.record.search.writer", str(home), f"w{number}", str(seed + number)]
            started.append(await create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT))
        tell(started, 1)
        for process in started:
            assert process.stdout is not None
            await asyncio.wait_for(process.stdout.readline(), HANG_SECONDS)
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


def tell(processes: list[Process], count: int) -> None:
    """Let each writer append so many messages more; none at all ends it when it has appended what it was told to."""
    for process in processes:
        assert process.stdin is not None
        if count:
            process.stdin.write(f"{count}\n".encode())
        else:
            process.stdin.close()


def random_asked(rng: random.Random) -> Asked:
    """A query that the writers' words may match."""
    words = rng.choices(WORDS, k=2)
    query = rng.choice(
        ("{0}", "{0} {1}", "{0} OR {1}", "{0} NOT {1}", "{0}*", '"{0} {1}"', '"said by"', "said NOT {0}")
    )
    return Asked(query.format(*words), everything=rng.random() < 0.3)


@pytest.mark.slow
@pytest.mark.loss("K8", "I1")
async def test_while_four_processes_append(home: Path, seed: int) -> None:
    """A search finds at least what was there before it and at most what is there after it, index or no index."""
    rng = random.Random(seed)
    async with Record.open(home) as record, writers(home, seed) as processes:
        for number in range(SEARCHES):
            tell(processes, SHARE)
            asked = random_asked(rng)
            before = await everything_said(record)
            found = await asyncio.wait_for(look(record, asked), HANG_SECONDS)
            after = await everything_said(record)
            undone = {each.place for each in after if each.undone} - {each.place for each in before if each.undone}
            least, most = scan(before, asked), scan(after, asked)
            assert set(least) - undone <= set(found), asked
            assert set(found) <= set(most) | undone, asked
            if number % 5 == 4:
                drop_index(home)
        tell(processes, 0)
        await asyncio.gather(*map(read_all, processes))
        assert [await asyncio.wait_for(process.wait(), HANG_SECONDS) for process in processes] == [0] * WRITERS
        said = await everything_said(record)
        assert len(said) == WRITERS * (1 + SEARCHES * SHARE)
        askings = [random_asked(rng) for _ in range(30)]
        await check(record, askings, said)
        index_all(record)
        await check(record, askings, said)


@pytest.mark.slow
async def test_a_search_ends_although_others_go_on(home: Path, seed: int) -> None:
    """With nobody indexing and four processes appending all the time, a search still comes to its end."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        for number in range(30):
            await record.accept([("long", Message.user(f"word {number} {each} " * 20)) for each in range(100)])
        with index_held(home):
            async with writers(home, seed) as processes:
                tell(processes, 10_000_000)
                readers = [asyncio.create_task(read_all(process)) for process in processes]
                for _ in range(3):
                    hits = await asyncio.wait_for(record.search("word", limit=1000), HANG_SECONDS)
                    assert len(hits) == 1000
                assert all(process.returncode is None for process in processes)
                for process in processes:
                    process.kill()
                await asyncio.gather(*readers)


async def read_all(process: Process) -> None:
    """Read a process's output to its end."""
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass


class PausingReaders:
    """The record's readers. A read that happens in the middle of an index batch waits, with its snapshot open."""

    def __init__(self, readers: Snapshots, index: Path) -> None:
        """Nothing is read yet."""
        self._readers = readers
        self.schema = readers.schema
        self._index = index
        self.paused = threading.Event()
        self.go_on = threading.Event()

    def read(self, look: Callable[[Reads], object]) -> object:
        """Read, and wait if somebody is writing to the index."""

        def look_slowly(snapshot: Reads) -> object:
            found = look(snapshot)
            if not self.paused.is_set() and is_being_written(self._index):
                self.paused.set()
                assert self.go_on.wait(HANG_SECONDS)
            return found

        return self._readers.read(look_slowly)


def is_being_written(path: Path) -> bool:
    """Whether somebody has a transaction open that writes to a database."""
    if not path.exists():
        return False
    with closing(apsw.Connection(str(path))) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return True
        connection.execute("ROLLBACK")
        return False


@pytest.mark.loss("B24")
async def test_appends_commit_during_a_rebuild(home: Path) -> None:
    """While a rebuild of the index stands still in the middle of a batch, appends commit; later they are found."""
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        await record.accept([("long", Message.user(f"word {each} " * 30)) for each in range(100)])
        readers = PausingReaders(record.store.backend, home / "search.db")
        index = SearchIndex(home, cast("Snapshots", readers))

        def rebuild() -> None:
            while not readers.paused.is_set():  # the record itself may index first
                drop_index(home)
                index.step()
            index.close()

        rebuilding = asyncio.create_task(asyncio.to_thread(rebuild))
        try:
            assert await asyncio.to_thread(readers.paused.wait, HANG_SECONDS)
            for _ in range(20):
                await asyncio.wait_for(record.append("long", Message.user("one more")), HANG_SECONDS)
            assert not rebuilding.done()
        finally:
            readers.go_on.set()
            await rebuilding
        index_all(record)
        assert len(await record.search("more", limit=100)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state.db", "search.db"])
async def test_a_search_holds_no_long_read(home: Path, name: str) -> None:
    """While a search reads thousands of entries, there are moments in which nobody holds a snapshot of either file.

    In such a moment the WAL can be started over after a write. A search that held one snapshot would allow that once at
    most, before it began to read.
    """
    async with Record.open(home) as record:
        await record.create_session(id="long", source="test")
        await record.append("long", Message.user("first"))
        index_all(record)
        with index_held(home), closing(apsw.Connection(str(home / name))) as connection:
            for number in range(60):
                await record.accept([("long", Message.user(f"word {number} {each} " * 60)) for each in range(100)])
            connection.set_busy_timeout(int(HANG_SECONDS * 1000))
            restarts = 0
            async with asyncio.timeout(HANG_SECONDS):
                while restarts < 2:
                    restarts = 0
                    searching = asyncio.create_task(record.search("word NOT first", limit=10))
                    while not searching.done() and restarts < 2:
                        is_restarted = await asyncio.to_thread(write_and_restart, connection)
                        restarts += is_restarted and not searching.done()
                    assert len(await searching) == 10


def write_and_restart(connection: apsw.Connection) -> bool:
    """Write to a database, and start its WAL over as soon as no reader needs it; return False if another does that."""
    connection.pragma("application_id", connection.pragma("application_id"))  # writes a page, changes nothing
    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    return not busy


async def test_words_that_another_process_adopted(home: Path) -> None:
    """A writer dies after it logged a message; others go on, and one adopts it: every process finds it."""
    async with Record.open(home) as record:
        for session_id in ("left", "here"):
            await record.create_session(id=session_id, source="test")
        with Worker(home, crash="logged:1") as doomed:
            doomed.send("append", session="left", id="late", text="zebra")
            with pytest.raises(EOFError):
                doomed.receive()
        for number in range(5):
            await record.append("here", Message.user(f"horse {number}"))
        assert len(await record.search("horse")) == 5
        with Worker(home):
            pass
        assert [message.text for message in await record.load_transcript("left")] == ["zebra"]
        assert [hit.session_id for hit in await record.search("zebra")] == ["left"]
