"""What a tool must offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from hansard.domain.requests import ToolSpec


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

    async def run(self, arguments: dict[str, object]) -> str:
        """Run it. An exception is a result too: the model is told its text."""
        ...


@runtime_checkable
class SessionTool(Tool, Protocol):
    """A tool that is told in which session it is called: it sees what the owner of that session may see (L11)."""

    async def run_in(self, session_id: str, arguments: dict[str, object]) -> str:
        """Run it for a session, in place of `run`."""
        ...
