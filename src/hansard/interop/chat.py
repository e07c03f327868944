"""Sessions as examples for fine-tuning: one line a session, `{"messages":[{"role":…,"content":…},…]}`.

Only what people and the model said to each other is in it, with the words that it has now: no notices, no reasoning, no
tools, nothing that was undone or deleted, nothing that people said among themselves, no answer that was cut off.
Neighbours of one role are one message, and an example ends with an answer: that is what those who read such files ask
for. A session without an answer gives no line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.messages import Role, Status
from hansard.interop.transcripts import TranscriptItem, json_line, read_items, survey_known, words_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hansard.domain.messages import Message
    from hansard.domain.sessions import Session
    from hansard.record.api import Record

ROLES = frozenset({Role.SYSTEM, Role.USER, Role.ASSISTANT})
BETWEEN = "\n\n"
"""What stands between two messages that became one."""


class ChatExport:
    """Writes sessions as examples."""

    def begin(self, sessions: list[Session]) -> bytes:
        del sessions
        return b""

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        """Yield the line of a session, in pieces: it is written before it is whole."""
        known = await survey_known(record, session)
        waiting: list[bytes] = []
        begun = False
        async for role, content in joined(spoken(read_items(record, session, known))):
            waiting.append(json_line({"role": role, "content": content}))
            if role == Role.ASSISTANT:
                yield (b"," if begun else b'{"messages":[') + b",".join(waiting)
                waiting, begun = [], True
        if begun:
            yield b"]}\n"

    def notice(self, message: Message) -> bytes:
        """Return nothing: Hansard's own words are no example."""
        del message
        return b""

    def end(self) -> bytes:
        return b""


async def spoken(items: AsyncIterator[object]) -> AsyncIterator[tuple[Role, str]]:
    """Yield who said what to whom, the model and people only."""
    async for item in items:
        if isinstance(item, TranscriptItem) and not item.undone and belongs(item.message):
            yield item.message.role, words_of(item.message)


def belongs(message: Message) -> bool:
    """Return whether a message teaches anything: whole, with words, and said to the model or by it."""
    is_gone = message.is_retracted or message.is_observed
    return (
        message.role in ROLES and message.status == Status.COMPLETE and not is_gone and bool(words_of(message).strip())
    )


async def joined(messages: AsyncIterator[tuple[Role, str]]) -> AsyncIterator[tuple[Role, str]]:
    """Yield the same with neighbours of one role as one."""
    last: Role | None = None
    pieces: list[str] = []
    async for role, content in messages:
        if last is not None and role != last:
            yield last, BETWEEN.join(pieces)
            pieces = []
        last = role
        pieces.append(content)
    if last is not None:
        yield last, BETWEEN.join(pieces)
