"""Rule 1: the database decides, and a log is brought in line with it before it is touched.

Reads: a journal's row and files. Writes: entries that a log holds and the database lacks; logs; `.tail` files.
Invariants: runs under the write lock, in a transaction of its own. Whole units whose chain continues the database's are
adopted. Torn units are set aside, unless the database was put back. Lines that stand there twice are set aside. A chain
that goes on otherwise stops the session, loudly. Nothing is deleted unread.
On crash: it runs again and comes to the same end.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import LogForked, LogUnwritable, RecordDamaged
from hansard.journal.causes import Cause
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
from hansard.journal.sqlite.connection import SQL
from hansard.journal.sqlite.group import SqliteGroup, group_of
from hansard.journal.sqlite.tails import PIECE_BYTES, LogTail, scan_piece
from hansard.journal.transaction import Transaction, open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard.journal.files import LogFiles

logger = logging.getLogger("hansard.record")

MISPLACED = frozenset({Cause.NOT_PERMITTED, Cause.IS_A_FOLDER, Cause.IS_A_LINK})
"""Why a `.tail` cannot be appended to, when another one can be begun in its place."""


NO_PART: Final = PartLine("", 0, "", "")
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

    def run(self, journal_id: str) -> None:
        """Reconcile a journal: log first, then the open message."""
        self.files.forget(log_name(journal_id))
        self._scan(journal_id)
        self.tails[journal_id].refuse_fork()
        self._cut_torn_units()
        good = [
            tail
            for name, tail in self.tails.items()
            if name == journal_id or (tail.end_seq > tail.base_seq and not tail.forked)
        ]
        # All of a unit is adopted before a log is changed: a log that is written anew has no marks of units.
        for tail, journal in [(tail, self._adopt_tail(tail)) for tail in good]:
            self._mend_log(tail, journal)
        for touched in self.tails:
            reconcile_part(self.group, touched)

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
        try:
            size = log_size(self.files, journal_id)
            fits = journal is None or self._fits(journal, size, is_partner=is_partner)
            is_kept = journal is None or fits or self._is_kept(journal, size)
            tail = LogTail(self.tx.schema, journal_id, journal, size, fits=fits, is_kept=is_kept)
            tail.scan(self.files, self._is_stored)
        except (RecordDamaged, LogUnwritable):
            if not is_partner:
                raise
            return LogTail(self.tx.schema, journal_id, journal, 0, fits=False, is_kept=False)
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
            return True
        line = last_line(self.files, journal.id, journal.log_synced) if size >= journal.log_synced else None
        return line is not None and self._is_stored(journal, line)

    def _is_stored(self, journal: Journal, line: LogLine) -> bool:
        if not journal.base_seq < line.seq <= journal.head_seq:
            return False
        key = journal.entry_key(line.seq)
        return self.tx.rows(SQL.read_full_entries, (key - 1, key, 1)) == [line.row()]

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

        It did not when a part is in the database or is followed by a later transaction. It did not either when the log
        that lacks a part cannot be read, or was changed where it was known to be on the disk; but it did if the
        database has another entry in the place of that part, and that log no other history.
        """
        lacking = {name: self.tails[name] for name, mark in unit.items() if not self._holds(name, mark)}
        return (
            bool(lacking)
            and all(
                tail.foreign is None and (tail.is_sound or read_mark(unit[name])[0] <= tail.base_seq)
                for name, tail in lacking.items()
            )
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

    def _adopt_tail(self, tail: LogTail) -> Journal | None:
        """Adopt the good part of a tail; return its journal."""
        count = tail.end_seq - tail.base_seq
        if count == 0:
            return tail.journal
        journal = tail.journal or self._new_journal(tail)
        self._adopt_lines(tail, journal)
        logger.log(self.level, "adopted %d entries of %s from its log", count, tail.journal_id)
        journal.log_end = tail.end
        (touched,) = self.tx.row(SQL.adopting_commit, (tail.tx,))
        self.tx.run(SQL.raise_commits, (touched,))
        self.group.store_head(journal, touched)
        if self.is_synced:
            self.tx.run(SQL.update_log_synced, (tail.end, journal.id))
        return journal

    def _mend_log(self, tail: LogTail, journal: Journal | None) -> None:
        """Write a log anew where its lines are not all there in their order; else set aside what comes after them."""
        lacks_lines = not tail.fits and tail.end_seq == tail.base_seq
        if journal is not None and (tail.is_patchy or lacks_lines or tail.journal_id in self.files.suspect):
            self._keep_unknown_lines(journal, tail.size)
            rewrite_log(self.group, journal)
        elif tail.end < tail.size:
            set_aside(self.files, tail.journal_id, tail.end, tail.size)
        self.tx.run(SQL.trust_read_log, (tail.journal_id,))

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

    def _keep_unknown_lines(self, journal: Journal, size: int) -> None:
        """Before a log is rewritten, set aside what it holds and the database does not, in few pieces."""
        start = 0
        for end, data, line in read_log(self.files, journal.id, 0, size):
            is_blank = not data.strip(BLANK)
            if is_blank or (line is not None and self._is_stored(journal, line)):
                self._keep_bytes(journal.id, start, end - len(data))
                start = end
        self._keep_bytes(journal.id, start, size)  # with what comes after a line over the limit, which is not given

    def _keep_bytes(self, journal_id: str, start: int, end: int) -> None:
        if start < end:
            set_aside(self.files, journal_id, start, end, cut=False)


def adopt_row(tx: Transaction, journal: Journal, row: EntryRow) -> None:
    body = tx.schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
    tx.insert(journal, row, body)
    kind = tx.schema.by_body.get(type(body))
    if kind is not None and kind.seals is not None:
        tx.run(SQL.delete_chunks, (journal.key,))


def set_aside(files: LogFiles, journal_id: str, start: int, end: int, *, cut: bool = True) -> None:
    """Move what cannot be part of the log into the journal's `.tail`, and keep it there."""
    if cut:
        files.open(log_name(journal_id), None)  # refused before anything is copied: this may be tried again and again
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
    files.sync(name)
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
        remove_part(group, journal, name, found)
    else:
        adopt_chunks(group, journal, message_id, found)
        chunks = group.rows(SQL.read_chunks, (journal.key,))
        wanted = [encode_part(message, start, part, text.decode()) for start, message, part, text in chunks]
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
        if line.start > group.stream_end(journal):
            return
        group.extend(journal, message_id, line.start, line.part, line.text)
