"""SQLite's errors, by the names that the rest of the program knows them by. Only this folder imports apsw."""

from __future__ import annotations

from typing import Final

import apsw

Connection = apsw.Connection
DatabaseError = apsw.Error
DatabaseBusy = apsw.BusyError
DatabaseFull = apsw.FullError
IdTaken = apsw.ConstraintError
"""An entry's id, or another key, is there already: SQLite undid the statement."""

BROKEN: Final = (apsw.IOError, apsw.FullError, apsw.CorruptError)
"""Errors of the whole database. Others concern one statement."""

UNCLEAR: Final = (apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError, apsw.PermissionsError)
"""Errors that have several causes: the files are looked at to find which one."""

CAUSES: Final[tuple[tuple[type[apsw.Error], str], ...]] = (
    (apsw.NotADBError, "DAMAGED"),
    (apsw.CorruptError, "DAMAGED"),
    (apsw.FullError, "DISK_FULL"),
    (apsw.BusyError, "LOCKED_BY_STRANGER"),
    (apsw.LockedError, "LOCKED_BY_STRANGER"),
    (apsw.ProtocolError, "LOCKED_BY_STRANGER"),
    (apsw.NoMemError, "NO_MEMORY"),
    (apsw.ReadOnlyError, "READ_ONLY"),
    (apsw.PermissionsError, "NOT_PERMITTED"),
    (apsw.CantOpenError, "CANNOT_OPEN"),
    (apsw.IOError, "DISK_FAILS"),
)
"""Which cause of `journal/causes.py` an error has. The first that fits counts."""


def is_cut_off(error: Exception) -> bool:
    """Return whether a file of the database ended where more was expected."""
    return getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ
