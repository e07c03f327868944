"""Answers to questions about tool calls, by a command: `record.books.questions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.record.operations import questions as operations

if TYPE_CHECKING:
    from hansard.record.calls import Caller


class Questions:
    """What turns wait for. A turn itself asks by `Turn.ask`."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.questions`."""
        self._caller = caller

    async def waits(self, session_id: str, author: str, chat: str) -> bool:
        """Return whether a turn waits for an answer of this person, in this chat."""
        return await self._caller.write(lambda tx: operations.waits(tx, session_id, author, chat))

    async def answer(self, session_id: str, *, yes: bool, author: str = "", chat: str = "", by: str = "") -> bool:
        """Answer the question that waits in a session; return whether one waits that this person may answer here."""
        given = operations.Reply(yes, author, chat, by or author)
        return await self._caller.write(lambda tx: operations.reply(tx, session_id, given))
