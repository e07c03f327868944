"""What was found, read from the record with its neighbours.

Reads: state.db, in short pages. Writes: nothing.
Invariants: neighbours are of the same session, a fork's past included; those that were undone or deleted are told on
request only. What was edited has the words that it has now.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.limits import READ_ROWS_MAX
from hansard.domain.messages import Message, Role
from hansard.journal.backend import ReplacedError
from hansard.journal.reading import SEQ_BITS, Stretch, known_lineage
from hansard.journal.reading import SQL as JOURNAL
from hansard.record.messages.entries import MessageAdded, MessageOpened, MessageSealed
from hansard.record.messages.fold import added_message, name_awaited, opened_message
from hansard.record.messages.operations import read_fold
from hansard.record.search.docs import SEARCHES, SEQ_MASK, read_opened, sealed_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hansard.journal.backend import Reads, Snapshots
    from hansard.record.messages.fold import MessageFold

    Row = tuple[int, str, str, int, int, int, bytes]
    FindOpened = Callable[[str], Message | None]

WORD_KINDS = frozenset({"message.added", "message.sealed"})
"""Entries that hold the first words of a message."""

ENTRIES_FOR_ONE = 3
"""Entries that are read at first for each neighbour wanted: a turn has some that hold no words."""


class Loaded(NamedTuple):
    """A message and its neighbours."""

    session_id: str
    seq: int
    message: Message
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    undone_ids: tuple[str, ...]


class Past(NamedTuple):
    """Where a session's entries lie, and what became of its messages after they were said."""

    session_id: str
    stretches: list[Stretch]
    fold: MessageFold


class Near(NamedTuple):
    """A message and the nearest around it, the nearest first; None where those that were read were not enough."""

    seq: int
    message: Message
    before: list[Message] | None
    after: list[Message] | None


class Loader:
    """Reads hits; what it learned of a session serves the next hit there."""

    def __init__(self, readers: Snapshots, database_id: str, context: int, *, undone: bool) -> None:
        self._readers = readers
        self._database_id = database_id
        self._context = context
        self._undone = undone
        self._pasts: dict[int, Past | None] = {}

    def load(self, keys: list[int]) -> list[Loaded | None]:
        """Return messages with their neighbours, None for one that is no longer there."""
        size = max(1, READ_ROWS_MAX // (1 + 2 * ENTRIES_FOR_ONE * self._context))
        found: list[Loaded | None] = []
        for start in range(0, max(1, len(keys)), size):
            found += self._load_some(keys[start : start + size])
        return found

    def _load_some(self, keys: list[int]) -> list[Loaded | None]:
        """Read hits in one snapshot; what lies far from them is read after it, page by page."""

        def read(snapshot: Reads) -> list[Near | None]:
            if snapshot.row(JOURNAL.read_record)[0] != self._database_id:
                raise ReplacedError  # numbers of journals may be others now, too
            return [self._near(snapshot, key) for key in keys]

        return [self._complete(key, near) for key, near in zip(keys, self._readers.read(read), strict=True)]

    def _near(self, snapshot: Reads, key: int) -> Near | None:
        """Return a message and what lies near it, in one look."""
        journal = key >> SEQ_BITS
        if journal not in self._pasts:
            self._pasts[journal] = self._past(snapshot, journal)
        past, around = self._pasts[journal], ENTRIES_FOR_ONE * self._context
        if past is None:
            return None
        own = past.stretches[-1]
        first, last = max(own.after, key - 1 - around), min(own.last, key + around)
        rows: list[Row] = snapshot.rows(JOURNAL.read_entries, (first, last, 2 * around + 1))
        place = key - first - 1
        row = rows[place] if 0 <= place < len(rows) else None
        decode = self._decoder(rows, partial(read_opened, snapshot, journal))
        message = None if row is None or row[0] != key & SEQ_MASK else decode(row)
        if row is None or message is None:
            return None
        more_before = [None] if first > own.after or len(past.stretches) > 1 else []
        more_after = [None] if last < own.last else []
        message = name_awaited(past.fold.last_words(message))
        before = self._nearest(past, chain(filter(None, map(decode, rows[:place][::-1])), more_before))
        after = self._nearest(past, chain(filter(None, map(decode, rows[place + 1 :])), more_after))
        return Near(row[0], message, before, after)

    def _complete(self, key: int, near: Near | None) -> Loaded | None:
        """Read on where what lay near was not enough."""
        past = self._pasts[key >> SEQ_BITS]
        if near is None or past is None:
            return None
        before = self._nearest(past, self._back(past, key)) if near.before is None else near.before
        after = self._nearest(past, self._onward(past, key)) if near.after is None else near.after
        assert before is not None
        assert after is not None
        undone_ids = tuple(each.id for each in (*before[::-1], *after) if past.fold.is_undone(each.id))
        return Loaded(past.session_id, near.seq, near.message, tuple(before[::-1]), tuple(after), undone_ids)

    def _past(self, snapshot: Reads, journal: int) -> Past | None:
        row = snapshot.row(SEARCHES.queries.session_of_journal, (journal,))
        if row is None:
            return None
        session_id, base_id, base_seq, head_seq = row
        start = journal << SEQ_BITS
        own = Stretch(start + base_seq, start + head_seq)
        stretches = [own] if base_id is None or not self._context else known_lineage(snapshot, session_id)
        return Past(session_id, stretches, read_fold(snapshot, stretches))

    def _nearest(self, past: Past, messages: Iterable[Message | None]) -> list[Message] | None:
        """Return the first messages that are told as neighbours; None when more has to be read for it."""
        found: list[Message] = []
        for said in messages if self._context else ():
            if said is None:
                return None
            if said.role == Role.NOTICE:
                continue
            message = name_awaited(past.fold.last_words(said))
            if not self._undone and (message.is_retracted or past.fold.is_undone(message.id)):
                continue
            found.append(message)
            if len(found) == self._context:
                break
        return found

    def _back(self, past: Past, key: int) -> Iterator[Message]:
        """Yield the messages before one, the nearest first, into the past that a fork shares."""
        for stretch in reversed(past.stretches):
            is_own = stretch.last >> SEQ_BITS == key >> SEQ_BITS
            yield from self._pages(JOURNAL.entries_before, key if is_own else stretch.last + 1, stretch.after)

    def _onward(self, past: Past, key: int) -> Iterator[Message]:
        """Yield the messages after one, the nearest first."""
        yield from self._pages(JOURNAL.read_entries, key, past.stretches[-1].last)

    def _pages(self, query: str, key: int, end: int) -> Iterator[Message]:
        """Yield the messages between two keys."""
        journal = key >> SEQ_BITS

        def find_opened(message_id: str) -> Message | None:
            return self._readers.read(lambda snapshot: read_opened(snapshot, journal, message_id))

        while True:
            rows: list[Row] = self._readers.read(lambda snapshot: snapshot.rows(query, (key, end, READ_ROWS_MAX)))  # noqa: B023
            yield from filter(None, map(self._decoder(rows, find_opened), rows))
            if len(rows) < READ_ROWS_MAX:
                return
            key = (journal << SEQ_BITS) + rows[-1][0]

    def _decoder(self, rows: list[Row], find_opened: FindOpened) -> Callable[[Row], Message | None]:
        """Return what gives the message whose first words a row holds. Most replies were opened in one of the rows."""
        decode_body = self._readers.schema.decode_body
        bodies = ((row, decode_body(row[2], row[3], row[6])) for row in rows if row[2] == "message.opened")
        opened = {
            row[1]: opened_message(row[1], row[5], body) for row, body in bodies if isinstance(body, MessageOpened)
        }

        def decode(row: Row) -> Message | None:
            _, entry_id, kind, version, ignorable, at, data = row
            if kind not in WORD_KINDS:
                return None
            body = decode_body(kind, version, data, ignorable=bool(ignorable))
            if isinstance(body, MessageSealed):
                return sealed_reply(opened.get(body.message_id) or find_opened(body.message_id), at, body)
            return added_message(entry_id, at, body) if isinstance(body, MessageAdded) else None

        return decode
