"""Reads: short snapshots on connections of their own. They never block the writer and never linger (rule 12).

Besides, a database in a file of its own beside the record (`SideFile`), which can be made anew at any time.

Reads: state.db; side files. Writes: side files. Their user sees to it that one process at a time writes.
Invariants: every statement is read to its end inside one snapshot; a page has a bound; nothing is yielded from one. A
connection to files that were removed or replaced is not used any more.
On crash: of side files, as SQLite does. Whatever is wrong with one, its user may discard it.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from hansard.domain.limits import CHECKPOINT_WAL_BYTES, SHRINK_WAL_BYTES
from hansard.errors import HansardError
from hansard.journal.backend import DamageError, ReplacedError
from hansard.journal.causes import Cause, misplaced, tell
from hansard.journal.concepts import Schema
from hansard.journal.files import HomeFolder
from hansard.journal.sqlite.connection import (
    NOT_TEXT,
    SQL,
    FilesLook,
    fetch,
    immediate,
    is_guarded,
    is_unfinished,
    look_at_files,
    map_error,
    open_connection,
    open_untouched,
)
from hansard.journal.sqlite.stamps import does_fit, read_database_file, read_wal_file

Result = TypeVar("Result")


class Snapshot:
    """One moment of the record."""

    def __init__(self, connection: apsw.Connection, schema: Schema) -> None:
        """The caller has begun a read transaction."""
        self.schema = schema
        self._run = connection.cursor().execute

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._run(query, bindings).fetchall()
        except UnicodeDecodeError as error:
            raise apsw.CorruptError(NOT_TEXT) from error

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        return next(iter(self.rows(query, bindings)), None)


SIDES = ("", "-wal", "-shm")
Identity = tuple[tuple[int, int] | None, ...]


class DatabaseLook(NamedTuple):
    """Which files lie at a database's names, and when the first of them was last written to.

    A checkpoint changes `written`, and so does `cp` over the same file: then its content has to be looked at.
    """

    identity: Identity = ()
    written: tuple[int, int] = (0, 0)


def look_at(path: Path) -> DatabaseLook:
    """Return which files lie at a database's names now, without opening them (rule 5)."""
    found: list[tuple[int, int] | None] = []
    written = (0, 0)
    for side in SIDES:
        try:
            seen = os.stat(f"{path}{side}", follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            found.append(None)
            continue
        if not stat.S_ISREG(seen.st_mode):
            raise misplaced(f"{path}{side}", seen.st_mode)
        found.append((seen.st_dev, seen.st_ino))
        if not side:
            written = (seen.st_mtime_ns, seen.st_size)
    return DatabaseLook(tuple(found), written)


def last_written_ns(path: Path) -> int:
    """Return when `state.db` or its WAL was last written to, by the clock of the file system; 0 without them."""
    times = [0]
    for side in SIDES[:2]:
        with suppress(OSError):
            times.append(os.stat(f"{path}{side}", follow_symlinks=False).st_mtime_ns)
    return max(times)


def files_fit(path: Path) -> bool:
    """Return whether `state.db` and its WAL hold states of one history, also while others write and checkpoint.

    The WAL is read first: until `state.db` is read, a checkpoint can only copy states that were in it. A WAL that is
    emptied or begun anew meanwhile looks wrong, and right when it is looked at again.
    """
    for attempt in range(LOOKS_MAX):
        if attempt:
            time.sleep(LOOK_SECONDS)
        wal = read_wal_file(path)
        database = read_database_file(path)
        if database is not None and does_fit(database, wal):
            return True
    return False


LOOKS_MAX = 4
LOOK_SECONDS = 0.01
"""How often, and after which pause, to look again at files that do not seem to belong together."""


COMPARE_AGAIN_SECONDS = 60.0
"""After a comparison with the logs that found nothing, damage that is met again does not cause another for so long."""

Opens = Callable[[Path], apsw.Connection]


def open_reader(path: Path) -> apsw.Connection:
    return open_connection(path, read_only=True)


def look_unguarded(path: Path) -> FilesLook | None:
    """Look at a database and its WAL when SQLite's locks do not protect a read; None when they do."""
    return None if is_guarded(path) else look_at_files(path, *SIDES[:2])


class ReaderPool:
    """All connections of this process but the writer's.

    SQLite shares locks and the wal-index inside a process, so before a database is opened in place of another, every
    one of them must let go.
    """

    def __init__(self, home: HomeFolder, schema: Schema) -> None:
        self.home = home
        self.schema = schema
        self.is_doubted = False
        """Whether the writer is to open the database again and compare all of it with the logs: damage was met."""
        self._compared_at = -COMPARE_AGAIN_SECONDS
        self.written: Identity = ()
        """Which files the writer of this process is connected to, if it is. A reader of others would share their
        wal-index: SQLite keeps one for each `state.db` in a process."""
        self._changed = threading.Condition()
        self._users = 0
        self._shut = False
        self._connections: weakref.WeakSet[ReadConnection] = weakref.WeakSet()

    def doubt(self) -> bool:
        """Have the database compared with the logs; return False if that found nothing a moment ago."""
        self.is_doubted |= time.monotonic() - self._compared_at >= COMPARE_AGAIN_SECONDS
        return self.is_doubted

    def note_unmended(self) -> None:
        """Note that the database was compared with the logs, and that nothing was found wrong."""
        self._compared_at = time.monotonic()

    def add(self, connection: ReadConnection) -> None:
        with self._changed:
            self._connections.add(connection)

    @contextmanager
    def using(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._shut)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Wait until nobody uses a connection, close them all, and let nobody in meanwhile."""
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: self._users == 0)
            connections = list(self._connections)
        try:
            for connection in connections:
                connection.close()
            yield
        finally:
            with self._changed:
                self._shut = False
                self._changed.notify_all()


class ReadConnection:
    """A connection that notices when the files at the path are others."""

    def __init__(self, path: Path, gate: ReaderPool, opens: Opens = open_reader) -> None:
        self._path = path
        self._gate = gate
        self._opens = opens
        self._connection: apsw.Connection | None = None
        self._seen = DatabaseLook()
        gate.add(self)

    def _get(self) -> apsw.Connection:
        look = look_at(self._path)
        if self._connection is not None and self._seen != look:
            if self._seen.identity != look.identity or not files_fit(self._path):
                self.close()
                self._gate.home.check()
                raise ReplacedError
            self._seen = look
        if self._connection is None:
            self._gate.home.check()
            if look.identity[0] is None or (self._gate.written or look.identity) != look.identity:
                raise ReplacedError
            if not files_fit(self._path):
                raise ReplacedError
            self._connection = self._opens(self._path)
            if is_unfinished(self._connection, self._gate.schema):
                self.close()
                raise ReplacedError
            self._seen = look_at(self._path)._replace(written=look.written)
        return self._connection

    def fetch(self, query: str) -> list[Any]:
        with self._gate.using():
            return fetch(self._get(), query)

    def snapshot(self, read: Callable[[Snapshot], Result]) -> Result:
        with self._gate.using():
            connection = self._get()
            unguarded = None if self._opens is not open_untouched else look_unguarded(self._path)
            connection.execute(SQL.begin_read)
            try:
                result = read(Snapshot(connection, self._gate.schema))
            except DamageError:
                self._gate.doubt()
                raise
            finally:
                if connection.in_transaction:
                    connection.execute(SQL.rollback)
            if unguarded is not None and look_unguarded(self._path) != unguarded:
                self.close()
                raise ReplacedError
            return result

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003 - force
            self._connection = None


def snapshot_soon(connection: ReadConnection, read: Callable[[Snapshot], Result]) -> Result:
    """Read in a snapshot, again if a WAL just begins anew.

    A reader that may not write to the wal-index has no mark for a moment then.
    """
    for _ in range(LOOKS_MAX):
        try:
            return connection.snapshot(read)
        except apsw.ReadOnlyError as error:
            if getattr(error, "extendedresult", 0) != apsw.SQLITE_READONLY_CANTINIT:
                raise
        time.sleep(LOOK_SECONDS)
    return connection.snapshot(read)


class Readers:
    """A few connections that the process's reads share."""

    def __init__(self, path: Path, gate: ReaderPool, opens: Opens = open_reader) -> None:
        self.path = path
        self.schema = gate.schema
        self._gate = gate
        self._opens = opens
        self._idle: list[ReadConnection] = []
        self._mutex = threading.Lock()
        self._closed = False

    def connect(self) -> ReadConnection:
        """Return a connection for one user alone, who closes it."""
        return ReadConnection(self.path, self._gate, self._opens)

    def read(self, read: Callable[[Snapshot], Result]) -> Result:
        with self._mutex:
            if self._closed:
                raise tell(Cause.CLOSED)
            connection = self._idle.pop() if self._idle else self.connect()
        try:
            result = snapshot_soon(connection, read)
        except apsw.Error as error:
            connection.close()
            raise map_error(error, "read", self.path, writes=self._opens is not open_untouched) from error
        except ReplacedError:
            connection.close()
            raise
        with self._mutex:
            if not self._closed:
                self._idle.append(connection)
                return result
        connection.close()
        return result

    def close(self) -> None:
        """Close what is idle; what is in use closes when it is done."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class SideFile:
    """A database beside the record, in this process: one connection that reads, and one that writes.

    Its user keeps readers apart from one another, and writers as well.
    """

    def __init__(self, path: Path, tables: str, *, read_only: bool) -> None:
        """Nothing is opened before it is needed. `tables` creates the tables of a new file."""
        self.path = path
        self._tables = tables
        self._read_only = read_only
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._written: Identity | None = None
        self._read: Identity | None = None

    @contextmanager
    def snapshot(self, schema: Schema) -> Iterator[Snapshot | None]:
        """Read in one snapshot. None: there is no such file, or none that can be read."""
        connection = self._open_reader()
        if connection is None:
            yield None
            return
        connection.execute(SQL.begin_read)
        try:
            yield Snapshot(connection, schema)
        finally:
            if connection.in_transaction:
                connection.execute(SQL.rollback)

    def open_writer(self) -> apsw.Connection:
        """Return the connection that writes, to the file that lies there now; a new one has its tables."""
        if self._writer is not None and self._identity() != self._written:
            self.close_writer()
        if self._writer is None:
            if self._identity() is None:  # nothing lies there, or a link or a folder, which readers do not use
                self.discard()
            connection = open_connection(self.path)
            self._writer = connection
            if fetch(connection, SQL.count_tables)[0][0] == 0:
                with immediate(connection):
                    connection.execute(self._tables)
            self._written = self._identity()
        return self._writer

    def _open_reader(self) -> apsw.Connection | None:
        identity = self._identity()
        if self._reader is not None and identity != self._read:
            self.close_reader()
        if self._reader is None and identity is not None:
            if self._read_only and not is_guarded(self.path):
                return None  # nothing would tell that somebody writes meanwhile
            connection = open_untouched(self.path) if self._read_only else open_reader(self.path)
            self._reader, self._read = connection, identity
            if fetch(connection, SQL.count_tables)[0][0] == 0:
                self.close_reader()
        return self._reader

    def _identity(self) -> Identity | None:
        """Return which files lie there; None when there is none that could be a database."""
        try:
            found = look_at(self.path).identity
        except HansardError:
            return None
        return found if found[0] is not None else None

    def has_room(self, size_bytes: int) -> bool:
        """Return whether the disk has room for so many bytes; where that cannot be found out, it has."""
        try:
            space = os.statvfs(self.path.parent)
        except OSError:
            return True
        return space.f_bavail * space.f_frsize >= size_bytes

    def shrink(self, wal_bytes_max: int = CHECKPOINT_WAL_BYTES) -> None:
        """Copy a long WAL back: nobody else does it for this file."""
        with suppress(OSError, apsw.Error):
            if self._writer is not None and os.stat(f"{self.path}-wal").st_size > wal_bytes_max:
                fetch(self._writer, SQL.checkpoint_truncate)

    def discard(self) -> None:
        """Remove the files: whatever was wrong with them, new ones are right."""
        self.close_writer()
        for side in SIDES:
            path = f"{self.path}{side}"
            with suppress(FileNotFoundError):
                if os.path.isdir(path):
                    os.rename(path, f"{path}.{secrets.token_hex(4)}")
                else:
                    os.unlink(path)

    def close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close(True)  # noqa: FBT003 - force
            self._writer = None

    def close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close(True)  # noqa: FBT003 - force
            self._reader = None

    def close(self) -> None:
        self.close_reader()
        self.shrink(SHRINK_WAL_BYTES)
        self.close_writer()
