"""SQLite databases that are no record: an index in a file of its own beside it, and those of other programs.

Whoever has one opens it with these names, so that only the journal knows a database driver.
"""

from __future__ import annotations

from hansard.journal.sqlite.connection import (
    SQL,
    Connection,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    fetch,
    immediate,
    is_guarded,
    map_error,
    open_connection,
    open_untouched,
)
from hansard.journal.sqlite.foreign import ForeignDatabase, Row, open_foreign
from hansard.journal.sqlite.keeper import Ticker
from hansard.journal.sqlite.reading import Identity, Snapshot, look_at, open_reader

__all__ = [
    "SQL",
    "Connection",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseFull",
    "ForeignDatabase",
    "Identity",
    "Row",
    "Snapshot",
    "Ticker",
    "fetch",
    "immediate",
    "is_guarded",
    "look_at",
    "map_error",
    "open_connection",
    "open_foreign",
    "open_reader",
    "open_untouched",
]
