"""What a commit takes, counted: statements and frames of the WAL, and calls of the system. Nothing is timed.

A limit is what was counted when the test was written. Who lowers a count lowers the limit.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from hansard import Message, Record
from hansard.journal.sqlite.backend import SqliteBackend
from hansard.journal.store import Wiring
from tests.record.helpers_facts import SESSION
from tests.record.helpers_process import need_strace, traced

TEXT = "word " * 40
BATCH = 64
APPENDS = 100
CHUNKS = 25


class Taken(NamedTuple):
    """What some commits took of the database."""

    commits: int
    statements: int
    frames: int


class Counting:
    """A record without threads. Whoever waits for a commit does it here."""

    def __init__(self, record: Record) -> None:
        """Nothing is counted yet."""
        backend = record.store.backend
        assert isinstance(backend, SqliteBackend)
        self.record = record
        self._database = backend.database
        self._statements: list[str] = []

    async def done(self, work: Awaitable[object]) -> None:
        """Do something to its end."""
        task = asyncio.ensure_future(work)
        queue = self.record.store.writer.queue
        while not task.done():
            await asyncio.sleep(0)
            if queue.is_ready():
                self.record.store.writer.step()
        await task

    async def count(self, work: Awaitable[object]) -> Taken:
        """Do something, and return what that took."""
        connection, before = self._database.connected(), self._database.wal_pages
        self._statements = []
        connection.set_exec_trace(self._note)
        await self.done(work)
        connection.set_exec_trace(None)
        assert self._database.wal_pages > before, "the WAL began anew"
        commits = sum(statement.startswith("COMMIT") for statement in self._statements)
        return Taken(commits, len(self._statements), self._database.wal_pages - before)

    def _note(self, _cursor: object, statement: str, _bindings: object) -> bool:
        self._statements.append(statement.strip())
        return True

    async def say(self, session_id: str, message_id: str) -> None:
        """Append one message."""
        await self.record.append(session_id, Message.user(TEXT, id=message_id))


@asynccontextmanager
async def counting(home: Path, sessions: int = 1) -> AsyncIterator[Counting]:
    """Open a home with sessions that were written to before."""
    opened = Record.open(home, wiring=Wiring(threads=False))
    record = await opened.__aenter__()
    on = Counting(record)
    try:
        for number in range(sessions):
            await on.done(record.create_session(id=f"s{number}", source="test"))
            await on.done(on.say(f"s{number}", "first"))
        yield on
    finally:
        await opened.__aexit__(None, None, None)


async def test_one_append(home: Path) -> None:
    """Six statements: BEGIN, did others write, the entry, the number, the head, COMMIT; four pages, one of ids."""
    async with counting(home) as on:
        taken = [await on.count(on.say("s0", f"m{number}")) for number in range(20)]
    assert {each.commits for each in taken} == {1}
    assert max(each.statements for each in taken) <= 6
    assert sorted(each.frames for each in taken)[10] <= 4, taken


async def test_a_batch(home: Path) -> None:
    """What does not belong to one entry is done once for the batch, and the head once for each session."""
    async with counting(home, sessions=BATCH) as on:
        one = await on.count(asyncio.gather(*(on.say("s0", f"m{number}") for number in range(BATCH))))
        many = await on.count(asyncio.gather(*(on.say(f"s{number}", "n") for number in range(BATCH))))
    assert (one.commits, many.commits) == (1, 1)
    assert one.statements <= BATCH + 5
    assert many.statements <= 2 * BATCH + 4
    assert one.frames <= 18


async def test_a_chunk(home: Path) -> None:
    """Six statements, as an append, and three pages: number, head and chunk."""
    async with counting(home) as on:
        turns, replies = on.record.turn("s0"), []

        async def begin() -> None:
            turn = await turns.__aenter__()
            replies.append(turn.reply())
            await replies[0].__aenter__()
            await replies[0].write("first")

        async def write() -> None:
            end = on.record.store.writer.latency.read().commits + 1
            await replies[0].write("word " * 5)
            while on.record.store.writer.latency.read().commits < end:  # noqa: ASYNC110 - it is done in between
                await asyncio.sleep(0)

        await on.done(begin())
        taken = [await on.count(write()) for _ in range(10)]
        await on.done(replies[0].__aexit__(None, None, None))
        await on.done(turns.__aexit__(None, None, None))
    assert {each.commits for each in taken} == {1}
    assert max(each.statements for each in taken) <= 6
    assert sorted(each.frames for each in taken)[5] <= 3, taken


CALLS = {
    "look": {"stat", "lstat", "newfstatat", "fstat", "statx"},
    "lock": {"flock"},
    "futex": {"futex"},
    "write": {"write", "pwrite64", "sendto"},
}
TRACED = ",".join(f"?{name}" for names in CALLS.values() for name in sorted(names))

ROUNDS = 3
"""How threads wait for one another depends on what else the machine does: the least of some rounds counts."""

CALL = re.compile(r"^(?P<thread>\d+) +(?P<name>\w+)\(")
ANSWER = re.compile(r"^\d+ +write\(1<")


def count_calls(trace: Path) -> list[dict[str, int]]:
    """Return the calls before each answer of a worker, of the two threads that made most: the loop's and the writer's.

    The others are upkeep, which takes as many calls as there are seconds.
    """
    rounds: list[Counter[tuple[str, str]]] = [Counter()]
    for line in trace.read_text().splitlines():
        if ANSWER.match(line):
            rounds.append(Counter())
        elif (call := CALL.match(line)) is not None:
            rounds[-1][call["thread"], next(kind for kind, names in CALLS.items() if call["name"] in names)] += 1
    threads: Counter[str] = Counter()
    for each in rounds:
        for (thread, _), count in each.items():
            threads[thread] += count
    counted = [thread for thread, _ in threads.most_common(2)]
    return [{kind: sum(each[thread, kind] for thread in counted) for kind in CALLS} for each in rounds]


def least(rounds: list[dict[str, int]], commits: int) -> dict[str, float]:
    """Return the least of some rounds, for each commit."""
    return {kind: min(each[kind] for each in rounds) / commits for kind in CALLS}


def within(counted: dict[str, float], **limits: float) -> bool:
    """Whether something was counted, and no more than this."""
    return all(0 < counted[kind] <= limit for kind, limit in limits.items())


def test_calls_of_the_system(home: Path, tmp_path: Path) -> None:
    """Of an append, of a batch, and of a chunk that somebody follows: both files of a lock, and no file for nothing."""
    need_strace()
    with traced(home, tmp_path / "calls", TRACED) as worker:
        worker.ask("create", session=SESSION)
        worker.ask("turn", session=SESSION)
        worker.ask("reply", id="reply")
        for _ in range(ROUNDS):
            worker.ask("dribble", session=SESSION, count=CHUNKS)
        worker.ask("seal")
        worker.ask("leave")
        for number in range(ROUNDS):
            worker.ask("many", session=SESSION, prefix=f"one{number}", count=APPENDS)
        for number in range(ROUNDS):
            worker.ask("burst", session=SESSION, prefix=f"batch{number}", count=BATCH)
    counted = count_calls(tmp_path / "calls")
    chunk = least(counted[4 : 4 + ROUNDS], CHUNKS)
    append = least(counted[6 + ROUNDS : 6 + 2 * ROUNDS], APPENDS)
    batch = least(counted[6 + 2 * ROUNDS : 6 + 3 * ROUNDS], 1)
    assert within(append, look=7.3, lock=4.3, futex=8, write=11.6), append
    assert within(batch, look=8, lock=5, futex=20, write=30), batch
    assert within(chunk, look=7.3, lock=4.3, futex=14, write=9.5), chunk
