"""The backend of a home: SQLite and log files, with the locks that processes of one host share.

Reads and writes: `state.db`, the logs, `locks/`, `reserve`. Invariants: see `database`, `group`, `keeper`, `reading`.
On crash: the kernel drops the locks, and the next opening recovers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from hansard.errors import HansardError
from hansard.journal.backend import Blobs, Leg, LogSeen, Owners, Reads, Room, Upkeep
from hansard.journal.concepts import Schema
from hansard.journal.files import FileBlobs, HomeFolder, LogFiles, make_folder
from hansard.journal.follow import Followers
from hansard.journal.locks import FairLock, HostOwners
from hansard.journal.sqlite.connection import BROKEN, SQL, DatabaseError, explain, fetch
from hansard.journal.sqlite.database import Database
from hansard.journal.sqlite.disk import Reserve, check_behaviour, check_filesystem
from hansard.journal.sqlite.group import SqliteGroupCommit
from hansard.journal.sqlite.keeper import Keeper
from hansard.journal.sqlite.migrations import MemoryFold
from hansard.journal.sqlite.opening import list_logs
from hansard.journal.sqlite.reading import ReadConnection, Readers, Snapshot
from hansard.journal.sqlite.watching import listen, watch_others
from hansard.ports import Clock

Result = TypeVar("Result")


class SqliteLeg:
    """The log files of a home, and the database that a verification compares them with."""

    self_check = SQL.quick_check

    def __init__(self, files: LogFiles, folder: HomeFolder, readers: Readers) -> None:
        self.files = files
        self._folder = folder
        self._readers = readers
        self._connection: ReadConnection | None = None
        self._mutex = threading.Lock()

    @contextmanager
    def settled(self) -> Iterator[None]:
        lock = FairLock(Path(self._folder.path) / "locks")
        lock.acquire()
        try:
            yield
        finally:
            lock.release()
            lock.close()

    def list_logs(self) -> Iterator[LogSeen]:
        return list_logs(self.files)

    def make_fold(self) -> MemoryFold:
        return MemoryFold(self._readers.schema)

    def snapshot(self, look: Callable[[Reads], Result]) -> Result:
        """Read one committed state; errors of SQLite are its own."""
        with self._mutex:
            if self._connection is None:
                self._connection = self._readers.connect()
            return self._connection.snapshot(look)

    def close(self) -> None:
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
        self.files.close()


class SqliteBackend:
    """One home, open for writing in this process."""

    failures: tuple[type[Exception], ...] = (DatabaseError, OSError)
    broken: tuple[type[Exception], ...] = BROKEN

    def __init__(  # noqa: PLR0917
        self,
        home: Path,
        schema: Schema,
        clock: Clock,
        reach: Callable[[str], None],
        files: LogFiles | None = None,
        blobs: FileBlobs | None = None,
    ) -> None:
        """Create what is missing of the home; `open` does the rest. A copy has its logs and attachments elsewhere."""
        self.home = home
        self.schema = schema
        check_filesystem(home)
        for name in ("", "locks", "locks/owners", "sessions"):
            make_folder(str(home / name).rstrip("/"))
        check_behaviour(home / "locks" / "probe")
        self._owners = HostOwners(home)
        self._owners.join()
        self.owners: Owners = self._owners
        self.files = files or LogFiles(home)
        self._lock = FairLock(home / "locks")
        reserve = Reserve(home)
        self.room: Room = reserve
        self.database = Database(home, self.files, clock, reach, self._owners, schema)
        self.begin = SqliteGroupCommit(self.database, self._lock, reserve).begin
        self.work = self.database.work
        self.folder = self.database.folder
        self.blobs: Blobs = blobs or FileBlobs(self.database.folder)
        self.emptied = self.database.gate.emptied
        self.readers = Readers(self.database.path, self.database.gate)
        self.read = self.readers.read
        self.place = self.database.path
        self._leg = SqliteLeg(self.files, self.database.folder, self.readers)
        self.leg: Leg = self._leg
        self._keeper = Keeper(self.database)
        self.upkeep: Upkeep = self._keeper

    def open(self, look: Callable[[Reads], Result]) -> Result:
        """Open, create, migrate or rebuild the database and bring the logs in line; then look, under the lock."""
        self._lock.acquire()
        try:
            connection = self.database.connection()
            result = look(Snapshot(connection, self.schema))
            self.database.unsynced.update(row[0] for row in fetch(connection, SQL.unsynced_journals))
            self.database.committed.ring()
        finally:
            self._lock.release()
        return result

    def doubt(self) -> bool:
        return self.database.gate.doubt()

    def watch(self, followers: Followers) -> Callable[[], None]:
        return watch_others(self.readers, followers, listen(self.home, self._owners.owner), self._keeper.retire)

    def explain(self, error: Exception) -> HansardError:
        return explain(error, self.database.path)

    def close(self, *, is_writing: bool = False, killed: bool = False) -> None:
        self.readers.close()
        if not is_writing:
            if not killed:
                self._keeper.shrink()
            self.database.close()
            self._leg.close()
            self._lock.close()
        self._keeper.close()
        self._owners.leave(killed=killed)
