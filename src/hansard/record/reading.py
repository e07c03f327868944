"""Reads: short snapshots on connections of their own. They never block the writer and never linger (rule 12).

Reads: state.db. Writes: nothing.
Invariants: every statement is read to its end inside one snapshot; a page has a bound; nothing is yielded from one.
On crash: nothing to do.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from hansard.errors import RecordUnavailable
from hansard.record.sqlite.connection import map_error, open_connection
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Result = TypeVar("Result")


class ReplacedError(Exception):
    """The database is absent or another one than before: the writer must look at it first."""

    def __str__(self) -> str:
        return "state.db is missing or was replaced"


class Snapshot:
    """One moment of the record."""

    def __init__(self, connection: apsw.Connection) -> None:
        """The caller has begun a read transaction."""
        self._run = connection.cursor().execute

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row."""
        return self._run(query, bindings).fetchall()

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        """Return the first row or None."""
        rows = self._run(query, bindings).fetchall()
        return rows[0] if rows else None


class ReadConnection:
    """A connection that notices when the file at the path is another one."""

    def __init__(self, path: Path, *, read_only: bool = True) -> None:
        """Nothing is opened before it is needed."""
        self._path = path
        self._read_only = read_only
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def get(self) -> apsw.Connection:
        """Return a connection to the file that lies at the path now."""
        try:
            seen = os.stat(self._path)
        except FileNotFoundError:
            self.close()
            raise ReplacedError from None
        identity = (seen.st_dev, seen.st_ino)
        if self._connection is not None and self._identity != identity:
            self.close()
            raise ReplacedError
        if self._connection is None:
            self._connection = open_connection(self._path, read_only=self._read_only)
            self._identity = identity
        return self._connection

    def snapshot(self, read: Callable[[Snapshot], Result]) -> Result:
        """Run a read in one snapshot and end it."""
        connection = self.get()
        connection.execute(SQL.begin_read)
        try:
            return read(Snapshot(connection))
        finally:
            if connection.in_transaction:
                connection.execute(SQL.rollback)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close(True)  # noqa: FBT003 - force
            self._connection = None


class Readers:
    """A few connections that the process's reads share."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened before it is needed."""
        self._path = path
        self._idle: list[ReadConnection] = []
        self._mutex = threading.Lock()
        self._closed = False

    def read(self, read: Callable[[Snapshot], Result]) -> Result:
        """Run a read on an idle connection."""
        with self._mutex:
            if self._closed:
                message = "the record is closed"
                raise RecordUnavailable(message)
            connection = self._idle.pop() if self._idle else ReadConnection(self._path)
        try:
            result = connection.snapshot(read)
        except apsw.Error as error:
            connection.close()
            raise map_error(error, "reading") from error
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
