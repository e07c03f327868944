"""Titles that the model suggests for sessions without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.text import clean_name, clean_text
from hansard.record.sessions import SessionTitled, session_journal
from hansard.record.turns.entries import TurnUsed

if TYPE_CHECKING:
    from hansard.domain.requests import Usage
    from hansard.journal.calls import Caller
    from hansard.journal.transaction import Transaction


class Titles:
    """What sessions are called by the model, as long as no person called them anything."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.titles`."""
        self._caller = caller

    async def suggest(self, session_id: str, title: str, turn_id: str, model: str, usage: Usage) -> bool:
        """Give a session a title if it has none, and count what asking for it took; return whether it has it now.

        Without a title only the count is recorded.
        """
        cleaned = clean_name(title, "a title", TITLE_CHARACTERS_MAX) if title else ""
        used = TurnUsed(turn_id=turn_id, model=clean_text(model)[:NAME_CHARACTERS_MAX], usage=usage, purpose="title")
        token = new_id()

        def suggest(tx: Transaction) -> bool:
            journal, row = session_journal(tx, session_id)
            if tx.find(journal, f"~used:{token}") is None:
                tx.add(journal, f"~used:{token}", used)
                if cleaned and row.title is None:
                    tx.add(journal, f"~titled:{token}", SessionTitled(title=cleaned))
            return tx.find(journal, f"~titled:{token}") is not None

        return await self._caller.write(suggest)
