"""Several processes and tasks on one record. Every entry once, contiguous seqs, no lock errors."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from pathlib import Path

import pytest

from hansard import Message, Record
from tests.record.helpers_facts import SESSION, assert_clean, assert_contiguous, ids_of, new_session
from tests.record.helpers_process import Worker

PROCESSES = 4
APPENDS = 500
OPENINGS = 100


@pytest.mark.drawn(1, "processes")
@pytest.mark.loss("B7", "B20", "D16", "I1", "I10")
def test_four_processes_append_to_one_session(home: Path) -> None:
    """4 × 500: each append gives a seq of its own, together they are contiguous; nobody fails or complains."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(home)) for _ in range(PROCESSES)]
        workers[0].ask("create", session=SESSION)
        for number, worker in enumerate(workers):
            worker.send("many", session=SESSION, prefix=f"w{number}", count=APPENDS)
        seqs = [worker.receive() for worker in workers]
        assert all(each == sorted(each) for each in seqs)
        assert sorted(seq for each in seqs for seq in each) == list(range(2, 2 + PROCESSES * APPENDS))
        rows = workers[-1].ask("texts", session=SESSION)
        expected = {f"w{number}-{count}" for number in range(PROCESSES) for count in range(APPENDS)}
        assert {row[0] for row in rows} == expected
        assert len(rows) == len(expected)
        assert workers[0].ask("verify") == []
        for worker in workers:
            assert worker.finish() == 0
            assert worker.stderr() == ""


@pytest.mark.drawn(1, "processes")
@pytest.mark.loss("B7", "I1", "I10")
async def test_eight_tasks_append_to_eight_sessions(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """8 × 500 in one process: each session has its own five hundred, in order, and nothing of the others."""
    with caplog.at_level(logging.WARNING):
        async with Record.open(home) as record:
            names = [f"session-{number}" for number in range(8)]
            for name in names:
                await new_session(record, name)

            async def talk(name: str) -> None:
                for number in range(APPENDS):
                    await record.append(name, Message.user(f"{name} {number}", id=f"m{number}"))

            await asyncio.gather(*map(talk, names))
            for name in names:
                assert [m.text for m in await record.load_transcript(name)] == [f"{name} {n}" for n in range(APPENDS)]
                await assert_contiguous(record, name)
            await assert_clean(record)
    assert caplog.messages == []


@pytest.mark.drawn(1, "processes")
@pytest.mark.loss("D16", "B20")
async def test_processes_and_tasks_together(home: Path) -> None:
    """Two processes with bursts and this one with tasks, all on one session and with the same ids: each id once."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as first, Worker(home) as second:
            for worker in (first, second):
                worker.send("burst", session=SESSION, prefix="shared", count=200)
            ours = [record.append(SESSION, Message.user("y", id=f"shared-{number}")) for number in range(200)]
            seqs = [entry.seq for entry in await asyncio.gather(*ours)]
            assert await asyncio.to_thread(first.receive) == seqs
            assert await asyncio.to_thread(second.receive) == seqs
        assert sorted(await ids_of(record)) == sorted(f"shared-{number}" for number in range(200))
        await assert_contiguous(record)
        await assert_clean(record)


@pytest.mark.drawn(1, "processes")
@pytest.mark.loss("B4")
def test_two_processes_open_a_fresh_home_at_once(tmp_path: Path) -> None:
    """A hundred rounds: both are told the same moment, both open, both write, one database, nothing lost."""
    with Worker(tmp_path, opened=False) as first, Worker(tmp_path, opened=False) as second:
        for number in range(OPENINGS):
            home = tmp_path / f"home-{number}"
            for worker in (first, second):
                worker.send("open", home=str(home))
                worker.send("create", session=SESSION)
            for name, worker in (("a", first), ("b", second)):
                worker.send("append", session=SESSION, id=name)
            for worker in (first, second):
                worker.receive()
                worker.receive()
            assert sorted([first.receive(), second.receive()]) == [2, 3]
            for worker in (first, second):
                assert sorted(row[0] for row in worker.ask("texts", session=SESSION)) == ["a", "b"]
            if number % 10 == 0:
                assert first.ask("verify") == []
            for worker in (first, second):
                worker.ask("close")
        for worker in (first, second):
            assert worker.finish() == 0
            assert worker.stderr() == ""


@pytest.mark.drawn(1, "processes")
@pytest.mark.loss("B4")
async def test_eight_processes_open_a_fresh_home_at_once(home: Path) -> None:
    """Once with eight, each a new process."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(home, opened=False)) for _ in range(8)]
        for worker in workers:
            worker.send("open")
        for worker in workers:
            worker.receive()
        for number, worker in enumerate(workers):
            worker.ask("create", session=SESSION)
            worker.ask("append", session=SESSION, id=f"m{number}")
    async with Record.open(home) as record:
        assert await ids_of(record) == [f"m{number}" for number in range(8)]
        await assert_clean(record)
