"""Memory: short notes for a person or a room, told to the model in the sessions of that owner, and of nobody else."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from hansard.domain.limits import NOTE_CHARACTERS_MAX
from hansard.domain.text import clean_text
from hansard.errors import InvalidInput, TooLarge


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is remembered. Times are in microseconds since 1970."""

    id: str
    owner: str
    text: str
    noted_at_microseconds: int = 0
    changed_at_microseconds: int = 0

    @property
    def changed_at(self) -> datetime:
        """When it was noted, or last changed."""
        return datetime.fromtimestamp(self.changed_at_microseconds / 1_000_000, UTC)


def clean_note(text: str) -> str:
    """Return a note on one line, as it can be recorded, or refuse it."""
    cleaned = " ".join(clean_text(text).split())
    cleaned = "".join(sign for sign in cleaned if sign.isprintable())
    if not cleaned:
        message = "a note says something: it cannot be empty"
        raise InvalidInput(message)
    if len(cleaned) > NOTE_CHARACTERS_MAX:
        message = f"a note has {len(cleaned)} characters; the limit is {NOTE_CHARACTERS_MAX}"
        raise TooLarge(message)
    return cleaned
