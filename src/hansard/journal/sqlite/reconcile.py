"""Rule 1: the database decides, and a log is brought in line with it before it is touched.

Reads: a journal's row and files. Writes: entries that a log holds and the database lacks; logs; `.tail` files.
Invariants: runs under the write lock, in a transaction of its own. Whole units whose chain continues the database's are
adopted. Torn units are set aside, unless the database was put back. Lines that stand there twice are set aside. A chain
that goes on otherwise stops the session, loudly. Nothing is deleted unread.
On crash: it runs again and comes to the same end.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.limits import MIB, READ_ROWS_MAX
from hansard.errors import LogForked, LogUnwritable, RecordDamaged
from hansard.journal.causes import Cause
from hansard.journal.concepts import Base, Schema
from hansard.journal.entries import (
    MARK_BYTES,
    EntryRow,
    Journal,
    LogLine,
    chain_start,
    decode_line,
    decode_part,
    encode_line,
    encode_part,
    log_continues,
    log_name,
    part_name,
    read_mark,
    row_digest,
    tail_name,
)
from hansard.journal.sqlite.connection import SQL
from hansard.journal.sqlite.group import SqliteGroup, group_of
from hansard.journal.transaction import Transaction, open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hansard.journal.files import LogFiles

logger = logging.getLogger("hansard.record")

PIECE_BYTES = 4 * MIB
"""A log that is longer than the database says by more than this is adopted in pieces of this size, each committed."""

MISPLACED = frozenset({Cause.NOT_PERMITTED, Cause.IS_A_FOLDER, Cause.IS_A_LINK})
"""Why a `.tail` cannot be appended to, when another one can be begun in its place."""


class Constraint(NamedTuple):
    """A unit in a log's tail, and the last entry of it in every journal that shares it."""

    first_seq: int
    unit: dict[str, str]


class LogTail:
    """What a log holds beyond the database, as far as it continues the chain."""

    def __init__(self, schema: Schema, journal_id: str, journal: Journal | None, size: int, *, fits: bool) -> None:
        """`fits`: the log is as the database says up to where it is accounted for. Otherwise all of it is read."""
        self.schema = schema
        self.journal_id = journal_id
        self.journal = journal
        self.size = size
        self.fits = fits
        self.start = journal.log_end if journal is not None and fits else 0
        self.base_seq = self.end_seq = journal.head_seq if journal is not None else 0
        self.digest = journal.head_digest if journal is not None else chain_start(journal_id)
        self.base: Base | None = None
        self.marks = array("Q")
        self.ends = array("Q")
        """Where the lines end that continue the chain."""
        self.constraints: list[Constraint] = []
        self.tx = 0
        self.tx_seq = 0
        """The first entry of the last transaction."""
        self.foreign: LogLine | None = None
        """The first whole line that neither continues the chain nor is known."""
        self.is_patchy = False
        """Whether lines that continue the chain come after others that do not: the log has to be written anew."""
        self.is_piece = False
        """Whether the log goes on after it: nothing is set aside then."""

    @property
    def forked(self) -> bool:
        """Whether the log tells another history than the database. Without one, a line that does not fit is damage."""
        return self.foreign is not None and (self.journal is not None or not self.marks)

    def refuse_fork(self) -> None:
        if self.foreign is not None and self.forked:
            message = (
                f"{log_name(self.journal_id)} tells another history than the database: entry {self.foreign.seq} "
                f"({self.foreign.id}); nothing is written to it until one of them is moved aside"
            )
            raise LogForked(message)

    @property
    def is_sound(self) -> bool:
        """Whether the log is as a crash can leave it: unchanged up to where the database accounts for it."""
        return self.fits and not self.is_patchy and self.foreign is None

    def scan(self, files: LogFiles, is_stored: Callable[[Journal, LogLine], bool]) -> None:
        """Read the lines that continue the chain, and note what the last transaction's units ask for.

        Only the last transaction in a file can be one that a crash cut short: whoever writes looks first.
        """
        expected = self.end_seq + 1
        if self.journal is not None and not self.fits:
            expected = self.journal.base_seq + 1
        is_unbroken = True
        for end, data in files.read_lines(log_name(self.journal_id), self.start, self.size):
            line = decode_line(data)
            if line is None:
                is_unbroken = False
                continue
            if self.journal is None and not self.marks:
                expected = self._begin(line.row())
            is_next = is_unbroken and line.seq == expected
            expected += 1
            if self._continues(row := line.row()):
                self.schema.check_kind(row.kind, row.version, ignorable=row.ignorable)
                self._note(line, row, end)
                self.is_patchy = self.is_patchy or not is_next
            else:
                is_known = self._repeats(line) or (self.journal is not None and is_stored(self.journal, line))
                self.foreign = self.foreign or (None if is_known else line)
                is_unbroken = is_next and is_known

    def _begin(self, row: EntryRow) -> int:
        """Look at the first line of a journal that the database does not know; return which seq it begins with.

        A fork's first line says what it continues.
        """
        body = self.schema.decode_body(row.kind, row.version, row.body, ignorable=row.ignorable)
        kind = self.schema.by_body.get(type(body))
        self.base = None if kind is None or kind.base is None else kind.base(body)
        self.base_seq = self.end_seq = 0 if self.base is None else self.base.seq
        self.digest = chain_start(self.journal_id) if self.base is None else self.base.digest
        return self.end_seq + 1

    def _continues(self, row: EntryRow) -> bool:
        return row.seq == self.end_seq + 1 and row_digest(self.journal_id, self.digest, row) == row.digest

    def _note(self, line: LogLine, row: EntryRow, end: int) -> None:
        self.end_seq = row.seq
        self.digest = row.digest
        if line.tx != self.tx:
            self.tx, self.tx_seq = line.tx, row.seq
            self.constraints.clear()
        self.marks.append(int.from_bytes(row.digest[:MARK_BYTES]))
        self.ends.append(end)
        if line.unit and not (self.constraints and self.constraints[-1].unit == line.unit):
            self.constraints.append(Constraint(row.seq, line.unit))

    def _repeats(self, line: LogLine) -> bool:
        return self.holds(line.seq, line.row().digest[:MARK_BYTES])

    def holds(self, seq: int, mark: bytes) -> bool:
        """Return whether the tail, as far as it is good, has that entry."""
        return self.base_seq < seq <= self.end_seq and self.marks[seq - self.base_seq - 1] == int.from_bytes(mark)

    def cut(self, first_seq: int) -> None:
        """Give up everything from an entry on: its unit is not whole."""
        self.end_seq = first_seq - 1

    @property
    def end(self) -> int:
        """Where the last line ends that is good, and that continues the chain."""
        count = self.end_seq - self.base_seq
        return self.ends[count - 1] if count else self.start


def scan_piece(files: LogFiles, schema: Schema, journal_id: str, journal: Journal | None, size: int) -> LogTail | None:
    """Return the beginning of a tail that is too long for one transaction; None when it is short enough, or patchy.

    It ends where no unit is open: what another transaction's line follows was committed, and a line that names no
    unit is whole by itself.
    """
    start = journal.log_end if journal is not None else 0
    piece_bytes = PIECE_BYTES
    while start + piece_bytes < size:
        tail = LogTail(schema, journal_id, journal, start + piece_bytes, fits=True)
        tail.is_piece = True
        tail.scan(files, lambda _journal, _line: False)
        if not tail.is_sound:
            return None
        if tail.constraints:
            tail.cut(tail.constraints[0].first_seq)
        if tail.end_seq > tail.base_seq:
            return tail
        piece_bytes *= 2
    return None


class Reconciler:
    """Brings the files of one journal, and of those that share units with it, in line with the database."""

    def __init__(self, tx: Transaction, *, is_synced: bool = False) -> None:
        """Work in a transaction of its own. `is_synced`: all logs, as they lie there, are known to be on the disk."""
        self.tx = tx
        self.is_synced = is_synced
        self.level = logging.DEBUG if is_synced else logging.WARNING
        self.group = group_of(tx)
        self.files = self.group.files
        self.tails: dict[str, LogTail] = {}

    def run(self, journal_id: str) -> None:
        """Reconcile a journal: log first, then the open message."""
        self.files.forget(log_name(journal_id))
        self._scan(journal_id)
        self.tails[journal_id].refuse_fork()
        (is_put_back,) = self.tx.row(SQL.is_put_back)
        if not is_put_back:  # else logs may have been put back as well, so that a unit may lack its part there
            self._cut_torn_units()
        for name, tail in self.tails.items():
            if name == journal_id or (tail.end_seq > tail.base_seq and not tail.forked):
                self._adopt_tail(tail)
        for touched in self.tails:
            reconcile_part(self.group, touched)

    def adopt_piece(self, journal_id: str) -> int:
        """Adopt the beginning of a log that is much longer than the database says; return how many bytes it had.

        0: the rest is short enough for `run`, or only `run` can say what it is.
        """
        journal = self._read(journal_id)
        size = self._size(journal_id, required=True)
        if journal is not None and (size <= journal.log_end + PIECE_BYTES or not log_continues(self.files, journal)):
            return 0
        tail = scan_piece(self.files, self.tx.schema, journal_id, journal, size)
        return 0 if tail is None else self._adopt_tail(tail) - tail.start

    def _read(self, journal_id: str) -> Journal | None:
        row = self.tx.row(SQL.read_journal, (journal_id,))
        if row is None:
            return None
        journal = Journal(row)
        journal.log_seen = True  # what it holds beyond the database is adopted here
        return journal

    def _scan(self, journal_id: str) -> None:
        """Scan a tail and those of all journals that its units name."""
        waiting = [journal_id]
        while waiting:
            name = waiting.pop()
            if name in self.tails:
                continue
            journal, size = self._read(name), self._size(name, required=name == journal_id)
            fits = journal is None or self._fits(journal, size)
            tail = self.tails[name] = LogTail(self.tx.schema, name, journal, size, fits=fits)
            tail.scan(self.files, self._is_stored)
            for constraint in tail.constraints:
                waiting.extend(other for other in constraint.unit if other not in self.tails)

    def _fits(self, journal: Journal, size: int) -> bool:
        """Return whether a log is as the database says, up to where it accounts for it."""
        return (
            size >= journal.log_end
            and journal.id not in self.files.suspect
            and log_continues(self.files, journal)
            and (journal.log_synced >= journal.log_end or lines_agree(self.group, journal, journal.log_synced))
        )

    def _is_stored(self, journal: Journal, line: LogLine) -> bool:
        if not journal.base_seq < line.seq <= journal.head_seq:
            return False
        key = journal.entry_key(line.seq)
        return self.tx.rows(SQL.read_full_entries, (key - 1, key, 1)) == [line.row()]

    def _size(self, journal_id: str, *, required: bool) -> int:
        """Return a log's size; another journal's that is no file holds nothing."""
        try:
            look = self.files.stat_file(log_name(journal_id))
        except RecordDamaged:
            if required:
                raise
            return 0
        return look.size if look is not None else 0

    def _cut_torn_units(self) -> None:
        """Cut tails at units that a crash tore, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for tail in self.tails.values():
                for constraint in tail.constraints:
                    if constraint.first_seq > tail.end_seq:
                        break
                    if self._is_torn(constraint.unit):
                        tail.cut(constraint.first_seq)
                        changed = True
                        break

    def _is_torn(self, unit: dict[str, str]) -> bool:
        """Return whether a unit lacks a part because its writer died before COMMIT.

        It did not when a part is in the database or is followed by a later transaction. It did not either when the log
        that lacks a part was changed below what the database accounts for, which no crash does.
        """
        lacking = [self.tails[name] for name, mark in unit.items() if not self._holds(name, mark)]
        return (
            bool(lacking)
            and all(tail.is_sound for tail in lacking)
            and not any(self._is_committed(name, mark) for name, mark in unit.items())
        )

    def _holds(self, journal_id: str, mark: str) -> bool:
        seq, digest = read_mark(mark)
        tail = self.tails[journal_id]
        if tail.journal is not None and seq <= tail.base_seq:
            row = self.tx.row(SQL.read_digest, (tail.journal.entry_key(seq),))
            return row is not None and row[0][:MARK_BYTES] == digest
        return tail.holds(seq, digest)

    def _is_committed(self, journal_id: str, mark: str) -> bool:
        seq, _ = read_mark(mark)
        tail = self.tails[journal_id]
        return self._holds(journal_id, mark) and (seq <= tail.base_seq or seq < tail.tx_seq)

    def _adopt_tail(self, tail: LogTail) -> int:
        """Adopt the good part of a tail, and set aside or write anew what is wrong; return where it ends."""
        journal, end = tail.journal, tail.end
        count = tail.end_seq - tail.base_seq
        if count > 0:
            journal = journal or self._new_journal(tail)
            self._adopt_lines(tail, journal)
            logger.log(self.level, "adopted %d entries of %s from its log", count, tail.journal_id)
            journal.log_end = end
            (touched,) = self.tx.row(SQL.adopting_commit, (tail.tx,))
            self.tx.run(SQL.raise_commits, (touched,))
            self.group.store_head(journal, touched)
            if self.is_synced:
                self.tx.run(SQL.update_log_synced, (end, journal.id))
        is_wrong = tail.is_patchy or tail.journal_id in self.files.suspect or (count == 0 and not tail.fits)
        if journal is not None and is_wrong:
            self._keep_unknown_lines(journal, tail.size)
            rewrite_log(self.group, journal)
        elif end < tail.size and not tail.is_piece:
            set_aside(self.files, tail.journal_id, end, tail.size)
        return end

    def _adopt_lines(self, tail: LogTail, journal: Journal) -> None:
        """Store a tail's good entries."""
        seq = tail.base_seq
        for end, data in self.files.read_lines(log_name(tail.journal_id), tail.start, tail.size):
            if seq < tail.end_seq and end == tail.ends[seq - tail.base_seq]:
                line = decode_line(data)
                if line is None or line.seq != seq + 1:
                    break
                adopt_row(self.tx, journal, line.row())
                seq = line.seq
        if seq != tail.end_seq:
            raise LogForked(f"{log_name(tail.journal_id)} changed under the lock")

    def _new_journal(self, tail: LogTail) -> Journal:
        journal = self.tx.create_journal(tail.journal_id, tail.base)
        journal.log_seen = True
        return journal

    def _keep_unknown_lines(self, journal: Journal, size: int) -> None:
        """Before a log is rewritten, set aside whole lines that the database does not have."""
        for end, data in self.files.read_lines(log_name(journal.id), 0, size):
            line = decode_line(data)
            if line is not None and not self._is_stored(journal, line):
                set_aside(self.files, journal.id, end - len(data), end, cut=False)


def adopt_row(tx: Transaction, journal: Journal, row: EntryRow) -> None:
    body = tx.schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
    tx.insert(journal, row, body)
    kind = tx.schema.by_body.get(type(body))
    if kind is not None and kind.seals is not None:
        tx.run(SQL.delete_chunks, (journal.key,))


def set_aside(files: LogFiles, journal_id: str, start: int, end: int, *, cut: bool = True) -> None:
    """Move what cannot be part of the log into the journal's `.tail`, and keep it there."""
    name = tail_name(journal_id)
    try:
        files.open(name, None)
    except LogUnwritable as error:
        if error.cause not in MISPLACED:
            raise
        files.put_aside(name)  # a folder, a link, or a file of another user: kept as well
    for block in files.read(log_name(journal_id), start, end):
        files.append(name, block, None)
    files.append(name, b"\n", None)
    files.forget(name)
    if cut:
        files.cut(log_name(journal_id), start)
    logger.warning("set aside %d bytes of %s in %s", end - start, journal_id, name)


def stored_rows(group: SqliteGroup, journal: Journal) -> Iterator[EntryRow]:
    """Yield a journal's own entries, in pages that are read to their end before the first is used."""
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    while rows := group.rows(SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        for row in map(EntryRow._make, rows):
            after += 1
            if journal.entry_key(row.seq) != after:
                break
            yield row
        else:
            continue
        break
    if after != last:
        raise RecordDamaged(f"state.db does not hold all entries of {journal.id}; its log is left as it is")


def rewrite_log(group: SqliteGroup, journal: Journal) -> None:
    (touched,) = group.row(SQL.read_touched, (journal.key,))
    lines = (encode_line(row, touched) for row in stored_rows(group, journal))
    size = group.files.replace(log_name(journal.id), lines)
    group.files.suspect.discard(journal.id)
    journal.log_end = journal.log_synced = size
    group.run(SQL.update_journal_log, (size, size, journal.part_end, journal.key))
    logger.warning("rewrote the log of %s from the database (%d bytes)", journal.id, size)


def lines_agree(group: SqliteGroup, journal: Journal, start: int) -> bool:
    """Return whether a log's lines from an offset to its end are the database's last entries."""
    expected = None
    for _, data in group.files.read_lines(log_name(journal.id), start, journal.log_end):
        line = decode_line(data)
        if line is None or (expected is not None and line.seq != expected) or line.seq > journal.head_seq:
            return False
        row = group.row(SQL.read_digest, (journal.entry_key(line.seq),))
        if row is None or row[0].hex() != line.digest:
            return False
        expected = line.seq + 1
    head_seq: int = journal.head_seq
    return expected == head_seq + 1


def reconcile_part(group: SqliteGroup, journal_id: str) -> None:
    """Bring an open message's part file and chunks in line: what the file has beyond the chunks is adopted."""
    row = group.row(SQL.read_journal, (journal_id,))
    if row is None:
        return
    journal = Journal(row)
    name = part_name(journal_id)
    try:
        look = group.files.stat_file(name)
    except RecordDamaged:  # the database has its text
        group.files.put_aside(name)
        look = None
    message_id = open_stream(group, journal_id)
    found = [data for _, data in group.files.read_lines(name, 0, look.size if look is not None else 0)]
    if message_id is None:
        wanted = []
        group.files.remove(name)
    else:
        adopt_chunks(group, journal, message_id, found)
        chunks = group.rows(SQL.read_chunks, (journal.key,))
        wanted = [encode_part(message, start, part, text.decode()) for start, message, part, text in chunks]
        if wanted != found:
            group.files.replace(name, wanted)
    group.run(SQL.update_journal_log, (journal.log_end, journal.log_synced, sum(map(len, wanted)), journal.key))


def adopt_chunks(group: SqliteGroup, journal: Journal, message_id: str, found: list[bytes]) -> None:
    """Store the chunks of the open message that only its part file has."""
    journal.part_seen = True
    for data in found:
        line = decode_part(data)
        if line is None or line.message != message_id or line.start > group.stream_end(journal):
            return
        group.extend(journal, message_id, line.start, line.part, line.text)
