"""Messages as search sees them, in the record and in the index: the words of each version, and what its fields are.

Reads: state.db, in short pages. Writes: messages in search.db, in the caller's transaction.
Invariants: the pages of a scan are of one history, as their digests prove.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Message, Role, ToolCall, ToolResult
from hansard.domain.search import RULE, fields_of, tokens
from hansard.journal.backend import Reads, ReplacedError, Snapshots
from hansard.journal.concepts import Concept, load_queries
from hansard.journal.entries import SEQ_BITS, SEQ_MASK
from hansard.journal.sqlite.connection import Connection, fetch, immediate
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import find_entry_in, known_lineage
from hansard.record.messages.entries import (
    ChatChange,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    added_message,
    opened_message,
    sealed_message,
)

SEARCHES = Concept("search", "hansard.record.search")
SEARCH = load_queries("hansard.record.search", "index.sql")
"""Tables and queries of search.db."""

CHECKED_TOKENS = 8
"""Tokens of each field, in a row, by which `verify` looks for a message. More would take long."""

UNDONE, DELETED = 1, 2
"""Marks of a message that is found on request only."""


class Doc(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a message as search sees it: the key of the entry that holds its words, and its fields.

    `first` is the key of the entry with the message's first words: versions of one message have it in common.
    """

    key: int
    first: int
    message: Message
    said: str
    tools: str
    tool: str


def read_opened(snapshot: Reads, journal: int, message_id: str) -> Message | None:
    """Return a reply as it was opened: in the journal that seals it or, if a fork cut it off, in the fork's past.

    None when that past is missing.
    """
    row = snapshot.row(JOURNAL.find_entry, (journal, message_id))
    if row is None:
        session_id = snapshot.row(SEARCHES.queries.session_of_journal, (journal,))[0]
        found = find_entry_in(snapshot, known_lineage(snapshot, session_id), message_id)
        row = None if found is None else found[1]
    body = None if row is None else snapshot.schema.decode_body(row[1], row[2], row[4])
    return opened_message(message_id, row[3], body) if isinstance(body, MessageOpened) else None


def sealed_reply(opened: Message | None, at: int, body: MessageSealed) -> Message:
    """Return a sealed reply. Its time is that of its opening, as in transcripts; the seal's where that is missing."""
    unknown = Message(id=body.message_id, role=Role.ASSISTANT, parts=(), at_microseconds=at)
    return sealed_message(opened or unknown, body)


def doc_of(key: int, first: int, message: Message, names: dict[str, str]) -> Doc:
    """Return a version's fields. `names` are the tools of the calls that were seen so far."""
    called: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            names[part.id] = part.name
            called.append(part.name)
        elif isinstance(part, ToolResult):
            called.append(names.get(part.call_id, ""))
    tool = "".join(f"\n{name}\n" for name in dict.fromkeys(called) if name)
    said, tools = fields_of(message.parts)
    return Doc(key=key, first=first, message=message, said=said, tools=tools, tool=tool)


def joined(text: str) -> str:
    return " ".join(tokens(text))


def read_digest(snapshot: Reads, journal: int, seq: int) -> bytes | None:
    row = snapshot.row(JOURNAL.read_digest, ((journal << SEQ_BITS) + seq,))
    return row[0] if row is not None else None


class Scanner:
    """Reads a journal's entries as messages, page by page: for the index, and in its place where there is none."""

    def __init__(self, readers: Snapshots, journal: int) -> None:
        self._readers = readers
        self._journal = journal
        self._names: dict[str, str] = {}
        self._opened: dict[str, Message] = {}
        self.undone: dict[int, bool] = {}
        """Which messages of this journal were undone, or are no longer; the last word counts."""
        self.deleted: set[int] = set()
        self.seq = 0
        self.digest = b""
        """How far the entries were read, and the digest there."""

    def pages(self, after: int, head_seq: int, digest: bytes = b"") -> Iterator[list[Doc]]:
        """Yield the messages of entries after a seq, up to the head. `digest` is that of the last entry before them."""
        self.seq, self.digest = after, digest
        while self.seq < head_seq:
            rows = self._readers.read(lambda snapshot: self._read_page(snapshot, head_seq))
            if not rows:
                return
            yield [doc for row in rows if (doc := self.take_row(row)) is not None]

    def _read_page(self, snapshot: Reads, head_seq: int) -> list[Any]:
        """Read entries, and note how far. ReplacedError: they do not continue the entries that were read before."""
        start = self._journal << SEQ_BITS
        if self.digest and read_digest(snapshot, self._journal, self.seq) != self.digest:
            raise ReplacedError
        rows = snapshot.rows(JOURNAL.read_entries, (start + self.seq, start + head_seq, READ_ROWS_MAX))
        if rows:
            self.seq = rows[-1][0]
            self.digest = snapshot.row(JOURNAL.read_digest, (start + self.seq,))[0]
        return rows

    def take_row(self, row: tuple[Any, ...]) -> Doc | None:
        """Return the version whose words an entry holds; note what it undid, brought back or deleted."""
        seq, entry_id, kind, version, ignorable, at, data = row
        body = self._readers.schema.decode_body(kind, version, data, ignorable=bool(ignorable))
        key = (self._journal << SEQ_BITS) + seq
        if isinstance(body, MessagesUndone | MessagesRestored):
            undone = isinstance(body, MessagesUndone)
            self.undone |= dict.fromkeys(self._keys_of(body.message_ids), undone)
        if isinstance(body, MessageEdited | MessageRetracted):
            return self._take_change(key, body)
        if isinstance(body, MessageOpened):
            self._opened[entry_id] = opened_message(entry_id, at, body)
        if not isinstance(body, MessageAdded | MessageSealed):
            return None
        message = added_message(entry_id, at, body) if isinstance(body, MessageAdded) else self._sealed(at, body)
        self._look_back(message, seq)
        return doc_of(key, key, message, self._names)

    def _sealed(self, at: int, body: MessageSealed) -> Message:
        """Return a reply that was opened among what was read, or before it."""
        opened = self._opened.pop(body.message_id, None)
        if opened is None:
            opened = self._readers.read(lambda snapshot: read_opened(snapshot, self._journal, body.message_id))
        return sealed_reply(opened, at, body)

    def _take_change(self, key: int, body: ChatChange) -> Doc | None:
        """Return the version that an edit makes; note what is changed. Only what was said in a chat can be."""
        row = self._readers.read(lambda snapshot: snapshot.row(JOURNAL.find_entry, (self._journal, body.message_id)))
        if row is None:
            return None
        seq, kind, version, at, data = row
        said = self._readers.schema.decode_body(kind, version, data)
        if not isinstance(said, MessageAdded) or not said.event_id:
            return None
        first = (self._journal << SEQ_BITS) + seq
        if isinstance(body, MessageRetracted):
            self.deleted.add(first)
            return None
        message = msgspec.structs.replace(added_message(body.message_id, at, said), parts=body.parts)
        return doc_of(key, first, message, self._names)

    def _look_back(self, message: Message, seq: int) -> None:
        """Find the names of calls that lie before what was read, however far."""
        unknown = {part.call_id for part in message.parts if isinstance(part, ToolResult)} - set(self._names)
        start = self._journal << SEQ_BITS
        while unknown and seq > 0:
            rows = self._readers.read(
                lambda snapshot: snapshot.rows(JOURNAL.entries_before, (start + seq, start, READ_ROWS_MAX))  # noqa: B023
            )
            for _, _, kind, version, ignorable, _, data in rows:
                body = self._readers.schema.decode_body(kind, version, data, ignorable=bool(ignorable))
                for part in getattr(body, "parts", ()):
                    if isinstance(part, ToolCall):
                        self._names.setdefault(part.id, part.name)
            unknown -= set(self._names)
            seq = rows[-1][0] if rows else 0
        for call_id in unknown:
            self._names[call_id] = ""

    def _keys_of(self, message_ids: tuple[str, ...]) -> list[int]:
        """Return the keys of the entries that hold these messages' words, in this journal."""

        def read_keys(snapshot: Reads) -> list[int]:
            found = []
            for message_id in message_ids:
                for entry_id in (f"~seal:{message_id}", message_id):
                    row = snapshot.row(JOURNAL.find_entry, (self._journal, entry_id))
                    if row is not None:
                        found.append((self._journal << SEQ_BITS) + row[0])
                        break
            return found

        return self._readers.read(read_keys)


def mark_docs(connection: Connection, scanner: Scanner) -> None:
    """Mark the messages that entries undid, brought back or deleted, with all their versions."""
    for first, undone in scanner.undone.items():
        connection.execute(SEARCH.mark_doc, (DELETED, UNDONE if undone else 0, first))
    for first in scanner.deleted:
        connection.execute(SEARCH.mark_doc, (UNDONE, DELETED, first))


def add_docs(connection: Connection, docs: list[Doc]) -> int:
    """Add versions of messages; return how much text that was."""
    size = 0
    for doc in docs:
        message = doc.message
        row = (doc.key, doc.first, message.role, message.at_microseconds, doc.tool)
        ((number,),) = fetch(connection, SEARCH.insert_doc, row)
        connection.execute(SEARCH.insert_words, (number, joined(doc.said), joined(doc.tools)))
        size += len(doc.said) + len(doc.tools)
    return size


def remove_journal(connection: Connection, journal: int) -> None:
    keys = (journal << SEQ_BITS, (journal << SEQ_BITS) | SEQ_MASK)
    connection.execute(SEARCH.remove_words, keys)
    connection.execute(SEARCH.remove_docs, keys)
    connection.execute(SEARCH.remove_done, (journal,))


def finds_doc(index: Reads, doc: Doc) -> bool:
    for name, text in (("said", doc.said), ("tools", doc.tools)):
        parts = tokens(text)
        start = max(0, min(doc.key * CHECKED_TOKENS % (len(parts) or 1), len(parts) - CHECKED_TOKENS))
        phrase = f'{name} : "{" ".join(parts[start : start + CHECKED_TOKENS])}"'
        if parts and not index.row(SEARCH.finds_doc, (doc.key, phrase))[0]:
            return False
    return True


def clear(connection: Connection, database_id: str) -> None:
    with immediate(connection):
        for query in (SEARCH.clear_state, SEARCH.clear_done, SEARCH.clear_docs, SEARCH.clear_words):
            connection.execute(query)
        connection.execute(SEARCH.insert_state, (database_id, RULE, secrets.token_hex(8)))
