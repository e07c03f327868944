"""Tasks that end when their owner says so: cancel and wait, run side by side, close what is no longer used."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until all have ended. What they raise is not raised here.

    A caller that is cancelled meanwhile still waits for them, and is cancelled then.
    """
    for task in tasks:
        task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # asyncio logs an error that nobody has asked for
    if cancelled is not None:
        raise cancelled


async def wait_for_first(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of the tasks has ended, end the others, and raise what it raised."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(*tasks)
    for task in done:
        task.result()


async def run_all(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines side by side; the first that fails ends the others and is raised as it is."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    if not tasks:
        return
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await cancel_all(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


class Retiring:
    """Resources of an old configuration. Each is closed once the last turn that uses it has ended, or at shutdown."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], Callable[[], Awaitable[None]]] = {}

    def add(self, close: Callable[[], Awaitable[None]], over: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close something when `over` returns."""

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
        """Close everything now. This is not left to the tasks: one that never ran would close nothing."""
        waiting, self._waiting = self._waiting, {}
        await cancel_all(*waiting)
        for close in waiting.values():
            await close()
