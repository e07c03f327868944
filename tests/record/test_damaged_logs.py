"""Logs that were damaged, mixed or unreadable, beside a database that is lost, older or damaged (L10).

Each of these was found from outside. What continues the chain is in the record; what does not is kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hansard import Cursor, Intake, Message, Record, RecordDamaged
from tests.record.helpers_facts import assert_clean, ids_of, log_of, new_session, raw_rows, say
from tests.record.helpers_process import Worker

DATABASE = ("state.db", "state.db-wal", "state.db-shm")


async def make_home(home: Path, *session_ids: str) -> None:
    """Make a home with sessions."""
    async with Record.open(home) as record:
        for session_id in session_ids:
            await new_session(record, session_id)


async def hear(home: Path, *message_ids: str, session_ids: tuple[str, ...] = ("one", "two")) -> None:
    """Record what came from a platform: one unit of the sessions' logs and the home's for each."""
    async with Record.open(home) as record:
        for id in message_ids:
            entries = [(session_id, Message.user("heard", id=id)) for session_id in session_ids]
            intake = Intake(channel="matrix", account="@bot:server", event_id=id)
            await record.accept(entries, intake, Cursor(channel="matrix", account="@bot:server", value=id))


def lose_database(home: Path) -> None:
    """Remove the database and what lies beside it."""
    for name in DATABASE:
        (home / name).unlink(missing_ok=True)


def put_back(backup: Path, home: Path, *names: str) -> None:
    """Put the database back, and other files."""
    lose_database(home)
    for name in (*DATABASE, *names):
        if (backup / name).exists():
            shutil.copyfile(backup / name, home / name)


@contextmanager
def unreadable(log: Path) -> Iterator[None]:
    """Let a folder lie in the place of a log."""
    log.rename(log.with_suffix(".away"))
    log.mkdir()
    yield
    log.rmdir()
    log.with_suffix(".away").rename(log)


async def assert_holds(home: Path, *ids: str, session_ids: tuple[str, ...] = ("one", "two")) -> None:
    """Each of the sessions holds these messages, and all is in order."""
    async with Record.open(home) as record:
        for session_id in session_ids:
            assert await ids_of(record, session_id) == list(ids)
        await assert_clean(record)


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


async def test_a_damaged_database_is_not_set_aside_while_a_log_cannot_be_read(home: Path) -> None:
    """Entries that only the database holds could not be saved: opening refuses and names the log."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
        await say(record, "b", "c", session_id="two")
    raw_rows(home, "DELETE FROM entry WHERE id = 'b'")
    log_of(home, "one").unlink()
    log_of(home, "one").mkdir()
    with pytest.raises(RecordDamaged, match=r"one\.jsonl"):
        async with Record.open(home):
            pass
    log_of(home, "one").rmdir()
    await assert_holds(home, "a", session_ids=("one",))
    await assert_holds(home, "b", "c", session_ids=("two",))


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


async def test_words_of_a_stream_that_the_database_does_not_know_are_kept(tmp_path: Path) -> None:
    """A streamed answer was cut by a kill; database and log are then put back to before it: its part file stays."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    shutil.copytree(home, backup)
    with Worker(home) as worker:
        worker.ask("turn", session="one")
        worker.ask("reply", id="answer")
        worker.ask("write", text="shown words")
        worker.ask("append", session="one", id="after")  # by then the words before it are durable
        worker.process.kill()
    assert b"shown words" in log_of(home, "one").with_suffix(".part").read_bytes()
    put_back(backup, home, str(log_of(home, "one").relative_to(home)))
    async with Record.open(home) as record:
        await assert_clean(record)
    (kept,) = log_of(home, "one").parent.glob("one.part.orphan-*")
    assert b"shown words" in kept.read_bytes()


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


def stream_and_die(home: Path, message_id: str, *words: str) -> Path:
    """Stream an answer, piece by piece, until the process is killed; return the part file."""
    with Worker(home) as worker:
        worker.ask("turn", session="one")
        worker.ask("reply", id=message_id)
        for number, word in enumerate(words):
            worker.ask("write", text=word)
            worker.ask("append", session="one", id=f"after-{message_id}-{number}")  # by then the word is durable
        worker.process.kill()
    return log_of(home, "one").with_suffix(".part")


def kept_words(home: Path) -> bytes:
    """Return all that the session's folder holds, set aside or not."""
    return b"".join(path.read_bytes() for path in sorted(log_of(home, "one").parent.iterdir()))


@pytest.mark.parametrize("lost", [False, True])
async def test_a_part_file_of_a_later_stream_is_kept(tmp_path: Path, *, lost: bool) -> None:
    """The legs are put back to a time when another answer was being streamed: the words of the later one stay."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one")
    stream_and_die(home, "first", "alpha")
    shutil.copytree(home, backup)
    stream_and_die(home, "second", "beta")
    log = log_of(home, "one").relative_to(home)
    if lost:
        lose_database(home)
        shutil.copyfile(backup / log, home / log)
    else:
        put_back(backup, home, str(log))
    async with Record.open(home) as record:
        await assert_clean(record)
    assert b"beta" in kept_words(home)


@pytest.mark.parametrize("damage", ["a byte", "another order", "a line of another stream"])
async def test_a_damaged_part_file_loses_no_word(home: Path, damage: str) -> None:
    """The database is lost in the middle of an answer: what continues its text is in the record, the rest is kept."""
    await make_home(home, "one")
    words = [f"piece-{number}." for number in range(6)]
    part = stream_and_die(home, "answer", *words)
    lines = part.read_bytes().splitlines(keepends=True)
    assert len(lines) == len(words)
    lose_database(home)
    match damage:
        case "a byte":
            lines[2] = b"#" + lines[2][1:]
        case "another order":
            lines[2], lines[3] = lines[3], lines[2]
        case _:
            lines.insert(0, lines[0].replace(b"answer", b"antwort"))
    part.write_bytes(b"".join(lines))
    async with Record.open(home) as record:
        (answer,) = [each for each in await record.load_transcript("one") if each.id == "answer"]
        assert answer.text == "".join(words[:2] if damage == "a byte" else words)
        await assert_clean(record)
    assert b"piece-5" in kept_words(home)


async def test_a_part_file_that_holds_more_than_the_sealed_answer_is_kept(tmp_path: Path) -> None:
    """An answer was sealed with less than its part file has: in the copy of a home that a crash left."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    await make_home(home, "one")
    part = stream_and_die(home, "answer", "alpha", "beta")
    shutil.copytree(home, copy)
    lose_database(copy)
    short = copy / part.relative_to(home)
    short.write_bytes(short.read_bytes().splitlines(keepends=True)[0])
    async with Record.open(copy) as record:
        assert await ids_of(record, "one")
    put_back(copy, home, str(log_of(home, "one").relative_to(home)), "home.jsonl")
    async with Record.open(home) as record:
        await assert_clean(record)
    assert b"beta" in kept_words(home)


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


@pytest.mark.parametrize("disorder", ["a foreign line", "a line too early", "a foreign line in place of the next"])
async def test_a_damaged_database_beside_a_log_in_disorder(tmp_path: Path, disorder: str) -> None:
    """The database lacks a row and is older. What only the log holds is adopted, wherever it stands."""
    home, backup = tmp_path / "home", tmp_path / "backup"
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
        await say(record, *(f"z{number}" for number in range(12)), session_id="two")
    shutil.copytree(home, backup)
    async with Record.open(home) as record:
        await say(record, "d", "e", session_id="one")
    put_back(backup, home)
    raw_rows(home, "DELETE FROM entry WHERE id = 'z3'")
    lines = log_of(home, "one").read_bytes().splitlines(keepends=True)
    foreign = log_of(home, "two").read_bytes().splitlines(keepends=True)
    lines[2] = b"#" + lines[2][1:]
    match disorder:
        case "a foreign line":
            lines.insert(3, foreign[9])
        case "a line too early":
            lines.insert(3, lines.pop())
        case _:
            lines.insert(3, foreign[3])
    log_of(home, "one").write_bytes(b"".join(lines))
    await assert_holds(home, "a", "b", "c", "d", "e", session_ids=("one",))
    await assert_holds(home, *(f"z{number}" for number in range(12)), session_ids=("two",))
