"""What new turns use no longer, and turns of before may: closed when those have ended, or when all is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine


class Retiring:
    """Closes what was given to it, in its time; leaving closes the rest."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: dict[asyncio.Task[None], Callable[[], Awaitable[None]]] = {}

    def add(self, close: Callable[[], Awaitable[None]], over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close something when `over` is."""

        async def wait() -> None:
            await over()
            await close()

        task = asyncio.create_task(wait())
        self._waiting[task] = close
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._waiting.pop(task, None)

    async def close(self) -> None:
        """Wait for nobody, and close all of it. It is not left to the tasks: one that never ran would close nothing."""
        waiting, self._waiting = self._waiting, {}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for close in waiting.values():
            await close()
