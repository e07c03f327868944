"""One transaction: journals as they stand under the lock, entries added to them, and the log bytes to write.

Reads: state.db; sizes of log files. Writes: state.db; then, at the very end, the log files.
Invariants: a file is appended to only when it is exactly as long as the database says (rule 1); a body is serialised
once; what one call adds is one unit, in the log too; file writes are the last thing before COMMIT.
On crash: the database rolls back; what was logged is found by the next writer, which adopts or sets it aside.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hansard.domain.ids import is_journal_id, random_bytes
from hansard.domain.limits import JOURNALS_KEPT_MAX
from hansard.errors import HansardError, IdConflict, LogUnwritable, PastMissing, RecordDamaged, WrongState
from hansard.journal.concepts import Base, EntryPlace, encode_body
from hansard.journal.lines import (
    DIGEST_FORMAT,
    EntryRow,
    Header,
    chain_digest,
    chain_start,
    encode_line,
    encode_part,
    log_name,
    part_name,
    place_mark,
)
from hansard.journal.reading import SEQ_BITS, Journal, KnownEntry, inherited_entries
from hansard.journal.sqlite.connection import SQL, IdTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hansard.journal.concepts import Body, Schema
    from hansard.journal.files import LogFiles
    from hansard.ports import Clock

SALT_BYTES = 16
B = TypeVar("B", bound="Body")


class MismatchError(Exception):
    """A journal's files are not as the database says: reconcile them, then run the batch again."""

    def __init__(self, journal_id: str) -> None:
        """Keep which one."""
        super().__init__(journal_id)
        self.journal_id = journal_id


class Written(NamedTuple):
    """A file that got bytes before COMMIT, and where they began."""

    journal_id: str
    name: str
    size_before: int


class HeadCache:
    """What the writer knows of the database from its last commits, for as long as nobody else commits."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.data_version = -1
        self.journals: dict[str, Journal] = {}
        self.kinds: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Read everything anew: another process committed, or a commit of ours failed."""
        self.data_version = -1
        self.journals = {}
        self.kinds = set()


class Transaction:
    """What one group commit, or one reconciliation, does."""

    def __init__(  # noqa: PLR0917
        self,
        run: Callable[..., Any],
        files: LogFiles,
        clock: Clock,
        schema: Schema,
        blocked: Mapping[str, HansardError] | None = None,
        kept: HeadCache | None = None,
    ) -> None:
        """The caller has begun the transaction and commits it."""
        self.run = run
        self.files = files
        self.clock = clock
        self.schema = schema
        self.blocked = blocked or {}
        self.kept = kept or HeadCache()
        self.journals: dict[str, Journal] = {}
        self._unit: list[tuple[Journal, EntryRow]] = []
        self._wrote = False
        self._number = 0

    def number(self) -> int:
        """Return this transaction's number: it grows with each commit, and log lines carry it."""
        if not self._number:
            (self._number,) = self.row(SQL.bump_commits)
        return self._number

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row: no cursor stays half read (rule 12)."""
        rows: list[Any] = self.run(query, bindings).fetchall()
        return rows

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        """Return the first row or None."""
        rows = self.run(query, bindings).fetchall()
        return rows[0] if rows else None

    # Journals.

    def find_journal(self, journal_id: str, *, look: bool = True) -> Journal | None:
        """Return a journal whose log is as the database says (rule 1), or None when neither of them knows it.

        Chunks do not touch the log and do not look at it.
        """
        journal = self.journals.get(journal_id)
        if journal is not None:
            if look:
                self.look_at_log(journal)
            return journal
        if not is_journal_id(journal_id):
            return None
        if (error := self.blocked.get(journal_id)) is not None:
            raise error
        journal = self.kept.journals.get(journal_id)
        if journal is None:
            row = self.row(SQL.read_journal, (journal_id,))
            if row is None:
                found = self.files.stat_file(log_name(journal_id))
                if found is not None and found.size:
                    raise MismatchError(journal_id)
                return None
            journal = Journal(row)
        if look:
            self.look_at_log(journal)
        self.journals[journal_id] = journal
        return journal

    def look_at_log(self, journal: Journal) -> None:
        """Compare the log with the database, before its first entry in this transaction (rule 1)."""
        if not journal.log_seen:
            journal.log_look = self.files.stat_file(log_name(journal.id))
            size = journal.log_look.size if journal.log_look else 0
            is_other = self.files.was_replaced(log_name(journal.id), journal.log_look)
            if size != journal.log_end or is_other or journal.id in self.files.suspect:
                raise MismatchError(journal.id)
            journal.log_seen = True

    def _look_at_part(self, journal: Journal) -> None:
        """Compare the part file with the database, before its first use in this transaction."""
        if not journal.part_seen:
            try:
                journal.part_look = self.files.stat_file(part_name(journal.id))
            except RecordDamaged:
                raise MismatchError(journal.id) from None
            if (journal.part_look.size if journal.part_look else 0) != journal.part_end:
                raise MismatchError(journal.id)
            journal.part_seen = True

    def create_journal(self, journal_id: str, base: Base | None = None) -> Journal:
        """Return a new journal; a fork's continues its parent's chain."""
        base_id, base_seq, digest = base or (None, 0, chain_start(journal_id))
        row = (journal_id, base_id, base_seq, digest, base_seq, digest)
        self._wrote = True
        (key,) = self.row(SQL.insert_journal, row)
        journal = Journal((key, *row, 0, 0, 0, 0, 0))
        self.journals[journal_id] = journal
        return journal

    # Entries.

    def find(self, journal: Journal, entry_id: str) -> KnownEntry | None:
        """Return an entry by its id, a fork's inherited prefix included (rule 15), unless that is missing."""
        row = self.row(SQL.find_entry, (journal.key, entry_id))
        if row is None and journal.base_id is not None:
            with contextlib.suppress(PastMissing):
                for stretch in reversed(inherited_entries(self.row, journal)):
                    key = stretch.last >> SEQ_BITS
                    row = self.row(SQL.find_entry, (key, entry_id))
                    if row is not None and (key << SEQ_BITS) + row[0] <= stretch.last:
                        break
                    row = None
        return None if row is None else KnownEntry(*row)

    def find_same(self, journal: Journal, entry_id: str, body: Body, data: bytes) -> KnownEntry | None:
        """Return an earlier entry with this id and the same body; another body is an error (L3)."""
        found = self.find(journal, entry_id)
        if found is None:
            return None
        kind = self.schema.by_body[type(body)]
        if found.kind != kind.name or not self.schema.is_same(kind, found.version, found.body, data):
            message = f"{entry_id!r} in {journal.id} was recorded before with other content (seq {found.seq})"
            raise IdConflict(message)
        return found

    def find_body(self, journal: Journal, entry_id: str, body: type[B]) -> B | None:
        """Return what an earlier entry with this id says, if it is of that kind."""
        found = self.find(journal, entry_id)
        said = None if found is None else self.decode(found)
        return said if isinstance(said, body) else None

    def decode(self, found: KnownEntry) -> Body:
        """Return what an entry says."""
        return self.schema.decode_body(found.kind, found.version, found.body)

    def add_once(self, journal: Journal, entry_id: str, body: Body, data: bytes) -> EntryRow | None:
        """Append an entry unless its id is there already; None then, and nothing is changed (L3)."""
        try:
            return self.add(journal, entry_id, body, data)
        except IdTaken:
            return None

    def add(
        self, journal: Journal, entry_id: str, body: Body, data: bytes = b"", *, ignorable: bool = False
    ) -> EntryRow:
        """Append one entry: its bytes, its place in the chain, and its effect on the projections."""
        self.look_at_log(journal)
        data = data or encode_body(body)
        kind = self.schema.by_body[type(body)]
        at = self.clock.now_microseconds()
        seq = journal.head_seq + 1
        salt = random_bytes(SALT_BYTES)
        header = Header(journal.id, seq, entry_id, kind.name, kind.version, ignorable, at)
        digest = chain_digest(journal.head_digest, header, salt, data)
        row = EntryRow(seq, entry_id, kind.name, kind.version, ignorable, at, DIGEST_FORMAT, salt, digest, data)
        self.insert(journal, row, body)
        self._unit.append((journal, row))
        return row

    def insert(self, journal: Journal, row: EntryRow, body: Body) -> None:
        """Store an entry that has its place in the chain already."""
        self.run(SQL.insert_entry, (journal.entry_key(row.seq), *row[1:]))
        self._wrote = True
        if (row.kind, row.version) not in self.kept.kinds:
            self.run(SQL.insert_kind, (row.kind, row.version, row.ignorable))
            self.kept.kinds.add((row.kind, row.version))
        journal.head_seq = row.seq
        journal.head_digest = row.digest
        journal.active_at = row.at
        kind = self.schema.by_body.get(type(body))
        if kind is not None and kind.counts is not None:
            journal.messages += kind.counts(body)
        if kind is not None and (kind.projected_if is None or kind.projected_if(body)):
            self.schema.project(EntryPlace(self.run, journal, row.seq, row.id, row.at), body)
        if kind is None or not kind.keeps_memo:
            journal.forget()

    # Open streams.

    def add_chunk(self, journal: Journal, message_id: str, start: int, part: str, text: str) -> int:
        """Append to the open message; what is there already is skipped. Return where the message ends."""
        self._look_at_part(journal)
        data = text.encode()
        end = self.chunk_end(journal)
        if start + len(data) <= end:
            return end
        if start > end:
            message = f"a chunk of {message_id} begins at byte {start}; the message ends at {end}"
            raise WrongState(message)
        if start < end:
            data = data[end - start :]
            text, start = data.decode(), end
        self._wrote = True
        self.run(SQL.insert_chunk, (journal.key, start, message_id, part, data))
        line = encode_part(message_id, start, part, text)
        journal.part.append(line)
        journal.part_end += len(line)
        journal.open_end = start + len(data)
        return journal.open_end

    def chunk_end(self, journal: Journal) -> int:
        """Return how many bytes the open message has."""
        if journal.open_end < 0:
            last = self.row(SQL.last_chunk, (journal.key,))
            journal.open_end = 0 if last is None else last[0] + len(last[3])
        return journal.open_end

    def open_pieces(self, journal: Journal) -> list[tuple[str, str]]:
        """Return the open message's (part kind, text) pieces."""
        return [(part, text.decode()) for _, _, part, text in self.rows(SQL.read_chunks, (journal.key,))]

    def seal(self, journal: Journal, entry_id: str, body: Body) -> EntryRow:
        """End the open stream: its text is its chunks, byte for byte (rule 7)."""
        self._look_at_part(journal)
        kind = self.schema.by_body[type(body)]
        assert kind.seals is not None
        stream_id, pieces = kind.seals(body)
        if len("".join(text for _, text in pieces).encode()) != self.chunk_end(journal):
            message = f"the parts that seal {stream_id} are not its chunks"
            raise WrongState(message)
        row = self.add(journal, entry_id, body)
        self.drop_chunks(journal)
        return row

    def drop_chunks(self, journal: Journal) -> None:
        """Let the chunks go: the seal holds their text."""
        self.run(SQL.delete_chunks, (journal.key,))
        journal.part = []
        journal.part_end = 0
        journal.part_reset = True
        journal.open_end = -1

    # The ends of a unit and of the transaction.

    def finish_unit(self) -> None:
        """Turn what one call added into log lines that stand or fall together."""
        if len(self._unit) == 1:
            journal, row = self._unit[0]
            journal.log.append(encode_line(row, self.number()))
        elif self._unit:
            unit = {journal.id: place_mark(row.seq, row.digest) for journal, row in self._unit}
            for journal, row in self._unit:
                journal.log.append(encode_line(row, self.number(), unit))
        self._unit = []
        self._wrote = False

    def wrote(self) -> bool:
        """Return whether the present call has written anything: if so, it cannot fail without the whole batch."""
        return self._wrote

    def changed(self) -> list[Journal]:
        """Return the journals that have something to write."""
        return [journal for journal in self.journals.values() if journal.log or journal.part or journal.part_reset]

    def store_head(self, journal: Journal, commits: int) -> None:
        """Store where a journal stands."""
        self.run(SQL.update_journal, journal.head_row(commits))

    def finish(self, reach: Callable[[str], None]) -> list[Written]:
        """Store the journals' heads, then write the log: one write for each file, just before COMMIT."""
        commits = self.number()
        ends: list[tuple[Journal, bytes, int]] = []
        for journal in self.changed():
            data = b"".join(journal.log)
            before = journal.log_end
            journal.log_end += len(data)
            ends.append((journal, data, before))
            self.store_head(journal, commits)
        reach("applied")
        written: list[Written] = []
        unwritable: dict[str, HansardError] = {}
        for journal, data, before in ends:
            try:
                write_files(self.files, journal, data, before, written)
            except LogUnwritable as error:
                unwritable[journal.id] = error  # the others are tried too, so that all that fail are known at once
            except OSError as error:
                raise LogWriteError(written, error) from error
            reach("logging")
        if unwritable:
            raise LogWriteError(written, None, unwritable)
        reach("logged")
        return written

    def settle_commit(self) -> None:
        """After COMMIT: remove the part files of messages whose seal is now in both legs, and keep what is known."""
        for journal in self.journals.values():
            if journal.part_reset and not journal.part:
                with contextlib.suppress(LogUnwritable, OSError):  # it stays behind, and the next touch finds it
                    self.files.remove(part_name(journal.id))
            journal.reset_changes()
        if len(self.kept.journals) + len(self.journals) > JOURNALS_KEPT_MAX:
            self.kept.journals = {}
        self.kept.journals.update(self.journals)


def write_files(files: LogFiles, journal: Journal, data: bytes, before: int, written: list[Written]) -> None:
    """Append one journal's lines to its files, and note in `written` where they began."""
    if data:
        name = log_name(journal.id)
        descriptor = files.open(name, journal.log_look)
        written.append(Written(journal.id, name, before))
        files.write(name, descriptor, data)
    if journal.part:
        name = part_name(journal.id)
        part = b"".join(journal.part)
        if journal.part_reset:
            files.cut(name, 0)
        descriptor = files.open(name, journal.part_look)
        written.append(Written(journal.id, name, journal.part_end - len(part)))
        files.write(name, descriptor, part)


class LogWriteError(Exception):
    """Some logs could not be written; carries what was, so that it can be cut."""

    def __init__(
        self, written: list[Written], error: OSError | None, unwritable: dict[str, HansardError] | None = None
    ) -> None:
        """Keep the error of the whole disk, or those of single journals, by journal."""
        super().__init__(str(error))
        self.written = written
        self.error = error
        self.unwritable = unwritable or {}
