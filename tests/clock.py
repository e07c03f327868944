"""The clock of an event loop, which tests set forward where they would have to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def leap(seconds: float) -> None:
    """Set the clock of the running loop forward: whatever waits for that time to pass goes on."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.time = lambda: before() + seconds  # type: ignore[method-assign]


async def leap_until(is_so: Callable[[], bool], seconds: float) -> None:
    """Let so many seconds pass again and again until something is so."""
    while not is_so():
        leap(seconds)
        await asyncio.sleep(0.02)
