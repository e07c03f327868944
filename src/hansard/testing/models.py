"""Models for tests: the scripted one, and one that keeps what it was asked."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from hansard.models.scripted import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hansard.domain.requests import ModelEvent, ModelRules, Request
    from hansard.ports.model import Model

__all__ = ["RecordingModel", "ScriptedModel"]


class RecordingModel:
    """Another model, with every request that it was given kept, attempts that failed included."""

    def __init__(self, model: Model) -> None:
        """Nothing was asked yet."""
        self._model = model
        self.requests: list[Request] = []

    @property
    def name(self) -> str:
        """The name of the other."""
        return self._model.name

    @property
    def uses_tools(self) -> bool:
        """As the other says."""
        return self._model.uses_tools

    @property
    def rules(self) -> ModelRules:
        """As the other says."""
        return self._model.rules

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Keep the request and pass it on."""
        self.requests.append(request)
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        """Close the other."""
        await self._model.close()
