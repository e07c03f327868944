"""Programs that take locks, for the tests of rule 9. Run as `python -m tests.journal.helpers_locks NAME …`.

rival KIND FOLDER: for each line of input, take the lock, note "rival" in FOLDER/order, give it back.
forker KIND FOLDER: hold the lock, fork a child that tells its process id and sleeps, sleep.
after-fork HOME: open a record, fork, and tell how each use of it ends in the child.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path

from hansard import HansardError, Message, Record
from hansard.journal.locks import FairLock


class PlainLock:
    """What a program does that knows no better: one flock, and a descriptor that every child inherits."""

    def __init__(self, folder: Path) -> None:
        """Open the file."""
        self._descriptor = os.open(folder / "write", os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self) -> None:
        """Wait for the lock."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Give it back."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def make_lock(kind: str, folder: Path) -> FairLock | PlainLock:
    """Return the lock of the record, or a plain one."""
    return FairLock(folder) if kind == "fair" else PlainLock(folder)


def note(folder: Path, name: str) -> None:
    """Note who holds the lock now."""
    with (folder / "order").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def rival(kind: str, folder: Path) -> None:
    """Take the lock whenever told to. Who wakes us goes on running: batch processes do not preempt."""
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    lock = make_lock(kind, folder)
    tell("ready")
    for _ in sys.stdin:
        lock.acquire()
        note(folder, "rival")
        lock.release()
        tell("done")


def forker(kind: str, folder: Path) -> None:
    """Hold the lock and have a child."""
    lock = make_lock(kind, folder)
    lock.acquire()
    if os.fork() == 0:
        tell(str(os.getpid()))  # the child speaks, so that it has run whatever a fork runs
    signal.pause()


def tell(text: str) -> None:
    """Say something at once."""
    os.write(1, f"{text}\n".encode())


async def after_fork(home: Path) -> None:
    """Use a record in the child of the process that opened it."""
    async with Record.open(home) as record:
        session = await record.create_session(id="talk", source="test")
        await record.append(session.id, Message.user("hello", id="before"))
        await record.load_transcript(session.id)
        child = os.fork()
        if child == 0:
            os._exit(in_child(home, record))
        await asyncio.to_thread(os.waitpid, child, 0)
        await record.append(session.id, Message.user("hello", id="after"))
        report = await record.verify()
        tell(f"parent {report.ok}")


def in_child(home: Path, record: Record) -> int:
    """Try everything; a loop of its own, as a child would have."""
    asyncio._set_running_loop(None)  # noqa: SLF001 - the parent's loop is not this process's

    async def leave(call: Awaitable[object]) -> str:
        try:
            await asyncio.wait_for(call, 120)
        except HansardError as error:
            return type(error).__name__
        except TimeoutError:
            return "hangs"
        return "works"

    async def reopen() -> None:
        async with Record.open(home):
            pass

    async def turn() -> None:
        async with record.turn("talk"):
            pass

    async def follow() -> None:
        async for _ in record.follow("talk"):
            return

    async def use() -> None:
        message = Message.user("from the child", id="child")
        tell(f"append {await leave(record.append('talk', message))}")
        tell(f"load_transcript {await leave(record.load_transcript('talk'))}")
        tell(f"sessions {await leave(record.sessions())}")
        tell(f"turn {await leave(turn())}")
        tell(f"follow {await leave(follow())}")
        tell(f"verify {await leave(record.verify())}")
        tell(f"put_blob {await leave(record.blobs.put(b'x'))}")
        tell(f"open {await leave(reopen())}")

    asyncio.run(use())
    return 0


if __name__ == "__main__":
    program, *rest = sys.argv[1:]
    if program == "rival":
        rival(rest[0], Path(rest[1]))
    elif program == "forker":
        forker(rest[0], Path(rest[1]))
    else:
        asyncio.run(after_fork(Path(rest[0])))
