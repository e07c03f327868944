"""Rebuilding `state.db` from the logs when it is damaged or lacks entries.

`Database.connection` finds out (`opening.check_heads`) and calls `set_damaged_aside`; the new database is empty, so
`Database` reads every log into it as `reconcile` reads one, in pieces. What only the old one held goes into the logs
first.

Reads: entries of the database that is set aside; logs. Writes: logs; names of files that are set aside (`.orphan-…`).
Invariants: only entries whose chain holds are saved. Where both legs go on differently, a person decides.
On crash: it runs again; reading the logs goes on after the last piece that was committed.
"""

from __future__ import annotations

import logging
import os
import secrets
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import apsw

from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import LogForked, RecordDamaged
from hansard.journal.entries import (
    MARK_BYTES,
    SEQ_BITS,
    EntryRow,
    Journal,
    LogLine,
    decode_line,
    encode_line,
    end_line,
    log_name,
    log_size,
    read_log,
    row_digest,
)
from hansard.journal.sqlite.connection import (
    SQL,
    fetch,
    list_journals,
)
from hansard.journal.sqlite.reconcile import set_aside, unknown_stretches
from hansard.journal.sqlite.tails import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from hansard.journal.files import LogFiles
    from hansard.journal.sqlite.opening import DamagedDatabaseError, JournalDifference

logger = logging.getLogger("hansard.record")

JOURNALS_MAX = 1_000
"""Short logs that are read into the database in one transaction."""


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


def set_files_aside(path: Path, *sides: str) -> None:
    """Give files of the database another name, under which they are kept."""
    name = secrets.token_hex(4)
    moved = []
    for side in sides:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{side}", f"{path}{side}.orphan-{name}")
            moved.append(f"state.db{side}")
    if moved:
        logger.warning("set aside %s as .orphan-%s", ", ".join(moved), name)


def set_damaged_aside(path: Path, why: DamagedDatabaseError) -> None:
    """Set a damaged database aside: the one that is opened next is new, and is filled from the logs."""
    logger.error("%s; state.db is set aside and rebuilt from the logs", why)
    set_files_aside(path, "", "-wal", "-shm")


# What only a database holds that is set aside.


def list_heads(connection: apsw.Connection) -> Iterator[tuple[Journal, int]]:
    """Yield every journal, and the commit that last changed it."""
    for row in list_journals(connection):
        touched = fetch(connection, SQL.read_touched, (row[0],))
        yield Journal(row), touched[0][0] if touched else 0


def read_entries(connection: apsw.Connection, journal: Journal) -> Iterator[EntryRow]:
    """Yield a journal's entries. Keys that do not grow are damage, with which paging would never end."""
    after, last = journal.entry_key(journal.base_seq), ((journal.key + 1) << SEQ_BITS) - 1
    while rows := _read_page(connection, journal, after, last, READ_ROWS_MAX):
        yield from map(EntryRow._make, rows)
        after = journal.entry_key(rows[-1][0])


def _read_page(connection: apsw.Connection, journal: Journal, after: int, last: int, count: int) -> list[Any]:
    rows = fetch(connection, SQL.read_full_entries, (after, last, count))
    if rows and journal.entry_key(rows[-1][0]) <= after:
        raise apsw.CorruptError(f"the entries of {journal.id} are not in the order of their keys")
    return rows


def copy_to_logs(connection: apsw.Connection, files: LogFiles) -> None:
    """Write the entries that only this database holds into the logs, so that the rebuilt one has them.

    Only entries whose chain holds count. Where both legs go on differently, nothing is done and a person decides.
    """
    try:
        journals = list(list_heads(connection))
    except apsw.Error as error:
        logger.warning("no entries could be read from the state.db that is set aside: %s", error)
        return
    for journal, touched in journals:
        merge = Merge(connection, files, journal)
        try:
            log_size(files, journal.id)
        except RecordDamaged:
            if next(merge.stored(), None) is not None:
                raise  # what it holds of that session cannot be saved, so it must not be set aside
            continue
        merge.compare()
        if merge.missing:
            files.replace(log_name(journal.id), merge.lines(touched), merge.keep_unknown_lines)
            logger.warning("wrote %d entries of %s from state.db into its log", merge.missing, journal.id)


class Merge:
    """One journal of both legs: at each seq the entry that continues the chain, from whichever leg has it."""

    def __init__(self, connection: apsw.Connection, files: LogFiles, journal: Journal) -> None:
        self._connection = connection
        self._files = files
        self._journal = journal
        self.missing = 0
        """Entries that the log lacks and the database has."""
        self._marks = array("Q")
        """The digests' beginnings of the merged entries."""

    def compare(self) -> None:
        """Count what the log lacks; refuse two histories."""
        for row, data in self._merged():
            self.missing += not data
            self._marks.append(int.from_bytes(row.digest[:MARK_BYTES]))

    def keep_unknown_lines(self) -> None:
        """Set aside what the log holds besides merged entries."""
        name = self._journal.id
        set_aside(self._files, name, unknown_stretches(self._files, name, log_size(self._files, name), self._has))

    def _has(self, line: LogLine) -> bool:
        place = line.seq - self._journal.base_seq - 1
        mark = int.from_bytes(line.row().digest[:MARK_BYTES])
        return 0 <= place < len(self._marks) and bool(self._marks[place] == mark)

    def lines(self, touched: int) -> Iterator[bytes]:
        for row, data in self._merged():
            yield data or encode_line(row, touched)

    def _merged(self) -> Iterator[tuple[EntryRow, bytes]]:
        """Yield each entry, with its line where the log has it."""
        seq, digest = self._journal.base_seq, self._journal.base_digest
        stored, logged = self.stored(), self._logged()
        row = next(stored, None)
        found = next(logged, None)
        while True:
            while row is not None and row.seq <= seq:
                row = next(stored, None)
            while found is not None and (found[0].seq <= seq or self._is_foreign(seq, digest, found[0])):
                found = next(logged, None)
            from_database = row if row is not None and self._continues(seq, digest, row) else None
            from_log = found if found is not None and found[0].seq == seq + 1 else None
            if from_log is not None:
                if from_database is not None and from_database.digest != from_log[0].digest:
                    self._refuse(seq + 1)
                taken, data = from_log
            elif from_database is not None:
                taken, data = from_database, b""
            elif row is not None or seq < self._journal.head_seq:
                self._refuse_gap(seq + 1)
            else:
                return
            yield taken, data
            seq, digest = taken.seq, taken.digest

    def _continues(self, seq: int, digest: bytes, row: EntryRow) -> bool:
        return row.seq == seq + 1 and row_digest(self._journal.id, digest, row) == row.digest

    def _is_foreign(self, seq: int, digest: bytes, row: EntryRow) -> bool:
        return row.seq == seq + 1 and not self._continues(seq, digest, row)

    def stored(self) -> Iterator[EntryRow]:
        """Yield the entries of the database. Those on a page that cannot be read are left out, one by one."""
        after, last = self._journal.entry_key(self._journal.base_seq), ((self._journal.key + 1) << SEQ_BITS) - 1
        count = READ_ROWS_MAX
        while True:
            try:
                rows = _read_page(self._connection, self._journal, after, last, count)
            except apsw.Error as error:
                if count > 1:
                    logger.warning("not all entries of %s can be read from state.db: %s", self._journal.id, error)
                    count = 1
                elif after >= self._journal.entry_key(self._journal.head_seq):
                    return
                else:
                    after += 1
                continue
            if not rows:
                return
            yield from map(EntryRow._make, rows)
            after = self._journal.entry_key(rows[-1][0])
            count = READ_ROWS_MAX

    def _logged(self) -> Iterator[tuple[EntryRow, bytes]]:
        """Yield the lines of the log by their seq, wherever they stand."""
        files, journal_id = self._files, self._journal.id
        seqs, starts, ends = array("Q"), array("Q"), array("Q")
        for end, data, line in read_log(files, journal_id, 0, log_size(files, journal_id)):
            if line is not None:
                seqs.append(line.seq)
                starts.append(end - len(data))
                ends.append(end)
        for number in sorted(range(len(seqs)), key=seqs.__getitem__):
            data = end_line(b"".join(files.read(log_name(journal_id), starts[number], ends[number])))
            if (line := decode_line(data)) is not None:
                yield line.row(), data

    def _refuse_gap(self, seq: int) -> NoReturn:
        message = (
            f"entry {seq} of {self._journal.id} is neither in state.db nor in {log_name(self._journal.id)}, or not "
            f"whole. To go on without it and what follows it, move state.db, state.db-wal and state.db-shm away: the "
            f"database is rebuilt from the logs"
        )
        error = RecordDamaged(message)
        error.hint = "Nothing was changed. Keep the files that you move: what only they hold is not in the logs."
        raise error

    def _refuse(self, seq: int) -> NoReturn:
        message = (
            f"state.db cannot be used as it is, and it and {log_name(self._journal.id)} go on differently from entry "
            f"{seq} of {self._journal.id}. To take the log, move state.db, state.db-wal and state.db-shm away; to take "
            f"the database, move the log away"
        )
        error = LogForked(message)
        error.hint = "Nothing was changed. Keep a copy of the home before you move a file."
        raise error
