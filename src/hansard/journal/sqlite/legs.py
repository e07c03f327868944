"""The two legs compared when a database is opened: whether they are of one home, and whether entries are missing.

Reads: `state.db`, the logs. Writes: logs, with entries that only a database holds that is about to be set aside.
Invariants: a database of another home is refused before anything is written; no entry that either leg holds is lost.
On crash: it runs again and comes to the same end.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, NoReturn

import apsw

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import LegsMixed, LogForked, RecordDamaged
from hansard.journal.lines import EntryRow, decode_line, encode_line, log_name, row_digest, tail_name
from hansard.journal.reading import SEQ_BITS, Journal
from hansard.journal.sqlite.connection import SQL, fetch, open_alone
from hansard.journal.sqlite.reconcile import set_aside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hansard.journal.files import LogFiles
    from hansard.journal.lines import LogLine

logger = logging.getLogger("hansard.record")

SAMPLES_MAX = 20
"""Sessions whose logs are compared with the database when the home journals of both differ or one is missing."""

TAIL_ENTRIES_MAX = 200
"""Last entries of a journal that are counted at each opening. `verify` counts all of them."""


class EntriesMissingError(Exception):
    """A head of the database names entries that it does not hold, or its pages are damaged: rebuild it."""


def check_heads(connection: apsw.Connection, *, every: bool) -> None:
    """Compare the heads of journals with their entries: of those that changed since they were last compared, or all.

    All of them are compared, with the chain of all their entries and every page, when the files did not fit together.
    """
    if every:
        for (problem,) in fetch(connection, SQL.integrity_check):
            if problem != "ok":
                raise EntriesMissingError(f"state.db is damaged: {problem}")
        for journal, _ in _list_journals(connection):
            _check_chain(connection, journal)
    depth = 1 << SEQ_BITS if every else TAIL_ENTRIES_MAX
    for journal_id, head_seq in fetch(connection, SQL.wrong_heads, (depth, int(every))):
        message = f"state.db says that {journal_id} has {head_seq} entries, and does not hold all of them"
        raise EntriesMissingError(message)


def _check_chain(connection: apsw.Connection, journal: Journal) -> None:
    """Compare each entry with its digest. SQLite reads a page that was torn as one that ends in zeros."""
    digest = journal.base_digest
    for row in _read_entries(connection, journal):
        if row_digest(journal.id, digest, row) != row.digest:
            raise EntriesMissingError(f"state.db is damaged: entry {row.seq} of {journal.id} does not have its digest")
        digest = row.digest


def _read_entries(connection: apsw.Connection, journal: Journal) -> Iterator[EntryRow]:
    """Yield the entries that the database has of a journal."""
    after, last = journal.entry_key(journal.base_seq), ((journal.key + 1) << SEQ_BITS) - 1
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        yield from map(EntryRow._make, rows)
        after = journal.entry_key(rows[-1][0])


def is_whole_alone(path: Path) -> bool:
    """Return whether a database is whole without its WAL."""
    try:
        with open_alone(path) as connection:
            check_heads(connection, every=True)
    except (EntriesMissingError, apsw.Error):
        return False
    return True


def check_legs(connection: apsw.Connection, files: LogFiles) -> None:
    """Refuse a database of another home than the logs: their entries must never be mixed.

    The first entry of a home is unlike that of any other home. Where the home journal is missing from one leg, or tells
    another history, the sessions that both legs know decide.
    """
    home = _agree(connection, files, HOME_JOURNAL)
    if home:
        return
    samples = (_agree(connection, files, row[1]) for row in fetch(connection, SQL.list_journals, (0, READ_ROWS_MAX)))
    found = set(islice((agrees for agrees in samples if agrees is not None), SAMPLES_MAX))
    if True in found or (home is None and not found):
        return
    message = (
        f"state.db and the logs (home.jsonl, sessions/) in {files.home} belong to two different homes. To keep "
        f"the logs, move state.db, state.db-wal and state.db-shm away: the database is rebuilt. To keep the database, "
        f"move home.jsonl and sessions/ away: the logs are written anew"
    )
    raise LegsMixed(message)


def _agree(connection: apsw.Connection, files: LogFiles, journal_id: str) -> bool | None:
    """Return whether both legs have the same first entry in a journal; None when one of them has none."""
    row = fetch(connection, SQL.read_journal, (journal_id,))
    if not row:
        return None
    journal = Journal(row[0])
    stored = fetch(connection, SQL.read_digest, (journal.entry_key(journal.base_seq + 1),))
    try:
        _, data = next(files.read_lines(log_name(journal_id), 0, log_size(files, journal_id)), (0, b""))
    except RecordDamaged:
        return None
    line = decode_line(data)
    if line is None or not stored:
        return None
    return bool(stored[0][0].hex() == line.digest)


def log_size(files: LogFiles, journal_id: str) -> int:
    """Return the size of a journal's log; 0 when it has none."""
    look = files.stat_file(log_name(journal_id))
    return look.size if look is not None else 0


# What only a database holds that is set aside.


def copy_to_logs(connection: apsw.Connection, files: LogFiles) -> None:
    """Write the entries that only this database holds into the logs, so that the rebuilt one has them.

    Only entries whose chain holds count. Where both legs go on differently, nothing is done and a person decides.
    """
    try:
        journals = list(_list_journals(connection))
    except apsw.Error as error:
        logger.warning("no entries could be read from the state.db that is set aside: %s", error)
        return
    for journal, touched in journals:
        merge = Merge(connection, files, journal)
        try:
            log_size(files, journal.id)
        except RecordDamaged as error:
            logger.warning("the log of %s cannot be read: %s", journal.id, error)
            continue
        merge.compare()
        if merge.missing:
            if merge.taken_bytes < log_size(files, journal.id):
                set_aside(files, journal.id, 0, log_size(files, journal.id), cut=False)
            files.replace(log_name(journal.id), merge.lines(touched))
            logger.warning("wrote %d entries of %s from state.db into its log", merge.missing, journal.id)


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[Journal, int]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        after = rows[-1][0]
        for row in rows:
            ((touched,),) = fetch(connection, SQL.read_touched, (row[0],))
            yield Journal(row), touched


class Merge:
    """One journal of both legs: at each seq the entry that continues the chain, from whichever leg has it."""

    def __init__(self, connection: apsw.Connection, files: LogFiles, journal: Journal) -> None:
        """Nothing is read yet."""
        self._connection = connection
        self._files = files
        self._journal = journal
        self.missing = 0
        """Entries that the log lacks and the database has."""
        self.taken_bytes = 0
        """Bytes of the log that are lines of the merged journal."""

    def compare(self) -> None:
        """Count what the log lacks; refuse two histories."""
        for _, data in self._merged():
            self.missing += not data
            self.taken_bytes += len(data)

    def lines(self, touched: int) -> Iterator[bytes]:
        """Yield the lines of the whole log."""
        for row, data in self._merged():
            yield data or encode_line(row, touched)

    def _merged(self) -> Iterator[tuple[EntryRow, bytes]]:
        """Yield each entry, with its line where the log has it."""
        seq, digest = self._journal.base_seq, self._journal.base_digest
        stored, logged = self._stored(), self._logged()
        row = next(stored, None)
        found = next(logged, None)
        while True:
            while row is not None and row.seq <= seq:
                row = next(stored, None)
            while found is not None and found[0].seq <= seq:
                found = next(logged, None)
            from_database = row if row is not None and self._continues(seq, digest, row) else None
            from_log = found if found is not None and self._continues(seq, digest, found[0]) else None
            if from_log is not None:
                if from_database is not None and from_database.digest != from_log[0].digest:
                    self._refuse(seq + 1)
                taken, data = from_log
            elif from_database is not None:
                taken, data = from_database, b""
            elif row is not None:
                self._refuse_gap(seq + 1)
            else:
                return
            yield taken, data
            seq, digest = taken.seq, taken.digest

    def _continues(self, seq: int, digest: bytes, row: EntryRow) -> bool:
        return row.seq == seq + 1 and row_digest(self._journal.id, digest, row) == row.digest

    def _stored(self) -> Iterator[EntryRow]:
        try:
            yield from _read_entries(self._connection, self._journal)
        except apsw.Error as error:
            logger.warning("not all entries of %s can be read from state.db: %s", self._journal.id, error)

    def _logged(self) -> Iterator[tuple[EntryRow, bytes]]:
        name = log_name(self._journal.id)
        for _, data in self._files.read_lines(name, 0, log_size(self._files, self._journal.id)):
            line: LogLine | None = decode_line(data)
            if line is not None:
                yield line.row(), data

    def _refuse_gap(self, seq: int) -> NoReturn:
        message = (
            f"entry {seq} of {self._journal.id} is neither in state.db nor in {log_name(self._journal.id)}, and later "
            f"ones are. To go on without them, move state.db, state.db-wal and state.db-shm away: the database is "
            f"rebuilt from the logs, and the later ones stay in the file {tail_name(self._journal.id)}"
        )
        raise RecordDamaged(message)

    def _refuse(self, seq: int) -> NoReturn:
        message = (
            f"state.db and {log_name(self._journal.id)} go on differently from entry {seq} of {self._journal.id}, and "
            f"state.db does not fit its WAL. To take the log, move state.db, state.db-wal and state.db-shm away; to "
            f"take the database, move the log away"
        )
        raise LogForked(message)
