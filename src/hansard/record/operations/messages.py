"""Whole messages: check and clean what a caller offers, and append it once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import apsw

from hansard.domain import entries as e
from hansard.domain.ids import check_entry_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Role, Status, ToolResult, clean_part
from hansard.domain.positions import Position
from hansard.domain.sessions import SessionState
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput
from hansard.record.lineage import inherited_entries
from hansard.record.operations.sessions import check_open
from hansard.record.transaction import encode_body

if TYPE_CHECKING:
    from hansard.record.journals import Found, Journal
    from hansard.record.transaction import Transaction


class Offered(NamedTuple):
    """A message that is ready to be written: cleaned, checked, serialised."""

    id: str
    body: e.MessageAdded
    data: bytes

    @property
    def blobs(self) -> list[str]:
        """The blobs that it refers to."""
        return [part.blob for part in self.body.parts if isinstance(part, File | ToolResult) and part.blob]


def offer(message: Message) -> Offered:
    """Return a message as it can be recorded, or refuse it before anything is written."""
    if not isinstance(message, Message) or message.role not in Role:
        refusal = "append takes a Message: Message.user(…), Message.assistant(…)"
        raise InvalidInput(refusal)
    if message.status == Status.OPEN:
        refusal = "an open message is streamed in a turn: turn.reply()"
        raise InvalidInput(refusal)
    body = e.MessageAdded(
        role=message.role,
        parts=tuple([clean_part(part) for part in message.parts]),
        status=message.status,
        said_at=message.at_microseconds,
        author=clean_name(message.author, "an author", NAME_CHARACTERS_MAX) if message.author else "",
        chat=clean_name(message.chat, "a chat", NAME_CHARACTERS_MAX) if message.chat else "",
        event_id=clean_name(message.event_id, "an event id", NAME_CHARACTERS_MAX) if message.event_id else "",
        observed=message.is_observed,
        imported=message.is_imported,
        unverified=message.is_unverified,
    )
    return Offered(check_entry_id(message.id), body, encode_body(body))


def entry_value(journal_id: str, entry_id: str, found: Found, body: e.Body) -> e.Entry:
    """Return the entry as callers see it."""
    return e.Entry(
        id=entry_id,
        session_id=journal_id,
        seq=found.seq,
        kind=found.kind,
        body=body,
        at_microseconds=found.at,
        position=str(Position(found.seq)),
    )


def append(tx: Transaction, session_id: str, offered: Offered) -> e.Entry:
    """Append a message to an open session; a repeat returns the first."""
    journal, row = tx.session(session_id)
    if row.state == SessionState.OPEN and journal.base_id is None:
        try:
            return add_message(tx, journal, offered)
        except apsw.ConstraintError:  # the id is there already: SQLite undid the insert
            pass
    inherited_entries(tx.row, journal)  # a fork whose past is missing takes no words: nobody can answer them
    found = tx.find_same(journal, offered.id, offered.body, offered.data)
    if found is None:
        check_open(row)
        return add_message(tx, journal, offered)
    return entry_value(journal.id, offered.id, found, e.decode_body(found.kind, found.version, found.body))


def add_message(tx: Transaction, journal: Journal, offered: Offered) -> e.Entry:
    """Add a message that is new."""
    row = tx.add(journal, offered.id, offered.body, offered.data)
    return e.Entry(
        id=offered.id,
        session_id=journal.id,
        seq=row.seq,
        kind=row.kind,
        body=offered.body,
        at_microseconds=row.at,
        position=str(row.seq),
    )
