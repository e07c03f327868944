"""SQLite databases that are no record: an index in a file of its own beside it, and those of other programs.

Whoever has one opens it with these names, so that only the journal knows a database driver.
"""

from hansard.journal.sqlite.connection import (
    SQL,
    Connection,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    fetch,
    immediate,
    map_error,
    open_connection,
)
from hansard.journal.sqlite.foreign import ForeignDatabase, Row, open_foreign
from hansard.journal.sqlite.keeper import Ticker
from hansard.journal.sqlite.reading import SideFile, Snapshot, look_at

__all__ = [
    "SQL",
    "Connection",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseFull",
    "ForeignDatabase",
    "Row",
    "SideFile",
    "Snapshot",
    "Ticker",
    "fetch",
    "immediate",
    "look_at",
    "map_error",
    "open_connection",
    "open_foreign",
]
