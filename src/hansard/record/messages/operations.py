"""Messages: append one, once; undo and restore; import what was said elsewhere.

Invariants: a message that came by an import is history. It is put into no outbox and answered in no chat, whatever it
says of where it was said. The same again changes nothing. No import changes what was said here.
On crash: a message is there with the changes that came with it, or it is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from hansard.domain.ids import HOME_JOURNAL, check_entry_id, check_session_id, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, READ_ROWS_MAX
from hansard.domain.messages import Message, Part, Role, Status, clean_part
from hansard.domain.sessions import SessionState, TurnState
from hansard.domain.text import clean_name, read_state
from hansard.errors import InvalidInput, NotFound
from hansard.journal.backend import IdTakenError, Reads
from hansard.journal.calls import Caller
from hansard.journal.causes import explain_holding
from hansard.journal.concepts import Body, encode_body
from hansard.journal.entries import EntryRow, Journal, KnownEntry
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import (
    Transaction,
    decode_text,
    find_entry_in,
    inherited_entries,
    known_lineage,
    read_lineage,
    read_page,
)
from hansard.record import Namespace
from hansard.record.messages.entries import (
    ChatChange,
    Entry,
    MessageAdded,
    MessageEdited,
    MessageFold,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    added_message,
    entry_value,
    join_chunks,
    list_blobs,
    opened_message,
    sealed_message,
)
from hansard.record.sessions import check_open, find_session, session_journal
from hansard.record.turns.entries import find_turn


class Offered(NamedTuple):
    """A message that is ready to be written: cleaned, checked, serialised."""

    id: str
    body: MessageAdded
    data: bytes


def offer(message: Message) -> Offered:
    """Return a message as it can be recorded, or refuse it before anything is written."""
    if not isinstance(message, Message):
        raise InvalidInput("append takes a Message: Message.user(…), Message.assistant(…)")
    role, status = read_state(Role, message.role), read_state(Status, message.status)
    if status == Status.OPEN:
        raise InvalidInput("an open message is streamed in a turn: turn.reply()")
    body = MessageAdded(
        role=role,
        parts=tuple([clean_part(part) for part in message.parts]),
        status=status,
        said_at=message.at_microseconds,
        author=clean_name(message.author, "an author", NAME_CHARACTERS_MAX) if message.author else "",
        chat=clean_name(message.chat, "a chat", NAME_CHARACTERS_MAX) if message.chat else "",
        event_id=clean_name(message.event_id, "an event id", NAME_CHARACTERS_MAX) if message.event_id else "",
        observed=message.is_observed,
        imported=message.is_imported,
        unverified=message.is_unverified,
    )
    return Offered(check_entry_id(message.id), body, encode_body(body))


def entry_of(session_id: str, entry_id: str, found: KnownEntry | EntryRow, body: Body) -> Entry:
    return entry_value(session_id, found.seq, entry_id, found.kind, found.at, body)


def append(tx: Transaction, session_id: str, offered: Offered) -> Entry:
    """Append a message to an open session; a repeat returns the first."""
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.OPEN and journal.base_id is None:
        with suppress(IdTakenError):
            return add_message(tx, journal, offered)
    inherited_entries(tx, journal)  # a fork whose past is missing takes no words: nobody can answer them
    found = tx.find_same(journal, offered.id, offered.body, offered.data)
    if found is None:
        check_open(row)
        return add_message(tx, journal, offered)
    return entry_of(journal.id, offered.id, found, tx.decode(found))


def add_message(tx: Transaction, journal: Journal, offered: Offered) -> Entry:
    added = tx.add(journal, offered.id, offered.body, offered.data)
    return entry_of(journal.id, offered.id, added, offered.body)


class ImportedMessage(NamedTuple):
    """A message with its first words, and what was changed of it; so many of the changes are here already."""

    message: Message
    changes: tuple[ChatChange, ...] = ()
    known: int = 0


def clean_change(change: ChatChange, message_id: str) -> ChatChange:
    event_id = clean_name(change.event_id, "an event id", NAME_CHARACTERS_MAX) if change.event_id else ""
    if isinstance(change, MessageRetracted):
        return MessageRetracted(message_id=message_id, event_id=event_id)
    parts = tuple(clean_part(part) for part in change.parts)
    return MessageEdited(message_id=message_id, parts=parts, event_id=event_id)


def take_one(tx: Transaction, session_id: str, offered: Offered, changes: tuple[ChatChange, ...], known: int) -> None:
    """Record a message and the changes of it that are not here. Each has an id of its own: no retry doubles it."""
    append(tx, session_id, offered)
    journal, _ = session_journal(tx, session_id)
    if changes[known:]:
        said = tx.find_body(journal, offered.id, MessageAdded)
        if said is None or not said.imported:
            raise InvalidInput(f"message {offered.id} was said here: an import does not change it")
    for number, change in list(enumerate(changes))[known:]:
        tx.add_once(journal, f"~imported:{offered.id}:{number}", change)


async def check_blobs(caller: Caller, *offered: Offered) -> None:
    for digest in [digest for each in offered for digest in list_blobs(each.body)]:
        await caller.run(caller.store.blobs.require, digest)


def undo(tx: Transaction, session_id: str, undone: MessagesUndone | MessagesRestored, token: str) -> None:
    """Undo messages, or restore them. A running turn builds on them, so it has to end first."""
    if not undone.message_ids:
        return
    journal, _ = session_journal(tx, session_id)
    entry_id = f"~undo:{token}" if isinstance(undone, MessagesUndone) else f"~restore:{token}"
    if tx.find(journal, entry_id) is not None:
        return
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None:
        raise explain_holding(f"turn {running.id} runs in session {session_id}", running.owner)
    for message_id in undone.message_ids:
        if tx.find(journal, message_id) is None:
            raise NotFound(f"there is no message {message_id} in session {session_id}")
    tx.add(journal, entry_id, undone)


def fold_transcript(entries: Iterable[tuple[str, int, Body]], open_parts: tuple[Part, ...] = ()) -> list[Message]:
    """Return the messages of (id, time, body) entries; `open_parts` is what an unsealed message has so far.

    Messages that were undone, and not restored since, are left out. One that was edited has its latest words, and says
    so; one that was retracted is a fixed sentence.
    """
    messages: list[Message] = []
    opened: dict[str, int] = {}
    fold = MessageFold()
    for entry_id, at, body in entries:
        if isinstance(body, MessageAdded):
            messages.append(added_message(entry_id, at, body))
        elif isinstance(body, MessageOpened):
            opened[entry_id] = len(messages)
            messages.append(opened_message(entry_id, at, body, open_parts))
        elif isinstance(body, MessageSealed):
            place = opened.pop(body.message_id)
            messages[place] = sealed_message(messages[place], body)
        else:
            fold.add(body)
    return [fold.now(message) for message in messages if not fold.is_undone(message.id)]


Page = list[tuple[int, str, str, int, int, Body]]


def transcript_page(snapshot: Reads, session_id: str, after: int) -> tuple[Page, tuple[Part, ...]]:
    """Return a page of a transcript; the last page comes with what the open message has, of the same moment."""
    session = find_session(snapshot, session_id)
    rows = read_page(snapshot, session_id, after, READ_ROWS_MAX)
    if len(rows) == READ_ROWS_MAX or session.open_message is None:
        return rows, ()
    return rows, open_parts(snapshot, session.journal, session.open_message)


async def load_transcript(caller: Caller, session_id: str) -> list[Message]:
    found: Page = []
    while True:
        after = found[-1][0] if found else 0
        rows, parts = await caller.read(partial(transcript_page, session_id=session_id, after=after))
        found += rows
        if len(rows) < READ_ROWS_MAX:
            return fold_transcript([(entry_id, at, body) for _, entry_id, _, _, at, body in found], parts)


def read_message(snapshot: Reads, session_id: str, message_id: str) -> Message:
    """Return a message of a session or of the home, a fork's inherited ones included."""
    stretches = known_lineage(snapshot, session_id)
    found = find_entry_in(snapshot, stretches, message_id)
    if found is not None:
        journal, (_, kind, version, at, data) = found
        body = snapshot.schema.decode_body(kind, version, data)
        if isinstance(body, MessageAdded):
            return added_message(message_id, at, body)
        if isinstance(body, MessageOpened):
            # The seal of a message that was open where a fork begins is the fork's own, and says interrupted (rule 19).
            sealed = find_entry_in(snapshot, stretches, f"~seal:{message_id}")
            if sealed is None:
                return opened_message(message_id, at, body, open_parts(snapshot, journal, message_id))
            _, kind, version, _, data = sealed[1]
            seal = snapshot.schema.decode_body(kind, version, data)
            if isinstance(seal, MessageSealed):
                return sealed_message(opened_message(message_id, at, body), seal)
    read_lineage(snapshot, session_id)  # when a part of it is missing, the message may have been there
    raise NotFound(f"there is no message {message_id} in session {session_id}")


def open_parts(snapshot: Reads, journal: int, message_id: str) -> tuple[Part, ...]:
    rows = snapshot.rows(JOURNAL.read_chunks, (journal,))
    return join_chunks((part, decode_text(text)) for _, open_id, part, text in rows if open_id == message_id)


class Messages(Namespace):
    """`record.messages`: what was said, one message at a time or many of elsewhere."""

    async def read(self, session_id: str, message_id: str) -> Message:
        """Return a message as it stands, an open one with its text so far, undone or not."""
        return await self._caller.read(lambda snapshot: read_message(snapshot, session_id, message_id))

    async def undo(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Undo messages: they leave the transcript and the context, and stay in the record."""
        undone, token = MessagesUndone(message_ids=tuple(message_ids)), new_id()
        await self._caller.write(lambda tx: undo(tx, session_id, undone, token))

    async def restore(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Let messages that were undone be there again, each at its old place in transcript and context."""
        restored, token = MessagesRestored(message_ids=tuple(message_ids)), new_id()
        await self._caller.write(lambda tx: undo(tx, session_id, restored, token))

    async def import_messages(self, session_id: str, said: Sequence[ImportedMessage]) -> None:
        """Record messages, each followed by what was changed of it, in one commit; what is there already stays."""
        checked = check_session_id(session_id)
        offered = [offer(msgspec.structs.replace(each.message, is_imported=True)) for each in said]
        changes = [tuple(clean_change(change, each.message.id) for change in each.changes) for each in said]
        await check_blobs(self._caller, *offered)

        def operation(tx: Transaction) -> None:
            for each, message, changed in zip(said, offered, changes, strict=True):
                take_one(tx, checked, message, changed, each.known)

        await self._caller.write(operation, cost=sum(len(each.data) for each in offered))

    async def list_home_notices(self, after: int = 0) -> list[tuple[int, Message]]:
        """Return notices that were told where there was no session, with their numbers: some that come after one.

        Empty when there are no more. The home journal has much else, so some pages of it are passed over.
        """
        while True:
            entries = await self.read_home_entries(after)
            found = [
                (entry.seq, added_message(entry.id, entry.at_microseconds, entry.body))
                for entry in entries
                if isinstance(entry.body, MessageAdded)
            ]
            if found or not entries:
                return found
            after = entries[-1].seq

    async def read_home_entries(self, after: int = 0) -> list[Entry]:
        """Return entries of the home journal after a seq, a page at a time."""
        rows = await self._caller.read(partial(read_page, journal_id=HOME_JOURNAL, after=after, limit=READ_ROWS_MAX))
        return [entry_value("", seq, entry_id, kind, at, body) for seq, entry_id, kind, _, at, body in rows]


class BlobFiles(Namespace):
    """`record.blobs`: attachments, by their digest."""

    async def put(self, data: bytes) -> str:
        return await self._caller.run(self._caller.writable.blobs.put, data)

    async def read(self, digest: str) -> bytes:
        return await self._caller.run(self._caller.store.blobs.get, digest)
