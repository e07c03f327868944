"""Another program's SQLite database, read where it lies and never changed: not a byte, not a time, not a lock.

Reads: the file and its WAL. Writes: nothing.
Invariants: no side file is made; rows come from one state of the files, or are read again.
On crash: nothing is left behind.

SQLite's own read-only mode makes a `-shm` file beside a database in WAL mode, and marks itself in one that is there.
So a WAL with content is read without locks and with its index in memory; a database without one as if immutable.
Neither notices a writer, so the files are looked at after every read.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import apsw

from hansard.errors import InvalidInput, RecordUnavailable
from hansard.record.sqlite.connection import check_sqlite_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READS_MAX: Final = 5
"""How often a read is repeated because the files changed under it."""

Row = dict[str, Any]
Look = tuple[tuple[int, int, int] | None, ...]


class ForeignDatabase:
    """An open database of another program. Use `open_foreign`."""

    def __init__(self, path: Path) -> None:
        """Open when it is first read."""
        self._path = path
        self._look: Look = ()
        self._connection: apsw.Connection | None = None

    def rows(self, query: str, bindings: tuple[object, ...] = ()) -> list[Row]:
        """Return the rows of a query as columns by name. The query bounds how many there are."""
        for _ in range(READS_MAX):
            try:
                found = self._read(query, bindings)
            except (apsw.Error, UnicodeDecodeError) as error:
                if self._unchanged():
                    message = f"{self._path} cannot be read: {error}"
                    raise InvalidInput(message) from error
            else:
                if self._unchanged():
                    return found
            self.close()
        message = f"{self._path} changes all the time: stop the program that writes to it, then repeat"
        raise RecordUnavailable(message)

    def _read(self, query: str, bindings: tuple[object, ...]) -> list[Row]:
        if self._connection is None:
            self._look = _look_at(self._path)
            self._connection = _connect(self._path)
        cursor = self._connection.execute(query, bindings)
        first = next(cursor, None)
        if first is None:
            return []
        names = [column[0] for column in cursor.get_description()]  # known only while rows are left to be read
        return [dict(zip(names, row, strict=True)) for row in (first, *cursor.fetchall())]

    def _unchanged(self) -> bool:
        return _look_at(self._path) == self._look

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003 - force
            self._connection = None


@contextmanager
def open_foreign(path: Path) -> Iterator[ForeignDatabase]:
    """Open another program's database for reading; every row that its WAL holds is seen."""
    check_sqlite_version()
    if not path.is_file():
        message = f"there is no database at {path}"
        raise InvalidInput(message)
    database = ForeignDatabase(path)
    try:
        yield database
    finally:
        database.close()


def _connect(path: Path) -> apsw.Connection:
    if _size(f"{path}-journal"):
        message = f"{path} holds half of a transaction: open it once with the program that it belongs to, then repeat"
        raise InvalidInput(message)
    with_wal = _size(f"{path}-wal") > 0
    way = "vfs=unix-none" if with_wal else "immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&{way}"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    # A connection that knows of no other would copy the WAL back and unlink it when it closes.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("locking_mode", "EXCLUSIVE")  # the WAL's index stays in memory: no -shm file
    connection.pragma("trusted_schema", "OFF")  # a foreign schema must not run functions
    connection.pragma("query_only", value=True)
    return connection


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _look_at(path: Path) -> Look:
    """Return what changes when anyone writes to the database, its WAL or its rollback journal."""
    looks: list[tuple[int, int, int] | None] = []
    for side in ("", "-wal", "-journal"):
        try:
            found = os.stat(f"{path}{side}")
        except FileNotFoundError:
            looks.append(None)
        else:
            looks.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(looks)
