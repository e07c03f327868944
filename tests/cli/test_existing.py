"""Commands that only read: a whole record is read where it lies; anything else is opened, which repairs it."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from hansard import Message, Record
from hansard.record.schema import SCHEMA
from tests.acceptance.shown.program import run_forked
from tests.record.helpers_facts import SESSION, ids_of, log_of, new_session, raw_rows, say
from tests.record.helpers_homes import ARCHIVES, unpack
from tests.record.helpers_process import Worker

INDEX = {"search.db", "search.db-wal", "search.db-shm", "locks/search"}
"""What a reading command may write in a home that needs no repair."""

ATTEMPTS_MAX = 1000

READING = ("sessions", f"sessions show {SESSION}", "search text", f"export {SESSION}", "deliveries", "memory", "pair")


async def make_home(home: Path, *ids: str) -> None:
    """Make a home with a few messages, and close it."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, *(ids or ("a", "b")))


def run_command(home: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own; it must succeed and tell nothing beside its output."""
    ended = run_forked("--home", home, *command.split(), variables=os.environ)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended


def look_at_files(home: Path) -> dict[str, tuple[int, int, int]]:
    """Return the inode, size and time of everything in a home but the search index and its folders."""
    seen = {}
    for path in home.rglob("*"):
        name = path.relative_to(home).as_posix()
        if name not in INDEX and name != "locks":
            found = path.stat()
            seen[name] = (found.st_ino, found.st_size, found.st_mtime_ns)
    return seen


def stamp_of(home: Path) -> bytes:
    """Return the stamp of the last commit: every opening for writing makes another."""
    stamp: bytes = raw_rows(home, "SELECT stamp FROM record")[0][0]
    return stamp


@pytest.mark.parametrize("command", READING)
async def test_a_whole_record_is_read_where_it_lies(home: Path, command: str) -> None:
    """No file of the home changes but the search index, no owner joins, and nothing is told."""
    await make_home(home)
    before = look_at_files(home)
    assert run_command(home, command).stdout
    assert look_at_files(home) == before
    assert list((home / "locks" / "owners").iterdir()) == []


async def test_an_index_that_is_behind_is_brought_up_to_date(home: Path) -> None:
    """A search writes the index, and nothing else, when the record went on without it."""
    await make_home(home)
    for side in ("", "-wal", "-shm"):
        (home / f"search.db{side}").unlink(missing_ok=True)
    before = look_at_files(home)
    assert "text of a" in run_command(home, "search text").stdout
    assert (home / "search.db").stat().st_size > 0
    assert look_at_files(home) == before
    async with Record.open(home) as record:
        assert len(await record.search("text")) == 2
        assert (await record.verify()).ok


async def test_what_a_killed_process_left_is_recovered(home: Path) -> None:
    """A reading command ends the turn of a dead owner as lost, and removes the owner's lock file."""
    await make_home(home)
    with Worker(home) as worker:
        worker.ask("turn", session=SESSION)
        worker.kill()
    before = stamp_of(home)
    run_command(home, f"sessions show {SESSION}")
    assert stamp_of(home) != before
    assert list((home / "locks" / "owners").iterdir()) == []
    assert raw_rows(home, "SELECT state FROM turn") == [("lost",)]


async def test_the_lock_file_of_a_dead_owner_is_enough(home: Path) -> None:
    """A killed process may have left commits that never reached the disk, also when nothing was open."""
    await make_home(home)
    with Worker(home) as worker:
        worker.kill()
    before = stamp_of(home)
    run_command(home, "sessions")
    assert stamp_of(home) != before
    assert list((home / "locks" / "owners").iterdir()) == []


async def test_a_turn_whose_owner_has_no_lock_file_is_recovered(home: Path) -> None:
    """A home that was copied without its locks names owners that nobody can ask about."""
    await make_home(home)
    with Worker(home) as worker:
        worker.ask("turn", session=SESSION)
        worker.kill()
    for path in (home / "locks" / "owners").iterdir():
        path.unlink()
    run_command(home, "sessions")
    assert raw_rows(home, "SELECT state FROM turn") == [("lost",)]


async def test_beside_a_live_writer_nothing_is_written(home: Path) -> None:
    """The words of a process that has the home open are shown; its turn goes on, and its owner stays."""
    await make_home(home)
    with Worker(home) as worker:
        worker.ask("turn", session=SESSION)
        worker.ask("append", session=SESSION, id="c", text="text of c")
        assert "text of c" in run_command(home, "search text").stdout
        for _ in range(ATTEMPTS_MAX):  # at a moment at which the worker's keeper does not hold the write lock
            async with Record.open_in_place(home) as record:
                if record is not None:
                    assert await ids_of(record) == ["a", "b", "c"]
                    break
        assert record is not None
        assert [path.name for path in (home / "locks" / "owners").iterdir()] == [worker.owner]
        assert raw_rows(home, "SELECT state FROM turn") == [("running",)]


async def test_a_log_that_is_longer_is_adopted(home: Path) -> None:
    """A whole line that only the log holds is part of the record after any command."""
    await make_home(home, "a", "b", "c")
    saved = {side: (home / f"state.db{side}").read_bytes() for side in ("", "-wal", "-shm")}
    async with Record.open(home) as record:
        await record.append(SESSION, Message.user("text of d", id="d"))
    for side, data in saved.items():
        (home / f"state.db{side}").write_bytes(data)
    assert "text of d" in run_command(home, "search text").stdout


async def test_a_log_of_another_history_and_the_same_size_is_noticed(home: Path) -> None:
    """A log that was changed after the database was written is compared by its last line."""
    await make_home(home)
    log = log_of(home)
    data = log.read_bytes()
    log.write_bytes(data[:-12] + b"?" + data[-11:])
    before = stamp_of(home)
    run_forked("--home", home, "sessions", variables=os.environ)
    assert stamp_of(home) != before


@pytest.mark.parametrize("command", [f"sessions show {SESSION}", f"export {SESSION} --format markdown"])
async def test_an_entry_that_only_the_log_holds_is_read_from_there(home: Path, command: str) -> None:
    """A database that lacks an entry below a head is repaired once a read misses it, and everything is shown."""
    await make_home(home, *(f"said-{number}" for number in range(300)))
    async with Record.open(home):
        pass  # the commits since the last opening are compared at the next one: that entry is older
    with closing(apsw.Connection(str(home / "state.db"))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.execute("DELETE FROM entry WHERE id = 'said-20'")
    shown = run_forked("--home", home, *command.split(), variables=os.environ)
    assert (shown.returncode, "text of said-20" in shown.stdout, "text of said-299" in shown.stdout) == (0, True, True)
    assert raw_rows(home, "SELECT count(*) FROM entry WHERE id = 'said-20'") == [(1,)]


@pytest.mark.parametrize("command", [*READING, "verify"])
async def test_an_index_that_cannot_be_locked_hides_nothing(home: Path, command: str) -> None:
    """Where `locks/search` cannot be opened, commands answer all the same, and a search reads the entries."""
    await make_home(home)
    (home / "search.db").unlink(missing_ok=True)
    (home / "locks" / "search").unlink(missing_ok=True)
    (home / "locks" / "search").mkdir()
    answered = run_forked("--home", home, *command.split(), variables=os.environ)
    assert (answered.returncode, "Traceback" in answered.stderr) == (0, False)
    assert command != "search text" or "text of b" in answered.stdout


async def test_a_pipe_in_place_of_the_database_is_no_traceback(home: Path) -> None:
    """What cannot be read as a database is left to an opening for writing, which says what is wrong or repairs it."""
    await make_home(home)
    for side in ("", "-wal", "-shm"):
        (home / f"state.db{side}").unlink(missing_ok=True)
    os.mkfifo(home / "state.db", 0o600)
    assert "Traceback" not in run_forked("--home", home, "sessions", variables=os.environ).stderr


async def test_an_older_schema_is_migrated(home: Path) -> None:
    """Whatever command meets it first."""
    unpack(ARCHIVES[-1], home)
    home.chmod(0o700)
    assert raw_rows(home, "PRAGMA user_version")[0][0] < SCHEMA.version
    assert "trip" in run_command(home, "sessions").stdout
    assert raw_rows(home, "PRAGMA user_version") == [(SCHEMA.version,)]


async def test_a_process_that_has_the_home_open_reads_through_its_store(home: Path) -> None:
    """SQLite shares a wal-index inside a process, so a home is not opened in two ways there."""
    await make_home(home)
    async with Record.open_in_place(home) as record:
        assert record is not None
        assert record.is_read_only
    async with Record.open(home), Record.open_in_place(home) as record:
        assert record is None
