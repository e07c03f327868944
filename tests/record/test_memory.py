"""Memory in the record: bounded, of one owner, and the same after every rebuild."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard import NotFound, Record, TooLarge
from hansard.domain.limits import NOTE_CHARACTERS_MAX, NOTES_MAX
from hansard.errors import InvalidInput

ANN, BEN = "person:ann", "person:ben"


async def test_notes_are_added_changed_and_forgotten(home: Path) -> None:
    """A note is there until it is forgotten, says what it was last told, and each change is an entry of the home."""
    async with Record.open(home) as record:
        memory = record.memory
        first = await memory.add(ANN, "likes  tea\nwith milk", by=ANN)
        second = await memory.add(ANN, "lives in Bern")
        assert [note.text for note in await memory.list(ANN)] == ["likes tea with milk", "lives in Bern"]
        edited = await memory.edit(first.id, "likes coffee", owner=ANN)
        assert (edited.id, edited.text) == (first.id, "likes coffee")
        gone = await memory.forget(second.id, owner=ANN)
        assert gone.text == "lives in Bern"
        assert [note.text for note in await memory.list(ANN)] == ["likes coffee"]
        assert (await record.verify()).ok
    kinds = (home / "home.jsonl").read_text().count('"memory.')
    assert kinds == 4


async def test_the_same_words_are_noted_once(home: Path) -> None:
    """Noting what is noted already gives the note that there is."""
    async with Record.open(home) as record:
        first = await record.memory.add(ANN, "likes tea")
        assert await record.memory.add(ANN, " likes tea ") == first
        assert (await record.memory.add(BEN, "likes tea")).id != first.id


@pytest.mark.loss("J6")
async def test_memory_never_crosses_owners(home: Path) -> None:
    """One owner neither sees, changes nor forgets what another's notes say: they do not exist for them."""
    async with Record.open(home) as record:
        memory = record.memory
        note = await memory.add(ANN, "keeps a secret")
        assert await memory.list(BEN) == []
        with pytest.raises(NotFound):
            await memory.edit(note.id, "told", owner=BEN)
        with pytest.raises(NotFound):
            await memory.forget(note.id, owner=BEN)
        assert [each.text for each in await memory.list(ANN)] == ["keeps a secret"]
        assert [each.owner for each in await memory.list()] == [ANN]


async def test_memory_is_bounded(home: Path) -> None:
    """A note that is too long or empty, and one too many, are refused, and nothing is written; others have room."""
    async with Record.open(home) as record:
        memory = record.memory
        with pytest.raises(TooLarge):
            await memory.add(ANN, "x" * (NOTE_CHARACTERS_MAX + 1))
        for text in ("", " \n", "\x07"):
            with pytest.raises(InvalidInput):
                await memory.add(ANN, text)
        for number in range(NOTES_MAX):
            await memory.add(ANN, f"note {number}")
        with pytest.raises(TooLarge):
            await memory.add(ANN, "one too many")
        assert len(await memory.list(ANN)) == NOTES_MAX
        await memory.add(BEN, "has room")
        await memory.forget((await memory.list(ANN))[0].id, owner=ANN)
        await memory.add(ANN, "room again")


async def test_memory_comes_back_from_the_logs(home: Path) -> None:
    """A lost database is rebuilt with every note as it was (L10)."""
    async with Record.open(home) as record:
        note = await record.memory.add(ANN, "likes tea")
        await record.memory.edit(note.id, "likes coffee")
        forgotten = await record.memory.add(ANN, "gone")
        await record.memory.forget(forgotten.id)
        before = await record.memory.list()
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with Record.open(home) as record:
        assert await record.memory.list() == before
        assert (await record.verify()).ok


@pytest.mark.loss("J6")
async def test_memory_follows_links(home: Path) -> None:
    """Who is one person has one memory, and one bound for it; parted, each has what was noted under their own name."""
    async with Record.open(home) as record:
        memory = record.memory
        own, others = await memory.add(ANN, "likes tea"), await memory.add(BEN, "likes coffee")
        await record.people.link(ANN, BEN)
        assert [note.text for note in await memory.list(BEN)] == ["likes tea", "likes coffee"]
        assert (await memory.edit(others.id, "likes cocoa", owner=ANN)).text == "likes cocoa"
        for number in range(NOTES_MAX - 2):
            await memory.add(BEN, f"note {number}")
        with pytest.raises(TooLarge):
            await memory.add(ANN, "one too many")
        await record.people.unlink(BEN)
        assert await memory.list(ANN) == [own]
        with pytest.raises(NotFound):
            await memory.forget(others.id, owner=ANN)
        assert len(await memory.list(BEN)) == NOTES_MAX - 1
