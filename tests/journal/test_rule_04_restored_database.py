"""Rule 4, by content: `cp` over state.db keeps its inode, and a WAL is still never replayed into another state."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from hansard import Message, Record
from hansard.errors import HansardError, LegsMixed
from hansard.journal.sqlite.migrations import create_schema, migrate
from hansard.journal.sqlite.stamps import (
    RECORD_PAGE,
    DatabaseFile,
    DatabaseStamp,
    DatabaseVerdict,
    WalFile,
    judge_files,
    read_database_file,
    read_wal_file,
)
from hansard.journal.store import Store
from hansard.record.schema import SCHEMA
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_of, new_session, raw_rows, say

EMPTY_WAL = "PRAGMA wal_checkpoint(TRUNCATE)"
DELETE_ENTRIES = "DELETE FROM entry WHERE journal = (SELECT key FROM journal WHERE id = ?) AND seq BETWEEN ? AND ?"
COPY_WAL_BACK = "PRAGMA wal_checkpoint(PASSIVE)"
WAL_HEADER_BYTES = 32


def cp(source: Path, target: Path) -> None:
    """Copy as an operator does: the target keeps its inode."""
    subprocess.run(["cp", source, target], check=True)


async def talk(home: Path, *ids: str) -> None:
    """Say something in a process's life of its own."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, *ids)


async def found(home: Path) -> list[str]:
    """Return what the record holds, once it is clean."""
    async with Record.open(home) as record:
        await assert_clean(record)
        return await ids_of(record)


def names(prefix: str, count: int = 30) -> list[str]:
    """Return enough ids to fill several pages."""
    return [f"{prefix}-{number}" for number in range(count)]


async def begin_wal_anew(home: Path, record: Record) -> list[str]:
    """Say something until a commit begins the WAL anew: while anybody reads, commits go to the end of the old one."""
    wal, said = home / "state.db-wal", list[str]()
    before = wal.read_bytes()[:WAL_HEADER_BYTES]
    while wal.read_bytes()[:WAL_HEADER_BYTES] == before:
        raw_rows(home, COPY_WAL_BACK)
        said.append(f"c-{len(said)}")
        await say(record, said[-1])
    return said


@pytest.mark.loss("B26")
async def test_a_database_put_back_by_cp_beside_a_newer_wal(home: Path, tmp_path: Path) -> None:
    """The silent case: backup after the WAL was emptied, a WAL that began anew since, `cp` over the same inode."""
    await talk(home, *names("a"))
    raw_rows(home, EMPTY_WAL)
    shutil.copy(home / "state.db", tmp_path / "backup.db")
    async with Record.open(home) as record:
        await say(record, *names("b"))
        later = await begin_wal_anew(home, record)
    inode = (home / "state.db").stat().st_ino
    cp(tmp_path / "backup.db", home / "state.db")
    assert (home / "state.db").stat().st_ino == inode
    assert await found(home) == names("a") + names("b") + later
    assert list(home.glob("state.db-wal.orphan-*"))


@pytest.mark.loss("B26")
async def test_a_newer_database_put_over_an_older_one(home: Path, tmp_path: Path) -> None:
    """The other direction: the WAL is older than the database, and must not take its pages back."""
    await talk(home, *names("a"))
    shutil.copytree(home, tmp_path / "older")
    await talk(home, *names("b"))
    raw_rows(home, EMPTY_WAL)
    for name in ("state.db-wal", "home.jsonl"):
        cp(tmp_path / "older" / name, home / name)
    assert await found(home) == names("a") + names("b")


@pytest.mark.loss("B26")
async def test_a_wal_of_another_moment(home: Path, tmp_path: Path) -> None:
    """An older WAL beside the database: what it would take back is not taken back."""
    await talk(home, *names("a"))
    shutil.copy(home / "state.db-wal", tmp_path / "older-wal")
    raw_rows(home, EMPTY_WAL)
    await talk(home, *names("b"))
    raw_rows(home, EMPTY_WAL)
    cp(tmp_path / "older-wal", home / "state.db-wal")
    assert await found(home) == names("a") + names("b")


@pytest.mark.loss("B26")
async def test_a_wal_with_a_damaged_frame(home: Path) -> None:
    """SQLite stops replaying at a wrong checksum: later pages in the database are not hidden by earlier ones."""
    await talk(home, *names("a"))
    raw_rows(home, EMPTY_WAL)
    await talk(home, *names("b"))
    raw_rows(home, COPY_WAL_BACK)
    wal = home / "state.db-wal"
    data = bytearray(wal.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wal.write_bytes(data)
    assert await found(home) == names("a") + names("b")


@pytest.mark.loss("B26")
async def test_a_wal_whose_header_tells_of_impossible_pages(home: Path) -> None:
    """SQLite ignores such a WAL; what only it held comes from the logs."""
    await talk(home, *names("a"))
    raw_rows(home, EMPTY_WAL)
    await talk(home, *names("b"))
    wal = home / "state.db-wal"
    data = bytearray(wal.read_bytes())
    data[8:12] = b"\xff" * 4
    wal.write_bytes(data)
    assert await found(home) == names("a") + names("b")


@pytest.mark.loss("B26")
async def test_while_a_process_runs(home: Path, tmp_path: Path) -> None:
    """`cp` over the database of a running process: readers and the writer notice, and nothing is lost."""
    await talk(home, *names("a"))
    raw_rows(home, EMPTY_WAL)
    shutil.copy(home / "state.db", tmp_path / "backup.db")
    async with Record.open(home) as record:
        await say(record, *names("b"))
        later = await begin_wal_anew(home, record)
        cp(tmp_path / "backup.db", home / "state.db")
        assert await ids_of(record) == [*names("a"), *names("b"), *later]
        cp(tmp_path / "backup.db", home / "state.db")
        await say(record, "d")
        assert await ids_of(record) == [*names("a"), *names("b"), *later, "d"]
        await assert_clean(record)


@pytest.mark.loss("B26", "D8")
@pytest.mark.parametrize("which", ["last", "middle", "all"])
async def test_entries_that_were_deleted(home: Path, which: str) -> None:
    """Rows that somebody deleted are taken from the log at the next opening."""
    await talk(home, *names("a", 10))
    first, last = {"last": (11, 11), "middle": (5, 5), "all": (1, 11)}[which]
    raw_rows(home, DELETE_ENTRIES, SESSION, first, last)
    assert await found(home) == names("a", 10)
    assert list(home.glob("state.db.orphan-*"))


@pytest.mark.loss("B26", "D8")
async def test_entries_that_are_deleted_while_a_process_runs(home: Path) -> None:
    """A read never shows a shorter history: the database is rebuilt from the logs, and then it is read."""
    await talk(home, *names("a", 10))
    async with Record.open(home) as record:
        assert await ids_of(record) == names("a", 10)
        raw_rows(home, DELETE_ENTRIES, SESSION, 5, 5)
        assert await ids_of(record) == names("a", 10)
        raw_rows(home, DELETE_ENTRIES, SESSION, 11, 11)
        assert len([entry async for entry in listed(record)]) == 11
        await say(record, "b")
        await assert_clean(record)


async def listed(record: Record) -> AsyncIterator[object]:
    """Yield the entries of the session."""
    for entry in await record.sessions.read_entries(SESSION):
        yield entry


@pytest.mark.loss("B26", "D8")
async def test_entries_that_both_legs_lost_are_told(home: Path) -> None:
    """Nothing can bring them back: reading says which one is missing, and shows no shorter history."""
    await talk(home, *names("a", 10))
    async with Record.open(home) as record:
        raw_rows(home, DELETE_ENTRIES, SESSION, 5, 5)
        lines = log_of(home).read_bytes().splitlines(keepends=True)
        log_of(home).write_bytes(b"".join([*lines[:4], b"#" * (len(lines[4]) - 1) + b"\n", *lines[5:]]))
        with pytest.raises(HansardError, match=f"entry 5 of {SESSION}"):
            await ids_of(record)


@pytest.mark.loss("B26")
@pytest.mark.parametrize("depth", ["sessions", "sessions/other"])
async def test_a_folder_of_logs_that_is_a_link(home: Path, tmp_path: Path, depth: str) -> None:
    """Logs behind a link are found when the database is lost; a link to nowhere is an error that names it."""
    await talk(home, *names("a", 3))
    (home / depth).rename(tmp_path / "elsewhere")
    (home / depth).symlink_to(tmp_path / "elsewhere")
    for path in home.glob("state.db*"):
        path.unlink()
    assert await found(home) == names("a", 3)
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    for path in home.glob("state.db*"):
        path.unlink()
    with pytest.raises(HansardError, match=depth):
        await found(home)


@pytest.mark.loss("B26")
async def test_what_only_the_database_holds_survives_its_rebuild(home: Path) -> None:
    """A log that was cut and a database that lacks other entries: together they have all of them."""
    await talk(home, *names("a", 10))
    lines = log_of(home).read_bytes().splitlines(keepends=True)
    log_of(home).write_bytes(b"".join(lines[:6]))
    raw_rows(home, DELETE_ENTRIES, SESSION, 3, 3)
    assert await found(home) == names("a", 10)


@pytest.mark.loss("B26")
@pytest.mark.parametrize("move", ["state.db", "logs"])
async def test_a_database_of_another_home_is_refused(home: Path, tmp_path: Path, move: str) -> None:
    """Same session ids, another home: nothing is written, and each way that the message names leads on."""
    other = tmp_path / "other"
    await talk(home, *names("a", 5))
    await talk(other, *names("b", 5))
    raw_rows(other, EMPTY_WAL)
    before = log_of(home).read_bytes()
    cp(other / "state.db", home / "state.db")
    with pytest.raises(LegsMixed, match=r"move state\.db.*move home\.jsonl and sessions/") as caught:
        await found(home)
    assert "what the other one holds is then read" in caught.value.hint
    assert log_of(home).read_bytes() == before
    if move == "logs":
        (home / "home.jsonl").unlink()
        shutil.rmtree(home / "sessions")
    else:
        for path in home.glob("state.db*"):
            path.unlink()
    assert await found(home) == names("b" if move == "logs" else "a", 5)


async def test_every_commit_is_stamped_once(home: Path) -> None:
    """Each commit in a WAL changes the row of `record`, and continues the commit before it."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
        async with record.turn(SESSION) as turn, turn.reply() as reply:
            await reply.write("one")
        store = record._caller.store  # noqa: SLF001 - the thread would call the keeper half a second later
        assert isinstance(store, Store)
        store.backend.upkeep.step()
        await say(record, "c")
    log_of(home).unlink()
    await talk(home, "d")
    wal = (home / "state.db-wal").read_bytes()
    frames = [wal[start : start + 24] for start in range(32, len(wal), 24 + 4096)]
    commits = [number for number, frame in enumerate(frames) if int.from_bytes(frame[4:8])]
    stamped = [number for number, frame in enumerate(frames) if int.from_bytes(frame[:4]) == 2]
    read = read_wal_file(home / "state.db")
    assert read is not None
    assert len(read.stamps) == len(commits) == len(stamped) > 8
    assert read.stamps[-1].state == raw_rows(home, "SELECT stamp FROM record")[0][0]
    raw_rows(home, EMPTY_WAL)
    assert read_database_file(home / "state.db") == DatabaseFile(state=read.stamps[-1].state, is_new=False)


def test_stamps_are_on_page_2(tmp_path: Path) -> None:
    """Where they are looked for: in a new database, in a migrated one, and in a copy by VACUUM INTO."""
    new, migrated = (apsw.Connection(str(tmp_path / name)) for name in ("new.db", "migrated.db"))
    create_schema(new, SCHEMA)
    migrated.execute(SCHEMA.migrations[0])
    migrated.execute("INSERT INTO record (one, database_id, commits) VALUES (1, 'x', 7); PRAGMA user_version = 1")
    migrate(migrated, tmp_path / "backups", lambda _connection: None, SCHEMA)
    new.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    for name in ("new.db", "migrated.db", "copy.db"):
        connection = apsw.Connection(str(tmp_path / name))
        assert connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'record'").get == RECORD_PAGE
        stamp = connection.execute("SELECT stamp FROM record").get
        assert len(stamp) == 8
        assert read_database_file(tmp_path / name) == DatabaseFile(state=stamp, is_new=False, uses_wal=False)


A, B, C = DatabaseStamp(b"a", b""), DatabaseStamp(b"b", b"a"), DatabaseStamp(b"c", b"b")
KNOWN = DatabaseFile(state=b"b", is_new=False)
OLD = DatabaseFile(state=b"", is_new=False)
NEW = DatabaseFile(state=b"", is_new=True)
SHORT = DatabaseFile(state=b"b", is_new=False, is_short=True)
COPY = structs.replace(KNOWN, uses_wal=False)


@pytest.mark.parametrize(
    ("database", "wal", "has_wal", "is_lost", "verdict"),
    [
        (None, None, False, False, DatabaseVerdict.OPEN),
        (None, WalFile(stamps=(A,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (KNOWN, None, False, False, DatabaseVerdict.OPEN_AND_COMPARE),
        (KNOWN, None, False, True, DatabaseVerdict.SET_BOTH_ASIDE),
        (KNOWN, None, True, False, DatabaseVerdict.OPEN),
        (KNOWN, WalFile(stamps=()), True, False, DatabaseVerdict.OPEN),
        (KNOWN, WalFile(stamps=(), is_readable=False), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (KNOWN, WalFile(stamps=(C,)), True, False, DatabaseVerdict.OPEN),
        (KNOWN, WalFile(stamps=(A, B)), True, False, DatabaseVerdict.OPEN),
        (KNOWN, WalFile(stamps=(A, B, C)), True, True, DatabaseVerdict.OPEN),
        (KNOWN, WalFile(stamps=(A,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (KNOWN, WalFile(stamps=(A,)), True, True, DatabaseVerdict.SET_BOTH_ASIDE),
        (DatabaseFile(state=b"a", is_new=False), WalFile(stamps=(C,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (NEW, WalFile(stamps=(A, B)), True, False, DatabaseVerdict.OPEN),
        (NEW, WalFile(stamps=(B,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (OLD, WalFile(stamps=(DatabaseStamp(b"", b""),)), True, False, DatabaseVerdict.OPEN_AND_COMPARE),
        (OLD, WalFile(stamps=(B,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (SHORT, None, True, False, DatabaseVerdict.OPEN_AND_COMPARE),
        (SHORT, WalFile(stamps=(C,)), True, False, DatabaseVerdict.OPEN_AND_COMPARE),
        (COPY, WalFile(stamps=(C,)), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (COPY, WalFile(stamps=()), True, False, DatabaseVerdict.SET_WAL_ASIDE),
        (COPY, WalFile(stamps=(C,)), True, True, DatabaseVerdict.SET_BOTH_ASIDE),
        (COPY, None, False, False, DatabaseVerdict.OPEN_AND_COMPARE),
    ],
)
def test_the_table_of_belonging(
    database: DatabaseFile | None, wal: WalFile | None, verdict: DatabaseVerdict, *, has_wal: bool, is_lost: bool
) -> None:
    """What is done with a database and its WAL, by what they hold."""
    assert judge_files(database, wal, has_wal=has_wal, is_lost=is_lost) is verdict


@pytest.mark.parametrize("cut_bytes", [30 * 4096, 4096, 4000, 2000, 1])
async def test_a_database_that_was_cut_off_is_rebuilt(home: Path, cut_bytes: int) -> None:
    """SQLite opens it as long as the first pages are there; a page that was torn it reads as ending in zeros."""
    async with Record.open(home) as record:
        await new_session(record)
        for number in range(20):
            await record.append(SESSION, Message.user("x" * 9000, id=f"m{number}"))
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    async with Record.open(home) as record:
        await say(record, "last")
    os.truncate(home / "state.db", (home / "state.db").stat().st_size - cut_bytes)
    async with Record.open(home) as record:
        assert await ids_of(record) == [*(f"m{number}" for number in range(20)), "last"]
        await assert_clean(record)


async def test_an_entry_that_is_damaged_while_a_process_runs(home: Path) -> None:
    """A read that meets an entry which nobody can read has the database rebuilt from the logs, and then reads."""
    await talk(home, *names("a", 10))
    async with Record.open(home) as record:
        assert await ids_of(record) == names("a", 10)
        raw_rows(home, "UPDATE entry SET body = zeroblob(20) WHERE id = 'a-4'")
        assert await ids_of(record) == names("a", 10)
        await assert_clean(record)
