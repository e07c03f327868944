"""Another program's SQLite database, read where it lies and never changed: not a byte, not a time, not a lock.

Reads: the file and its WAL. Writes: nothing.
Invariants: no side file is made; rows come from one state of the files, or are read again.
On crash: nothing is left behind.

SQLite's own read-only mode makes a `-shm` file beside a database in WAL mode, and marks itself in one that is there.
So a WAL with content is read without locks and with its index in memory; a database without one as if immutable.
Neither notices a writer, so the files are looked at after every read.

The file may be made by an attacker: a small one can describe values without end. So values, rows and schemas have
limits, nothing is read that the file's own bytes cannot hold, and no link is followed. Readers of a table refuse one
that computes its values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from hansard.errors import InvalidInput, RecordUnavailable
from hansard.journal.sqlite.connection import FilesLook, check_sqlite_version, file_size, look_at_files

READS_MAX: Final = 5
"""How often a read is repeated because the files changed under it."""

VALUE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one row, and so of one value: more than any message has, and little enough for every machine."""

SCHEMA_BYTES_MAX: Final = 1_000_000
COLUMNS_MAX: Final = 200
EXPRESSION_DEPTH_MAX: Final = 50

READ_FACTOR_MAX: Final = 16
"""How often all bytes of a file may be read: a file that gives more repeats itself without end."""

READ_BYTES_MIN: Final = 64 * 1024 * 1024
"""What may be read of every file, however small."""

LIMITS: Final = {
    apsw.SQLITE_LIMIT_LENGTH: VALUE_BYTES_MAX,
    apsw.SQLITE_LIMIT_SQL_LENGTH: SCHEMA_BYTES_MAX,
    apsw.SQLITE_LIMIT_COLUMN: COLUMNS_MAX,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: EXPRESSION_DEPTH_MAX,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}

Row = dict[str, Any]
TOO_LARGE: Final = (MemoryError, apsw.TooBigError, apsw.NoMemError)
WRITTEN: Final = ("", "-wal", "-journal")
"""The files that change when anyone writes to a database."""


class ForeignDatabase:
    """An open database of another program. Use `open_foreign`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._look: FilesLook = ()
        self._connection: apsw.Connection | None = None
        self._bytes_left = READ_BYTES_MIN + READ_FACTOR_MAX * sum(file_size(f"{path}{side}") for side in ("", "-wal"))

    def rows(self, query: str, bindings: tuple[object, ...] = ()) -> list[Row]:
        """Return the rows of a query as columns by name. The query bounds how many there are."""
        for _ in range(READS_MAX):
            try:
                found = self._read(query, bindings)
            except (apsw.Error, UnicodeDecodeError, MemoryError) as error:
                if self._unchanged():
                    why = "a value in it is too large" if isinstance(error, TOO_LARGE) else str(error)
                    raise InvalidInput(f"{self._path} cannot be read: {why}") from error
            else:
                if self._unchanged():
                    return found
            self.close()
        raise RecordUnavailable(f"{self._path} changes all the time: stop the program that writes to it, then repeat")

    def _read(self, query: str, bindings: tuple[object, ...]) -> list[Row]:
        if self._connection is None:
            self._look = look_at_files(self._path, *WRITTEN)
            self._connection = _connect(self._path)
        cursor = self._connection.execute(query, bindings)
        names: list[str] = []
        found = []
        for row in cursor:
            names = names or [column[0] for column in cursor.get_description()]  # known only while rows are left
            self._count(row)
            found.append(dict(zip(names, row, strict=True)))
        return found

    def _count(self, row: tuple[Any, ...]) -> None:
        """Refuse to read more than the file can hold: many rows that share the same bytes."""
        self._bytes_left -= sum(len(value) for value in row if isinstance(value, str | bytes))
        if self._bytes_left < 0:
            raise InvalidInput(f"{self._path} cannot be read: it says more than a file of its size can hold")

    def _unchanged(self) -> bool:
        return look_at_files(self._path, *WRITTEN) == self._look

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003 - force
            self._connection = None


@contextmanager
def open_foreign(path: Path) -> Iterator[ForeignDatabase]:
    """Open another program's database for reading; every row that its WAL holds is seen."""
    check_sqlite_version()
    if not path.is_file():
        raise InvalidInput(f"there is no database at {path}")
    for side in ("", "-wal", "-journal", "-shm"):
        if os.path.islink(f"{path}{side}"):
            message = f"{path}{side} is a link, and links are not followed: name the folder in which the file itself is"
            raise InvalidInput(message)
    database = ForeignDatabase(path)
    try:
        yield database
    finally:
        database.close()


def _connect(path: Path) -> apsw.Connection:
    if file_size(f"{path}-journal"):
        message = f"{path} holds half of a transaction: open it once with the program that it belongs to, then repeat"
        raise InvalidInput(message)
    with_wal = file_size(f"{path}-wal") > 0
    way = "vfs=unix-none" if with_wal else "immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&{way}"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    for limit, most in LIMITS.items():
        connection.limit(limit, most)
    # A connection that knows of no other would copy the WAL back and unlink it when it closes.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("locking_mode", "EXCLUSIVE")  # the WAL's index stays in memory: no -shm file
    connection.pragma("trusted_schema", "OFF")  # a foreign schema must not run functions
    connection.pragma("query_only", value=True)
    return connection
