"""A database beside the record that can be made anew at any time: one connection that reads, and one that writes.

Reads and writes: the file and its WAL. The caller sees to it that one process at a time writes.
Invariants: a connection to files that were removed or replaced is not used any more.
On crash: as SQLite does. Whatever is wrong with the file, the caller may discard it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

import apsw

from hansard.domain.limits import CHECKPOINT_WAL_BYTES, SHRINK_WAL_BYTES
from hansard.errors import HansardError
from hansard.journal.sqlite.connection import SQL, fetch, immediate, is_guarded, open_connection, open_untouched
from hansard.journal.sqlite.reading import SIDES, Snapshot, look_at, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hansard.journal.concepts import Schema
    from hansard.journal.sqlite.reading import Identity


class SideFile:
    """One such database, in this process. Its user keeps readers apart from one another, and writers as well."""

    def __init__(self, path: Path, tables: str, *, read_only: bool) -> None:
        """Nothing is opened before it is needed. `tables` creates the tables of a new file."""
        self.path = path
        self._tables = tables
        self._read_only = read_only
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._written: Identity | None = None
        self._read: Identity | None = None

    @contextlib.contextmanager
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
        with contextlib.suppress(OSError, apsw.Error):
            if self._writer is not None and os.stat(f"{self.path}-wal").st_size > wal_bytes_max:
                fetch(self._writer, SQL.checkpoint_truncate)

    def discard(self) -> None:
        """Remove the files: whatever was wrong with them, new ones are right."""
        self.close_writer()
        for side in SIDES:
            path = f"{self.path}{side}"
            with contextlib.suppress(FileNotFoundError):
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
