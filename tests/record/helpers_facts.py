"""What tests look at in a record: transcripts, journals, both legs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw

from hansard import HansardError, Message, OutcomeUnknown, Record, RecordUnavailable, Session

SESSION = "talk"


def log_of(home: Path, session_id: str = SESSION) -> Path:
    """Return the log of a session with an undated id."""
    return home / "sessions" / "other" / f"{session_id}.jsonl"


def log_lines(home: Path, session_id: str = SESSION) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(line) for line in log_of(home, session_id).read_bytes().splitlines()]


async def new_session(record: Record, session_id: str = SESSION) -> Session:
    """Create the session that most tests talk in."""
    return await record.create_session(id=session_id, source="test")


async def say(record: Record, *ids: str, session_id: str = SESSION) -> list[int]:
    """Append one message for each id, one after the other; return the seqs."""
    return [(await record.append(session_id, Message.user(f"text of {id}", id=id))).seq for id in ids]


async def ids_of(record: Record, session_id: str = SESSION) -> list[str]:
    """Return the ids of a transcript."""
    return [message.id for message in await record.load_transcript(session_id)]


async def assert_clean(record: Record) -> None:
    """Both legs agree, chains hold, projections are folds."""
    report = await record.verify()
    assert report.ok, report.findings


async def assert_contiguous(record: Record, session_id: str = SESSION) -> None:
    """The seqs of a session are 1, 2, 3 and so on."""
    seqs: list[int] = []
    while page := await record.sessions.read_entries(session_id, after=seqs[-1] if seqs else 0):
        seqs += [entry.seq for entry in page]
    assert seqs == list(range(1, len(seqs) + 1))


async def retry_append(record: Record, id: str, seconds: float = 120, session_id: str = SESSION) -> int:
    """Append as a careful caller does: the same id again while the outcome is open or the record unavailable."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return (await say(record, id, session_id=session_id))[0]
        except (OutcomeUnknown, RecordUnavailable):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.02)


async def eventually(check: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.005)


async def outcome(call: Awaitable[object]) -> str:
    """Return the name of the error that a call ends with; empty when it succeeds."""
    try:
        await call
    except HansardError as error:
        return type(error).__name__
    return ""


def fingerprint(home: Path) -> dict[str, str]:
    """Return a digest of every file of a home that is not open anywhere, locks aside."""
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(home.rglob("*"))
        if path.is_file() and "locks" not in path.parts
    }


def raw_rows(home: Path, query: str, *bindings: object) -> list[tuple[Any, ...]]:
    """Ask the database directly, by a connection of its own that leaves the WAL alone."""
    connection = apsw.Connection(str(home / "state.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(60_000)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        rows = list(connection.execute(query, bindings))
        assert "(TRUNCATE)" not in query or rows[0][0] == 0, "somebody reads: the WAL was not emptied"
        return rows
    finally:
        connection.close()
