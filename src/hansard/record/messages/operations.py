"""Messages: append one, once; undo and restore; import what was said elsewhere.

Invariants: a message that came by an import is history. It is put into no outbox and answered in no chat, whatever it
says of where it was said. The same again changes nothing. No import changes what was said here.
On crash: a message is there with the changes that came with it, or it is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.ids import check_entry_id, check_session_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Role, Status, ToolResult, clean_part
from hansard.domain.sessions import SessionState
from hansard.domain.text import clean_name
from hansard.domain.turns import TurnState
from hansard.errors import InvalidInput, LeaseHeld, NotFound
from hansard.journal.concepts import Body, encode_body
from hansard.journal.follow import Position
from hansard.journal.reading import inherited_entries
from hansard.record.entries import Entry
from hansard.record.messages.entries import (
    MessageAdded,
    MessageEdited,
    MessageRetracted,
    MessagesRestored,
    MessagesUndone,
)
from hansard.record.sessions import check_open, session_journal
from hansard.record.turns.reading import find_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.journal.calls import Caller
    from hansard.journal.lines import EntryRow
    from hansard.journal.reading import Journal, KnownEntry
    from hansard.journal.transaction import Transaction
    from hansard.record.messages.fold import ChatChange


class Offered(NamedTuple):
    """A message that is ready to be written: cleaned, checked, serialised."""

    id: str
    body: MessageAdded
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
    body = MessageAdded(
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


def entry_value(journal_id: str, entry_id: str, found: KnownEntry, body: Body) -> Entry:
    """Return the entry as callers see it."""
    return Entry(
        id=entry_id,
        session_id=journal_id,
        seq=found.seq,
        kind=found.kind,
        body=body,
        at_microseconds=found.at,
        position=str(Position(found.seq)),
    )


def append(tx: Transaction, session_id: str, offered: Offered) -> Entry:
    """Append a message to an open session; a repeat returns the first."""
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.OPEN and journal.base_id is None:
        added = tx.add_once(journal, offered.id, offered.body, offered.data)
        if added is not None:
            return entry_of(journal, offered, added)
    inherited_entries(tx.row, journal)  # a fork whose past is missing takes no words: nobody can answer them
    found = tx.find_same(journal, offered.id, offered.body, offered.data)
    if found is None:
        check_open(row)
        return add_message(tx, journal, offered)
    return entry_value(journal.id, offered.id, found, tx.decode(found))


def add_message(tx: Transaction, journal: Journal, offered: Offered) -> Entry:
    """Add a message that is new."""
    return entry_of(journal, offered, tx.add(journal, offered.id, offered.body, offered.data))


def entry_of(journal: Journal, offered: Offered, row: EntryRow) -> Entry:
    """Return the entry of a message that was added just now."""
    return Entry(
        id=offered.id,
        session_id=journal.id,
        seq=row.seq,
        kind=row.kind,
        body=offered.body,
        at_microseconds=row.at,
        position=str(row.seq),
    )


class ImportedMessage(NamedTuple):
    """A message with its first words, and what was changed of it; so many of the changes are here already."""

    message: Message
    changes: tuple[ChatChange, ...] = ()
    known: int = 0


class Imports:
    """Takes in what was said elsewhere."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.imports`."""
        self._caller = caller

    async def add_messages(self, session_id: str, said: Sequence[ImportedMessage]) -> None:
        """Record messages, each followed by what was changed of it, in one commit; what is there already stays."""
        checked = check_session_id(session_id)
        offered = [
            (offer(msgspec.structs.replace(each.message, is_imported=True)), clean_changes(each), each.known)
            for each in said
        ]
        await check_blobs(self._caller, *(each for each, _, _ in offered))
        cost = sum(len(each.data) for each, _, _ in offered)

        def operation(tx: Transaction) -> None:
            for each, changes, known in offered:
                take_one(tx, checked, each, changes, known)

        await self._caller.write(operation, cost=cost)


def clean_changes(imported: ImportedMessage) -> tuple[ChatChange, ...]:
    """Return the changes of a message as they can be recorded."""
    return tuple(clean_change(each, imported.message.id) for each in imported.changes)


def clean_change(change: ChatChange, message_id: str) -> ChatChange:
    """Return a change as it can be recorded."""
    event_id = clean_name(change.event_id, "an event id", NAME_CHARACTERS_MAX) if change.event_id else ""
    if isinstance(change, MessageRetracted):
        return MessageRetracted(message_id=message_id, event_id=event_id)
    parts = tuple(clean_part(part) for part in change.parts)
    return MessageEdited(message_id=message_id, parts=parts, event_id=event_id)


def is_imported(tx: Transaction, journal: Journal, message_id: str) -> bool:
    """Return whether a message came by an import."""
    found = tx.find(journal, message_id)
    body = tx.decode(found) if found is not None else None
    return isinstance(body, MessageAdded) and body.imported


def take_one(tx: Transaction, session_id: str, offered: Offered, changes: tuple[ChatChange, ...], known: int) -> None:
    """Record a message and the changes of it that are not here. Each has an id of its own: no retry doubles it."""
    append(tx, session_id, offered)
    journal, _ = session_journal(tx, session_id)
    if changes[known:] and not is_imported(tx, journal, offered.id):
        message = f"message {offered.id} was said here: an import does not change it"
        raise InvalidInput(message)
    for number, change in list(enumerate(changes))[known:]:
        entry_id = f"~imported:{offered.id}:{number}"
        if tx.find(journal, entry_id) is None:
            tx.add(journal, entry_id, change)


async def check_blobs(caller: Caller, *offered: Offered) -> None:
    """Refuse messages that refer to a blob that is not there."""
    for digest in [digest for each in offered for digest in each.blobs]:
        await caller.run(caller.store.blobs.require, digest)


def undo(tx: Transaction, session_id: str, undone: MessagesUndone | MessagesRestored, token: str) -> None:
    """Take messages back, or let them be there again. A running turn builds on them, so it has to end first."""
    if not undone.message_ids:
        return
    journal, _ = session_journal(tx, session_id)
    entry_id = f"~undo:{token}" if isinstance(undone, MessagesUndone) else f"~restore:{token}"
    if tx.find(journal, entry_id) is not None:
        return
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None:
        message = f"turn {running.id} of {running.owner} runs in session {session_id}"
        raise LeaseHeld(message, running.owner)
    for message_id in undone.message_ids:
        if tx.find(journal, message_id) is None:
            message = f"there is no message {message_id} in session {session_id}"
            raise NotFound(message)
    tx.add(journal, entry_id, undone)
