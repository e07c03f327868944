"""Showing that the agent writes: while a turn runs in a chat, and no longer.

Reads: running turns. Writes: nothing; it is a courtesy, and fails silently.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard.ports.channel import Channel
    from hansard.record.api import Record

LOOK_SECONDS = 0.2
"""The shortest pause between two looks: a turn that is over sooner needs no sign."""

RENEW_SECONDS = 10.0
"""How often the sign is given again: platforms let it fade."""

CALLS_MAX = 8


class Typing:
    """The sign in every chat of a channel."""

    def __init__(self, record: Record, channel: Channel) -> None:
        """Nobody writes."""
        self._record = record
        self._channel = channel
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._shown: dict[str, float] = {}

    async def run(self) -> None:
        """Keep the signs true, until cancelled; then take them away."""
        woken = asyncio.Event()
        try:
            with self._record.notify(woken):
                while True:
                    woken.clear()
                    await self._look()
                    await asyncio.sleep(LOOK_SECONDS)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RENEW_SECONDS / 2):
                            await woken.wait()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.gather(*(self._call(chat, on=False) for chat in self._shown))

    async def _look(self) -> None:
        try:
            running = set(await self._record.outbox.running_chats(self._channel.name))
        except HansardError:
            return
        now = asyncio.get_running_loop().time()
        over = [chat for chat in self._shown if chat not in running]
        begun = [chat for chat in running if self._shown.get(chat, 0) <= now]
        for chat in over:
            del self._shown[chat]
        self._shown.update(dict.fromkeys(begun, now + RENEW_SECONDS))
        off = [self._call(chat, on=False) for chat in over]
        await asyncio.gather(*off, *(self._call(chat, on=True) for chat in begun))

    async def _call(self, chat: str, *, on: bool) -> None:
        async with self._calls:
            with suppress(Exception):  # boundary: channel call
                await self._channel.typing(chat, on=on)
