"""Rule 1: the database decides, and a log is brought in line with it before it is touched.

Reads: a journal's row and files. Writes: entries that a log holds and the database lacks; logs; `.tail` files.
Invariants: runs under the write lock, in a transaction of its own. Whole units whose chain continues the database's are
adopted. Torn units are set aside, unless the database was put back. Lines that stand there twice are set aside. A chain
that goes on otherwise stops the session, loudly. Nothing is deleted unread.
On crash: it runs again and comes to the same end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import HansardError, LogForked, LogUnwritable, RecordDamaged, RecordTooNew
from hansard.journal.backend import UnreadableError
from hansard.journal.causes import Cause
from hansard.journal.concepts import Body, UnknownBody
from hansard.journal.entries import (
    BLANK,
    MARK_BYTES,
    EntryRow,
    Journal,
    LogLine,
    PartLine,
    decode_line,
    decode_part,
    encode_line,
    encode_part,
    last_line,
    log_continues,
    log_name,
    log_size,
    part_name,
    read_log,
    read_mark,
    tail_name,
)
from hansard.journal.files import LogFiles
from hansard.journal.sqlite.connection import SQL
from hansard.journal.sqlite.group import SqliteGroup, group_of
from hansard.journal.sqlite.tails import DOUBTED, PIECE_BYTES, LogTail, scan_piece
from hansard.journal.transaction import Transaction, decode_text, open_stream

logger = logging.getLogger("hansard.record")

MISPLACED = frozenset({Cause.NOT_PERMITTED, Cause.IS_A_FOLDER, Cause.IS_A_LINK, Cause.NOT_A_FILE})
"""Why a `.tail` cannot be appended to, when another one can be begun in its place."""


class LogMend(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done with a log: write it anew, or set aside what lies between `end` and `size`, if anything."""

    journal_id: str
    end: int
    size: int
    is_rewritten: bool


NO_PART: Final = PartLine(message="", start=0, part="text", text="")
"""Stands for damage in a part file."""


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
        self.mends: dict[str, LogMend] = {}
        """Done only after the commit. If a log were cut first and the commit failed, the next opening would take the
        transaction before it for the last one."""

    def run(self, journal_id: str) -> None:
        """Reconcile a journal's log. The file of its open message is looked at afterwards, and undoes nothing here."""
        self.files.forget(log_name(journal_id))
        self._scan(journal_id)
        self.tails[journal_id].refuse_fork()
        self._cut_torn_units()
        good = [
            tail
            for name, tail in self.tails.items()
            if name == journal_id or (tail.end_seq > tail.base_seq and not tail.forked)
        ]
        for tail in good:
            self._note_mend(tail, self._adopt_tail(tail))
        for partner in self.tails.keys() - {journal_id}:
            with suppress(LogUnwritable, RecordDamaged):  # whoever streams to it is told
                reconcile_part(self.group, partner)

    def adopt_piece(self, journal_id: str) -> int:
        """Adopt the beginning of a log that is much longer than the database says; return how many bytes it had.

        0: the rest is short enough for `run`, or only `run` can say what it is.
        """
        journal = self._read(journal_id)
        size = log_size(self.files, journal_id)
        if journal is not None and (size <= journal.log_end + PIECE_BYTES or not log_continues(self.files, journal)):
            return 0
        tail = scan_piece(self.files, self.tx.schema, journal_id, journal, size)
        if tail is None:
            return 0
        self._adopt_tail(tail)
        return tail.end - tail.start

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
            tail = self.tails[name] = self._read_tail(name, is_partner=name != journal_id)
            for constraint in tail.constraints:
                waiting.extend(other for other in constraint.unit if other not in self.tails)

    def _read_tail(self, journal_id: str, *, is_partner: bool) -> LogTail:
        """Look how far a log is as the database says, and what follows. A partner that cannot be read tells nothing."""
        journal = self._read(journal_id)
        if is_partner and journal_id in self.files.suspect:  # it was read before, and would be for each that names it
            return LogTail(self.tx.schema, journal_id, journal, 0, fits=False, is_kept=False)
        try:
            size = log_size(self.files, journal_id)
            fits = journal is None or self._fits(journal, size, is_partner=is_partner)
            if journal is not None:
                is_kept = fits or self._is_kept(journal, size)
            else:
                is_kept = size > 0 or journal_id != HOME_JOURNAL  # the home's has lines before any unit
            tail = LogTail(self.tx.schema, journal_id, journal, size, fits=fits, is_kept=is_kept)
            tail.scan(self.files, self._read_stored)
        except (RecordDamaged, RecordTooNew, LogUnwritable):
            if not is_partner:
                raise
            return LogTail(self.tx.schema, journal_id, journal, 0, fits=False, is_kept=False)
        if tail.forked:
            self.files.suspect.add(journal_id)
        return tail

    def _fits(self, journal: Journal, size: int, *, is_partner: bool = False) -> bool:
        """Return whether a log is as the database says, up to where it accounts for it."""
        return (
            size >= journal.log_end
            and journal.id not in self.files.suspect
            and log_continues(self.files, journal)
            and (
                journal.log_synced >= journal.log_end
                or (is_partner and size == journal.log_end)  # nothing of it is adopted
                or lines_agree(self.group, journal, max(journal.log_synced, 0))
            )
        )

    def _is_kept(self, journal: Journal, size: int) -> bool:
        """Return whether a log is unchanged as far as it was known to be on the disk: a power cut may take the rest."""
        if journal.log_synced <= 0:
            return bool(journal.log_synced != DOUBTED)
        line = last_line(self.files, journal.id, journal.log_synced) if size >= journal.log_synced else None
        return line is not None and self._read_stored(journal, line.seq) == line.row()

    def _read_stored(self, journal: Journal, seq: int) -> EntryRow | None:
        return read_stored(self.group, journal, seq)

    def _cut_torn_units(self) -> None:
        """Cut tails at units that a crash tore, until nothing changes.

        Not those of a time from which the database was put back: other logs may have been put back as well.
        """
        (put_back,) = self.tx.row(SQL.read_put_back)
        changed = True
        while changed:
            changed = False
            for tail in self.tails.values():
                for constraint in tail.constraints:
                    if constraint.first_seq > tail.end_seq:
                        break
                    if tail.tx > put_back and not tail.was_unread and self._is_torn(constraint.unit):
                        tail.cut(constraint.first_seq)
                        changed = True
                        break

    def _is_torn(self, unit: dict[str, str]) -> bool:
        """Return whether a unit lacks a part because its writer died before COMMIT.

        - No part is in the database or followed by a later transaction: then it was committed.
        - No log that lacks a part tells another history: it may have lost its part with that.
        - Each of them is as a crash can leave it, or the database has another entry in the place of the part.
        """
        lacking = {name: read_mark(mark)[0] for name, mark in unit.items() if not self._holds(name, mark)}
        return (
            bool(lacking)
            and not any(self._is_committed(name, mark) for name, mark in unit.items())
            and self.files.suspect.isdisjoint(lacking)
            and all(self.tails[name].is_sound or seq <= self.tails[name].base_seq for name, seq in lacking.items())
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

    def _adopt_tail(self, tail: LogTail) -> Journal | None:
        """Adopt the good part of a tail; return its journal."""
        count = tail.end_seq - tail.base_seq
        if count == 0:
            return tail.journal
        journal = tail.journal or self._new_journal(tail)
        self._adopt_lines(tail, journal)
        logger.log(self.level, "adopting %d entries of %s from its log", count, tail.journal_id)
        journal.log_end = tail.end
        (touched,) = self.tx.row(SQL.adopting_commit, (tail.tx,))
        self.tx.run(SQL.raise_commits, (touched,))
        self.group.store_head(journal, touched)
        if self.is_synced:
            self.tx.run(SQL.update_log_synced, (tail.end, journal.id))
        return journal

    def _note_mend(self, tail: LogTail, journal: Journal | None) -> None:
        """Note that a log is to be written anew where its lines are not all there in their order, or else to be cut."""
        lacks_lines = not tail.fits and tail.end_seq == tail.base_seq
        is_rewritten = journal is not None and (tail.is_patchy or lacks_lines or tail.journal_id in self.files.suspect)
        self.mends[tail.journal_id] = LogMend(
            journal_id=tail.journal_id, end=tail.end, size=tail.size, is_rewritten=is_rewritten
        )
        # One that is to be written anew is compared again until that is done.
        self.tx.run(SQL.doubt_log if is_rewritten else SQL.trust_read_log, (tail.journal_id,))

    def _adopt_lines(self, tail: LogTail, journal: Journal) -> None:
        """Store a tail's good entries, in their order, wherever they stand."""
        seq, before = tail.base_seq, -1
        while before != seq < tail.end_seq:
            before = seq
            for end, _, line in read_log(self.files, tail.journal_id, tail.start, tail.size):
                if seq < tail.end_seq and end == tail.ends[seq - tail.base_seq] and line is not None:
                    adopt_row(self.tx, journal, line.row())
                    seq += 1
        if seq != tail.end_seq:
            raise LogForked(f"{log_name(tail.journal_id)} changed under the lock")

    def _new_journal(self, tail: LogTail) -> Journal:
        journal = self.tx.create_journal(tail.journal_id, tail.base)
        journal.log_seen = True
        return journal


def read_stored(group: SqliteGroup, journal: Journal, seq: int) -> EntryRow | None:
    if not journal.base_seq < seq <= journal.head_seq:
        return None
    key = journal.entry_key(seq)
    return next(map(EntryRow._make, group.rows(SQL.read_full_entries, (key - 1, key, 1))), None)


def adopt_row(tx: Transaction, journal: Journal, row: EntryRow) -> None:
    """Store an entry of a log. One that nobody can decode is kept as it is, and changes no table."""
    body: Body = UnknownBody()
    try:
        body = tx.schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
    except UnreadableError:
        logger.error("entry %d of %s cannot be read (%s)", row.seq, journal.id, row.kind)  # noqa: TRY400
    tx.insert(journal, row, body)
    kind = tx.schema.by_body.get(type(body))
    if kind is not None and kind.seals is not None:
        tx.run(SQL.delete_chunks, (journal.key,))


def unknown_stretches(
    files: LogFiles, journal_id: str, size: int, is_known: Callable[[LogLine], bool]
) -> Iterator[tuple[int, int]]:
    """Yield where a log holds something else than known lines and blanks, in few pieces."""
    start = 0
    for end, data, line in read_log(files, journal_id, 0, size):
        if (data and not data.strip(BLANK)) or (line is not None and is_known(line)):
            yield start, end - len(data)
            start = end
    yield start, size  # with what comes after a line over the limit, which is not given


def set_aside(files: LogFiles, journal_id: str, stretches: Iterable[tuple[int, int]], cut: Callable[[], None]) -> None:
    """Copy stretches of a log into the journal's `.tail`, and keep it there; then `cut` the log.

    When that fails the `.tail` is as before, so that trying it again and again does not let it grow.
    """
    name = tail_name(journal_id)
    length, count = -1, 0
    try:
        for start, end in stretches:
            if start >= end:
                continue
            count += end - start
            if length < 0:
                length = _open_tail(files, name)
            for block in files.read(log_name(journal_id), start, end):
                files.append(name, block, None)
            files.append(name, b"\n", None)
        if length >= 0:
            files.sync(name)
        cut()
        if count:
            logger.warning("set aside %d bytes of %s in %s", count, journal_id, name)
    except (HansardError, OSError):
        if length > 0:
            files.cut(name, length)
        elif length == 0:
            files.remove(name)
        raise
    finally:
        files.forget(name)


def _open_tail(files: LogFiles, name: str) -> int:
    """Make sure that a `.tail` can be appended to; return how long it is."""
    try:
        files.stat_file(name)
        files.open(name, None)
    except (LogUnwritable, RecordDamaged) as error:
        if error.cause not in MISPLACED:
            raise
        files.put_aside(name)  # a folder, a link, or a file of another user: kept as well
    look = files.stat_file(name)
    return look.size if look is not None else 0


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


def mend_log(group: SqliteGroup, mend: LogMend) -> None:
    """Write a log anew from the database, or cut it if it has something to cut. What it holds besides is kept first."""
    name = log_name(mend.journal_id)
    if not mend.is_rewritten:
        set_aside(group.files, mend.journal_id, [(mend.end, mend.size)], partial(group.files.cut, name, mend.end))
        return
    journal = Journal(group.row(SQL.read_journal, (mend.journal_id,)))
    (touched,) = group.row(SQL.read_touched, (journal.key,))

    def keep_unknown(replace: Callable[[], None]) -> None:
        stretches = unknown_stretches(group.files, journal.id, mend.size, is_stored)
        set_aside(group.files, journal.id, stretches, replace)

    def is_stored(line: LogLine) -> bool:
        return read_stored(group, journal, line.seq) == line.row()

    lines = (encode_line(row, touched) for row in stored_rows(group, journal))
    size = group.files.replace(name, lines, keep_unknown)
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
        remove_part(group, journal, name, found)
    else:
        adopt_chunks(group, journal, message_id, found)
        chunks = group.rows(SQL.read_chunks, (journal.key,))
        wanted = [encode_part(message, start, part, decode_text(text)) for start, message, part, text in chunks]
        held, text = set(wanted), b"".join(wanted)
        if any(data not in held and data.strip(BLANK) not in text for data in found):
            group.files.put_aside(name)  # it holds words that the chunks do not have
        if wanted != found:
            group.files.replace(name, wanted)
    group.run(SQL.update_journal_log, (journal.log_end, journal.log_synced, sum(map(len, wanted)), journal.key))


def remove_part(group: SqliteGroup, journal: Journal, name: str, found: list[bytes]) -> None:
    """Remove a part file whose words are in the record; keep any other."""
    lines = [decode_part(data) or NO_PART for data in found if data.strip(BLANK)]
    runs = groupby(lines, lambda line: (line.message, line.part))
    if all(_is_sealed(group, journal, run[0], "".join(line.text for line in texts)) for run, texts in runs):
        group.files.remove(name)
    else:
        group.files.put_aside(name)


def _is_sealed(group: SqliteGroup, journal: Journal, message_id: str, text: str) -> bool:
    """Return whether an entry holds words of a message that was streamed."""
    opening = group.row(SQL.find_entry, (journal.key, message_id))
    if opening is None:
        return False
    after, last = journal.entry_key(opening[0]), journal.entry_key(journal.head_seq)
    (is_held,) = group.row(SQL.holds_bytes, (after, last, msgspec.json.encode(text)[1:-1]))
    return bool(is_held)


def adopt_chunks(group: SqliteGroup, journal: Journal, message_id: str, found: list[bytes]) -> None:
    """Store the chunks of the open message that only its part file has, as far as they continue its text."""
    journal.part_seen = True
    lines = [line for line in map(decode_part, found) if line is not None and line.message == message_id]
    for line in sorted(lines, key=lambda line: line.start):
        if line.start == group.stream_end(journal):
            group.extend(journal, message_id, line.start, line.part, line.text)
