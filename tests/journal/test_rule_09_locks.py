"""Rule 9: a fair lock that dies with its holder, is never inherited, and is waited for with a bound."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hansard import Message, Record, RecordUnavailable
from hansard.journal.locks import FairLock
from tests.journal.helpers_locks import make_lock, note
from tests.record.helpers_facts import SESSION, assert_clean, eventually, ids_of, new_session, say
from tests.record.helpers_process import ROOT, Worker, WorkerError, ask_again

ROUNDS = 100
LOCKS = Path("/proc/locks")


@contextmanager
def program(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run one of the programs of helpers_locks."""
    command = [sys.executable, "-m", "tests.journal.helpers_locks", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def hear(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waits_for_lock(pid: int) -> bool:
    """Whether the kernel lists a process as waiting for a flock."""
    return any("-> FLOCK" in line and line.split()[5] == str(pid) for line in LOCKS.read_text().splitlines())


def times_overtaken(kind: str, folder: Path) -> int:
    """Count how often a holder that releases and takes the lock again overtakes a process that already waits."""
    lock = make_lock(kind, folder)
    with program("rival", kind, folder) as rival:
        assert rival.stdin is not None
        assert hear(rival) == "ready"
        for _ in range(ROUNDS):
            lock.acquire()
            rival.stdin.write("go\n")
            rival.stdin.flush()
            while not waits_for_lock(rival.pid):
                time.sleep(0)
            lock.release()
            lock.acquire()
            note(folder, "holder")
            lock.release()
            assert hear(rival) == "done"
    lock.close()
    order = (folder / "order").read_text().split()
    return sum(first == "holder" for first in order[::2])


@pytest.mark.alone
@pytest.mark.skipif(not LOCKS.exists(), reason="the kernel does not list its locks here")
@pytest.mark.loss("B5", "B6")
def test_nobody_is_overtaken(tmp_path: Path) -> None:
    """Who waits is next, always; with a plain flock (the control) the holder overtakes it again and again."""
    for kind in ("plain", "fair"):
        (tmp_path / kind).mkdir()
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})  # one core for both, so that order is the lock's doing alone
        overtaken = {kind: times_overtaken(kind, tmp_path / kind) for kind in ("plain", "fair")}
    finally:
        os.sched_setaffinity(0, allowed)
    assert overtaken["plain"] > 0  # how often depends on what else runs
    assert overtaken["fair"] == 0


@pytest.mark.alone
@pytest.mark.skipif(not LOCKS.exists(), reason="the kernel does not list its locks here")
@pytest.mark.loss("B5")
def test_two_busy_processes_share_the_record(home: Path) -> None:
    """Two processes that append without a pause both get on: neither finishes while the other has done a fifth."""
    with Worker(home) as first, Worker(home) as second:
        first.ask("create", session=SESSION)
        lock = FairLock(home / "locks")
        lock.acquire()  # until both are ready to write
        for name, worker in (("a", first), ("b", second)):
            worker.send("many", session=SESSION, prefix=name, count=200)
            while not waits_for_lock(worker.pid):
                time.sleep(0.001)
        lock.release()
        lock.close()
        seqs = {"a": first.receive(), "b": second.receive()}
    end = min(seqs["a"][-1], seqs["b"][-1])
    counts = sorted(sum(seq <= end for seq in each) for each in seqs.values())
    assert counts[0] > counts[1] / 5


@pytest.mark.loss("B6")
def test_control_a_forked_child_keeps_a_plain_lock(tmp_path: Path) -> None:
    """Without the rule: the holder is killed, its child lives on, and nobody ever gets the lock."""
    with program("forker", "plain", tmp_path) as holder:
        child = int(hear(holder))
        holder.kill()
        holder.wait()
        try:
            descriptor = os.open(tmp_path / "write", os.O_RDWR)
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(descriptor)
        finally:
            os.kill(child, 9)


@pytest.mark.loss("B6")
def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The holder is killed while its child lives: the next one gets the lock at once, without any deletion."""
    with program("forker", "fair", tmp_path) as holder:
        child = int(hear(holder))
        holder.kill()
        holder.wait()
        try:
            os.kill(child, 0)
            for name in ("queue", "write"):
                descriptor = os.open(tmp_path / name, os.O_RDWR)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.close(descriptor)
        finally:
            os.kill(child, 9)


@pytest.mark.loss("B6")
def test_use_after_fork_raises(home: Path) -> None:
    """In a child, each use of the parent's record and a new opening raise; the parent goes on unharmed."""
    with program("after-fork", home) as process:
        assert process.stdout is not None
        said = dict(line.split() for line in process.stdout.read().splitlines())
    assert said.pop("parent") == "True"
    assert set(said) == {"append", "load_transcript", "sessions", "turn", "follow", "verify", "put_blob", "open"}
    assert {use: how for use, how in said.items() if how != "UsedAfterFork"} == {}


async def test_every_descriptor_closes_on_exec(home: Path) -> None:
    """Whatever of the home is open, locks and logs and database, no program that we start inherits it."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
        await ids_of(record)
        inherited = []
        opened = 0
        for descriptor in list(Path("/proc/self/fd").iterdir()):
            try:
                path = str(descriptor.readlink())
                flags = fcntl.fcntl(int(descriptor.name), fcntl.F_GETFD)
            except OSError:
                continue
            if path.startswith(str(home)):
                opened += 1
                inherited += [path] if not flags & fcntl.FD_CLOEXEC else []
        assert opened >= 6
        assert inherited == []


@pytest.mark.loss("B6")
async def test_lock_files_are_never_unlinked(home: Path) -> None:
    """Openings, closings and kills leave the very same lock files: two processes never lock two different ones."""
    async with Record.open(home) as record:
        await new_session(record)
        before = [(home / "locks" / name).stat().st_ino for name in ("queue", "write")]
        with Worker(home) as worker:
            worker.ask("append", session=SESSION, id="a")
            worker.kill()
    async with Record.open(home):
        assert [(home / "locks" / name).stat().st_ino for name in ("queue", "write")] == before


@pytest.mark.loss("B6")
async def test_a_lock_file_that_somebody_removed_still_excludes(home: Path) -> None:
    """Somebody tidies `locks/`: both processes agree on the new files, and nothing is written twice."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("append", session=SESSION, id="first")
            for name in ("queue", "write"):
                (home / "locks" / name).unlink()
            theirs = asyncio.create_task(worker.ask_soon("many", session=SESSION, prefix="b", count=40))
            for number in range(40):
                await say(record, f"a-{number}")
            await theirs
        assert len(await ids_of(record)) == 81
        await assert_clean(record)


@pytest.mark.loss("B2", "B5", "B6")
async def test_waiting_is_bounded_and_loud_and_heals(home: Path) -> None:
    """Somebody holds the write lock: the caller is told within its patience, nothing is written late, and it heals."""
    async with Record.open(home) as record:
        await new_session(record)
    lock = FairLock(home / "locks")
    with Worker(home, patience_seconds=2) as worker:
        ask_again(worker, "append", session=SESSION, id="before")
        lock.acquire()
        with pytest.raises(WorkerError, match=r"RecordUnavailable.*another Hansard process holds the write lock"):
            worker.ask("append", session=SESSION, id="refused")
        assert "lock" in worker.ask("trouble")
        lock.release()
        ask_again(worker, "append", session=SESSION, id="after")
        assert [row[0] for row in worker.ask("texts", session=SESSION)] == ["before", "after"]
        assert not worker.ask("trouble")
        assert worker.ask("verify") == []
    lock.close()


@pytest.mark.loss("B2")
async def test_opening_waits_for_the_lock_and_is_told(home: Path) -> None:
    """Opening waits too, for as long as its patience, and succeeds as soon as the lock is free."""
    async with Record.open(home) as record:
        await new_session(record)
    lock = FairLock(home / "locks")
    lock.acquire()
    with pytest.raises(RecordUnavailable):
        async with Record.open(home, patience_seconds=0.1):
            pass
    opening = asyncio.create_task(open_and_say(home))
    await asyncio.sleep(0.3)
    assert not opening.done()
    lock.release()
    await opening
    lock.close()
    async with Record.open(home) as record:
        assert await ids_of(record) == ["later"]


async def open_and_say(home: Path) -> None:
    """Open and append."""
    async with Record.open(home) as record:
        await say(record, "later")


async def test_one_store_for_each_home(home: Path, tmp_path: Path) -> None:
    """However the home is spelled, one process has one writer on it, and it lives until the last one leaves."""
    async with Record.open(home) as first:
        (tmp_path / "alias").symlink_to(home)
        async with Record.open(tmp_path / "alias") as second, Record.open(f"{home}/../{home.name}") as third:
            assert first.store is second.store is third.store
            await new_session(first)
            await second.append(SESSION, Message.user("x", id="a"))
        await first.append(SESSION, Message.user("x", id="b"))
        assert await ids_of(first) == ["a", "b"]
        await eventually(lambda: first.store.users == 1)
