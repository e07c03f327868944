"""A damaged database beside damaged logs (L10). What only one of them holds is in the record afterwards."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from hansard import Entry, Message, Record, RecordDamaged
from tests.journal.helpers_damage import assert_holds, made_line, make_home, put_back
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_of, raw_rows, say


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


def break_page(home: Path, mark: bytes) -> None:
    """Overwrite the beginning of a page of the database that holds some bytes."""
    raw_rows(home, "UPDATE record SET checked = 0")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray((home / "state.db").read_bytes())
    begins = range(0, len(data), 4096)
    leaf = 13
    pages = [at for at in begins if data[at] == leaf and mark in data[at : at + 4096]]
    at = pages[len(pages) // 2]
    data[at : at + 100] = b"\xff" * 100
    (home / "state.db").write_bytes(data)


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_broken_page_hides_nothing_that_only_the_database_holds(home: Path, *, read_only: bool) -> None:
    """SQLite itself meets the damage, and a log lacks its last line: the rest of the database is read first."""
    await make_home(home, "one", "two")
    async with Record.open(home) as record:
        await say(record, "a", "b", session_id="one")
        for number in range(60):
            await record.append("two", Message.user("w" * 2000, id=f"w{number}"))
    *lines, _ = log_of(home, "one").read_bytes().splitlines(keepends=True)
    log_of(home, "one").write_bytes(b"".join(lines))
    break_page(home, b"w" * 100)
    async with Record.open(home, read_only=read_only) as record:
        assert await ids_of(record, "one") == ["a", "b"]
        assert len(await ids_of(record, "two")) == 60
        if not read_only:
            await assert_clean(record)


async def make_damaged(home: Path, query: str, data: bytes) -> None:
    """Make a home in whose database an entry has other bytes."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", session_id="one")
    raw_rows(home, query, data)


async def first_entries(record: Record, session_id: str, count: int) -> list[str]:
    """Return the ids of the first entries that a follower of a session is given."""
    found: list[str] = []
    async for item in record.follow(session_id):
        found += [item.id] if isinstance(item, Entry) else []
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("way", ["transcript", "search", "write", "follow", "verify"])
@pytest.mark.parametrize("data", [b'{"role": \xca', b'{"role":"user","parts":[{"type":"text","text":"\xf8 of b"}]}'])
async def test_an_entry_that_cannot_be_read_is_taken_from_its_log(home: Path, way: str, data: bytes) -> None:
    """The bytes of an entry are garbage: whoever meets them makes the database be rebuilt, and loses nothing."""
    await make_damaged(home, "UPDATE entry SET body = ? WHERE id = 'b'", data)
    async with Record.open(home) as record:
        if way == "verify":
            assert "entry" in {finding.what for finding in (await record.verify()).findings}
        elif way == "transcript":
            assert [message.id for message in await record.load_transcript("one")] == ["a", "b", "c"]
        elif way == "search":
            (home / "search.db").unlink(missing_ok=True)
            assert [hit.message.id for hit in await record.search("of b")] == ["b"]
        elif way == "follow":
            assert (await first_entries(record, "one", 4))[1:] == ["a", "b", "c"]
        else:
            assert await say(record, "b", session_id="one") == [3]
        assert await ids_of(record, "one") == ["a", "b", "c"]
        await assert_clean(record)


@pytest.mark.parametrize("way", ["read", "verify"])
async def test_a_text_that_is_none_is_told_as_damage(home: Path, way: str) -> None:
    """The id of an entry is not UTF-8 any more: the error names state.db and says how it is rebuilt."""
    await make_damaged(home, "UPDATE entry SET id = CAST(? AS TEXT) WHERE id = 'b'", b"\xca\xfe")
    async with Record.open(home) as record:
        with pytest.raises(RecordDamaged, match=r"state\.db") as caught:
            await (record.verify() if way == "verify" else record.load_transcript("one"))
    assert "Move state.db" in caught.value.hint
    for path in home.glob("state.db*"):
        path.unlink()
    await assert_holds(home, "a", "b", "c", session_ids=("one",))


async def test_a_text_that_is_none_fails_the_calls_of_its_session_alone(home: Path) -> None:
    """A title is not UTF-8: no log mends that, so its session is refused at once, and others go on beside it."""
    await make_home(home, "one", "two")
    raw_rows(home, "UPDATE session SET title = CAST(? AS TEXT) WHERE id = 'one'", b"\xff\x41")
    async with Record.open(home) as record:
        for round_ in ("a", "b"):
            broken, whole = await asyncio.gather(
                record.append("one", Message.user("said", id=round_)),
                record.append("two", Message.user("said", id=round_)),
                return_exceptions=True,
            )
            assert isinstance(broken, RecordDamaged), broken
            assert "state.db" in str(broken)
            assert "Move state.db" in broken.hint
            assert isinstance(whole, Entry), whole
        assert await ids_of(record, "two") == ["a", "b"]


async def test_an_entry_that_no_leg_can_decode_fails_its_own_calls_alone(home: Path) -> None:
    """Both legs hold an entry with its digest that nobody can decode: comparing them again and again mends nothing."""
    await make_home(home, SESSION, "two")
    async with Record.open(home) as record:
        await say(record, "a", "b")
    with log_of(home).open("ab") as log:
        log.write(made_line(home, id="odd", role="nobody"))
    async with Record.open(home) as record:
        for round_ in ("a", "b"):
            broken, whole = await asyncio.gather(
                record.append(SESSION, Message.user("said", id="odd")),
                record.append("two", Message.user("said", id=round_)),
                return_exceptions=True,
            )
            assert isinstance(broken, RecordDamaged), broken
            assert isinstance(whole, Entry), whole
        with pytest.raises(RecordDamaged, match=f"entry 4 of {SESSION}"):
            await record.load_transcript(SESSION)
        assert await ids_of(record, "two") == ["a", "b"]
        assert [finding.what for finding in (await record.verify()).findings] == ["entry"]


async def test_a_table_that_is_gone_is_told_as_damage(home: Path) -> None:
    """A statement meets a database that lacks a table of ours: that is damage, not an error without a file."""
    await make_home(home, "one")
    raw_rows(home, "DROP TABLE note")
    async with Record.open(home) as record:
        with pytest.raises(RecordDamaged, match=r"state\.db"):
            await record.memory.list()
        with pytest.raises(RecordDamaged, match=r"state\.db"):
            await record.memory.add("person:admin", "a note")


async def test_reading_only_needs_no_header_of_the_database(home: Path) -> None:
    """The first page of `state.db` is garbage, and its WAL does not hold that page: the logs are read."""
    await make_home(home, "one")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    async with Record.open(home) as record:
        await say(record, "a", session_id="one")
    data = (home / "state.db").read_bytes()
    (home / "state.db").write_bytes(b"g" * 4096 + data[4096:])
    async with Record.open(home, read_only=True) as record:
        assert await ids_of(record, "one") == ["a"]


async def test_a_broken_page_beside_an_older_log(tmp_path: Path) -> None:
    """A page cannot be read, and a log lacks all that comes after it: the entries behind that page are read as well."""
    home, older = tmp_path / "home", tmp_path / "older"
    await make_home(home, "one")
    async with Record.open(home) as record:
        for number in range(60):
            await record.append("one", Message.user("w" * 2000, id=f"w{number}"))
            if number == 40:
                older.write_bytes(log_of(home, "one").read_bytes())
    log_of(home, "one").write_bytes(older.read_bytes())
    break_page(home, b"w" * 100)
    await assert_holds(home, *(f"w{number}" for number in range(60)), session_ids=("one",))


async def test_entries_that_both_legs_lost_at_the_end_are_refused(home: Path) -> None:
    """The database says that a session has five entries, and neither leg has the last two: it is no shorter session."""
    await make_home(home, "one")
    async with Record.open(home) as record:
        await say(record, "a", "b", "c", "d", session_id="one")
    raw_rows(home, "DELETE FROM entry WHERE id IN ('c', 'd')")
    log_of(home, "one").write_bytes(b"".join(log_of(home, "one").read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(RecordDamaged, match=r"no whole copy of entry 4 of one is left"):
        async with Record.open(home):
            pass
