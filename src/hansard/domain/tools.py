"""Tools as values: where a call is made, and what it gives."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ToolScene(NamedTuple):
    """Where a call is made: in which session, whose it is, who asked, and in which chat (empty at the terminal)."""

    session_id: str
    owner: str
    people: tuple[str, ...] = ()
    chat: str = ""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a tool gives."""

    data: bytes
    name: str = ""
    media_type: str = "application/octet-stream"


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gives, where it is more than text.

    `is_error`: the tool says that it failed. `is_unknown`: nobody knows whether it had an effect.
    """

    text: str = ""
    files: tuple[Attachment, ...] = ()
    is_error: bool = False
    is_unknown: bool = False
    sources: tuple[str, ...] | None = None
    """Whose words it quotes, where a tool of Hansard's own knows that."""
