"""Titles of sessions that nobody named: what the model suggests, or the first words of a person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hansard.domain.budgets import Usage
from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, READ_ROWS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.messages import Role
from hansard.domain.text import clean_name, clean_text
from hansard.errors import PastMissing
from hansard.journal.backend import Reads
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, known_lineage, read_page
from hansard.record import Namespace
from hansard.record.messages.entries import MessageAdded, MessageFold, added_message, read_fold
from hansard.record.sessions import SessionTitled, session_journal
from hansard.record.turns.entries import TurnUsed

FIRST_ENTRIES = (4, 36)
"""Where to look for the first words of a session: at its very beginning, then somewhat further."""


def first_words(snapshot: Reads, session_ids: Sequence[str]) -> dict[str, str]:
    """Return the first that a person said in each session. Most say it at once; nobody reads on for long."""
    found: dict[str, str] = {}
    for session_id in session_ids:
        try:
            first = _first_words(snapshot, session_id, 0)
        except PastMissing:
            first = _first_words(snapshot, session_id, snapshot.row(JOURNAL.read_journal, (session_id,))[3])
        if first is not None:
            found[session_id] = first
    return found


def _first_words(snapshot: Reads, session_id: str, after: int) -> str | None:
    for limit in FIRST_ENTRIES:
        rows = read_page(snapshot, session_id, after, limit)
        after += len(rows)
        said = [
            added_message(entry_id, at, body)
            for _, entry_id, _, _, at, body in rows
            if isinstance(body, MessageAdded) and body.role == Role.USER
        ]
        # Only what was said in a chat can have changed.
        is_in_chat = any(message.event_id for message in said)
        fold = read_fold(snapshot, known_lineage(snapshot, session_id)) if is_in_chat else MessageFold()
        if (first := next((each for each in map(fold.now, said) if not each.is_retracted), None)) is not None:
            return first.text
    return None


class Titles(Namespace):
    """`record.titles`: what sessions are called."""

    async def first_words(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the first that a person said in each of these sessions, as far as it stands near the beginning."""
        parts = [session_ids[start : start + READ_ROWS_MAX] for start in range(0, len(session_ids), READ_ROWS_MAX)]
        found = [await self._caller.read(partial(first_words, session_ids=part)) for part in parts]
        return {session_id: words for each in found for session_id, words in each.items()}

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
