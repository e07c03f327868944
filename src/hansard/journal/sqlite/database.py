"""The database file: opened, created, rebuilt and watched, always under the write lock.

Reads: `state.db` through SQLite; its name and its side files' through stat. Writes: the same.
Invariants: the file that we commit to is the one that lies at the path (rule 4); a WAL is never replayed into a
database that it does not continue (`stamps`).
On crash: SQLite's recovery, then ours in `reconcile`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import apsw

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import CHECKPOINT_WAL_BYTES
from hansard.errors import HansardError, LogForked, LogUnwritable, RecordDamaged, RecordTooNew
from hansard.journal.backend import DamageError, IdTakenError, MismatchError
from hansard.journal.concepts import Schema
from hansard.journal.entries import log_name
from hansard.journal.files import HomeFolder, LogFiles, sync_filesystem, sync_folder
from hansard.journal.locks import COMPARING, REBUILDING, HostOwners, Work
from hansard.journal.queue import Bell
from hansard.journal.sqlite.connection import (
    SQL,
    check_not_migrated,
    fetch,
    immediate,
    savepoint,
    schema_version,
)
from hansard.journal.sqlite.group import HeadCache, LogWriteError, SqliteGroup, group_of
from hansard.journal.sqlite.migrations import create_schema, migrate, refold
from hansard.journal.sqlite.opening import (
    DamagedDatabaseError,
    JournalDifference,
    check_heads,
    check_legs,
    connect,
    find_differences,
    latest_commit,
    list_logs,
    save_alone,
    was_put_back,
)
from hansard.journal.sqlite.reading import DatabaseLook, Identity, ReaderPool, files_fit, last_written_ns, look_at
from hansard.journal.sqlite.rebuilding import copy_to_logs, group_differences, set_damaged_aside
from hansard.journal.sqlite.reconcile import LogMend, Reconciler, mend_log, reconcile_part
from hansard.journal.sqlite.tails import PIECE_BYTES
from hansard.journal.transaction import Transaction, home_journal
from hansard.ports import Clock

logger = logging.getLogger("hansard.record")

LIFE_STEPS = 100_000
"""After how many steps of a statement SQLite lets us show that we are alive: some ten milliseconds."""

SYNC_JOURNALS_MIN = 100
"""From so many differing logs on, they are put on the disk all at once, and not one by one afterwards."""

PAGE_BYTES = 4096
COPY_BACK_PAGES = CHECKPOINT_WAL_BYTES // PAGE_BYTES
"""By how many pages the WAL has to grow until it is copied back."""

WAL_PAGES_MAX = 8_192
"""A WAL that grew to this while logs were read in is copied back: 32 MiB."""


class Database:
    """The connection that writes, and what it is connected to."""

    def __init__(  # noqa: PLR0917
        self,
        home: Path,
        files: LogFiles,
        clock: Clock,
        reach: Callable[[str], None],
        owners: HostOwners,
        schema: Schema,
    ) -> None:
        """Nothing is opened before it is needed."""
        self.path = home / "state.db"
        self.home = home
        self._owners = owners
        self.files = files
        self.clock = clock
        self.schema = schema
        self.reach = reach
        self._seen = DatabaseLook()
        self._lost: Identity = ()
        self._written_ns = 0
        self._connection: apsw.Connection | None = None
        self._doubtful = False
        self.heads = HeadCache()
        self.unsynced: set[str] = set()
        """Journals whose logs grew since they were last put on the disk."""
        self.folder = HomeFolder(home)
        self.gate = ReaderPool(self.folder, schema)
        self.work = Work(home)
        self.wal_pages = 0
        self.copy_back_at = COPY_BACK_PAGES
        """How many pages the WAL may have until it is copied back."""
        self.is_copied_back = False
        """Whether the keeper has copied the WAL back; what came meanwhile is copied before the next transaction."""
        self.committed = Bell()
        """Wakes the keeper: a log grew, or the WAL did."""
        self.wal_is_long = Bell()
        """Wakes the keeper at once."""

    def check_place(self) -> None:
        """Refuse when the home was taken away; take locks again whose files were.

        Called under the write lock, before the database is opened and after a lock file was replaced.
        """
        self.folder.check()
        self._owners.take_again()

    def same(self) -> bool:
        """Return whether the home and the files that we are connected to are still at the path, with their content.

        A checkpoint writes to `state.db`, and so does `cp` over it: then the stamps tell them apart.
        """
        try:
            look = look_at(self.path)
            if not self.folder.is_there():
                return False
        except (RecordDamaged, OSError):
            return False
        if look.identity != self._seen.identity:
            return False
        if look != self._seen and not files_fit(self.path):
            return False
        self._seen = look
        return True

    def begin(self) -> apsw.Connection:
        """Begin a transaction. Whether the database is the one at the path is looked at after COMMIT (rule 4)."""
        if self.gate.is_doubted and self._connection is not None:
            self.lose()
        connection = self._connection or self.connection()
        if self.is_copied_back:
            self.is_copied_back = False
            with suppress(apsw.Error):  # it is tried again when the WAL has grown further
                fetch(connection, SQL.checkpoint)
        connection.execute(SQL.begin)
        return connection

    def connection(self) -> apsw.Connection:
        """Return a connection to the database at the path; open, create or rebuild it when need be."""
        if self._connection is not None:
            if self.same():
                return self._connection
            self.lose()
        self.check_place()
        with self.work.under_way(), self.gate.emptied():
            try:
                connection = self._open()
                if self.gate.is_doubted:
                    self.gate.note_unmended()
            except DamagedDatabaseError as error:
                set_damaged_aside(self.path, error)
                connection = self._open()
            except apsw.IOError as error:
                if getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_SHORT_READ:
                    raise
                save_alone(self.path, self.files)
                set_damaged_aside(self.path, DamagedDatabaseError("state.db lacks what its WAL held, which is gone"))
                connection = self._open()
        self._connection = connection
        self._lost = ()
        self.gate.is_doubted = False
        return connection

    def _open(self) -> apsw.Connection:
        self._written_ns = last_written_ns(self.path)
        with ExitStack() as stack:
            connection, every = connect(self.path, self.files, self._lost, self.schema)
            every = every or self.gate.is_doubted
            self._written_ns = 0 if every else self._written_ns
            stack.callback(connection.close)
            connection.set_wal_hook(self._note_wal)
            connection.set_progress_handler(self.work.show_life, LIFE_STEPS)
            has_all = self._prepare(connection, every=every)
            self._make_durable(connection, has_all=has_all)
            connection.set_progress_handler(None)
            self.gate.written = look_at(self.path).identity
            stack.pop_all()
        return connection

    def connected(self) -> apsw.Connection:
        assert self._connection is not None, "start() comes first"
        return self._connection

    def lose(self) -> None:
        """Let go of files that are not at the path any more, and remember which they were until others are open."""
        if self.gate.is_doubted:
            logger.warning("something in state.db is missing or cannot be read; it is compared with the logs")
        elif self.folder.is_there():
            logger.warning("state.db or its WAL was moved or replaced under us; it is opened again")
        self._lost = self._seen.identity
        self.close()

    def _prepare(self, connection: apsw.Connection, *, every: bool) -> bool:
        """Make the database ready: migrated, with all entries that its heads name, and in line with the logs.

        Return whether every log could be read.
        """
        version = schema_version(connection)
        if version:
            check_legs(connection, self.files)
        if version == 0:
            create_schema(connection, self.schema, rebuilding=next(list_logs(self.files), None) is not None)
            sync_folder(str(self.home))
        elif version < self.schema.version:
            refolding = partial(refold, schema=self.schema, work=self.work)
            migrate(connection, self.home / "backups", refolding, self.schema, reach=self.reach)
        for kind, kind_version, ignorable in fetch(connection, SQL.list_kinds):
            self.schema.check_kind(kind, kind_version, ignorable=bool(ignorable))
        self._seen = look_at(self.path)
        try:
            check_heads(connection, every=every)
            ((rebuilding,),) = fetch(connection, SQL.read_rebuilding)
            has_all = self._reconcile_all(connection, REBUILDING if rebuilding else COMPARING)
        except (DamagedDatabaseError, DamageError, apsw.CorruptError) as error:
            copy_to_logs(connection, self.files)
            raise DamagedDatabaseError(str(error)) from error
        introduce(self, connection, rebuilt=bool(rebuilding))
        if rebuilding:
            with stamped(connection):
                connection.execute(SQL.end_rebuilding)
        return has_all

    def _reconcile_all(self, connection: apsw.Connection, doing: str) -> bool:
        """Bring every journal in line whose files are not as the database says, in pieces that are committed.

        Return whether every log could be read and mended. One of another history could.
        """
        self.work.begin(doing, 0, 0)
        differences = find_differences(connection, self.files, self.work, since_ns=self._written_ns)
        if not differences:
            return True
        size_bytes = sum(each.size_bytes for each in differences)
        is_much = len(differences) >= SYNC_JOURNALS_MIN or size_bytes > PIECE_BYTES
        is_synced = is_much and sync_filesystem(str(self.home))
        if doing == REBUILDING:
            latest = latest_commit(self.files, differences, self.work)
            with stamped(connection):
                fetch(connection, SQL.mark_lost, (latest,))
        elif was_put_back(connection, self.files, self.schema, differences):
            with stamped(connection):
                fetch(connection, SQL.mark_put_back)
        errors: list[HansardError] = []
        self.work.begin(doing, len(differences), size_bytes)
        for difference in differences:
            if difference.size_bytes > PIECE_BYTES:
                self._attempt(difference.journal_id, partial(self._adopt_pieces, connection, is_synced=is_synced))
        for group in group_differences(differences):
            errors += self._reconcile_group(connection, group, is_synced=is_synced)
            self._shorten_wal(connection)
        if self._written_ns and any(isinstance(error, LogForked) for error in errors):
            # One leg is of another history: compare all of it.
            self._written_ns = 0
            return self._reconcile_all(connection, doing)
        if is_much:
            logger.warning("finished %s: %d sessions, %d bytes", doing, len(differences), size_bytes)
        return all(isinstance(error, LogForked) for error in errors)

    def _reconcile_group(
        self, connection: apsw.Connection, group: Iterable[JournalDifference], *, is_synced: bool
    ) -> list[HansardError]:
        """Bring some journals in line in one transaction; return what is wrong with those that cannot be."""
        errors = []
        mends: dict[str, LogMend] = {}
        reconcile = partial(self._reconcile_within, connection, savepoint, mends, is_synced=is_synced)
        with stamped(connection):
            for difference in group:
                error = self._attempt(difference.journal_id, reconcile)
                if error is not None:
                    errors.append(error)
                if isinstance(error, LogForked):
                    self.files.suspect.add(difference.journal_id)
                    fetch(connection, SQL.doubt_log, (difference.journal_id,))
                elif isinstance(error, RecordDamaged) or (
                    isinstance(error, LogUnwritable) and error.is_unread and error.name.endswith(".jsonl")
                ):
                    fetch(connection, SQL.doubt_unread_log, (difference.journal_id,))
                self.work.advance(sessions=1, done=min(difference.size_bytes, PIECE_BYTES))
        return errors + list(self._mend_logs(connection, mends).values())

    def _make_durable(self, connection: apsw.Connection, *, has_all: bool) -> None:
        """Put on the disk what opening found: a WAL's recovery also finds commits that were never fsynced (rule 3).

        A real commit is an fsync of the whole WAL. After a failed fsync that proves nothing, because the kernel may
        have dropped the pages: then everything is first copied into the database file.
        """
        if self._doubtful:
            ((busy, frames, copied),) = fetch(connection, SQL.checkpoint)
            if busy or copied < frames:
                raise apsw.BusyError("the WAL could not be copied back after a failed fsync")
        with stamped(connection):
            fetch(connection, SQL.mark_checked, (has_all,))
        self._doubtful = False

    def _note_wal(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Hear from SQLite, after each commit, how long the WAL is; tell other processes that there was one."""
        if pages < self.wal_pages:
            self.copy_back_at = COPY_BACK_PAGES  # the WAL began anew
        self.wal_pages = pages
        self.reach("ringing")
        self._owners.ring()
        if pages >= self.copy_back_at:
            self.wal_is_long.ring()
        return apsw.SQLITE_OK

    def reconcile(self, journal_id: str) -> HansardError | None:
        connection = self.connected()
        with self.work.under_way():
            self.work.begin(COMPARING, 1, 0)
            mends: dict[str, LogMend] = {}
            error = self._attempt(journal_id, partial(self._adopt_pieces, connection)) or self._attempt(
                journal_id, partial(self._reconcile_within, connection, stamped, mends)
            )
            return self._mend_logs(connection, mends).get(journal_id) or error

    def _adopt_pieces(self, connection: apsw.Connection, journal_id: str, *, is_synced: bool = False) -> None:
        """Adopt a log that is much longer than the database says, piece by piece, until the rest is short."""
        while True:
            with stamped(connection):
                tx = self.new_transaction(connection)
                size_bytes = Reconciler(tx, is_synced=is_synced).adopt_piece(journal_id)
            if not size_bytes:
                return
            self.reach("adopted")
            self.work.advance(done=size_bytes)
            self._shorten_wal(connection)

    def _reconcile_within(
        self,
        connection: apsw.Connection,
        scope: Callable[[apsw.Connection], AbstractContextManager[None]],
        mends: dict[str, LogMend],
        journal_id: str,
        *,
        is_synced: bool = False,
    ) -> None:
        """Reconcile a journal in a transaction of its own, or in a part of one; add which logs are to be mended."""
        problem: HansardError | None = None
        with scope(connection):
            self.reach("reconciling")
            tx = self.new_transaction(connection)
            reconciler = Reconciler(tx, is_synced=is_synced)
            reconciler.run(journal_id)
            try:
                with savepoint(connection):
                    reconcile_part(group_of(tx), journal_id)
            except (LogUnwritable, RecordDamaged) as error:
                problem = error  # what the log gave is kept
        self.reach("reconciled")
        for name, mend in reconciler.mends.items():
            if not (name in mends and mends[name].is_rewritten):  # that stays so, although its lines are known by now
                mends[name] = mend
        if problem is not None:
            raise problem

    def _mend_logs(self, connection: apsw.Connection, mends: dict[str, LogMend]) -> dict[str, HansardError]:
        """Write logs anew, or cut them, once the entries that they gave are committed; return what is wrong."""
        errors = {}
        needed = [mend for mend in mends.values() if mend.is_rewritten or mend.end < mend.size]
        if needed:
            self.reach("mending")
            with stamped(connection):
                for mend in needed:
                    error = self._attempt(mend.journal_id, partial(self._mend_log, connection, mend))
                    if error is not None:
                        errors[mend.journal_id] = error
                        if mend.is_rewritten:
                            self.files.suspect.add(mend.journal_id)
            self.reach("mended")
        return errors

    def _mend_log(self, connection: apsw.Connection, mend: LogMend, _journal_id: str) -> None:
        with savepoint(connection):
            mend_log(group_of(self.new_transaction(connection)), mend)

    def _attempt(self, journal_id: str, act: Callable[[str], None]) -> HansardError | None:
        """Do something with a journal's files; return why that is impossible."""
        self.heads.forget()
        self.folder.check()
        try:
            act(journal_id)
        except LogUnwritable as error:
            logger.error("%s; until that is mended, messages to %s can be refused", error, journal_id)  # noqa: TRY400
            return error
        except (LogForked, RecordDamaged, RecordTooNew) as error:
            logger.error("%s", error)  # noqa: TRY400 - a sentence for a person, not a traceback
            return error
        except (apsw.ConstraintError, IdTakenError) as error:
            logger.error("the log of %s cannot be adopted: %s", journal_id, error)  # noqa: TRY400
            return RecordDamaged(f"{log_name(journal_id)} contradicts the database: {error}")
        return None

    def _shorten_wal(self, connection: apsw.Connection) -> None:
        """Copy the WAL back while logs are read in: it would grow as long as all of them."""
        if self.wal_pages > WAL_PAGES_MAX:
            fetch(connection, SQL.checkpoint)

    def known(self, connection: apsw.Connection) -> HeadCache:
        """Return what the last commits left in memory; nothing when another process has committed since.

        Then the schema is looked at too: it may have been migrated (rule 6).
        """
        version: int = connection.execute(SQL.data_version).get
        if version != self.heads.data_version:
            self.heads.forget()
            check_not_migrated(schema_version(connection), self.schema)
            self.heads.data_version = version
        return self.heads

    def new_transaction(self, connection: apsw.Connection) -> Transaction:
        return Transaction(SqliteGroup(connection.cursor().execute, self.files, self.schema), self.clock)

    def commit_nothing(self) -> bool:
        """Commit a no-op after a failed COMMIT: only when that succeeds is the failed one gone for good (rule 3)."""
        try:
            connection = self.connection()
            with stamped(connection):
                pass
        except (apsw.Error, OSError, HansardError) as error:
            logger.error("the outcome of a commit is unknown: %s", error)  # noqa: TRY400
            self._doubtful = True
            self.close()
            return False
        return self.same()

    def rollback(self) -> None:
        self.heads.forget()
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute(SQL.rollback)

    def close(self) -> None:
        """Close the connection; the WAL stays (rule 5)."""
        self.heads.forget()
        self.gate.written = ()
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003 - force
            self._connection = None


def introduce(database: Database, connection: apsw.Connection, *, rebuilt: bool) -> None:
    """Make a new database known in the home journal. One whose home log cannot be written serves its sessions."""
    if fetch(connection, SQL.find_introduction, (HOME_JOURNAL,)):
        return
    try:
        with immediate(connection):
            tx = database.new_transaction(connection)
            home_journal(tx, tx.row(SQL.read_record)[0], rebuilt=rebuilt)
            tx.finish_unit()
            group_of(tx).write(tx.units, database.reach)
    except LogWriteError as error:
        if error.error is not None:
            raise error.error from error
        for problem in error.unwritable.values():
            logger.error("%s", problem)  # noqa: TRY400
    except (MismatchError, HansardError) as error:
        name = log_name(HOME_JOURNAL)
        logger.error("that this database is new is not noted in %s, which is not as state.db says: %s", name, error)  # noqa: TRY400


@contextmanager
def stamped(connection: apsw.Connection) -> Iterator[None]:
    """Run a block in a write transaction with a number and a stamp of its own, as every commit must have."""
    with immediate(connection):
        fetch(connection, SQL.bump_commits)
        yield
