"""Conversations that are kept in memory: how many, how much, and for how long."""

from __future__ import annotations

import pytest

from hansard.domain.limits import CONVERSATION_BYTES_MAX, CONVERSATION_IDLE_SECONDS, CONVERSATIONS_MAX, MIB
from hansard.domain.messages import Role, Text
from hansard.errors import NotFound
from hansard.record.conversation import Conversation
from hansard.record.conversation_cache import ConversationCache
from hansard.record.messages.entries import Entry, MessageAdded
from hansard.testing import FakeClock


class Sessions:
    """Sessions of one message each; it is told which were read from their beginning."""

    def __init__(self, words: str = "hello") -> None:
        """Each says these words."""
        self.clock = FakeClock()
        self.cache = ConversationCache(self.clock)
        self.folded: list[str] = []
        self._body = MessageAdded(role=Role.USER, parts=(Text(words),))

    async def read(self, session_id: str) -> Conversation:
        """Ask for the conversation of a session."""

        async def read_entries(session_id: str, after: int) -> list[Entry]:
            if after:
                return []
            self.folded.append(session_id)
            return [Entry(id="m", session_id=session_id, seq=1, kind="message.added", body=self._body)]

        return await self.cache.read(session_id, read_entries)


async def test_a_kept_conversation_is_not_folded_again() -> None:
    """The same fold is given, and grown."""
    sessions = Sessions()
    assert await sessions.read("s") is await sessions.read("s")
    assert sessions.folded == ["s"]


async def test_conversations_are_forgotten_beyond_a_number() -> None:
    """The one that was not asked for longest goes first."""
    sessions = Sessions()
    for number in range(CONVERSATIONS_MAX):
        await sessions.read(f"s{number}")
    await sessions.read("s0")
    await sessions.read("one more")
    sessions.folded.clear()
    await sessions.read("s0")
    await sessions.read("s1")
    assert sessions.folded == ["s1"]


async def test_long_words_are_forgotten_beyond_their_bytes() -> None:
    """However long messages are, all conversations together stay within the limit; the one in use is always kept."""
    sessions = Sessions("x" * MIB)
    for number in range(2 * CONVERSATION_BYTES_MAX // MIB):
        await sessions.read(f"s{number}")
        assert 0 < sessions.cache.size_bytes <= CONVERSATION_BYTES_MAX


async def test_an_idle_conversation_is_forgotten() -> None:
    """After a while in which nobody asked for it, it is let go when another one is asked for."""
    sessions = Sessions()
    await sessions.read("idle")
    sessions.clock.advance(CONVERSATION_IDLE_SECONDS / 2)
    await sessions.read("later")
    sessions.clock.advance(CONVERSATION_IDLE_SECONDS / 2 + 1)
    await sessions.read("now")
    sessions.folded.clear()
    await sessions.read("later")
    await sessions.read("idle")
    assert sessions.folded == ["idle"]


async def test_sessions_that_are_not_there_are_not_kept_for_ever() -> None:
    """Asking for many sessions that cannot be read leaves no more behind than the limit."""
    cache = ConversationCache(FakeClock())

    async def read_entries(session_id: str, _after: int) -> list[Entry]:
        raise NotFound(session_id)

    for number in range(CONVERSATIONS_MAX + 5):
        with pytest.raises(NotFound):
            await cache.read(f"s{number}", read_entries)
    assert len(cache) == CONVERSATIONS_MAX
