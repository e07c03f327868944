"""A group commit's transaction in SQLite, and the log bytes that go with it.

Reads: state.db; sizes of log files. Writes: state.db; then, at the very end, the log files.
Invariants: a file is appended to only when it is exactly as long as the database says (rule 1); what one call adds is
one unit, in the log too; file writes are the last thing before COMMIT.
On crash: the database rolls back; what was logged is found by the next writer, which adopts or sets it aside.
"""

from __future__ import annotations

import contextlib
import errno
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from hansard.domain.ids import is_journal_id
from hansard.domain.limits import JOURNALS_KEPT_MAX
from hansard.errors import HansardError, LogUnwritable, OutcomeUnknown, RecordDamaged, WrongState
from hansard.journal.backend import (
    BlockedError,
    CommitError,
    GroupCommit,
    IdTakenError,
    MismatchError,
    TouchedJournal,
    Unit,
    UnreadableError,
)
from hansard.journal.causes import Cause, explain, framed, tell
from hansard.journal.entries import (
    EntryRow,
    Journal,
    chain_start,
    encode_line,
    encode_part,
    log_name,
    part_name,
    place_mark,
)
from hansard.journal.sqlite.connection import NOT_TEXT, SQL, IdTaken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hansard.journal.concepts import Base, Schema
    from hansard.journal.files import LogFiles
    from hansard.journal.locks import FairLock
    from hansard.journal.sqlite.database import Database
    from hansard.journal.sqlite.disk import Reserve
    from hansard.journal.transaction import Transaction


class Written(NamedTuple):
    """A file that got bytes before COMMIT, and where they began."""

    journal_id: str
    name: str
    size_before: int


class HeadCache:
    """What the writer knows of the database from its last commits, for as long as nobody else commits."""

    def __init__(self) -> None:
        self.data_version = -1
        self.journals: dict[str, Journal] = {}
        self.kinds: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Read everything anew: another process committed, or a commit of ours failed."""
        self.data_version = -1
        self.journals = {}
        self.kinds = set()


class SqliteGroup:
    """Journals under the write lock, in a transaction that was begun."""

    def __init__(
        self,
        run: Callable[..., Any],
        files: LogFiles,
        schema: Schema,
        blocked: Mapping[str, HansardError] | None = None,
        kept: HeadCache | None = None,
    ) -> None:
        """`run` executes a statement. Without `kept`, nothing is remembered of other transactions."""
        self.run = run
        self.files = files
        self.schema = schema
        self.blocked = blocked or {}
        self.kept = kept or HeadCache()
        self.journals: dict[str, Journal] = {}
        self.written: list[Written] = []
        self._number = 0

    def number(self) -> int:
        """Return this transaction's number: it grows with each commit, and log lines carry it."""
        if not self._number:
            (self._number,) = self.row(SQL.bump_commits)
        return self._number

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        try:
            rows: list[Any] = self.run(query, bindings).fetchall()
        except UnicodeDecodeError as error:
            raise UnreadableError(NOT_TEXT) from error
        except apsw.CorruptError as error:
            raise UnreadableError("a page") from error
        return rows

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        return next(iter(self.rows(query, bindings)), None)

    # Journals.

    def head(self, journal_id: str, *, log: bool = True) -> Journal | None:
        journal = self.journals.get(journal_id)
        if journal is not None:
            if log:
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
        if log:
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

    def create(self, journal_id: str, base: Base | None = None) -> Journal:
        base_id, base_seq, digest = base or (None, 0, chain_start(journal_id))
        row = (journal_id, base_id, base_seq, digest, base_seq, digest)
        (key,) = self.row(SQL.insert_journal, row)
        journal = Journal((key, *row, 0, 0, 0, 0, 0))
        self.journals[journal_id] = journal
        return journal

    def add(self, journal: Journal, row: EntryRow) -> None:
        """Store an entry at its place, once its log was looked at."""
        if not journal.log_seen:
            self.look_at_log(journal)
        try:
            self.run(SQL.insert_entry, (journal.entry_key(row.seq), *row[1:]))
        except IdTaken as error:
            raise IdTakenError(str(error)) from error
        if (row.kind, row.version) not in self.kept.kinds:
            self.run(SQL.insert_kind, (row.kind, row.version, row.ignorable))
            self.kept.kinds.add((row.kind, row.version))

    # Open streams.

    def extend(self, journal: Journal, stream_id: str, start: int, part: str, text: str) -> int:
        self._look_at_part(journal)
        data = text.encode()
        end = self.stream_end(journal)
        if start + len(data) <= end:
            return end
        if start > end:
            raise WrongState(f"a chunk of {stream_id} begins at byte {start}; the message ends at {end}")
        if start < end:
            data = data[end - start :]
            try:
                text, start = data.decode(), end
            except UnicodeDecodeError:
                raise WrongState(f"a chunk of {stream_id} is not what was recorded at byte {start}") from None
        self.run(SQL.insert_chunk, (journal.key, start, stream_id, part, data))
        line = encode_part(stream_id, start, part, text)
        journal.part.append(line)
        journal.part_end += len(line)
        journal.open_end = start + len(data)
        return journal.open_end

    def stream_end(self, journal: Journal) -> int:
        if journal.open_end < 0:
            last = self.row(SQL.last_chunk, (journal.key,))
            journal.open_end = 0 if last is None else last[0] + len(last[3])
        return journal.open_end

    def end_stream(self, journal: Journal) -> None:
        """Let the chunks go: the seal holds their text."""
        self.run(SQL.delete_chunks, (journal.key,))
        journal.part = []
        journal.part_end = 0
        journal.part_reset = True
        journal.open_end = -1

    # The end of the transaction.

    def _encode_lines(self, units: Sequence[Unit]) -> None:
        """Turn what each call added into log lines that stand or fall together."""
        for unit in units:
            if len(unit) == 1:
                journal, row = unit[0]
                journal.log.append(encode_line(row, self.number()))
                continue
            marks = {journal.id: place_mark(row.seq, row.digest) for journal, row in unit}
            for journal, row in unit:
                journal.log.append(encode_line(row, self.number(), marks))

    def write(self, units: Sequence[Unit], reach: Callable[[str], None]) -> list[TouchedJournal]:
        """Store the journals' heads, then write the log: one write for each file, just before COMMIT."""
        self._encode_lines(units)
        changed = [journal for journal in self.journals.values() if journal.log or journal.part or journal.part_reset]
        if not changed:
            return []
        commits = self.number()
        ends: list[tuple[Journal, bytes, int]] = []
        for journal in changed:
            data = b"".join(journal.log)
            before = journal.log_end
            journal.log_end += len(data)
            ends.append((journal, data, before))
            self.store_head(journal, commits)
        reach("applied")
        unwritable: dict[str, HansardError] = {}
        for journal, data, before in ends:
            try:
                self._write_files(journal, data, before)
            except LogUnwritable as error:
                unwritable[journal.id] = error  # the others are tried too, so that all that fail are known at once
            except OSError as error:
                raise LogWriteError(error) from error
            reach("logging")
        if unwritable:
            raise LogWriteError(None, unwritable)
        reach("logged")
        return [TouchedJournal(journal_id=journal.id, logged=bool(journal.log)) for journal in changed]

    def store_head(self, journal: Journal, commits: int) -> None:
        self.run(SQL.update_journal, journal.head_row(commits))

    def _write_files(self, journal: Journal, data: bytes, before: int) -> None:
        """Append one journal's lines to its files, and note in `written` where they began."""
        if data:
            name = log_name(journal.id)
            descriptor = self.files.open(name, journal.log_look)
            self.written.append(Written(journal.id, name, before))
            self.files.write(name, descriptor, data)
        if journal.part:
            name = part_name(journal.id)
            part = b"".join(journal.part)
            if journal.part_reset:
                self.files.cut(name, 0)
            descriptor = self.files.open(name, journal.part_look)
            self.written.append(Written(journal.id, name, journal.part_end - len(part)))
            self.files.write(name, descriptor, part)

    def settle_commit(self) -> None:
        """After COMMIT: remove the part files of streams whose seal is now in both legs, and keep what is known."""
        for journal in self.journals.values():
            if journal.part_reset and not journal.part:
                with contextlib.suppress(LogUnwritable, OSError):  # it stays behind, and the next touch finds it
                    self.files.remove(part_name(journal.id))
            journal.reset_changes()
        if len(self.kept.journals) + len(self.journals) > JOURNALS_KEPT_MAX:
            self.kept.journals = {}
        self.kept.journals.update(self.journals)


class CommitOutcome(Enum):
    """How far a commit came that failed."""

    OPEN = auto()
    COMMITTING = auto()
    """COMMIT was tried: a recovery of the WAL may find it."""
    UNSEEN = auto()
    """It was committed, and may be in a file that is not at the path any more."""


class SqliteGroupCommit:
    """Many calls, one commit to `state.db` and its logs. Whoever uses it holds the write lock."""

    def __init__(self, database: Database, lock: FairLock, reserve: Reserve) -> None:
        self._database = database
        self._files = database.files
        self._lock = lock
        self._reserve = reserve
        self._group: SqliteGroup | None = None
        self._outcome = CommitOutcome.OPEN

    def begin(self) -> GroupCommit:
        self._lock.acquire()
        return self

    def start(self, blocked: Mapping[str, HansardError]) -> SqliteGroup:
        """Begin a transaction on the database at the path, or begin it again.

        Whether it is still the one at the path is looked at after COMMIT, before anyone is answered (rule 4).
        """
        if self._group is not None:
            self._rollback()
        if self._lock.replaced:
            self._database.check_place()
            self._lock.trust_again()
        connection = self._database.begin()
        heads = self._database.known(connection)
        self._group = SqliteGroup(connection.cursor().execute, self._files, self._database.schema, blocked, heads)
        return self._group

    def mend(self, journal_id: str) -> HansardError | None:
        self._rollback()
        return self._database.reconcile(journal_id)

    def commit(self, units: Sequence[Unit]) -> list[TouchedJournal]:
        """Write the log, commit, and make sure that it went into the file at the path."""
        group, database = self._group, self._database
        assert group is not None, "start() comes first"
        try:
            touched = group.write(units, database.reach)
        except LogWriteError as error:
            if error.error is not None:
                raise CommitError(error.error) from error
            raise BlockedError(error.unwritable | self._take_back()) from error
        self._outcome = CommitOutcome.COMMITTING
        try:
            database.connected().execute(SQL.commit)
        except apsw.Error as error:
            raise CommitError(error) from error
        self._outcome = CommitOutcome.UNSEEN
        database.reach("committed")
        if not database.same():
            database.lose()
            raise CommitError(tell(Cause.REPLACED, database.path))
        group.settle_commit()
        self._group, self._outcome = None, CommitOutcome.OPEN
        if touched:
            database.unsynced.update(each.journal_id for each in touched if each.logged)
            database.committed.ring()
        database.reach("removed")
        return touched

    def undo(self, error: Exception) -> bool:
        """After a failed commit: make sure that it is gone, and take the log lines back; False when nobody knows."""
        outcome, self._outcome = self._outcome, CommitOutcome.OPEN
        group = self._group
        try:
            self._rollback()
        except apsw.Error:
            self._database.close()
        self._group = group
        if isinstance(error, apsw.CorruptError):
            self._database.gate.doubt()
        if isinstance(error, apsw.FullError) or getattr(error, "errno", 0) == errno.ENOSPC:
            self._reserve.spend()
        is_known = outcome is CommitOutcome.OPEN or (
            outcome is CommitOutcome.COMMITTING and self._database.commit_nothing()
        )
        is_known = is_known and not self._take_back()
        self._group = None
        return is_known

    def _take_back(self) -> dict[str, HansardError]:
        """Cut lines that were not committed; return the journals whose lines stay, so that their outcome is unknown."""
        kept: dict[str, HansardError] = {}
        for journal_id, name, size in self._group.written if self._group is not None else ():
            try:
                look = self._files.stat_file(name)
                if look is not None and look.size > size:
                    self._files.cut(name, size)
            except (LogUnwritable, OSError) as error:
                kept[journal_id] = framed(explain(error), "lines of a failed commit cannot be cut off", OutcomeUnknown)
        return kept

    def release(self) -> None:
        self._lock.release()

    def _rollback(self) -> None:
        self._group = None
        self._database.rollback()


def group_of(tx: Transaction) -> SqliteGroup:
    assert isinstance(tx.group, SqliteGroup)
    return tx.group


class LogWriteError(Exception):
    """Some logs could not be written. The group knows what was, so that it can be cut."""

    def __init__(self, error: OSError | None, unwritable: dict[str, HansardError] | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.unwritable = unwritable or {}
