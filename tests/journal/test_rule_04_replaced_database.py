"""Rule 4: the file that was committed to is the one at the path, or the commit does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from hansard import Entry, Message, Record
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    assert_contiguous,
    ids_of,
    new_session,
    raw_rows,
    retry_append,
    say,
)
from tests.record.helpers_process import Worker

SIDES = ("", "-wal", "-shm")


def unlink_database(home: Path) -> None:
    """Somebody removes state.db and leaves its side files."""
    (home / "state.db").unlink()


def unlink_everything(home: Path) -> None:
    """Somebody removes the database with its side files."""
    for side in SIDES:
        (home / f"state.db{side}").unlink()


def rename_database(home: Path) -> None:
    """Somebody moves state.db aside."""
    (home / "state.db").rename(home / "moved.db")


def rename_everything(home: Path) -> None:
    """Somebody moves the database and its side files aside."""
    for side in SIDES:
        (home / f"state.db{side}").rename(home / f"moved.db{side}")


def replace_by_older(home: Path) -> None:
    """Somebody restores an older copy, by rename, as backup tools do."""
    (home / "older.db").rename(home / "state.db")


def replace_everything_by_older(home: Path) -> None:
    """Somebody restores an older copy and removes the side files."""
    for side in SIDES[1:]:
        (home / f"state.db{side}").unlink()
    (home / "older.db").rename(home / "state.db")


def replace_by_empty(home: Path) -> None:
    """Somebody puts a zero-byte file in its place."""
    (home / "empty.db").touch()
    (home / "empty.db").rename(home / "state.db")


def unlink_wal(home: Path) -> None:
    """Somebody tidies the WAL away."""
    (home / "state.db-wal").unlink()


def unlink_shm(home: Path) -> None:
    """Somebody tidies the shared memory away."""
    (home / "state.db-shm").unlink()


def unlink_sides(home: Path) -> None:
    """Somebody tidies both side files away."""
    unlink_wal(home)
    unlink_shm(home)


DEEDS = [
    unlink_database,
    unlink_everything,
    rename_database,
    rename_everything,
    replace_by_older,
    replace_everything_by_older,
    replace_by_empty,
    unlink_wal,
    unlink_shm,
    unlink_sides,
]
Deed = Callable[[Path], None]


def keep_older_copy(home: Path) -> None:
    """Copy the database as it stands, by SQLite: nothing else may open it in this process."""
    raw_rows(home, "VACUUM INTO ?", str(home / "older.db"))


def test_control_a_commit_into_an_unlinked_file_succeeds_and_is_lost(tmp_path: Path) -> None:
    """Without the rule: COMMIT reports success into a file that nobody will ever open again."""
    path = tmp_path / "naive.db"
    writer = apsw.Connection(str(path))
    writer.pragma("journal_mode", "WAL")
    writer.execute("CREATE TABLE entry (id TEXT)")
    for side in SIDES:
        Path(f"{path}{side}").unlink()
    writer.execute("INSERT INTO entry VALUES ('acknowledged')")
    assert not path.exists()


@pytest.mark.loss("B8", "B19", "D8")
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_nothing_acknowledged_is_lost(home: Path, deed: Deed) -> None:
    """Between two commits the database is taken away; reads, the next append and a reopening have everything."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
        keep_older_copy(home)
        await say(record, "c", "d")
        assert await ids_of(record) == ["a", "b", "c", "d"]
        deed(home)
        await say(record, "e")
        assert await ids_of(record) == ["a", "b", "c", "d", "e"]
        await assert_clean(record)
        await say(record, "f")
        assert await ids_of(record) == ["a", "b", "c", "d", "e", "f"]
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a", "b", "c", "d", "e", "f"]
        await assert_contiguous(record)
        await assert_clean(record)


@pytest.mark.loss("B8")
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_a_read_first_sees_everything_too(home: Path, deed: Deed) -> None:
    """Whoever only reads after the deed is given all of it, never a shorter transcript."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
        keep_older_copy(home)
        await say(record, "b", "c")
        assert await ids_of(record) == ["a", "b", "c"]
        deed(home)
        assert await ids_of(record) == ["a", "b", "c"]
        await say(record, "d")
        await assert_clean(record)


@pytest.mark.loss("B8")
@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_who_never_wrote_sees_what_another_process_wrote_after_it(
    home: Path, deed: Deed, *, follows: bool
) -> None:
    """The database is young, so all of it is in its WAL. Another process opens what is left of it, and appends."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
        keep_older_copy(home)
    async with Record.open(home) as record:
        following = record.follow(SESSION)
        if follows:
            await anext(following)
        deed(home)
        with Worker(home) as worker:
            await worker.ask_soon("append", session=SESSION, id="b")
            if follows:
                while not (isinstance(item := await anext(following), Entry) and item.id == "b"):
                    pass
            assert await ids_of(record) == ["a", "b"]
        await assert_clean(record)


@pytest.mark.drawn(3)
@pytest.mark.loss("B8", "B7")
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_under_load_of_two_processes(home: Path, deed: Deed) -> None:
    """The deed happens while two processes append: everything that was acknowledged is there, once, in order."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "first")
        keep_older_copy(home)
        with Worker(home) as worker:
            theirs = asyncio.create_task(worker.ask_soon("many", session=SESSION, prefix="theirs", count=60))
            for number in range(60):
                await retry_append(record, f"ours-{number}")
                if number == 30:
                    deed(home)
            await theirs
            found = [row[0] for row in await worker.ask_soon("texts", session=SESSION)]
        expected = {"first", *(f"{who}-{number}" for who in ("ours", "theirs") for number in range(60))}
        assert set(found) == expected
        assert len(found) == len(expected)
        assert await ids_of(record) == found
        for who in ("ours", "theirs"):
            mine = [id for id in found if id.startswith(who)]
            assert mine == sorted(mine, key=lambda name: int(name.rpartition("-")[2]))
        await assert_clean(record)


@pytest.mark.loss("B8", "A6")
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_an_open_message_survives(home: Path, deed: Deed) -> None:
    """The deed happens in the middle of a reply: the reply goes on, and its text is whole."""
    async with Record.open(home) as record:
        await new_session(record)
        keep_older_copy(home)
        async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
            await reply.write("one ")
            await turn_is_shown(record, "one ")
            deed(home)
            await reply.write("two")
        assert [(message.text, message.status) for message in await record.load_transcript(SESSION)] == [
            ("one two", "complete")
        ]
        await record.append(SESSION, Message.user("next"))
        await assert_clean(record)


async def turn_is_shown(record: Record, text: str) -> None:
    """Wait until the open message has that text."""
    while [message.text for message in await record.load_transcript(SESSION)] != [text]:
        pass
