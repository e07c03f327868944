"""The index is a view: dropped, damaged or of another history, it is made anew, and search finds the same meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from hansard import Message, Record
from hansard.domain.limits import UNIT_ENTRIES_MAX
from hansard.domain.messages import Text, ToolCall
from hansard.journal.store import Wiring
from hansard.record.search.asking import Search, search
from hansard.record.search.index import SearchIndex, search_index
from tests.record.helpers_facts import eventually, raw_rows
from tests.record.search.oracle import Asked
from tests.record.search.scene import (
    SIDES,
    change_index,
    check,
    drop_index,
    everything_said,
    index_all,
    index_held,
    indexed_count,
)

MESSAGES = 20

HANG_SECONDS = 120.0

ASKED = [
    Asked("word"),
    Asked("number 7"),
    Asked("東京"),
    Asked("num*"),
    Asked("word NOT 東京"),
    Asked("path", tools=True),
    Asked("content", tool="read_file"),
    Asked("word", role="user"),
    Asked("gone", everything=True),
    Asked("gone"),
]


async def fill(record: Record, sessions: int = 2, messages: int = MESSAGES) -> None:
    """Let a few sessions have messages of every kind; some are taken back."""
    for session in range(sessions):
        name = f"s{session}"
        await record.create_session(id=name, source="test")
        texts = [
            f"word number {number} of {name}" + (" 東京都" if number % 3 == 0 else "") for number in range(messages)
        ]
        said = [(name, Message.user(text, id=f"m{number}")) for number, text in enumerate(texts)]
        for start in range(0, messages, UNIT_ENTRIES_MAX):
            await record.accept(said[start : start + UNIT_ENTRIES_MAX])
        call = ToolCall(id="c", name="read_file", arguments='{"path": "/etc/hosts"}')
        await record.append(name, Message.assistant([Text("look"), call]))
        await record.append(name, Message.tool("c", "content of the file"))
        await record.append(name, Message.user("this is gone", id="gone"))
        await record.messages.undo(name, ["gone"])


@pytest.mark.loss("D8", "D9", "K8")
@pytest.mark.parametrize("sides", [SIDES, SIDES[:1], SIDES[1:]])
async def test_deleted_while_open(home: Path, sides: tuple[str, ...]) -> None:
    """Whichever of its files are deleted while the program runs: nothing is missing, then or after it is made anew."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        said = await everything_said(record)
        await check(record, ASKED, said)
        for side in sides:
            (home / f"search.db{side}").unlink(missing_ok=True)
        await check(record, ASKED, said)
        index_all(record)
        await check(record, ASKED, said)
        await record.append("s0", Message.user("one more word"))
        assert await check(record, [Asked("one more")]) == 1
        index_all(record)
        assert await check(record, [Asked("one more")]) == 1
        assert indexed_count(home) == len(said) + 1


@pytest.mark.loss("D8", "D9")
@pytest.mark.parametrize("sides", [SIDES, SIDES[:1], SIDES[1:]])
async def test_deleted_while_closed(home: Path, sides: tuple[str, ...]) -> None:
    """Whichever of its files are deleted while nothing runs, the next program finds everything."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
    for side in sides:
        (home / f"search.db{side}").unlink(missing_ok=True)
    async with Record.open(home) as record:
        await check(record, ASKED)
        index_all(record)
        await check(record, ASKED)


async def test_during_a_rebuild(home: Path) -> None:
    """After each batch of a rebuild search finds everything, and after the last one the index has it all."""
    async with Record.open(home) as record:
        await fill(record, sessions=3, messages=520)
        said = await everything_said(record)
    drop_index(home)
    asked = [Asked("number 7"), Asked("gone", everything=True), Asked("word", session_id="s1")]
    async with Record.open(home, wiring=Wiring(threads=False)) as record:
        index = search_index(record.store)
        with index_held(home):
            await check(record, asked, said)
        counts = []
        while index.step().more:
            counts.append(indexed_count(home))
            with index_held(home):
                await check(record, asked, said)
            assert indexed_count(home) == counts[-1]
        assert 2 < len(counts) < 100
        assert counts == sorted(set(counts))
        assert indexed_count(home) == len(said)


@pytest.mark.loss("K8")
async def test_a_search_brings_the_index_up_to_date(home: Path) -> None:
    """One search indexes everything, in as many batches as it takes, also where no thread does."""
    async with Record.open(home) as record:
        await fill(record, sessions=3, messages=520)
        said = await everything_said(record)
    drop_index(home)
    async with Record.open(home, wiring=Wiring(threads=False)) as record:
        assert indexed_count(home) == 0
        assert await check(record, [Asked("gone", everything=True)], said) == 3
        assert indexed_count(home) == len(said)


def indexed_stamp(home: Path) -> object:
    """The state of the record that the index is of; None when there is no index yet."""
    if not (home / "search.db").exists():
        return None
    with closing(apsw.Connection(str(home / "search.db"), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        connection.set_busy_timeout(60_000)
        with suppress(apsw.SQLError):  # its tables are being made
            return connection.execute("SELECT stamp FROM state").get
    return None


async def test_the_index_follows_every_commit(home: Path) -> None:
    """A process that rests has indexed its last commit, the keeper's note that logs are on the disk included."""
    async with Record.open(home) as record:
        await record.create_session(id="s0", source="test")

        def is_up_to_date() -> bool:
            ((stamp, is_synced),) = raw_rows(
                home, "SELECT stamp, (SELECT min(log_synced = log_end) FROM journal) FROM record"
            )
            return bool(is_synced) and indexed_stamp(home) == stamp

        for number in range(2):
            await record.append("s0", Message.user("words", id=f"m{number}"))
            await eventually(is_up_to_date)


async def test_a_search_waits_for_the_process_that_indexes(home: Path) -> None:
    """While another holds the index, a search waits; then it has the index filled, and finds everything by it."""
    async with Record.open(home) as record:
        await fill(record)
        said = await everything_said(record)
        index = SearchIndex(home, record.store.backend, stuck_seconds=HANG_SECONDS)
        with index_held(home):
            drop_index(home)
            searching = asyncio.create_task(
                asyncio.to_thread(search, index, record.store.backend, Search(query="number 7"), 0)
            )
            await record.append("s0", Message.notice("said meanwhile"))
            assert not searching.done()
        assert len(await searching) == 2
        index.close()
        assert indexed_count(home) >= len(said)


async def test_a_search_beside_another_that_indexes(home: Path) -> None:
    """Two fill an index that is missing at the same time: both find everything, and no message is indexed twice."""
    async with Record.open(home) as record:
        await fill(record, sessions=3, messages=520)
        said = await everything_said(record)
        readers = record.store.backend  # each has a lock of its own, as in another process
        indexes = [SearchIndex(home, readers, stuck_seconds=HANG_SECONDS) for _ in range(2)]
        with index_held(home):
            drop_index(home)
            plan = Search(query="number 7", limit=1000)
            searching = [asyncio.create_task(asyncio.to_thread(search, index, readers, plan, 0)) for index in indexes]
        counts = [len(hits) for hits in await asyncio.gather(*searching)]
        assert counts == [await check(record, [Asked("number 7")], said)] * 2
        for index in indexes:
            index.close()
        assert indexed_count(home) == len(said)
        assert (await record.verify()).notes == []


@pytest.mark.drawn(3)
@pytest.mark.loss("K2", "B13", "D8")
@pytest.mark.parametrize("where", ["header", "all", "middle", "cut", "empty", "text", "folder"])
async def test_damaged(home: Path, where: str) -> None:
    """Bytes of the index are overwritten, cut or replaced: nothing raises, nothing is missing, writing goes on."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        said = await everything_said(record)
    damage(home / "search.db", where)
    async with Record.open(home) as record:
        await check(record, ASKED, said)
        await record.append("s0", Message.user("one more word"))
        said = await everything_said(record)
        await check(record, ASKED, said)
        assert indexed_count(home) == len(said)
        assert (await record.verify()).ok


@pytest.mark.drawn(2)
@pytest.mark.loss("K2")
@pytest.mark.parametrize("where", ["header", "all", "cut", "empty", "text"])
async def test_damaged_while_open(home: Path, where: str) -> None:
    """The same while a program has it open."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        said = await everything_said(record)
        await check(record, ASKED, said)
        with index_held(home):
            damage(home / "search.db", where)
            await record.append("s0", Message.user("one more word"))
        said = await everything_said(record)
        await check(record, ASKED, said)


def damage(path: Path, where: str) -> None:
    """Damage a file in one of several ways."""
    size = path.stat().st_size
    if where in {"folder", "text"}:
        drop_index(path.parent)
        if where == "folder":
            path.mkdir()
        else:
            path.write_text("this is no database\n" * 500)
        return
    with path.open("r+b") as file:
        if where == "header":
            file.write(b"x" * 100)
        elif where == "all":
            file.write(os.urandom(size))
        elif where == "middle":
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        else:
            file.truncate(0 if where == "empty" else size // 2 + 100)


@pytest.mark.loss("D8")
async def test_damaged_anywhere(home: Path, tmp_path: Path, seed: int) -> None:
    """A few bytes anywhere in the index are overwritten: search never raises, and after `verify` finds everything."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        said = await everything_said(record)
    whole = tmp_path / "whole"
    shutil.copytree(home, whole)
    rng = random.Random(seed)
    for _ in range(8):
        shutil.rmtree(home)
        shutil.copytree(whole, home)
        data = bytearray((home / "search.db").read_bytes())
        for _ in range(3):
            start = rng.randrange(len(data) - 16)
            data[start : start + 16] = rng.randbytes(16)
        (home / "search.db").write_bytes(data)
        async with Record.open(home) as record:
            for asked in ASKED:
                await record.search(asked.query)
            assert (await record.verify()).ok
            await check(record, ASKED, said)


DRIFTS = {
    "a message is missing": ["DELETE FROM doc WHERE key = (SELECT min(key) + 3 FROM doc)"],
    "many messages are missing": ["DELETE FROM doc WHERE key % 2"],
    "words are missing": ["DELETE FROM words WHERE rowid = 3"],
    "a message and its words are missing": [
        "DELETE FROM words WHERE rowid = (SELECT id FROM doc WHERE key = (SELECT max(key) - 4 FROM doc))",
        "DELETE FROM doc WHERE key = (SELECT max(key) - 4 FROM doc)",
    ],
    "a session is missing": [
        "DELETE FROM words WHERE rowid IN (SELECT id FROM doc WHERE key >> 32 = (SELECT max(key) >> 32 FROM doc))",
        "DELETE FROM doc WHERE key >> 32 = (SELECT max(key) >> 32 FROM doc)",
    ],
    "everything is missing": ["DELETE FROM doc", "INSERT INTO words (words) VALUES ('delete-all')"],
    "nothing is done": ["DELETE FROM done"],
    "done lies ahead": ["UPDATE done SET seq = seq + 1000"],
    "done lies behind": ["UPDATE done SET seq = 3"],
    "commits lie ahead": ["UPDATE state SET commits = commits + 1000000"],
    "commits lie behind": ["UPDATE state SET commits = 0"],
    "the words are others": ["INSERT OR REPLACE INTO words (rowid, said, tools) SELECT id, 'wrong', '' FROM doc"],
    "words of tools are others": [
        "INSERT OR REPLACE INTO words (rowid, said, tools) SELECT id, '', 'wrong' FROM doc WHERE tool <> ''",
    ],
    "messages that are not there": [
        "INSERT INTO doc (id, key, message, role, at) VALUES (77777, 7777777777777, 7777777777777, 'user', 1)",
        "INSERT INTO words (rowid, said, tools) VALUES (77777, 'word number 7', '')",
    ],
    "all is undone": ["UPDATE doc SET undone = 1"],
    "nothing is undone": ["UPDATE doc SET undone = 0"],
    "roles are others": ["UPDATE doc SET role = 'assistant'"],
    "times are others": ["UPDATE doc SET at = 0"],
    "tools are others": ["UPDATE doc SET tool = ''"],
    "no state": ["DELETE FROM state"],
    "a table is missing": ["DROP TABLE done"],
    "another database": ["UPDATE state SET database_id = 'other'"],
    "another rule": [
        "UPDATE state SET rule = '1, Unicode 6.0.0'",
        "INSERT OR REPLACE INTO words (rowid, said, tools) SELECT id, 'wrong', '' FROM doc",
    ],
}


@pytest.mark.drawn(8)
@pytest.mark.loss("D8", "D9")
@pytest.mark.parametrize("drift", DRIFTS)
async def test_drift_is_noticed(home: Path, drift: str) -> None:
    """An index that was changed by hand, in any of its tables, raises nothing; after `verify` all is found again."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        with index_held(home):
            change_index(home, *DRIFTS[drift])
            for asked in ASKED:
                await record.search(asked.query)
        await record.append("s0", Message.user("one more word"))
        assert (await record.verify()).ok
        said = await everything_said(record)
        await check(record, [*ASKED, Asked("word", since=said[0].at, until=said[-1].at), Asked("one more")], said)


NOT_ASKED = {
    "another rule",
    "another database",
    "commits lie ahead",
    "commits lie behind",
    "no state",
    "nothing is done",
}
"""Drifts that are seen before the index is asked: the entries themselves are searched then."""


@pytest.mark.drawn(6)
@pytest.mark.loss("D8")
@pytest.mark.parametrize("drift", sorted(DRIFTS.keys() - NOT_ASKED))
async def test_verify_asks_the_index(home: Path, drift: str) -> None:
    """An index that hides a message, or says something else of it, is noted by `verify`, although nothing fails."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        assert (await record.verify()).findings == []
        with index_held(home):
            change_index(home, *DRIFTS[drift])
            report = await record.verify()
            assert report.ok
            assert "search.db did not find every message; it is left as it is: it cannot be written now" in report.notes
        assert (await record.verify()).notes == ["search.db did not find every message; it is made anew"]
        assert (await record.verify()).notes == []


async def test_tokens_of_another_rule_are_not_believed(home: Path) -> None:
    """An index whose tokens were made by another rule, or by other tables of Unicode, is not asked, not even once."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        with index_held(home):
            change_index(home, *DRIFTS["another rule"])
            await check(record, ASKED)
        index_all(record)
        await check(record, ASKED)


@pytest.mark.loss("B26", "D8")
async def test_an_older_database_comes_back(home: Path, tmp_path: Path) -> None:
    """Somebody restores an older state.db: what the logs add to it, and what is said from then on, is found."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
    older = tmp_path / "older"
    shutil.copytree(home, older)
    async with Record.open(home) as record:
        for number in range(50):
            await record.append("s1", Message.user(f"later word {number}"))
        index_all(record)
    for side in SIDES:
        (home / f"state.db{side}").unlink(missing_ok=True)
        if (older / f"state.db{side}").exists():
            shutil.copy(older / f"state.db{side}", home / f"state.db{side}")
    async with Record.open(home) as record:
        await record.append("s0", Message.user("newest word of all"))
        assert await check(record, [*ASKED, Asked("later"), Asked("newest")]) > 51
        index_all(record)
        assert await check(record, [*ASKED, Asked("later"), Asked("newest")]) > 51


@pytest.mark.loss("B26", "D8", "D9")
async def test_a_journal_of_another_history_is_indexed_anew(home: Path, tmp_path: Path) -> None:
    """The whole record is put back to an older state and goes on otherwise: only what differs is indexed anew."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
    older = tmp_path / "older"
    shutil.copytree(home, older)
    async with Record.open(home) as record:
        await record.create_session(id="dropped", source="test")
        for name in ("s1", "dropped"):
            for number in range(20):
                await record.append(name, Message.user(f"forgotten word {number}"))
        assert await check(record, [Asked("forgotten")]) == 40
    before = doc_ids(home)
    newer = tmp_path / "newer"
    shutil.copytree(home, newer)
    shutil.rmtree(home)
    shutil.copytree(older, home)
    for side in SIDES:
        (home / f"search.db{side}").unlink(missing_ok=True)
        if (newer / f"search.db{side}").exists():
            shutil.copy(newer / f"search.db{side}", home / f"search.db{side}")
    async with Record.open(home) as record:
        with index_held(home):
            assert await check(record, [*ASKED, Asked("forgotten")]) > 0
        for number in range(60):  # more than were forgotten: counts of commits and entries tell nothing
            await record.append("s1", Message.user(f"remembered word {number}"))
        assert await check(record, [*ASKED, Asked("forgotten"), Asked("remembered")]) > 60
        assert indexed_count(home) == len(await everything_said(record))
        assert (await record.verify()).notes == []
    after = doc_ids(home)
    kept = min(before)
    assert after[kept] == before[kept], "a session that is the same was indexed anew"


def doc_ids(home: Path) -> dict[int, list[int]]:
    """The rows of the index, by journal."""
    found: dict[int, list[int]] = {}
    with closing(apsw.Connection(str(home / "search.db"))) as connection:
        for journal, number in connection.execute("SELECT key >> 32, id FROM doc ORDER BY key"):
            found.setdefault(int(str(journal)), []).append(int(str(number)))
    return found


@pytest.mark.loss("B26")
async def test_the_database_is_removed_while_open(home: Path) -> None:
    """Somebody removes state.db while the program runs: it is rebuilt from the logs, and search finds everything."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        said = await everything_said(record)
        for side in SIDES:
            (home / f"state.db{side}").unlink(missing_ok=True)
        await check(record, ASKED, said)
        index_all(record)
        await check(record, ASKED, said)


@pytest.mark.loss("B26")
async def test_the_database_is_rebuilt_from_the_logs(home: Path) -> None:
    """The index of a database that is no more is not believed: numbers of journals may be others now."""
    async with Record.open(home) as record:
        for name in ("z", "y", "x", "w"):
            await record.create_session(id=name, source="test")
            for number in range(20):
                await record.append(name, Message.user(f"word {number} of {name}"))
        index_all(record)
    for side in SIDES:
        (home / f"state.db{side}").unlink(missing_ok=True)
    asked = [Asked("word"), *(Asked(f'"of {name}"') for name in "wxyz")]
    async with Record.open(home) as record:
        await check(record, asked)
        index_all(record)
        await check(record, asked)


async def test_an_index_that_is_locked(home: Path) -> None:
    """While somebody else holds the index's own write lock, search finds everything and appends do not wait."""
    async with Record.open(home) as record:
        await fill(record)
        index_all(record)
        with closing(apsw.Connection(str(home / "search.db"))) as stranger:
            stranger.execute("BEGIN IMMEDIATE")
            await record.append("s0", Message.user("said meanwhile"))
            assert await check(record, [*ASKED, Asked("meanwhile")]) > 0
            stranger.execute("ROLLBACK")
        index_all(record)
        await check(record, [*ASKED, Asked("meanwhile")])
