"""Recovery that is killed, that fails half way, or that lacks a log (L10): it comes to the same end."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import Cursor, HansardError, Intake, Message, Record
from tests.journal.helpers_damage import assert_holds, hear, lose_database, make_home, put_back
from tests.record.helpers_facts import assert_clean, ids_of, log_of, new_session, raw_rows, say

OPEN_AND_DIE = """
import asyncio, os, sys
from hansard import Record
from hansard.journal.store import Wiring
left = int(sys.argv[3])
def reach(step):
    global left
    left -= step == sys.argv[2]
    if not left:
        os._exit(9)
async def main():
    async with Record.open(sys.argv[1], wiring=Wiring(reach=reach)):
        pass
asyncio.run(main())
"""


def open_and_die(home: Path, step: str, occurrence: int) -> None:
    """Open a home in a process that ends at a step of the opening."""
    words = [sys.executable, "-c", OPEN_AND_DIE, str(home), step, str(occurrence)]
    assert subprocess.run(words, check=False).returncode == 9


@pytest.mark.parametrize("step", ["reconciled", "mending", "mended"])
async def test_a_rebuild_that_is_killed_again_and_again_cuts_no_further(tmp_path: Path, step: str) -> None:
    """The database is lost and one log is older: at most the last transaction of all is in doubt, however often."""
    home = tmp_path / "home"
    await make_home(home, "one", "two", "three")
    await hear(home, "e0", session_ids=("two",))
    older = log_of(home, "two").read_bytes()
    await hear(home, *(f"e{number}" for number in range(1, 6)))
    async with Record.open(home) as record:
        await say(record, "later", session_id="three")
    lose_database(home)
    log_of(home, "two").write_bytes(older)
    log_of(home, "one").write_bytes(log_of(home, "one").read_bytes() + b"torn")
    for occurrence in (1, 2, 3) if step == "reconciled" else (1, 1):
        if step != "reconciled" and b"torn" not in log_of(home, "one").read_bytes():
            log_of(home, "one").write_bytes(log_of(home, "one").read_bytes() + b"torn")
        open_and_die(home, step, occurrence)
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == [f"e{number}" for number in range(1, 6)]
        assert (await record.intake.cursor("matrix", "@bot:server")) == "e5"
        await assert_clean(record)


async def test_sessions_are_whole_when_the_database_and_the_home_log_are_gone(tmp_path: Path) -> None:
    """What was heard in each of twenty sessions shares a unit with the home's log, which is lost."""
    home = tmp_path / "home"
    names = [f"s{number}" for number in range(20)]
    await make_home(home, *names)
    async with Record.open(home) as record:
        for name in names:
            intake = Intake(channel="matrix", account="@bot:server", event_id=name)
            cursor = Cursor(channel="matrix", account="@bot:server", value=name)
            await record.accept([(name, Message.user("heard", id="in"))], intake, cursor)
    lose_database(home)
    (home / "home.jsonl").unlink()
    await assert_holds(home, "in", session_ids=tuple(names))


async def test_one_bad_line_does_not_stop_the_sessions_that_share_its_unit(tmp_path: Path) -> None:
    """A writer died in the middle of a unit, and the first line of a new session's log names a kind of the future."""
    home = tmp_path / "home"
    await make_home(home, "one", "two")
    await hear(home, "e1")
    lose_database(home)
    log = log_of(home, "two")
    log.write_bytes(log.read_bytes().replace(b'"session.created"', b'"ression.created"', 1))
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == ["e1"]
        assert (await record.intake.cursor("matrix", "@bot:server")) == "e1"
        with pytest.raises(HansardError, match=r"two\.jsonl"):
            await say(record, "x", session_id="two")


async def test_a_bad_home_log_is_read_once_and_not_for_each_session(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is lost, and the home's log without its first line: a hundred sessions name it in their units."""
    names = tuple(f"s{number}" for number in range(100))
    await make_home(home, *names)
    async with Record.open(home) as record:
        for name in names:
            intake = Intake(channel="matrix", account="@bot:server", event_id=name)
            await record.accept([(name, Message.user("heard", id="in"))], intake, None)
    lose_database(home)
    (home / "home.jsonl").write_bytes(b"".join((home / "home.jsonl").read_bytes().splitlines(keepends=True)[1:]))
    opened = 0
    really_open = os.open

    def count(path: str, *args: int, **kwargs: int) -> int:
        nonlocal opened
        opened += str(path) == str(home / "home.jsonl")
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", count)
    async with Record.open(home) as record:
        assert [await ids_of(record, name) for name in names] == [["in"]] * 100
    assert opened < 20


@pytest.mark.parametrize("left", ["a folder", "a link", "a file"])
async def test_what_a_killed_rewrite_left_blocks_no_log(home: Path, left: str) -> None:
    """A log has to be written anew. A file under the name of the new one is in the way; a folder is named."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", session_id="one")
    log = log_of(home, "one")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]) + b"only here\n")
    new = log.with_suffix(".jsonl.new")
    match left:
        case "a folder":
            new.mkdir()
        case "a link":
            new.symlink_to(home / "nowhere")
        case _:
            new.write_bytes(b"half")
    if left == "a folder":
        for _ in range(3):
            async with Record.open(home) as record:
                with pytest.raises(HansardError, match=r"one\.jsonl\.new"):
                    await say(record, "c", session_id="one")
        assert not log.with_suffix(".tail").exists()
        new.rmdir()
    await assert_holds(home, "a", "b", session_ids=("one",))
    assert log.with_suffix(".tail").read_bytes().count(b"only here") == 1


@pytest.mark.parametrize("place", ["at its end", "in its middle"])
async def test_a_tail_does_not_grow_while_its_log_cannot_be_mended(home: Path, place: str) -> None:
    """A log has damage and may only be read: nothing is set aside again at each opening."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    log = log_of(home, "one")
    first, *lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([first, *lines, b"damage\n"] if place == "at its end" else [first, b"damage\n", *lines]))
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", str(log)], check=False, capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        sizes = set()
        for _ in range(3):
            async with Record.open(home) as record:
                with pytest.raises(HansardError, match=r"one\.jsonl"):
                    await say(record, "b", session_id="one")
            sizes.add(log.with_suffix(".tail").exists())
    finally:
        subprocess.run([chattr, "-i", str(log)], check=True)
    assert sizes == {False}
    await assert_holds(home, "a", session_ids=("one",))
    assert log.with_suffix(".tail").read_bytes().count(b"damage") == 1


async def test_a_partner_that_cannot_be_mended_stops_itself_only(tmp_path: Path) -> None:
    """The database is older; the home's log has a unit of a session and damage behind it, and may only be read."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    shutil.copytree(home, backup)
    await hear(home, "e1", session_ids=("one",))
    put_back(backup, home)
    log = home / "home.jsonl"
    log.write_bytes(log.read_bytes() + b"damage\n")
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", str(log)], check=False, capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        async with Record.open(home) as record:
            await say(record, "b", session_id="one")
            assert await ids_of(record, "one") == ["e1", "b"]
    finally:
        subprocess.run([chattr, "-i", str(log)], check=True)
    await assert_holds(home, "e1", "b", session_ids=("one",))


async def test_logs_are_listed_while_part_files_come_and_go(home: Path) -> None:
    """Replies of other processes end while a verification lists the files."""
    async with Record.open(home) as record:
        await new_session(record, "one")
        folder = log_of(home, "one").parent
        done = asyncio.Event()

        def come_and_go() -> None:
            while not done.is_set():
                for number in range(50):
                    (folder / f"x{number}.part").write_bytes(b"")
                for number in range(50):
                    (folder / f"x{number}.part").unlink()

        busy = asyncio.get_running_loop().run_in_executor(None, come_and_go)
        try:
            for _ in range(20):
                assert (await record.verify()).ok
        finally:
            done.set()
            await busy


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number as SQLite writes it, and where the next thing begins."""
    value = 0
    while data[at] & 0x80:
        value, at = value << 7 | data[at] & 0x7F, at + 1
    return value << 7 | data[at], at + 1


def find_last_key(data: bytes, key: int, first: int, end: int) -> int:
    """Return where the last byte of a key stands that is the last of its page; the pages are of tables."""
    leaf, page_bytes = 13, 4096
    for page in range(first, end, page_bytes):
        count = int.from_bytes(data[page + 3 : page + 5])
        if data[page] != leaf or not count:
            continue
        pointer = page + 8 + 2 * (count - 1)
        _, at = read_varint(data, page + int.from_bytes(data[pointer : pointer + 2]))
        found, at = read_varint(data, at)
        if found == key:
            return at - 1
    raise AssertionError(key)


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("table", ["entry", "journal"])
async def test_keys_that_do_not_grow_end_no_opening(home: Path, table: str, *, read_only: bool) -> None:
    """One byte of `state.db` differs: its last row has a smaller key than others. Paging by key would never end."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, *(f"m{number}" for number in range(20)), session_id="two")
    ((key,),) = raw_rows(home, f"SELECT max(key) FROM {table}")  # noqa: S608 - names of this test
    ((root,),) = raw_rows(home, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")  # noqa: S608
    raw_rows(home, "UPDATE record SET checked = 0")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((home / "state.db").read_bytes())
    first, end = (4096, len(data)) if table == "entry" else (4096 * (root - 1), 4096 * root)
    data[find_last_key(bytes(data), key, first, end)] = 1
    (home / "state.db").write_bytes(data)
    async with Record.open(home, read_only=read_only) as record:
        assert await ids_of(record, "two") == [f"m{number}" for number in range(20)]
        if not read_only:
            await assert_clean(record)


async def test_a_head_that_is_too_large_is_no_lost_entry(home: Path) -> None:
    """One number in `state.db` is damaged, and both legs hold every entry: the database is rebuilt."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", session_id="one")
    raw_rows(home, "UPDATE journal SET head_seq = 70 WHERE id = 'one'")
    await assert_holds(home, "a", "b", session_ids=("one",))


async def test_sound_sessions_are_saved_from_a_database_with_a_misplaced_one(home: Path) -> None:
    """One session's row stands at a wrong place, and only the database holds another's last entry."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, "a", "b", session_id="one")
    log = log_of(home, "one")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    ((key,),) = raw_rows(home, "SELECT key FROM journal WHERE id = 'two'")
    ((root,),) = raw_rows(home, "SELECT rootpage FROM sqlite_master WHERE name = 'journal'")
    raw_rows(home, "UPDATE record SET checked = 0")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((home / "state.db").read_bytes())
    data[find_last_key(bytes(data), key, 4096 * (root - 1), 4096 * root)] = 1
    (home / "state.db").write_bytes(data)
    await assert_holds(home, "a", "b", session_ids=("one",))
    await assert_holds(home, session_ids=("two",))


async def test_a_log_that_could_not_be_written_anew_is_remembered(home: Path) -> None:
    """A log of the right size is damaged, and its new file cannot be made: the session waits for a later opening.

    The process that has the home open puts what it knows of the log on the disk: that does not count.
    """
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", session_id="one")
    raw_rows(home, "UPDATE journal SET log_synced = 0 WHERE id = 'one'")
    log = log_of(home, "one")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], b"#" + lines[1][1:], *lines[2:]]))
    log.with_suffix(".jsonl.new").mkdir()
    async with Record.open(home) as record:
        with pytest.raises(HansardError, match=r"one\.jsonl"):
            await say(record, "c", session_id="one")
    ((synced,),) = raw_rows(home, "SELECT log_synced FROM journal WHERE id = 'one'")
    assert synced < 0, "the keeper took the log for whole"
    log.with_suffix(".jsonl.new").rmdir()
    await assert_holds(home, "a", "b", session_ids=("one",))
    assert b"#" not in log.read_bytes()


@pytest.mark.parametrize("names", [("a", "c"), ("c", "a")])
async def test_the_order_of_sessions_decides_nothing(tmp_path: Path, names: tuple[str, str]) -> None:
    """The database is put back to just before a unit of two sessions, and the log of one of them is cut short."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, *names)
    async with Record.open(home) as record:
        for name in names:
            await say(record, *(f"{name}{number}" for number in range(5)), session_id=name)
    async with Record.open(home) as record:
        await say(record, "last", session_id="a")
        shutil.copytree(home, backup)
        await record.accept([("a", Message.user("both", id="U")), ("c", Message.user("both", id="U"))])
    put_back(backup, home)
    log = log_of(home, "c")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:3]))
    async with Record.open(home) as record:
        assert await ids_of(record, "a") == [*(f"a{number}" for number in range(5)), "last", "U"]
        await assert_clean(record)


async def test_a_pipe_in_the_place_of_a_tail_blocks_nothing(home: Path) -> None:
    """What lies in the place of a `.tail` is kept under another name."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    log = log_of(home, "one")
    log.write_bytes(log.read_bytes() + b"damage\n")
    os.mkfifo(log.with_suffix(".tail"))
    await assert_holds(home, "a", session_ids=("one",))
    assert b"damage" in log.with_suffix(".tail").read_bytes()
