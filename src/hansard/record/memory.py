"""Memory, as the rest of Hansard uses it: `record.books.memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.memory import clean_note
from hansard.domain.text import clean_name
from hansard.record.operations import memory as operations
from hansard.record.sqlite.queries import SQL
from hansard.record.views import ALL_ROWS, owners_of

if TYPE_CHECKING:
    from hansard.domain.memory import Note
    from hansard.record.calls import Caller
    from hansard.record.reading import Snapshot


class Memory:
    """What is remembered for each owner, and for whoever is one person with them; for nobody else (L11)."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.memory`."""
        self._caller = caller

    async def list(self, owner: str | None = None) -> list[Note]:
        """Return an owner's notes, the oldest first; without an owner, those of all: that is for the admin."""

        def read(snapshot: Snapshot) -> list[Note]:
            rows = snapshot.rows(SQL.list_notes, (owners_of(snapshot, owner), ALL_ROWS))
            return [operations.note_value(row) for row in rows]

        return await self._caller.read(read)

    async def add(self, owner: str, text: str, *, by: str = "") -> Note:
        """Remember something for an owner; TooLarge when it is too long, or one too many."""
        new = operations.Remembering(
            clean_name(owner, "an owner", NAME_CHARACTERS_MAX), clean_note(text), by[:NAME_CHARACTERS_MAX], new_id()
        )
        return await self._caller.write(lambda tx: operations.add(tx, new))

    async def edit(self, note_id: str, text: str, *, owner: str | None = None, by: str = "") -> Note:
        """Let a note say something else; NotFound when this owner has none of that id."""
        return await self._change(note_id, clean_note(text), owner, by)

    async def forget(self, note_id: str, *, owner: str | None = None, by: str = "") -> Note:
        """Tell a note to no model any more, and return it. The entries that made it stay in the record."""
        return await self._change(note_id, None, owner, by)

    async def _change(self, note_id: str, text: str | None, owner: str | None, by: str) -> Note:
        changing = operations.Changing(note_id, owner, text, by[:NAME_CHARACTERS_MAX], new_id())
        return await self._caller.write(lambda tx: operations.change(tx, changing))
