"""Part files of streams that were damaged, or that the database does not know (L10)."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hansard import Chunk, Entry, Record
from tests.journal.helpers_damage import lose_database, make_home, put_back
from tests.record.helpers_facts import assert_clean, fingerprint, ids_of, log_of, raw_rows, say
from tests.record.helpers_process import Worker


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


@pytest.mark.parametrize("damage", ["a byte", "another order", "a line of another stream", "a digit", "a part's name"])
async def test_a_damaged_part_file_loses_no_word(home: Path, damage: str) -> None:
    """The database is lost in the middle of an answer: what continues its text is in the record, the rest is kept."""
    await make_home(home, "one")
    words = [f"€piece-{number}." for number in range(6)]
    part = stream_and_die(home, "answer", *words)
    lines = part.read_bytes().splitlines(keepends=True)
    assert len(lines) == len(words)
    lose_database(home)
    match damage:
        case "a byte":
            lines[2] = b"#" + lines[2][1:]
        case "a digit":
            lines[2] = lines[2].replace(b'"start":22', b'"start":21')
            assert b'"start":21' in lines[2]
        case "a part's name":
            lines[2] = lines[2].replace(b'"part":"text"', b'"part":"uext"')
        case "another order":
            lines[2], lines[3] = lines[3], lines[2]
        case _:
            lines.insert(0, lines[0].replace(b"answer", b"antwort"))
    part.write_bytes(b"".join(lines))
    async with Record.open(home) as record:
        (answer,) = [each for each in await record.load_transcript("one") if each.id == "answer"]
        assert answer.text == "".join(words if damage in {"another order", "a line of another stream"} else words[:2])
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


async def test_reading_only_leaves_a_stray_part_file(home: Path) -> None:
    """A part file of a message that nobody knows: reading only does not touch it."""
    await make_home(home, "one")
    part = log_of(home, "one").with_suffix(".part")
    part.write_bytes(b'{"message":"stray","start":0,"part":"text","text":"words"}\n')
    before = fingerprint(home)
    async with Record.open(home, read_only=True) as record:
        assert await ids_of(record, "one") == []
    assert fingerprint(home) == before


BROKEN_CHUNK = "UPDATE chunk SET text = CAST(x'f8f8f8' AS BLOB) WHERE start = 0"


async def test_a_piece_that_cannot_be_read_is_taken_from_the_part_file(home: Path) -> None:
    """Bytes of an open message are garbage in `state.db`: the turn of a dead process is ended with all of its words."""
    await make_home(home, "one")
    stream_and_die(home, "answer", "alpha", "beta")
    raw_rows(home, BROKEN_CHUNK)
    async with Record.open(home) as record:
        transcript = {message.id: message for message in await record.load_transcript("one")}
        assert (transcript["answer"].text, transcript["answer"].status) == ("alphabeta", "interrupted")
        async with record.turn("one"):
            pass
        await assert_clean(record)


async def test_a_piece_that_no_leg_holds_stops_no_other_session(home: Path) -> None:
    """The part file is gone, too: the home opens, and the message is ended with what can be read of it."""
    await make_home(home, "one", "two")
    stream_and_die(home, "answer", "alpha", "beta").unlink()
    raw_rows(home, BROKEN_CHUNK)
    async with Record.open(home) as record:
        assert await say(record, "a", session_id="two") == [2]
        async with record.turn("one"):
            pass
        assert (await ids_of(record, "one"))[0] == "answer"
        await assert_clean(record)
    assert list(home.glob("state.db.orphan-*"))


async def test_followers_meet_a_piece_that_cannot_be_read(home: Path) -> None:
    """The answer still grows: its follower is given every word from its part file, and others are not held up."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record, record.turn("one") as turn, turn.reply(id="answer") as reply:
        await reply.write("alpha")
        await say(record, "a", session_id="two")  # by then the word is durable
        raw_rows(home, BROKEN_CHUNK)
        found = await asyncio.gather(first_text(record, "one"), second_id(record, "two"))
        assert tuple(found) == ("alpha", "a")
        await reply.write("beta")


async def first_text(record: Record, session_id: str) -> str:
    """Return the first words that a follower is given of an open message."""
    async for item in record.follow(session_id):
        if isinstance(item, Chunk) and item.text:
            return item.text
    raise AssertionError


async def second_id(record: Record, session_id: str) -> str:
    """Return the id of the second entry that a follower is given."""
    async for item in record.follow(session_id):
        if isinstance(item, Entry) and item.seq == 2:
            return item.id
    raise AssertionError
