"""Showing that the agent writes: while a turn runs in a chat, and no longer.

Reads: running turns, what waits to be shown. Writes: nothing; it is a courtesy, and fails silently.
Invariants: the sign goes when the turn ends, however it ends; a turn whose process died shows none.
On crash: the sign fades by itself where the platform lets it; the next process takes it away where it left words.
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

IDLE_SECONDS = 5.0
"""The longest: a process that runs a turn may die without a word."""

CALLS_MAX = 8
CALL_SECONDS_MAX = 5.0
"""For one call: a chat in which it hangs must not keep the sign up in others."""


class Typing:
    """The sign in every chat of a channel."""

    def __init__(self, record: Record, channel: Channel) -> None:
        self._record = record
        self._channel = channel
        self._renew_seconds = channel.capabilities.typing_seconds
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._shown: dict[str, float] = {}

    async def run(self) -> None:
        """Keep the signs true, until cancelled; then take them away."""
        woken = asyncio.Event()
        try:
            await self._take_away_left()
            with self._record.notify(woken):
                while True:
                    woken.clear()
                    await self._show_typing()
                    await asyncio.sleep(LOOK_SECONDS)
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(self._due()):
                            await woken.wait()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.gather(*(self._call(chat, on=False) for chat in self._shown))

    def _due(self) -> float:
        """Return when to look again although nothing was recorded."""
        latest = asyncio.get_running_loop().time() + IDLE_SECONDS
        return min(latest, min(self._shown.values(), default=latest))

    async def _take_away_left(self) -> None:
        """Take away the signs that a process left which died: where it did, something waits to be shown now."""
        try:
            waiting = await self._record.deliveries.list_waiting(self._channel.name)
        except HansardError:
            return
        await asyncio.gather(*(self._call(chat, on=False) for chat in {each.chat for each in waiting}))

    async def _show_typing(self) -> None:
        try:
            writing = set(await self._record.turns.list_writing_chats(self._channel.name))
        except HansardError:
            return
        now = asyncio.get_running_loop().time()
        over = [chat for chat in self._shown if chat not in writing]
        begun = [chat for chat in writing if self._shown.get(chat, 0) <= now]
        for chat in over:
            del self._shown[chat]
        self._shown.update(dict.fromkeys(begun, now + self._renew_seconds))
        off = [self._call(chat, on=False) for chat in over]
        await asyncio.gather(*off, *(self._call(chat, on=True) for chat in begun))

    async def _call(self, chat: str, *, on: bool) -> None:
        async with self._calls:
            with suppress(Exception):  # boundary: channel call
                async with asyncio.timeout(CALL_SECONDS_MAX):
                    await self._channel.typing(chat, on=on)
