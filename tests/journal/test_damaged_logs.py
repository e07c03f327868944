"""Logs that were damaged, mixed or unreadable, beside a database that is lost, older or damaged (L10).

Each of these was found from outside. What continues the chain is in the record; what does not is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import Message, Record
from tests.journal.helpers_damage import assert_holds, hear, lose_database, make_home, put_back, unreadable
from tests.record.helpers_facts import assert_clean, ids_of, log_of, raw_rows, say
from tests.record.helpers_process import Worker


async def test_a_log_that_cannot_be_read_tears_no_unit_of_others(home: Path) -> None:
    """The database is lost and one log is away during one opening: nothing of the others is cut for that."""
    await make_home(home, "one", "two")
    await hear(home, "e1", "e2")
    lose_database(home)
    with unreadable(log_of(home, "one")):
        async with Record.open(home) as record:
            assert await ids_of(record, "two") == ["e1", "e2"]
            assert [finding.session_id for finding in (await record.verify()).findings] == ["one"]
    await assert_holds(home, "e1", "e2")


async def test_what_a_crash_tears_long_after_a_restore_is_cut(tmp_path: Path) -> None:
    """A log stays unreadable after a restore. A unit that a crash tears meanwhile is not taken for one of before."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one", "two", "three")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        for session_id in ("one", "three"):
            await say(record, "a", "b", session_id=session_id)
    put_back(backup, home)
    with unreadable(log_of(home, "three")):
        async with Record.open(home) as record:
            assert await ids_of(record, "one") == ["a", "b"]
            await say(record, "c", session_id="one")
        with Worker(home, crash="logging:1") as doomed, pytest.raises(EOFError):
            doomed.ask("unit", sessions=["one", "two"], id="torn")
        async with Record.open(home) as record:
            assert await ids_of(record, "one") == ["a", "b", "c"]
            assert await ids_of(record, "two") == []
    await assert_holds(home, "a", "b", session_ids=("three",))


@pytest.mark.parametrize("damage", ["a byte", "no end of line"])
async def test_a_damaged_line_that_only_the_log_holds_is_kept(tmp_path: Path, damage: str) -> None:
    """The database is older and the log has to be written anew: a line of it that cannot be read stays in `.tail`."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    await hear(home, "e1", session_ids=("one",))
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await record.append("one", Message.user("the only copy", id="m"))
    put_back(backup, home)
    *lines, last = log_of(home, "one").read_bytes().splitlines(keepends=True)
    bad = last.replace(b'"kind"', b'"kinx"') if damage == "a byte" else last[:-1]
    log_of(home, "one").write_bytes(b"".join([*lines[:2], lines[1], *lines[2:], bad]))
    if damage == "no end of line":
        await assert_holds(home, "e1", "m", session_ids=("one",))
        return
    await assert_holds(home, "e1", session_ids=("one",))
    assert b"the only copy" in log_of(home, "one").with_suffix(".tail").read_bytes()


@pytest.mark.parametrize("damage", ["its last line is torn", "the line of the head stands twice"])
async def test_a_damaged_log_shows_that_the_database_was_put_back(tmp_path: Path, damage: str) -> None:
    """The database and the home's log are older. The one log that shows it is damaged as well."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    await hear(home, "e1", session_ids=("one",))
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    await hear(home, "e2", session_ids=("one",))
    put_back(backup, home, "home.jsonl")
    data = log_of(home, "one").read_bytes()
    head = (backup / log_of(home, "one").relative_to(home)).read_bytes()
    last = head.splitlines(keepends=True)[-1]
    torn = damage == "its last line is torn"
    log_of(home, "one").write_bytes(data + last[:30] if torn else head + last + data[len(head) :])
    await assert_holds(home, "e1", "a", "e2", session_ids=("one",))


async def test_lines_in_another_order_are_read(tmp_path: Path) -> None:
    """The database is older, and its log's new lines stand in another order: digests say which follows which."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    put_back(backup, home)
    *lines, a, b, c = log_of(home, "one").read_bytes().splitlines(keepends=True)
    log_of(home, "one").write_bytes(b"".join([*lines, c, b, a]))
    await assert_holds(home, "a", "b", "c", session_ids=("one",))


@pytest.mark.parametrize("place", ["a stray file", "the first line"])
async def test_a_body_that_cannot_be_decoded_stops_nobody_else(home: Path, place: str) -> None:
    """One bad line in one log: the home opens, and the other sessions are there."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, "a", session_id="two")
    line = json.loads(log_of(home, "one").read_bytes().splitlines()[0])
    bad = json.dumps(line | {"body": {"nonsense": [1]}}).encode() + b"\n"
    if place == "the first line":
        lose_database(home)
    path = log_of(home, "one") if place == "the first line" else log_of(home, "stray")
    path.write_bytes(bad)
    async with Record.open(home) as record:
        assert await ids_of(record, "two") == ["a"]
        assert not (await record.verify()).ok


async def test_a_torn_write_of_several_lines_does_not_stop_its_session(tmp_path: Path) -> None:
    """A power cut left the first block of an uncommitted write as zeros: what follows is set aside."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    put_back(backup, home)
    before = len((backup / log_of(home, "one").relative_to(home)).read_bytes())
    data = log_of(home, "one").read_bytes()
    log_of(home, "one").write_bytes(data[:before] + b"\0" * 100 + data[before + 100 :])
    async with Record.open(home) as record:
        await say(record, "d", session_id="one")
        assert await ids_of(record, "one") == ["d"]
        await assert_clean(record)
    assert b'"id":"b"' in log_of(home, "one").with_suffix(".tail").read_bytes()


async def test_a_power_cut_lets_no_half_of_a_unit_in(home: Path) -> None:
    """One log lost lines that were not on the disk yet, and a unit is torn: its half in another log is not adopted."""
    await make_home(home, "one", "two")
    with Worker(home, crash="logging:2") as doomed:
        doomed.ask("append", session="two", id="b")
        with pytest.raises(EOFError):
            doomed.ask("unit", sessions=["one", "two"], id="torn")
    raw_rows(home, "UPDATE journal SET log_synced = 0")
    *lines, _ = log_of(home, "two").read_bytes().splitlines(keepends=True)
    log_of(home, "two").write_bytes(b"".join(lines))
    assert b'"torn"' in log_of(home, "one").read_bytes()
    async with Record.open(home) as record:
        assert await ids_of(record, "one") == []
        assert await ids_of(record, "two") == ["b"]
        await assert_clean(record)


@pytest.mark.parametrize("damage", ["the end of a line", "the beginning of the next as well"])
async def test_lines_that_damage_joined_are_kept_both(tmp_path: Path, damage: str) -> None:
    """The database is older. The line of its head and the next one run into each other: no word of either goes."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await record.append("one", Message.user("the only copy", id="b"))
        await say(record, "c", session_id="one")
    put_back(backup, home)
    end = (backup / log_of(home, "one").relative_to(home)).stat().st_size
    data = log_of(home, "one").read_bytes()
    if damage == "the end of a line":
        log_of(home, "one").write_bytes(data[: end - 1] + b" " + data[end:])
        await assert_holds(home, "a", "b", "c", session_ids=("one",))
    else:
        log_of(home, "one").write_bytes(data[: end - 4] + b"\0" * 8 + data[end + 4 :])
        await assert_holds(home, "a", session_ids=("one",))
        assert b"the only copy" in log_of(home, "one").with_suffix(".tail").read_bytes()


async def test_joined_lines_rebuild_a_lost_database(home: Path) -> None:
    """The database is lost, and one line of the log lacks its end of line: both lines are read."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    lose_database(home)
    lines = log_of(home, "one").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:-1]
    log_of(home, "one").write_bytes(b"".join(lines))
    await assert_holds(home, "a", "b", "c", session_ids=("one",))
    assert len(log_of(home, "one").read_bytes().splitlines()) == len(lines)


async def test_a_log_that_was_away_after_a_restore_keeps_its_unit(tmp_path: Path) -> None:
    """Database and home's log are put back. The log that shows it cannot be read during one opening."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one", "two")
    shutil.copytree(home, backup)
    await hear(home, "late", session_ids=("one",))
    put_back(backup, home, "home.jsonl")
    with unreadable(log_of(home, "one")):
        async with Record.open(home) as record:
            await say(record, *(f"m{number}" for number in range(30)), session_id="two")
    await assert_holds(home, "late", session_ids=("one",))


OPEN_AND_READ = """
import asyncio, sys
from hansard import HansardError, Record
async def main():
    async with Record.open(sys.argv[1]) as record:
        for session_id in sys.argv[2:]:
            try:
                print(session_id, *[message.id for message in await record.load_transcript(session_id)])
            except HansardError as error:
                print(session_id, type(error).__name__)
asyncio.run(main())
"""


def read_without_rights(home: Path, *session_ids: str) -> list[str]:
    """Open a home as somebody whom the modes of files concern, as they do not concern root."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("setpriv is missing: root may read every file")
    caps = [str(setpriv), "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    words = [*caps, sys.executable, "-c", OPEN_AND_READ, str(home), *session_ids]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


@pytest.mark.parametrize("lost", [False, True])
async def test_a_log_that_may_not_be_read_stops_nobody_else(tmp_path: Path, *, lost: bool) -> None:
    """The database is older or lost, and one of three logs may not be read: what the others share with it is read."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one", "two")
    shutil.copytree(home, backup)
    await hear(home, "e1", "e2")
    if lost:
        lose_database(home)
    else:
        put_back(backup, home)
    log_of(home, "two").chmod(0)
    assert read_without_rights(home, "one")[0] == "one e1 e2"
    log_of(home, "two").chmod(0o600)
    await assert_holds(home, "e1", "e2")


async def test_a_unit_that_the_database_contradicts_is_torn(home: Path) -> None:
    """A writer died in the middle of a unit. Another process went on in the session that lacks its part."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        with Worker(home, crash="logging:1") as doomed, pytest.raises(EOFError):
            doomed.ask("unit", sessions=["one", "two"], id="torn")
        half, other = ("one", "two") if b'"torn"' in log_of(home, "one").read_bytes() else ("two", "one")
        assert b'"torn"' in log_of(home, half).read_bytes()
        await say(record, "b", session_id=other)
        with unreadable(log_of(home, other)):
            await say(record, "a", session_id=half)
            assert await ids_of(record, half) == ["a"]


@pytest.mark.parametrize("place", ["held by both", "only in the log"])
async def test_a_changed_letter_is_no_other_history(tmp_path: Path, place: str) -> None:
    """One letter of a line differs, and its digest does not: that is damage, and the session goes on."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await say(record, "b", "c", session_id="one")
    if place == "only in the log":
        put_back(backup, home)
    lines = log_of(home, "one").read_bytes().replace(b"text of b", b"texu of b").splitlines(keepends=True)
    log_of(home, "one").write_bytes(b"".join(lines if place == "only in the log" else lines[:-1]))
    async with Record.open(home) as record:
        await say(record, "d", session_id="one")
        held = ["a", "d"] if place == "only in the log" else ["a", "b", "c", "d"]
        assert await ids_of(record, "one") == held
        await assert_clean(record)
    assert b"texu of b" in log_of(home, "one").with_suffix(".tail").read_bytes()


@pytest.mark.parametrize("damage", ["the first line", "two neighbours"])
async def test_damage_beside_a_shorter_log_is_no_other_history(home: Path, damage: str) -> None:
    """The database has all of a log that is shorter and damaged: it is written anew."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    *lines, _ = log_of(home, "one").read_bytes().splitlines(keepends=True)
    if damage == "the first line":
        lines[0] = lines[0].replace(b'"source":"test"', b'"source":"tess"')
        assert b"tess" in lines[0]
    else:
        lines[1] = b"#" + lines[1][1:]
        lines[2] = lines[2].replace(b"text of b", b"texu of b")
        assert b"texu" in lines[2]
    log_of(home, "one").write_bytes(b"".join(lines))
    await assert_holds(home, "a", "b", "c", session_ids=("one",))


async def test_words_between_joined_lines_are_kept(home: Path) -> None:
    """Damage joined lines, with other bytes between them: those bytes go to `.tail`."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    lines = log_of(home, "one").read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].rstrip() + b"WORDS OF SOMEBODY"
    log_of(home, "one").write_bytes(b"".join(lines[:-1]))
    await assert_holds(home, "a", "b", "c", session_ids=("one",))
    assert b"WORDS OF SOMEBODY" in log_of(home, "one").with_suffix(".tail").read_bytes()
