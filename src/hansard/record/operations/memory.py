"""What is remembered for an owner: facts of the home journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hansard.domain import entries as e
from hansard.domain.entries_agent import MemoryEdited, MemoryForgotten, MemoryNoted
from hansard.domain.ids import random_letters
from hansard.domain.limits import NOTES_MAX
from hansard.domain.memory import Note
from hansard.errors import NotFound, TooLarge
from hansard.record.operations.following import owners_text, read_circle
from hansard.record.operations.home import home_journal
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.record.journals import Journal
    from hansard.record.transaction import Transaction

NOTE_ID_LETTERS = 4
"""Short enough to be typed; one that is taken is not given again."""


def note_value(row: tuple[Any, ...]) -> Note:
    """Return the note of a row."""
    note_id, owner, text, noted_at, changed_at = row
    return Note(id=note_id, owner=owner, text=text, noted_at_microseconds=noted_at, changed_at_microseconds=changed_at)


class Remembering(NamedTuple):
    """Something to remember: for whom, what, who says so."""

    owner: str
    text: str
    by: str
    operation_id: str


def add(tx: Transaction, new: Remembering) -> Note:
    """Note something. What is noted already, word for word, is not noted twice."""
    home = home_journal(tx)
    done = tx.find(home, f"~noted:{new.operation_id}")
    if done is not None:
        body = e.decode_body(done.kind, done.version, done.body)
        return _read(tx, body.note_id, new.owner) if isinstance(body, MemoryNoted) else _missing(new.owner)
    notes = [note_value(row) for row in tx.rows(SQL.list_notes, (owners_text(tx.rows, new.owner), NOTES_MAX + 1))]
    same = next((note for note in notes if note.text == new.text), None)
    if same is not None:
        return same
    if len(notes) >= NOTES_MAX:
        message = f"there are {NOTES_MAX} notes, which is the limit: forget one first"
        raise TooLarge(message)
    note_id = random_letters(NOTE_ID_LETTERS)
    while tx.row(SQL.find_note, (note_id,)) is not None:
        note_id = random_letters(NOTE_ID_LETTERS)
    body = MemoryNoted(note_id=note_id, owner=new.owner, text=new.text, by=new.by)
    tx.add(home, f"~noted:{new.operation_id}", body)
    return _read(tx, note_id, new.owner)


class Changing(NamedTuple):
    """A change of a note. `owner` None: whoever it belongs to; `text` None: it is forgotten."""

    note_id: str
    owner: str | None
    text: str | None
    by: str
    operation_id: str


def change(tx: Transaction, changing: Changing) -> Note:
    """Change or forget a note of an owner; another owner's does not exist for this one (L11). Return it as it was."""
    home = home_journal(tx)
    if tx.find(home, f"~forgotten:{changing.operation_id}") is not None:
        return _recall(tx, home, changing.note_id)
    row = tx.row(SQL.find_note, (changing.note_id,))
    note = note_value(row) if row is not None else None
    if note is None or (changing.owner is not None and note.owner not in read_circle(tx.rows, changing.owner)):
        return _missing(changing.note_id)
    if changing.text is None:
        forgotten = MemoryForgotten(note_id=note.id, by=changing.by)
        tx.add(home, f"~forgotten:{changing.operation_id}", forgotten)
        return note
    if changing.text != note.text and tx.find(home, f"~edited:{changing.operation_id}") is None:
        edited = MemoryEdited(note_id=note.id, text=changing.text, by=changing.by)
        tx.add(home, f"~edited:{changing.operation_id}", edited)
    return _read(tx, note.id, note.owner)


def _read(tx: Transaction, note_id: str, owner: str) -> Note:
    row = tx.row(SQL.find_note, (note_id,))
    return note_value(row) if row is not None else _missing(owner)


def _recall(tx: Transaction, home: Journal, note_id: str) -> Note:
    """Return a forgotten note as it was, from its entries."""
    note: Note | None = None
    for kind, version, at, data in tx.rows(SQL.memory_entries, (home.entry_key(0), home.entry_key(home.head_seq))):
        body = e.decode_body(kind, version, data)
        if isinstance(body, MemoryNoted) and body.note_id == note_id:
            note = note_value((note_id, body.owner, body.text, at, at))
        elif isinstance(body, MemoryEdited) and body.note_id == note_id and note is not None:
            note = msgspec.structs.replace(note, text=body.text, changed_at_microseconds=at)
    return note or _missing(note_id)


def _missing(note_id: str) -> Note:
    message = f"there is no note {note_id[:80]}"
    raise NotFound(message, "`/memory` or `hansard memory` lists the notes.")
