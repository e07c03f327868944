"""Entries and chunks as callers see them. Their field names are what `--json` prints."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from hansard.domain.messages import join_text
from hansard.journal.concepts import Body
from hansard.record.messages.entries import MessageAdded


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable fact of a journal."""

    id: str
    session_id: str
    seq: int
    kind: str
    body: Body
    at_microseconds: int = 0
    position: str = "0"

    @property
    def text(self) -> str:
        """The words of a whole message; empty for everything else, openings and seals included."""
        return join_text(self.body.parts) if isinstance(self.body, MessageAdded) else ""

    @property
    def at(self) -> datetime:
        """When it was recorded. A label: order is `seq`."""
        return datetime.fromtimestamp(self.at_microseconds / 1_000_000, UTC)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an open message, from `offset` on, counted in UTF-8 bytes of all its chunks."""

    message_id: str
    offset: int
    text: str
    position: str
    part: str = "text"
