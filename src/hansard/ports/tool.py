"""What a tool must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hansard.domain.requests import ToolSpec
    from hansard.domain.tools import ToolOutput, ToolScene


class Tool(Protocol):
    """A tool that a model may call."""

    @property
    def spec(self) -> ToolSpec:
        """How it is described to a model."""
        ...

    @property
    def repeatable(self) -> bool:
        """Whether running it twice does no harm."""
        ...

    async def run(self, arguments: dict[str, object]) -> str | ToolOutput:
        """Run it. An exception is a result too: the model is told its text."""
        ...


@runtime_checkable
class PlacedTool(Protocol):
    """A tool that has to know where it is called: in whose session, and by whom."""

    def at(self, scene: ToolScene) -> Tool:
        """Return the tool as it is for one call."""
        ...
