"""The tail of a log: what it holds beyond the database.

Reads: a log, from where the database accounts for it, or all of it. Writes: nothing: `reconcile` does.
Invariants: only lines whose digests continue the chain of the database are good, wherever they stand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, NamedTuple

from hansard.domain.limits import MIB
from hansard.errors import LogForked, RecordTooNew
from hansard.journal.backend import UnreadableError
from hansard.journal.concepts import Base, Schema, UnknownBody
from hansard.journal.entries import (
    MARK_BYTES,
    EntryRow,
    Journal,
    LogLine,
    chain_start,
    log_name,
    read_log,
    row_digest,
)
from hansard.journal.files import LogFiles

ReadStored = Callable[[Journal, int], "EntryRow | None"]

PIECE_BYTES = 4 * MIB
"""A log that is longer than the database says by more than this is adopted in pieces of this size, each committed."""

UNREAD: Final = -1
"""`log_synced` of a log that could not be read at the last opening (`doubt_unread_log`)."""

DOUBTED: Final = -2
"""`log_synced` of a log that is to be written anew, or that tells another history (`doubt_log`)."""

PASSES_MAX: Final = 10
"""How often a log is read for lines that stand before the one that they follow."""


class Constraint(NamedTuple):
    """A unit in a log's tail, and the last entry of it in every journal that shares it."""

    first_seq: int
    unit: dict[str, str]


class LogTail:
    """What a log holds beyond the database, as far as it continues the chain."""

    def __init__(
        self,
        schema: Schema,
        journal_id: str,
        journal: Journal | None,
        size: int,
        *,
        fits: bool,
        is_kept: bool = True,
    ) -> None:
        """`fits`: the log is as the database says, up to where it is accounted for. Otherwise all of it is read.

        `is_kept`: the log can be read, and is unchanged as far as it was known to be on the disk.
        """
        self.schema = schema
        self.journal_id = journal_id
        self.journal = journal
        self.size = size
        self.fits = fits
        self.is_kept = is_kept
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
        """The first whole line that stands for another entry than the chain has or continues with."""
        self.is_patchy = False
        """Whether something else stands between the lines that continue the chain: the log has to be written anew."""

    @property
    def forked(self) -> bool:
        """Whether the log tells another history than the database. Without one, a line that does not fit is damage."""
        return self.foreign is not None and (self.journal is not None or not self.marks)

    def refuse_fork(self) -> None:
        if self.foreign is None or not self.forked:
            return
        name, entry = log_name(self.journal_id), f"entry {self.foreign.seq} ({self.foreign.id})"
        if self.journal is None:
            error = LogForked(f"{name} begins with {entry}, which cannot be its first line; state.db does not know it")
            error.hint = (
                "The file is left as it is. Put back an older copy of it, or of state.db, to have its session back."
            )
            raise error
        message = f"{name} tells another history than the database: {entry}; "
        raise LogForked(f"{message}nothing is written to it until it is moved away")

    @property
    def is_sound(self) -> bool:
        """Whether the log is as a crash can leave it."""
        return self.is_kept and not self.is_patchy and self.foreign is None

    @property
    def was_unread(self) -> bool:
        """Whether the log could not be read at the last opening: it may hold more than a crash can leave."""
        return self.journal is not None and self.journal.log_synced == UNREAD

    def scan(self, files: LogFiles, read_stored: ReadStored = lambda _journal, _seq: None) -> None:
        """Read the lines that continue the chain, and note what the last transaction's units ask for.

        `read_stored` gives entries of the database. Only the last transaction in a file can be one that a crash cut
        short: whoever writes looks first.
        """
        for number in range(PASSES_MAX):
            before = self.end_seq
            is_disordered = self._scan_once(files, read_stored, is_unbroken=number == 0)
            if not is_disordered or self.end_seq == before:
                break

    def _scan_once(self, files: LogFiles, read_stored: ReadStored, *, is_unbroken: bool) -> bool:
        """Read the log once; return whether a line stands before the one that it may follow."""
        is_disordered = False
        previous: LogLine | None = None
        expected = self.end_seq + 1
        if self.journal is not None and not self.fits:
            expected = self.journal.base_seq + 1
        for end, _, line in read_log(files, self.journal_id, self.start, self.size):
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
                is_known = self.holds(line.seq, row.digest[:MARK_BYTES]) or (
                    self.journal is not None and read_stored(self.journal, row.seq) == row
                )
                is_next_or_before = line.seq <= self.end_seq + 1  # a later one follows a gap, or stands too early
                if not is_known and (is_next_or_before or (self.journal is None and not self.marks)):
                    if self._is_changed(self._digest_before(row, previous, read_stored), row):
                        self.is_patchy = True
                    else:
                        self.foreign = self.foreign or line
                is_disordered = is_disordered or not (is_known or is_next_or_before)
                is_unbroken = is_next and is_known
            previous = line
        return is_disordered

    def _begin(self, row: EntryRow) -> int:
        """Look at the first line of a journal that the database does not know; return which seq it begins with.

        A fork's first line says what it continues.
        """
        try:
            body = self.schema.decode_body(row.kind, row.version, row.body, ignorable=row.ignorable)
        except (UnreadableError, RecordTooNew):  # its digest was not compared yet: it may be anything
            body = UnknownBody()
        kind = self.schema.by_body.get(type(body))
        self.base = None if kind is None or kind.base is None else kind.base(body)
        self.base_seq = self.end_seq = 0 if self.base is None else self.base.seq
        self.digest = chain_start(self.journal_id) if self.base is None else self.base.digest
        return self.end_seq + 1

    def _continues(self, row: EntryRow) -> bool:
        return row.seq == self.end_seq + 1 and row_digest(self.journal_id, self.digest, row) == row.digest

    def _is_changed(self, before: bytes | None, row: EntryRow) -> bool:
        """Return whether a line does not continue the entry before it: it is damage, no other history."""
        return before is not None and row_digest(self.journal_id, before, row) != row.digest

    def _digest_before(self, row: EntryRow, previous: LogLine | None, read_stored: ReadStored) -> bytes | None:
        """Return the digest of the entry before a line, from its own log if it has it, else from the database."""
        if previous is not None and previous.seq == row.seq - 1:
            return previous.row().digest
        if self.journal is None:
            return None
        if row.seq == self.journal.base_seq + 1:
            return bytes(self.journal.base_digest)
        stored = read_stored(self.journal, row.seq - 1)
        return None if stored is None else stored.digest

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
    """Return the beginning of a tail that is too long for one transaction; None when it is short enough.

    None also when something else stands between its lines.

    It ends where no unit is open: what another transaction's line follows was committed, and a line that names no
    unit is whole by itself.
    """
    start = journal.log_end if journal is not None else 0
    piece_bytes = PIECE_BYTES
    while start + piece_bytes < size:
        end = start + piece_bytes
        end += next(files.read(log_name(journal_id), end, end + 1), b"") == b"\n"  # a line is not parted from its end
        tail = LogTail(schema, journal_id, journal, end, fits=True)
        tail.scan(files)
        if not tail.is_sound:
            return None
        if tail.constraints:
            tail.cut(tail.constraints[0].first_seq)
        if tail.end_seq > tail.base_seq:
            return tail
        piece_bytes *= 2
    return None
