"""Reads: short snapshots on connections of their own. They never block the writer and never linger (rule 12).

Reads: state.db. Writes: nothing.
Invariants: every statement is read to its end inside one snapshot; a page has a bound; nothing is yielded from one.
On crash: nothing to do.
"""

from __future__ import annotations

import os
import stat
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import apsw

from hansard.journal.backend import EntriesGoneError, ReplacedError
from hansard.journal.causes import Cause, misplaced, tell
from hansard.journal.sqlite.connection import (
    SQL,
    fetch,
    is_guarded,
    is_unfinished,
    map_error,
    open_connection,
    open_untouched,
)
from hansard.journal.sqlite.stamps import does_fit, read_database_file, read_wal_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard.journal.concepts import Schema
    from hansard.journal.files import HomeFolder

Result = TypeVar("Result")


class Snapshot:
    """One moment of the record."""

    def __init__(self, connection: apsw.Connection, schema: Schema) -> None:
        """The caller has begun a read transaction."""
        self.schema = schema
        self._run = connection.cursor().execute

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        return self._run(query, bindings).fetchall()

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        rows = self._run(query, bindings).fetchall()
        return rows[0] if rows else None


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


Opens = Callable[[Path], apsw.Connection]


def open_reader(path: Path) -> apsw.Connection:
    return open_connection(path, read_only=True)


def look_unguarded(path: Path) -> tuple[tuple[int, int] | None, ...] | None:
    """Return size and time of a database and its WAL when SQLite's locks do not protect a read; None when they do."""
    if is_guarded(path):
        return None
    found: list[tuple[int, int] | None] = []
    for side in SIDES[:2]:
        try:
            seen = os.stat(f"{path}{side}")
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((seen.st_size, seen.st_mtime_ns))
    return tuple(found)


class ReaderPool:
    """All connections of this process but the writer's.

    SQLite shares locks and the wal-index inside a process, so before a database is opened in place of another, every
    one of them must let go.
    """

    def __init__(self, home: HomeFolder, schema: Schema) -> None:
        self.home = home
        self.schema = schema
        self.is_doubted = False
        """Whether a read found that entries are missing: the writer opens the database again and compares all heads."""
        self._changed = threading.Condition()
        self._users = 0
        self._shut = False
        self._connections: weakref.WeakSet[ReadConnection] = weakref.WeakSet()

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
            if look.identity[0] is None or not files_fit(self._path):
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
        """Run a read in one snapshot and end it."""
        with self._gate.using():
            connection = self._get()
            unguarded = None if self._opens is not open_untouched else look_unguarded(self._path)
            connection.execute(SQL.begin_read)
            try:
                result = read(Snapshot(connection, self._gate.schema))
            except EntriesGoneError:
                self._gate.is_doubted = True
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
            result = connection.snapshot(read)
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
