"""Homes whose files are lost, put back or unreadable, for tests of damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hansard import Cursor, Intake, Message, Record
from hansard.journal.entries import decode_line, row_digest
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_lines, new_session

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


def made_line(home: Path, *, id: str = "foreign", kind: str = "", instead: bool = False, **said: object) -> bytes:
    """Return a line that continues a log, or that stands for another entry `instead` of its last one.

    What is `said` stands in the place of the same fields of the last entry.
    """
    before, last = log_lines(home)[-2:]
    previous = before if instead else last
    line = dict(
        last, seq=previous["seq"] + 1, id=id, kind=kind or last["kind"], salt="00" * 16, body=last["body"] | said
    )
    decoded = decode_line(_encoded(line))
    assert decoded is not None
    line["digest"] = row_digest(SESSION, bytes.fromhex(previous["digest"]), decoded.row()).hex()
    return _encoded(line)


def _encoded(line: dict[str, object]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
