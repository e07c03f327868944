"""Homes that have a history, and what people do to their databases."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import apsw

from hansard import Message, Record

SIDES = ("-wal", "-shm")
BATCH = 100
TITLE = "The long one"
OLDER = "older.db"
"""A backup of the database, from an earlier day."""

STRANGER = """
import signal, sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)
for statement in sys.argv[2:]:
    connection.execute(statement)
print("held", flush=True)
signal.pause()
"""
"""A program that knows nothing of Hansard and holds its database, until it is told to go."""


def question(number: int) -> str:
    """What the person said in an exchange."""
    return f"Question {number}: what comes after {number}?"


def answer(number: int) -> str:
    """What the model said in it."""
    return f"Answer {number}: that would be {number + 1}."


def history(exchanges: int) -> list[tuple[str, str]]:
    """Return what was said in so many exchanges."""
    return [each for n in range(exchanges) for each in (("user", question(n)), ("assistant", answer(n)))]


async def exchange(record: Record, session_id: str, number: int) -> None:
    """Have one exchange: a message, and a turn that answers it."""
    await record.append(session_id, Message.user(question(number)))
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write(answer(number))


async def converse(record: Record, session_id: str, start: int, end: int) -> None:
    """Have exchanges: the last one in a turn, those before in batches, as an import writes them."""
    before = [
        (session_id, message)
        for number in range(start, end - 1)
        for message in (Message.user(question(number)), Message.assistant(answer(number)))
    ]
    for first in range(0, len(before), BATCH):
        await record.accept(before[first : first + BATCH])
    await exchange(record, session_id, end - 1)


async def begin(record: Record) -> str:
    """Begin the session."""
    return (await record.create_session(source="cli", title=TITLE)).id


async def make_home(home: Path, exchanges: int, *, backup_after: int) -> str:
    """Make a home whose one session holds so many exchanges, and return the session's id.

    Its database was backed up when there were only so many; at 0, before the session began.
    """
    session_id = ""
    async with Record.open(home) as record:
        if backup_after:
            session_id = await begin(record)
            await converse(record, session_id, 0, backup_after)
    back_up(home)
    async with Record.open(home) as record:
        session_id = session_id or await begin(record)
        await converse(record, session_id, backup_after, exchanges)
    return session_id


def copy_home(made: tuple[Path, str], home: Path) -> str:
    """Copy a closed home, and return the id of its session."""
    shutil.copytree(made[0], home)
    return made[1]


def back_up(home: Path) -> None:
    """Copy the database of a closed home into one file, as a backup does."""
    with closing(apsw.Connection(str(home / "state.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("VACUUM INTO ?", (str(home / OLDER),))


def delete_database(home: Path) -> None:
    """Somebody deletes state.db and what lies beside it."""
    (home / "state.db").unlink()
    for side in SIDES:
        (home / f"state.db{side}").unlink(missing_ok=True)


def delete_database_only(home: Path) -> None:
    """Somebody deletes state.db and leaves what lies beside it."""
    (home / "state.db").unlink()


def empty_database(home: Path) -> None:
    """A full disk leaves a file of zero bytes."""
    delete_database(home)
    (home / "state.db").touch()


def restore_backup(home: Path) -> None:
    """Somebody puts the backup in the place of the database and what lies beside it."""
    delete_database(home)
    shutil.copyfile(home / OLDER, home / "state.db")


def restore_backup_only(home: Path) -> None:
    """Somebody copies the backup over the database and leaves what lies beside it."""
    shutil.copyfile(home / OLDER, home / "state.db")


Deed = Callable[[Path], None]
LOSING_ALL: list[Deed] = [delete_database, delete_database_only, empty_database, restore_backup]
"""Ways to a database that knows nothing of the session, when the backup is older than that."""


def rows_of(home: Path, session_id: str) -> int:
    """Return how many messages of a session the database holds, as another program reads them."""
    if not (home / "state.db").exists():
        return 0
    with closing(apsw.Connection(str(home / "state.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'journal'").get:
            return 0
        count = "SELECT coalesce(sum(messages), 0) FROM journal WHERE id = ?"
        return int(connection.execute(count, (session_id,)).get)


@asynccontextmanager
async def stranger(home: Path, *statements: str) -> AsyncIterator[Callable[[], None]]:
    """Let another program hold the database; calling what is given lets it go."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STRANGER, str(home / "state.db"), *statements), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None

    def let_go() -> None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)

    try:
        assert await asyncio.wait_for(process.stdout.readline(), 120) == b"held\n"
        yield let_go
    finally:
        if process.returncode is None:
            let_go()
        await process.wait()


def logs(home: Path) -> dict[Path, bytes]:
    """Return every log of a home."""
    return {path.relative_to(home): path.read_bytes() for path in sorted(home.rglob("*.jsonl"))}


def assert_only_grew(home: Path, before: dict[Path, bytes]) -> None:
    """Every log begins with what it was: nothing was written over, cut or removed."""
    now = logs(home)
    for path, data in before.items():
        assert now[path].startswith(data), f"{path} does not begin with what it was"
