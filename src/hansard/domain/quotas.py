"""What one person may bring in an hour: files, their bytes, new sessions."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hansard.domain.settings.agent import HourLimits


class Brought(StrEnum):
    """What is counted."""

    FILES = "files"
    BYTES = "bytes"
    SESSIONS = "sessions"


class Quota(NamedTuple):
    """How much of each one person may bring in an hour; None: as much as comes."""

    files: int | None = None
    bytes: int | None = None
    sessions: int | None = None

    def left(self, brought: Brought, spent: int) -> int | None:
        """Return how much is left of the hour; None: there is no limit."""
        limit = {Brought.FILES: self.files, Brought.BYTES: self.bytes, Brought.SESSIONS: self.sessions}[brought]
        return None if limit is None else max(0, limit - spent)

    def allows(self, brought: Brought, spent: int, more: int = 1) -> bool:
        """Return whether so much more is within the hour's limit."""
        left = self.left(brought, spent)
        return left is None or more <= left


def quota_of(limits: HourLimits) -> Quota:
    """Return what the settings say."""
    return Quota(limits.person_files_hour_max, limits.person_bytes_hour_max, limits.person_sessions_hour_max)


def pace_name(brought: Brought, person: str) -> str:
    """Return under which name it is counted."""
    return f"{brought} {person}"
