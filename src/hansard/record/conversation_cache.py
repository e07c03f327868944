"""Conversations that this process has folded, the last used ones, so that a turn reads only what came since.

Reads: entries, a page at a time. Writes: nothing.
Invariants: a fold up to a seq is never stale, because entries never change: it can only be behind. What is kept has a
limit by number, by bytes and by the time since it was used; the one that is in use is kept in any case.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from hansard.domain.limits import (
    CONVERSATION_BYTES_MAX,
    CONVERSATION_IDLE_SECONDS,
    CONVERSATIONS_MAX,
    READ_ROWS_MAX,
)
from hansard.ports import Clock
from hansard.record.conversation import Conversation
from hansard.record.messages.entries import Entry


class KeptConversation:
    """A conversation in the cache; whoever has the lock reads on."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.conversation = Conversation()
        self.read_at = 0.0


class ConversationCache:
    """The folds of one process, by session; the one that was used last stands at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, KeptConversation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size_bytes(self) -> int:
        """About how much memory all of them take."""
        return sum(each.conversation.size_bytes for each in self._kept.values())

    async def read(self, session_id: str, read_entries: Callable[[str, int], Awaitable[list[Entry]]]) -> Conversation:
        kept = self._kept.setdefault(session_id, KeptConversation())
        kept.read_at = self._clock.monotonic_seconds()
        self._kept.move_to_end(session_id)
        try:
            async with kept.lock:
                while True:
                    entries = await read_entries(session_id, kept.conversation.seq)
                    for entry in entries:
                        kept.conversation.add(entry)
                    if len(entries) < READ_ROWS_MAX:
                        return kept.conversation
        finally:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget what was not used for longest, beyond the limits."""
        size_bytes = self.size_bytes
        idle_since = self._clock.monotonic_seconds() - CONVERSATION_IDLE_SECONDS
        while len(self._kept) > 1:
            oldest = next(iter(self._kept.values()))
            if (
                len(self._kept) <= CONVERSATIONS_MAX
                and size_bytes <= CONVERSATION_BYTES_MAX
                and oldest.read_at >= idle_since
            ):
                return
            self._kept.popitem(last=False)
            size_bytes -= oldest.conversation.size_bytes
