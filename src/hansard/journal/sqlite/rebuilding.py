"""Work of an opening that can take long: reading logs into the database, and folding entries into the projections.

Reads: every entry; logs. Writes: every projection; what `reconcile` writes.
Invariants: the fold is the one that commits, adoption and `verify` run (`Schema.project`). Logs are read in
pieces, each committed. On crash: a migration is rolled back; reading the logs goes on after the last piece.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.journal.concepts import EntryPlace
from hansard.journal.lines import EntryRow
from hansard.journal.progress import MIGRATING
from hansard.journal.reading import Journal
from hansard.journal.sqlite.connection import SQL, fetch
from hansard.journal.sqlite.reading import Snapshot
from hansard.journal.sqlite.reconcile import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hansard.journal.concepts import Schema, Table
    from hansard.journal.progress import Work

logger = logging.getLogger("hansard.record")

JOURNALS_MAX = 1_000
"""Short logs that are read into the database in one transaction."""


class JournalDifference(NamedTuple):
    """A journal whose files are not as the database says."""

    journal_id: str
    size_bytes: int
    """By how much its log differs."""


def group_differences(differences: Iterable[JournalDifference]) -> Iterator[list[JournalDifference]]:
    """Put logs together, up to what one transaction may hold. Of a long log only the last piece is left by then."""
    group: list[JournalDifference] = []
    size_bytes = 0
    for difference in differences:
        if group and (size_bytes > PIECE_BYTES or len(group) == JOURNALS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(difference)
        size_bytes += min(difference.size_bytes, PIECE_BYTES)
    if group:
        yield group


def refold(connection: apsw.Connection, schema: Schema, work: Work) -> None:
    """Empty every projection and fold all entries into them again, in the caller's transaction."""
    ((journals, entries),) = fetch(connection, SQL.count_entries)
    work.begin(MIGRATING, journals, entries)
    reads = Snapshot(connection, schema)
    with ExitStack() as stack:
        for concept in schema.concepts:
            if concept.refold is not None:
                stack.enter_context(concept.refold(reads, connection.cursor().execute))
        for table in schema.tables:
            connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names
        for row in _list_journals(connection):
            _refold_journal(connection, schema, Journal(row), work)
            work.advance(sessions=1)


class Fold:
    """An empty database of the same schema, to fold one journal's entries into."""

    def __init__(self, schema: Schema) -> None:
        """Create the tables."""
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(SQL.tables + schema.create_tables())
        self.run = self._connection.cursor().execute

    def begin(self) -> None:
        """Start with empty tables."""
        if self._connection.in_transaction:
            self.run(SQL.rollback)
        self.run(SQL.begin)

    def dump(self, query: str, bindings: tuple[Any, ...]) -> list[Any]:
        """Return a table's rows."""
        return self.run(query, bindings).fetchall()


def dump_query(table: Table) -> str:
    """Return the query that gives the rows of a table that a journal's entries must give."""
    where = "" if table.of_home else " WHERE journal = ?1"
    return f"SELECT {table.columns} FROM {table.name}{where} ORDER BY {table.order}"  # noqa: S608 - our own names


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[object, ...]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        yield from rows
        after = rows[-1][0]


def _refold_journal(connection: apsw.Connection, schema: Schema, journal: Journal, work: Work) -> None:
    run = connection.cursor().execute
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    messages = active_at = 0
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        for row in map(EntryRow._make, rows):
            try:
                body = schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
                schema.project(EntryPlace(run, journal, row.seq, row.id, row.at), body)
            except (msgspec.MsgspecError, apsw.ConstraintError) as error:
                logger.error("entry %d of %s cannot be read: %s", row.seq, journal.id, error)  # noqa: TRY400
                continue
            messages += schema.count(body)
            active_at = row.at
        after = journal.entry_key(rows[-1][0])
        work.advance(done=len(rows))
    fetch(connection, SQL.update_journal_fold, (messages, active_at, journal.key))
