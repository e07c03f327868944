"""Work of an opening that can take long: folding the entries into the projections anew.

Reads: every entry. Writes: every projection.
Invariants: the fold is the one that commits, adoption and `verify` run (`projections.project`).
On crash: the caller's transaction is rolled back, and the next opening begins again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import apsw
import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.record.journals import Journal
from hansard.record.lines import Row
from hansard.record.projections import Place, count_messages, project
from hansard.record.sqlite.connection import fetch
from hansard.record.sqlite.queries import SQL
from hansard.record.transaction import read_body

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("hansard.record")


def refold(connection: apsw.Connection) -> None:
    """Empty every projection and fold all entries into them again, in the caller's transaction.

    Messages that wait to be shown keep their numbers: these give the messages of several sessions their order.
    """
    order = fetch(connection, SQL.outbox_order)
    fetch(connection, SQL.clear_projections)
    for row in _list_journals(connection):
        _refold_journal(connection, Journal(row))
    for place in order:
        fetch(connection, SQL.restore_outbox_number, place)


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[object, ...]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        yield from rows
        after = rows[-1][0]


def _refold_journal(connection: apsw.Connection, journal: Journal) -> None:
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
    fetch(connection, SQL.update_journal_fold, (messages, active_at, journal.key))
