"""Faults of a home, each injected for as long as a block lasts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hansard import Record
from tests.journal.helpers_damage import made_line
from tests.record.helpers_facts import log_of, new_session, raw_rows, say
from tests.record.helpers_process import fill_disk, remount, small_disk, stranger

NOBODY = 65534

HOLDER = """
import fcntl, os, sys
held = [os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[1:]]
for descriptor in held:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
"""A process that holds the write lock, as a Hansard does that rebuilds or is stopped."""

Fault = Callable[[Path], AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {}
SLOW: set[str] = set()
"""Faults that writing commands wait for until their patience is over."""


async def make_home(home: Path) -> None:
    """Make a home with one session."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")


def fault(name: str, *, slow: bool = False) -> Callable[[Callable[[Path], Iterator[None]]], Fault]:
    """Name a fault."""

    def add(inject: Callable[[Path], Iterator[None]]) -> Fault:
        FAULTS[name] = contextmanager(inject)
        if slow:
            SLOW.add(name)
        return FAULTS[name]

    return add


def settle(home: Path) -> None:
    """Bring everything into the database file, so that it can be replaced alone."""
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    for side in ("-wal", "-shm"):
        (home / f"state.db{side}").unlink()


@fault("nothing is wrong")
def nothing(home: Path) -> Iterator[None]:
    """The table also says what is told when all is well: nothing."""
    del home
    yield


@fault("the home does not exist")
def missing(home: Path) -> Iterator[None]:
    """Somebody gave the wrong path."""
    shutil.rmtree(home)
    yield


@fault("a file lies where the home must be")
def home_is_file(home: Path) -> Iterator[None]:
    """Somebody gave the path of a file."""
    shutil.rmtree(home)
    home.write_bytes(b"a file")
    yield


@fault("the disk is read-only")
def read_only(home: Path) -> Iterator[None]:
    """A backup on read-only media."""
    with small_disk(home.parent / "disk", "16m") as disk:
        shutil.copytree(home, disk / "home")
        remount(disk, "ro")
        home.rename(home.parent / "aside")
        home.symlink_to(disk / "home")
        yield


@fault("the disk is full")
def full(home: Path) -> Iterator[None]:
    """Not one block is free."""
    with small_disk(home.parent / "disk", "16m") as disk:
        shutil.copytree(home, disk / "home")
        fill_disk(disk)
        home.rename(home.parent / "aside")
        home.symlink_to(disk / "home")
        yield


@fault("the home belongs to another user and may not be read")
def unreadable_home(home: Path) -> Iterator[None]:
    """As homes are by default."""
    for path in (*home.rglob("*"), home):
        os.chown(path, NOBODY, NOBODY)
    yield


@fault("the home belongs to another user and may be read")
def readable_home(home: Path) -> Iterator[None]:
    """Somebody made it readable for all."""
    for path in (*home.rglob("*"), home):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, NOBODY, NOBODY)
    yield


@fault("state.db belongs to another user")
def foreign_database(home: Path) -> Iterator[None]:
    """Somebody restored it as root."""
    os.chown(home / "state.db", NOBODY, NOBODY)
    yield


@fault("the session's log belongs to another user")
def foreign_log(home: Path) -> Iterator[None]:
    """A command was once run as root."""
    os.chown(log_of(home), NOBODY, NOBODY)
    yield


@fault("the folder of locks belongs to another user")
def foreign_locks(home: Path) -> Iterator[None]:
    """The same, with a folder."""
    os.chown(home / "locks", NOBODY, NOBODY)
    yield


@fault("another program has a transaction open", slow=True)
def transaction(home: Path) -> Iterator[None]:
    """A database shell."""
    with stranger(home / "state.db"):
        yield


@contextmanager
def holding(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold the write lock."""
    command = [sys.executable, "-c", HOLDER, str(home / "locks" / "write")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


@fault("another process holds the write lock", slow=True)
def lock_held(home: Path) -> Iterator[None]:
    """It takes long with something."""
    with holding(home):
        yield


@fault("a stopped process holds the write lock", slow=True)
def lock_stopped(home: Path) -> Iterator[None]:
    """Somebody pressed Ctrl-Z at the wrong moment."""
    with holding(home) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        yield


@fault("state.db is no database")
def garbage(home: Path) -> Iterator[None]:
    """Overwritten by something else."""
    settle(home)
    (home / "state.db").write_bytes(b"this is no database" * 500)
    yield


@fault("state.db is missing")
def no_database(home: Path) -> Iterator[None]:
    """It is rebuilt from the logs."""
    settle(home)
    (home / "state.db").unlink()
    yield


@fault("a folder lies where state.db must be")
def database_is_folder(home: Path) -> Iterator[None]:
    """A restore into the wrong place."""
    settle(home)
    (home / "state.db").unlink()
    (home / "state.db").mkdir()
    yield


@fault("a link lies where state.db must be")
def database_is_link(home: Path) -> Iterator[None]:
    """Somebody moved it to another disk."""
    settle(home)
    (home / "state.db").rename(home.parent / "moved.db")
    (home / "state.db").symlink_to(home.parent / "moved.db")
    yield


@fault("a folder lies where a lock file must be")
def lock_is_folder(home: Path) -> Iterator[None]:
    """Damage of the file system."""
    (home / "locks" / "write").unlink()
    (home / "locks" / "write").mkdir()
    yield


@fault("a file lies where the folder of sessions must be")
def sessions_is_file(home: Path) -> Iterator[None]:
    """Damage of the file system."""
    shutil.rmtree(home / "sessions")
    (home / "sessions").write_bytes(b"a file")
    yield


@fault("the session's log goes on with another history")
def forked(home: Path) -> Iterator[None]:
    """Two copies of a home were written to and then merged."""
    with log_of(home).open("ab") as file:
        file.write(made_line(home, instead=True))
    yield


@fault("the schema is newer")
def newer(home: Path) -> Iterator[None]:
    """An older Hansard on a home of a newer one."""
    raw_rows(home, "PRAGMA user_version = 99")
    yield


@fault("few files may be open")
def few_files(home: Path) -> Iterator[None]:
    """A low limit, which the command inherits."""
    del home
    yield
