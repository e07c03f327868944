"""Memory: short notes that the model is told in later sessions of their owner.

Entries (home journal): memory.noted, .edited, .forgotten. Table: note. SQL: memory.sql.
Invariant: an owner sees and changes only the notes of their own circle (L11).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard.domain.ids import new_id, random_letters
from hansard.domain.limits import NAME_CHARACTERS_MAX, NOTE_CHARACTERS_MAX, NOTES_MAX
from hansard.domain.text import clean_name, clean_text
from hansard.errors import InvalidInput, NotFound, TooLarge
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.entries import Journal
from hansard.journal.transaction import Transaction, home_journal
from hansard.record import Namespace
from hansard.record.people import owners_text, read_circle
from hansard.record.sessions import ALL_ROWS

MEMORY = Concept("memory", "hansard.record", tables=(Table(name="note", order="id", of_home=True),))
SQL = MEMORY.queries


@MEMORY.entry("memory.noted")
class MemoryNoted(Body, frozen=True):
    """Something is to be remembered for an owner: told to the model in sessions that begin from now on."""

    note_id: str
    owner: str
    text: str
    by: str = ""


@MEMORY.entry("memory.edited")
class MemoryEdited(Body, frozen=True):
    """A note says something else from now on."""

    note_id: str
    text: str
    by: str = ""


@MEMORY.entry("memory.forgotten")
class MemoryForgotten(Body, frozen=True):
    """A note is told to no model any more."""

    note_id: str
    by: str = ""


@MEMORY.projects(MemoryNoted, MemoryEdited, MemoryForgotten)
def project_note(place: EntryPlace, body: Body) -> None:
    match body:
        case MemoryNoted():
            place.run(SQL.insert_note, (body.note_id, body.owner, body.text, place.seq, place.at))
        case MemoryEdited():
            place.run(SQL.edit_note, (body.note_id, body.text, place.at))
        case MemoryForgotten():
            place.run(SQL.delete_note, (body.note_id,))


NOTE_ID_LETTERS = 4
"""Short enough to be typed; one that is taken is not given again."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is remembered. Times are in microseconds since 1970."""

    id: str
    owner: str
    text: str
    noted_at_microseconds: int = 0
    changed_at_microseconds: int = 0

    @property
    def changed_at(self) -> datetime:
        return datetime.fromtimestamp(self.changed_at_microseconds / 1_000_000, UTC)


def clean_note(text: str) -> str:
    """Return a note on one line, as it can be recorded, or refuse it."""
    cleaned = " ".join(clean_text(text).split())
    cleaned = "".join(sign for sign in cleaned if sign.isprintable())
    if not cleaned:
        raise InvalidInput("a note says something: it cannot be empty")
    if len(cleaned) > NOTE_CHARACTERS_MAX:
        raise TooLarge(f"a note has {len(cleaned)} characters; the limit is {NOTE_CHARACTERS_MAX}")
    return cleaned


def note_value(row: tuple[Any, ...]) -> Note:
    note_id, owner, text, noted_at, changed_at = row
    return Note(id=note_id, owner=owner, text=text, noted_at_microseconds=noted_at, changed_at_microseconds=changed_at)


def add_note(tx: Transaction, *, owner: str, text: str, by: str, token: str) -> Note:
    """Note something. What is noted already, word for word, is not noted twice."""
    home = home_journal(tx)
    done = tx.find_body(home, f"~noted:{token}", MemoryNoted)
    if done is not None:
        return find_note(tx, done.note_id, None)
    notes = [note_value(row) for row in tx.rows(SQL.list_notes, (owners_text(tx, owner), NOTES_MAX + 1))]
    same = next((note for note in notes if note.text == text), None)
    if same is not None:
        return same
    if len(notes) >= NOTES_MAX:
        raise TooLarge(f"there are {NOTES_MAX} notes, which is the limit: forget one first")
    note_id = random_letters(NOTE_ID_LETTERS)
    while tx.row(SQL.find_note, (note_id,)) is not None:
        note_id = random_letters(NOTE_ID_LETTERS)
    tx.add(home, f"~noted:{token}", MemoryNoted(note_id=note_id, owner=owner, text=text, by=by))
    return find_note(tx, note_id, None)


def edit_note(tx: Transaction, *, note_id: str, owner: str | None, text: str, by: str, token: str) -> Note:
    note = find_note(tx, note_id, owner)
    home = home_journal(tx)
    if text != note.text:
        tx.add_once(home, f"~edited:{token}", MemoryEdited(note_id=note.id, text=text, by=by))
    return find_note(tx, note.id, None)


def forget_note(tx: Transaction, *, note_id: str, owner: str | None, by: str, token: str) -> Note:
    home = home_journal(tx)
    if tx.find(home, f"~forgotten:{token}") is not None:
        return _recall(tx, home, note_id)
    note = find_note(tx, note_id, owner)
    tx.add(home, f"~forgotten:{token}", MemoryForgotten(note_id=note.id, by=by))
    return note


def find_note(tx: Transaction, note_id: str, owner: str | None) -> Note:
    """Return a note. For an owner, notes of other circles do not exist (L11)."""
    row = tx.row(SQL.find_note, (note_id,))
    note = note_value(row) if row is not None else None
    if note is None or (owner is not None and note.owner not in read_circle(tx, owner)):
        return _missing(note_id)
    return note


def _recall(tx: Transaction, home: Journal, note_id: str) -> Note:
    note: Note | None = None
    for kind, version, at, data in tx.rows(SQL.memory_entries, (home.entry_key(0), home.entry_key(home.head_seq))):
        body = tx.schema.decode_body(kind, version, data)
        if isinstance(body, MemoryNoted) and body.note_id == note_id:
            note = note_value((note_id, body.owner, body.text, at, at))
        elif isinstance(body, MemoryEdited) and body.note_id == note_id and note is not None:
            note = msgspec.structs.replace(note, text=body.text, changed_at_microseconds=at)
    return note or _missing(note_id)


def _missing(note_id: str) -> Note:
    raise NotFound(f"there is no note {note_id[:80]}", "`/memory` or `hansard memory` lists the notes.")


class Memory(Namespace):
    """`record.memory`: notes of each owner, and of whoever is one person with them; of nobody else (L11)."""

    async def list(self, owner: str | None = None) -> list[Note]:
        """Return an owner's notes, the oldest first; without an owner, those of all: that is for the admin."""
        rows = await self._caller.read(
            lambda snapshot: snapshot.rows(SQL.list_notes, (owners_text(snapshot, owner), ALL_ROWS))
        )
        return [note_value(row) for row in rows]

    async def add(self, owner: str, text: str, *, by: str = "") -> Note:
        """Remember something for an owner; TooLarge when it is too long, or one too many."""
        named, words = clean_name(owner, "an owner", NAME_CHARACTERS_MAX), clean_note(text)
        who, token = by[:NAME_CHARACTERS_MAX], new_id()
        return await self._caller.write(lambda tx: add_note(tx, owner=named, text=words, by=who, token=token))

    async def edit(self, note_id: str, text: str, *, owner: str | None = None, by: str = "") -> Note:
        """Let a note say something else; NotFound when this owner has none of that id."""
        words, who, token = clean_note(text), by[:NAME_CHARACTERS_MAX], new_id()
        return await self._caller.write(
            lambda tx: edit_note(tx, note_id=note_id, owner=owner, text=words, by=who, token=token)
        )

    async def forget(self, note_id: str, *, owner: str | None = None, by: str = "") -> Note:
        """Tell a note to no model any more, and return it. The entries that made it stay in the record."""
        who, token = by[:NAME_CHARACTERS_MAX], new_id()
        return await self._caller.write(lambda tx: forget_note(tx, note_id=note_id, owner=owner, by=who, token=token))
