"""Messages as search sees them: which entry holds the words of each, and what its fields are.

Reads: state.db, in short pages. Writes: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.domain import entries as e
from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Message, Role, ToolCall, ToolResult
from hansard.domain.search import fields_of, tokens
from hansard.record.journals import SEQ_BITS
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard.record.reading import Readers, Snapshot

SEQ_MASK = (1 << SEQ_BITS) - 1


class Doc(NamedTuple):
    """A message as search sees it: the key of the entry that holds its words, and its fields."""

    key: int
    message: Message
    said: str
    tools: str
    tool: str


def message_of(entry_id: str, at: int, body: e.Body) -> Message | None:
    """Return the message whose words an entry holds, or None."""
    if isinstance(body, e.MessageAdded):
        return Message(
            id=entry_id,
            role=body.role,
            parts=body.parts,
            status=body.status,
            at_microseconds=body.said_at or at,
            author=body.author,
        )
    if isinstance(body, e.MessageSealed):
        return Message(
            id=body.message_id, role=Role.ASSISTANT, parts=body.parts, status=body.status, at_microseconds=at
        )
    return None


def doc_of(key: int, message: Message, names: dict[str, str]) -> Doc:
    """Return a message's fields. `names` are the tools of the calls that were seen so far."""
    called: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            names[part.id] = part.name
            called.append(part.name)
        elif isinstance(part, ToolResult):
            called.append(names.get(part.call_id, ""))
    tool = "".join(f"\n{name}\n" for name in dict.fromkeys(called) if name)
    return Doc(key, message, *fields_of(message.parts), tool)


def joined(text: str) -> str:
    """Return a text's tokens as the index takes them: it separates at spaces and leaves the rest as it is."""
    return " ".join(tokens(text))


class Change(NamedTuple):
    """Messages that were undone, or are so no longer."""

    message_ids: tuple[str, ...]
    undone: bool


def undoing(body: e.Body) -> Change | None:
    """Return what an entry changes about messages before it, or None."""
    if isinstance(body, e.MessagesUndone | e.MessagesRestored):
        return Change(body.message_ids, isinstance(body, e.MessagesUndone))
    return None


class Scanner:
    """Reads a journal's entries as messages, page by page: for the index, and for what is not in it yet."""

    def __init__(self, readers: Readers, journal: int) -> None:
        """Nothing is read yet."""
        self._readers = readers
        self._journal = journal
        self._names: dict[str, str] = {}
        self.changes: dict[int, bool] = {}
        """Which messages of this journal were undone, or are no longer; the last word counts."""
        self.seq = 0

    def pages(self, after: int, head_seq: int) -> Iterator[list[Doc]]:
        """Yield the messages of entries after a seq, up to the head; `seq` says how far that was."""
        self.seq = after
        while self.seq < head_seq:
            start = (self._journal << SEQ_BITS) + self.seq
            last = (self._journal << SEQ_BITS) + head_seq
            rows = self._readers.read(lambda snapshot: snapshot.rows(SQL.read_entries, (start, last, READ_ROWS_MAX)))  # noqa: B023
            if not rows:
                return
            docs = [doc for row in rows if (doc := self.take(row)) is not None]
            self.seq = rows[-1][0]
            yield docs

    def one(self, key: int) -> list[Doc]:
        """Return the message whose words one entry holds, if it does."""
        row = self._readers.read(lambda snapshot: snapshot.row(SQL.entry_of_key, (key,)))
        doc = self.take(row) if row is not None else None
        return [] if doc is None else [doc]

    def take(self, row: tuple[Any, ...]) -> Doc | None:
        """Return the message whose words an entry holds; note what it undid, or brought back."""
        seq, entry_id, kind, version, ignorable, at, data = row
        body = e.decode_body(kind, version, data, ignorable=bool(ignorable))
        change = undoing(body)
        if change is not None:
            self.changes |= dict.fromkeys(self._keys_of(change.message_ids), change.undone)
        message = message_of(entry_id, at, body)
        if message is None:
            return None
        self._look_back(message, seq)
        return doc_of((self._journal << SEQ_BITS) + seq, message, self._names)

    def _look_back(self, message: Message, seq: int) -> None:
        """Find the names of calls that lie before what was read, however far."""
        unknown = {part.call_id for part in message.parts if isinstance(part, ToolResult)} - set(self._names)
        start = self._journal << SEQ_BITS
        while unknown and seq > 0:
            rows = self._readers.read(
                lambda snapshot: snapshot.rows(SQL.entries_before, (start + seq, start, READ_ROWS_MAX))  # noqa: B023
            )
            for _, _, kind, version, ignorable, _, data in rows:
                body = e.decode_body(kind, version, data, ignorable=bool(ignorable))
                for part in getattr(body, "parts", ()):
                    if isinstance(part, ToolCall):
                        self._names.setdefault(part.id, part.name)
            unknown -= set(self._names)
            seq = rows[-1][0] if rows else 0
        for call_id in unknown:
            self._names[call_id] = ""

    def _keys_of(self, message_ids: tuple[str, ...]) -> list[int]:
        """Return the keys of the entries that hold these messages' words, in this journal."""

        def look(snapshot: Snapshot) -> list[int]:
            found = []
            for message_id in message_ids:
                for entry_id in (f"~seal:{message_id}", message_id):
                    row = snapshot.row(SQL.find_entry, (self._journal, entry_id))
                    if row is not None:
                        found.append((self._journal << SEQ_BITS) + row[0])
                        break
            return found

        return self._readers.read(look)
