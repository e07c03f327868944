"""Work of an opening that can take long: reading logs into the database, and folding entries into the projections.

Reads: every entry; logs. Writes: every projection; what `reconcile` writes.
Invariants: the fold is the one that commits, adoption and `verify` run (`projections.project`). Logs are read in
pieces, each committed. On crash: a migration is rolled back; reading the logs goes on after the last piece.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

import apsw
import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.record.journals import Journal
from hansard.record.lines import Row
from hansard.record.progress import MIGRATING
from hansard.record.projections import Place, count_messages, project
from hansard.record.reconcile import PIECE_BYTES
from hansard.record.sqlite.connection import fetch
from hansard.record.sqlite.queries import SQL
from hansard.record.transaction import read_body

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hansard.record.progress import Work

logger = logging.getLogger("hansard.record")

JOURNALS_MAX = 1_000
"""Short logs that are read into the database in one transaction."""


class Difference(NamedTuple):
    """A journal whose files are not as the database says."""

    journal_id: str
    size_bytes: int
    """By how much its log differs."""


def group_differences(differences: Iterable[Difference]) -> Iterator[list[Difference]]:
    """Put logs together, up to what one transaction may hold. Of a long log only the last piece is left by then."""
    group: list[Difference] = []
    size_bytes = 0
    for difference in differences:
        if group and (size_bytes > PIECE_BYTES or len(group) == JOURNALS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(difference)
        size_bytes += min(difference.size_bytes, PIECE_BYTES)
    if group:
        yield group


def refold(connection: apsw.Connection, work: Work) -> None:
    """Empty every projection and fold all entries into them again, in the caller's transaction.

    Messages that wait to be shown keep their numbers: these give the messages of several sessions their order.
    """
    ((journals, entries),) = fetch(connection, SQL.count_entries)
    work.begin(MIGRATING, journals, entries)
    order = fetch(connection, SQL.outbox_order)
    fetch(connection, SQL.clear_projections)
    for row in _list_journals(connection):
        _refold_journal(connection, Journal(row), work)
        work.advance(sessions=1)
    for place in order:
        fetch(connection, SQL.restore_outbox_number, place)


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[object, ...]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        yield from rows
        after = rows[-1][0]


def _refold_journal(connection: apsw.Connection, journal: Journal, work: Work) -> None:
    run = connection.cursor().execute
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    messages = active_at = 0
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        for row in map(Row._make, rows):
            try:
                body = read_body(row)
                project(run, Place(journal.key, journal.id, row.seq, row.id, row.at), body)
            except (msgspec.MsgspecError, apsw.ConstraintError) as error:
                logger.error("entry %d of %s cannot be read: %s", row.seq, journal.id, error)  # noqa: TRY400
                continue
            messages += count_messages(body)
            active_at = row.at
        after = journal.entry_key(rows[-1][0])
        work.advance(done=len(rows))
    fetch(connection, SQL.update_journal_fold, (messages, active_at, journal.key))
