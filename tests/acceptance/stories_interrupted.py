"""An answer that is interrupted half-way, and what must be left of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hansard import Chunk, Entry, Record, Status
from hansard.domain.sessions import Link, Parent
from tests.acceptance.stories_program import assert_whole, said, transcript

SHOWN = "The first words are on the screen"
STALLING = {"text": f"{SHOWN} and the rest never comes", "stall": {"after_pieces": 7}}
"""An answer that stops after seven words, so that an interruption finds it where the test wants it."""


async def assert_kept(home: Path, session_id: str, shown: str) -> None:
    """The reply that was interrupted is in the transcript with every word that was shown, as what it is."""
    question, reply, *_ = [m for m in await transcript(home, session_id) if m.role != "notice"]
    assert (question.role, question.text) == ("user", "Tell me.")
    assert (reply.role, reply.text, reply.status) == ("assistant", shown, Status.INTERRUPTED)
    await assert_whole(home, session_id)


async def until_shown(shown: asyncio.Queue[Entry | Chunk]) -> None:
    """Wait until an answer was shown as far as it comes."""
    text = ""
    async with asyncio.timeout(120):
        while text != SHOWN:
            item = await shown.get()
            text += item.text if isinstance(item, Chunk) else ""


async def assert_left_for(home: Path, old: str, new: str) -> None:
    """The old session ended with the words that were shown; the new one begins with what was said after that."""
    await assert_kept(home, old, SHOWN)
    async with Record.open(home) as record:
        left, entered = await record.sessions.read(old), await record.sessions.read(new)
        assert (left.state, left.end_reason) == ("ended", "new")
        assert entered.parent == Parent(session_id=old, link=Link.RESET)
        assert [turn.state for turn in await record.turns.list(old)] == ["interrupted"]
        assert {session.id for session in await record.sessions()} == {old, new}
    assert said(await transcript(home, old)) == [("user", "Tell me."), ("assistant", SHOWN)]
    assert said(await transcript(home, new))[0] == ("user", "Good morning.")
