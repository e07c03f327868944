"""Conversations that this process has folded already, kept so that a turn reads only what came since.

Entries never change, so a fold up to a seq is never stale: it can only be behind.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

from hansard.domain.limits import CONVERSATION_MESSAGES_MAX, CONVERSATIONS_MAX, READ_ROWS_MAX
from hansard.record.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hansard.record.entries import Entry

    ReadEntries = Callable[[str, int], Awaitable[list[Entry]]]


class Conversations:
    """The folds of one process, the last used ones."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: OrderedDict[str, tuple[asyncio.Lock, Conversation]] = OrderedDict()

    async def read(self, session_id: str, read_entries: ReadEntries) -> Conversation:
        """Return a session's fold, grown to its present end."""
        lock, conversation = self._kept.setdefault(session_id, (asyncio.Lock(), Conversation()))
        async with lock:
            while True:
                entries = await read_entries(session_id, conversation.seq)
                for entry in entries:
                    conversation.add(entry)
                if len(entries) < READ_ROWS_MAX:
                    break
        self._keep(session_id)
        return conversation

    def _keep(self, session_id: str) -> None:
        """Forget what was not used for longest, beyond the limits."""
        if session_id in self._kept:
            self._kept.move_to_end(session_id)
        messages = sum(len(conversation.placed) for _, conversation in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > CONVERSATIONS_MAX or messages > CONVERSATION_MESSAGES_MAX):
            _, (_, forgotten) = self._kept.popitem(last=False)
            messages -= len(forgotten.placed)
