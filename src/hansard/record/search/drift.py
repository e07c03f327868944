"""Whether the search index still says what the record does: a restored copy, for example, does not.

Reads: state.db and search.db, a few entries at a time. Writes: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.journal.databases import fetch
from hansard.journal.reading import SEQ_BITS, Stretch
from hansard.journal.reading import SQL as JOURNAL
from hansard.record.messages.operations import read_fold
from hansard.record.search.docs import SEARCH, SEQ_MASK, Scanner, joined

if TYPE_CHECKING:
    from hansard.domain.messages import Message
    from hansard.journal.backend import Snapshots
    from hansard.journal.databases import Connection

SAMPLE_ENTRIES = 20
"""Entries that are compared at a time."""

SAMPLE_TOKENS = 8
"""Tokens of each field that the index has to have, in a row: others each time, because more would take long."""

COUNT_EVERY = 20
"""Counting takes as long as there are messages; so it is done once in so many times."""


class Sampler:
    """Compares entries with the index, a few at a time, those after the last ones, and then from the beginning."""

    def __init__(self, readers: Snapshots) -> None:
        """Begin at the first entry."""
        self._readers = readers
        self._key = 0
        self._times = 0

    @property
    def is_at_start(self) -> bool:
        """Whether every entry was compared since the beginning."""
        return self._key == 0

    def finds_drift(self, connection: Connection) -> bool:
        """Return whether the index and the next few entries differ."""
        self._times += 1
        if self._times % COUNT_EVERY == 1:
            docs, words = fetch(connection, SEARCH.count_docs)[0]
            if docs != words:
                return True
        after = self._key
        rows = self._readers.read(lambda snapshot: snapshot.rows(JOURNAL.entries_from, (after, SAMPLE_ENTRIES)))
        self._key = rows[-1][0] if len(rows) == SAMPLE_ENTRIES else 0
        last = rows[-1][0] if len(rows) == SAMPLE_ENTRIES else (1 << 63) - 1
        keys = {row[0] for row in rows}
        if any(key not in keys and self._is_absent(key) for (key,) in fetch(connection, SEARCH.keys, (after, last))):
            return True
        return any(self._differs(connection, row) for row in rows)

    def _is_absent(self, key: int) -> bool:
        """Return whether the record has no such entry: it may have come since the others were read."""
        return self._readers.read(lambda snapshot: snapshot.row(JOURNAL.entry_of_key, (key,))) is None

    def _differs(self, connection: Connection, row: tuple[Any, ...]) -> bool:
        """Return whether the index says something else of an entry than the record does."""
        key, entry_id, kind, version, ignorable, at, data = row
        journal, seq = key >> SEQ_BITS, key & SEQ_MASK
        done = fetch(connection, SEARCH.read_done_of, (journal,))
        head = self._readers.read(lambda snapshot: snapshot.row(JOURNAL.head_of_journal, (journal,)))
        if done and head and done[0][0] > head[0]:
            return True
        if not done or seq > done[0][0]:
            return False
        scanner = Scanner(self._readers, journal)
        doc = scanner.take_row((seq, entry_id, kind, version, ignorable, at, data))
        found = fetch(connection, SEARCH.read_doc, (key,))
        if doc is None:
            return bool(found)
        message = doc.message
        if not found or found[0][:4] != (doc.first, message.role, message.at_microseconds, doc.tool):
            return True
        if (bool(found[0][4] & 1), bool(found[0][4] & 2)) != self._marks(journal, done[0][0], message):
            return True
        fields = {"said": joined(doc.said).split(), "tools": joined(doc.tools).split()}
        phrases = [f'{name} : "{" ".join(self._some(parts))}"' for name, parts in fields.items() if parts]
        return not all(fetch(connection, SEARCH.finds_doc, (key, phrase))[0][0] for phrase in phrases)

    def _some(self, parts: list[str]) -> list[str]:
        """Return a few tokens in a row."""
        start = self._times * SAMPLE_TOKENS % len(parts)
        return parts[min(start, max(0, len(parts) - SAMPLE_TOKENS)) :][:SAMPLE_TOKENS]

    def _marks(self, journal: int, upto: int, message: Message) -> tuple[bool, bool]:
        """Return whether a message is undone, and whether it was deleted, as far as the journal is indexed."""
        start = journal << SEQ_BITS
        fold = self._readers.read(lambda snapshot: read_fold(snapshot, [Stretch(start, start + upto)]))
        return fold.is_undone(message.id), fold.now(message).is_retracted
