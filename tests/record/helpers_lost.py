"""Turns that are lost: their process is killed in the middle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH
from hansard.errors import RecordUnavailable
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from hansard.record.turns.holding import Turn
from hansard.testing import abandon_store

CHAT = "matrix:room:!one:example.org"


async def lose(home: Path, session_id: str, act: Callable[[Turn], Awaitable[object]] | None = None) -> None:
    """Run a turn in a process that is killed in the middle of it."""
    async with Record.open(home) as record:
        with suppress(RecordUnavailable):  # nothing of what the dead process still tries is written
            async with record.turn(session_id) as turn:
                if act is not None:
                    await act(turn)
                abandon_store(record.store)


async def asked(home: Path, chat: str = CHAT) -> str:
    """Return a session in which somebody asked something in a chat."""
    async with Record.open(home) as record:
        session = await record.create_session(source="matrix")
        message = Message.user("hello", author="@ann:example.org", chat=chat)
        await record.accept([(session.id, message)], queue_turn=True)
        return session.id


async def states(record: Record, session_id: str) -> list[str]:
    """Return the states of a session's turns."""
    return [turn.state.value for turn in await record.turns.list(session_id)]


def is_notice(entry: Entry) -> bool:
    """Return whether an entry tells that a turn was lost."""
    return entry.text == ENGLISH.recovered
