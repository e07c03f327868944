"""The one place that chooses a backend. Everything else of the program knows the port (`backend.py`) only.

A path is a home: SQLite and log files. Further backends are chosen here by their address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.journal.sqlite.backend import SqliteBackend
from hansard.journal.sqlite.readonly import ReadOpening, open_read_only

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hansard.journal.backend import Backend
    from hansard.journal.concepts import Schema
    from hansard.ports import Clock


def open_backend(home: Path, schema: Schema, clock: Clock, reach: Callable[[str], None]) -> Backend:
    """Return the backend of a home, creating the home."""
    return SqliteBackend(home, schema, clock, reach)


def open_read_backend(home: Path, schema: Schema, clock: Clock, reach: Callable[[str], None]) -> ReadOpening:
    """Return a backend that writes nothing in the home, or one of a private copy that a repair may write to."""
    return open_read_only(home, schema, clock, reach)
