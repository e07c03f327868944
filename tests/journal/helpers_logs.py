"""Logs of many sessions, or of one long one, written at once: what a home holds whose database was lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hansard.domain.messages import Role, Text
from hansard.journal.concepts import Body, encode_body
from hansard.journal.entries import DIGEST_FORMAT, EntryRow, chain_start, encode_line, log_name, row_digest
from hansard.record.messages.entries import MessageAdded
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionCreated

AT = 1_790_000_000_000_000
SALT = bytes(16)


def log_lines(journal_id: str, bodies: Iterator[tuple[str, Body]], first_tx: int = 1) -> Iterator[bytes]:
    """Yield the lines of a journal, each a transaction of its own."""
    digest = chain_start(journal_id)
    for seq, (entry_id, body) in enumerate(bodies, start=1):
        kind = SCHEMA.by_body[type(body)].name
        version = SCHEMA.kinds[kind].version
        data = encode_body(body)
        row = EntryRow(seq, entry_id, kind, version, False, AT + seq, DIGEST_FORMAT, SALT, b"", data)  # noqa: FBT003
        digest = row_digest(journal_id, digest, row)
        yield encode_line(row._replace(digest=digest), first_tx + seq - 1)


def session_bodies(messages: int, text: str) -> Iterator[tuple[str, Body]]:
    """Yield the entries of a session in which a person says something again and again."""
    yield "~created", SessionCreated(source="test", owner="person:admin")
    for number in range(1, messages + 1):
        yield f"m{number}", MessageAdded(role=Role.USER, parts=(Text(text=f"{text}{number}"),))


def write_logs(home: Path, sessions: int, messages: int, text: str = "word ") -> None:
    """Write a home that has logs and no database."""
    (home / log_name("s0")).parent.mkdir(parents=True)
    for number in range(sessions):
        journal_id = f"s{number:06d}"
        path = home / log_name(journal_id)
        with path.open("wb") as file:
            file.writelines(log_lines(journal_id, session_bodies(messages, text), number * (messages + 1) + 1))
