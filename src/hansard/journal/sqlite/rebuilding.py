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
from typing import TYPE_CHECKING, Final, NoReturn

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
    read_page,
)
from hansard.journal.sqlite.reconcile import set_aside, unknown_stretches
from hansard.journal.sqlite.tails import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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
    after, last = journal.entry_key(journal.base_seq), ((journal.key + 1) << SEQ_BITS) - 1
    while rows := read_page(connection, journal, after, last):
        yield from map(EntryRow._make, rows)
        after = journal.entry_key(rows[-1][0])


def copy_to_logs(connection: apsw.Connection, files: LogFiles) -> None:
    """Write the entries that only this database holds into the logs, so that the rebuilt one has them.

    Only entries whose chain holds count. Where both legs go on differently, nothing is done and a person decides.
    """
    journals: list[tuple[Journal, int]] = []
    try:
        journals.extend(list_heads(connection))
    except apsw.Error as error:
        logger.warning("not all sessions could be read from the state.db that is set aside: %s", error)
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


LEFT_OUT_MAX: Final = 100_000
"""Entries of one session that cannot be read from a damaged database, one by one; then the rest is left out."""


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

    def keep_unknown_lines(self, replace: Callable[[], None]) -> None:
        """Set aside what the log holds besides merged entries, and replace it."""
        files, name = self._files, self._journal.id
        set_aside(files, name, unknown_stretches(files, name, log_size(files, name), self._has), replace)

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
            elif row is not None or (seq < self._journal.head_seq and digest != self._journal.head_digest):
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
        end = self._journal.entry_key(self._journal.head_seq)
        singly_until = left_out = 0
        while True:
            count = 1 if after < singly_until else READ_ROWS_MAX
            try:
                rows = read_page(self._connection, self._journal, after, last, count)
            except apsw.Error as error:
                if count > 1:
                    logger.warning("not all entries of %s can be read from state.db: %s", self._journal.id, error)
                    singly_until = after + READ_ROWS_MAX
                elif after >= end or left_out >= LEFT_OUT_MAX:
                    return
                else:
                    after, left_out = after + 1, left_out + 1
                continue
            if not rows:
                return
            yield from map(EntryRow._make, rows)
            after = self._journal.entry_key(rows[-1][0])

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
            f"no whole copy of entry {seq} of {self._journal.id} is left, neither in state.db nor in "
            f"{log_name(self._journal.id)}. To go on without it and all that follows it in that session, move "
            f"state.db, state.db-wal and state.db-shm away: the database is rebuilt from the logs"
        )
        error = RecordDamaged(message)
        error.hint = "Both are as they were. Keep the files that you move: what only they hold is not in the logs."
        raise error

    def _refuse(self, seq: int) -> NoReturn:
        message = (
            f"state.db is damaged or does not fit its WAL, and {log_name(self._journal.id)} says something else than "
            f"state.db from entry {seq} of {self._journal.id} on. To take the log, move state.db, state.db-wal and "
            f"state.db-shm away; to take the database, move the log away"
        )
        error = LogForked(message)
        error.hint = "Both are as they were. Make a copy of the home before you move a file."
        raise error
