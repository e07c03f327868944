"""A record that is there: asking for what was said, or who may talk, never makes a home."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hansard.errors import InvalidInput
from hansard.record.api import Record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LEGS = ("state.db", "home.jsonl", "sessions")
"""Any of them is enough: what is missing is rebuilt from the others."""


def has_record(home: Path) -> bool:
    """Return whether there is a record in a home."""
    return any((home / name).exists() for name in LEGS)


def check_record(home: Path) -> None:
    """Refuse a home in which there is no record."""
    if not has_record(home):
        raise InvalidInput(f"there is no record at {home}: nobody has talked there yet, or it is elsewhere (--home)")


@asynccontextmanager
async def existing(home: Path) -> AsyncIterator[Record]:
    """Open a record that is there."""
    check_record(home)
    async with Record.open(home) as record:
        yield record
