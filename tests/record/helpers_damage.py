"""Homes whose files are lost, put back or unreadable, for tests of damage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hansard import Cursor, Intake, Message, Record
from tests.record.helpers_facts import assert_clean, ids_of, new_session

DATABASE = ("state.db", "state.db-wal", "state.db-shm")


async def make_home(home: Path, *session_ids: str) -> None:
    """Make a home with sessions."""
    async with Record.open(home) as record:
        for session_id in session_ids:
            await new_session(record, session_id)


async def hear(home: Path, *message_ids: str, session_ids: tuple[str, ...] = ("one", "two")) -> None:
    """Record what came from a platform: one unit of the sessions' logs and the home's for each."""
    async with Record.open(home) as record:
        for id in message_ids:
            entries = [(session_id, Message.user("heard", id=id)) for session_id in session_ids]
            intake = Intake(channel="matrix", account="@bot:server", event_id=id)
            await record.accept(entries, intake, Cursor(channel="matrix", account="@bot:server", value=id))


def lose_database(home: Path) -> None:
    """Remove the database and what lies beside it."""
    for name in DATABASE:
        (home / name).unlink(missing_ok=True)


def put_back(backup: Path, home: Path, *names: str) -> None:
    """Put the database back, and other files."""
    lose_database(home)
    for name in (*DATABASE, *names):
        if (backup / name).exists():
            shutil.copyfile(backup / name, home / name)


@contextmanager
def unreadable(log: Path) -> Iterator[None]:
    """Let a folder lie in the place of a log."""
    log.rename(log.with_suffix(".away"))
    log.mkdir()
    yield
    log.rmdir()
    log.with_suffix(".away").rename(log)


async def assert_holds(home: Path, *ids: str, session_ids: tuple[str, ...] = ("one", "two")) -> None:
    """Each of the sessions holds these messages, and all is in order."""
    async with Record.open(home) as record:
        for session_id in session_ids:
            assert await ids_of(record, session_id) == list(ids)
        await assert_clean(record)
