"""What a tool must offer, where a call of it is made, and what it gives."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from hansard.domain.requests import ToolSpec


class ToolScene(msgspec.Struct, frozen=True, kw_only=True):
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


class Tool(Protocol):
    """A tool that a model may call."""

    @property
    def spec(self) -> ToolSpec:
        """How it is described to a model."""

    @property
    def repeatable(self) -> bool:
        """Whether running it twice does no harm."""

    async def run(self, arguments: dict[str, object]) -> str | ToolOutput:
        """Run it. An exception is a result too: the model is told its text."""


@runtime_checkable
class PlacedTool(Protocol):
    """A tool that has to know where it is called: in whose session, and by whom."""

    def at(self, scene: ToolScene) -> Tool:
        """Return the tool as it is for one call."""
