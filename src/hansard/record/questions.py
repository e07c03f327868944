"""Answers to questions about tool calls: `record.books.questions`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.questions import Scope
from hansard.record.operations import questions as operations
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.questions import Given
    from hansard.record.calls import Caller


class Questions:
    """What turns wait for. A turn itself asks by `Turn.ask`; answers in chats come in by `record.inbox`."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.questions`."""
        self._caller = caller

    async def note_shown(self, session_id: str, message_id: str) -> None:
        """Note that the terminal has drawn the question that waits in a session. From now on it can be answered."""
        await self._caller.write(lambda tx: operations.note_shown(tx, session_id, message_id))

    async def answer(self, session_id: str, given: Given, *, author: str = "", by: str = "") -> str:
        """Answer the question that waits in a session, at the terminal; return what the person is told."""
        reply = operations.Reply(given, author, "", by or author, session_id=session_id)
        return await self._caller.write(lambda tx: operations.reply_at_terminal(tx, reply))

    async def scopes(self, message_id: str, chat: str) -> tuple[Scope, ...]:
        """Return the answers that are offered beside a message in a chat; none when it asks nothing there."""
        row = await self._caller.read(lambda snapshot: snapshot.row(SQL.find_scopes, (message_id, chat)))
        return tuple(Scope(each) for each in row[0].split()) if row is not None else ()
