"""Rule 1: the database decides, and a log is reconciled before it is touched."""

from __future__ import annotations

import hashlib
import json
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import pytest

from hansard import LogForked, Record
from tests.journal.helpers_damage import made_line
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, log_lines, log_of, new_session, raw_rows, say
from tests.record.helpers_process import Worker


class NaiveStore:
    """The same idea without the rule: the log line, then COMMIT, and the next writer does not look at the log."""

    def __init__(self, folder: Path) -> None:
        """Open or create both legs."""
        self.log = folder / "naive.jsonl"
        self.database = apsw.Connection(str(folder / "naive.db"))
        self.database.execute("CREATE TABLE IF NOT EXISTS entry (seq INTEGER PRIMARY KEY, digest TEXT, body TEXT)")

    def append(self, body: str, *, dies_before_commit: bool = False) -> None:
        """Continue the chain at the database's head."""
        self.database.execute("BEGIN IMMEDIATE")
        rows = list(self.database.execute("SELECT seq, digest FROM entry ORDER BY seq DESC LIMIT 1"))
        seq, previous = rows[0] if rows else (0, "")
        digest = hashlib.sha256(f"{previous}{body}".encode()).hexdigest()
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seq": seq + 1, "previous": previous, "digest": digest}) + "\n")
        if dies_before_commit:
            self.database.execute("ROLLBACK")
            return
        self.database.execute("INSERT INTO entry VALUES (?, ?, ?)", (seq + 1, digest, body))
        self.database.execute("COMMIT")


def chain_is_forked(lines: list[dict[str, object]]) -> bool:
    """Two lines of a log claim one seq."""
    seqs = [line["seq"] for line in lines]
    return len(seqs) != len(set(seqs))


def test_control_a_second_writer_that_does_not_look_forks_the_chain(tmp_path: Path) -> None:
    """Without the rule, a writer that died between log and COMMIT and one that goes on write two entries of one seq."""
    NaiveStore(tmp_path).append("first")
    NaiveStore(tmp_path).append("lost", dies_before_commit=True)
    NaiveStore(tmp_path).append("second")
    assert chain_is_forked([json.loads(line) for line in (tmp_path / "naive.jsonl").read_text().splitlines()])


def count_answers(worker: Worker) -> int:
    """Read what a worker answers until it is dead."""
    answered = 0
    while True:
        try:
            worker.receive()
        except EOFError:
            return answered
        answered += 1


@pytest.mark.loss("B7", "B20", "I2")
@pytest.mark.parametrize("step", ["logged", "committed"])
async def test_a_surviving_writer_adopts_what_a_dead_one_logged(home: Path, step: str) -> None:
    """A second process that was open all the time adopts the dead writer's line and continues its chain."""
    async with Record.open(home) as record:
        await new_session(record)
        theirs: list[str] = []
        unanswered: list[str] = []
        while not unanswered:  # the writer commits when it was woken for nothing, too: such a commit leaves no entry
            with Worker(home, crash=f"{step}:3") as doomed:
                for number in range(len(theirs), len(theirs) + 3):
                    doomed.send("append", session=SESSION, id=f"theirs-{number}", text="said")
                answered = len(theirs) + count_answers(doomed)
            theirs = [line["id"] for line in log_lines(home) if line["kind"] == "message.added"]
            unanswered = theirs[answered:]
        assert len(unanswered) == 1
        await say(record, "ours")
        assert await ids_of(record) == [*theirs, "ours"]
        assert theirs == [f"theirs-{number}" for number in range(len(theirs))]
        assert not chain_is_forked(log_lines(home))
        await assert_clean(record)


@pytest.mark.loss("B20")
async def test_repeating_an_adopted_id_returns_the_first(home: Path) -> None:
    """The dead writer's caller repeats its id elsewhere: the outcome that nobody knew is settled, once."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home, crash="logged:1") as doomed:
            doomed.send("append", session=SESSION, id="asked", text="text of asked")
            with pytest.raises(EOFError):
                doomed.receive()
        first = await say(record, "asked")
        assert await say(record, "asked") == first
        assert await ids_of(record) == ["asked"]
        await assert_clean(record)


@pytest.mark.loss("B17", "B20")
@pytest.mark.parametrize("tail", [b'{"seq":9,"id":"torn', b"\0" * 300, b"not json\n", b"{}\n"])
async def test_a_damaged_tail_is_set_aside(home: Path, tail: bytes) -> None:
    """Bytes beyond the database that are no whole entry go to `.tail`, unread by nobody and lost to nobody."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
        with log_of(home).open("ab") as file:
            file.write(tail)
        await say(record, "b")
        assert await ids_of(record) == ["a", "b"]
        assert tail in log_of(home).with_suffix(".tail").read_bytes()
        await assert_clean(record)


@pytest.mark.parametrize("when", ["while it is open", "while nothing runs", "with a line that only the log holds"])
async def test_lines_that_stand_in_a_log_twice_are_set_aside(home: Path, when: str) -> None:
    """The last lines were appended once more: that is damage, and no other history."""
    async with AsyncExitStack() as opened:
        record = await opened.enter_async_context(Record.open(home))
        await new_session(record)
        await say(record, "a", "b")
        if when == "while nothing runs":
            await opened.aclose()
        lines = log_of(home).read_bytes().splitlines(keepends=True)
        if when.startswith("with"):
            lines.append(made_line(home))
            log_of(home).write_bytes(b"".join(lines))
        with log_of(home).open("ab") as file:
            file.writelines(lines[-2:])
        if when == "while nothing runs":
            record = await opened.enter_async_context(Record.open(home))
        await say(record, "c")
        only = ["foreign"] if when.startswith("with") else []
        assert await ids_of(record) == ["a", "b", *only, "c"]
        assert b"".join(lines[-2:]) in log_of(home).with_suffix(".tail").read_bytes()
        await assert_clean(record)


async def test_a_shorter_log_is_rewritten(home: Path) -> None:
    """A log that lost its end, or all of it, is written again from the database before it is touched."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
        whole = log_of(home).read_bytes()
        log_of(home).write_bytes(whole[: len(whole) // 2])
        await say(record, "c")
        log_of(home).unlink()
        await say(record, "d")
        assert [line["id"] for line in log_lines(home)][1:] == ["a", "b", "c", "d"]
        await assert_clean(record)


async def test_a_chain_that_continues_is_adopted_and_another_stops_the_session(home: Path) -> None:
    """The digest decides: the next entry is adopted; another history stops that session loudly, and only that one."""
    async with Record.open(home) as record:
        await new_session(record)
        await new_session(record, "neighbour")
        await say(record, "a")
        with log_of(home).open("ab") as file:
            file.write(made_line(home))
        await say(record, "b")
        assert await ids_of(record) == ["a", "foreign", "b"]

        with log_of(home).open("ab") as file:
            file.write(made_line(home, id="other", instead=True))
        with pytest.raises(LogForked, match=SESSION):
            await say(record, "c")
        await say(record, "fine", session_id="neighbour")
        report = await record.verify()
        assert [finding.session_id for finding in report.findings] == [SESSION]
        assert "entry 4 (other" in report.findings[0].detail

        whole = log_of(home).read_bytes()
        log_of(home).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
        await say(record, "c")
        assert await ids_of(record) == ["a", "foreign", "b", "c"]
        await assert_clean(record)


@pytest.mark.loss("B8", "H4")
async def test_each_database_makes_itself_known_in_the_home_journal(home: Path) -> None:
    """A rebuilt database has another id, and the home's log tells both."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a"]
        ((now, _),) = raw_rows(home, "SELECT database_id, commits FROM record")
        lines = [json.loads(line) for line in (home / "home.jsonl").read_bytes().splitlines()]
        databases = [line["body"]["database_id"] for line in lines if line["kind"] == "database.created"]
        assert len(set(databases)) == 2
        assert databases[-1] == now
        await assert_clean(record)


@pytest.mark.parametrize("kind", ["a folder", "a link"])
async def test_a_tail_that_cannot_be_written_is_set_aside(home: Path, kind: str) -> None:
    """An unfinished line is kept in a new `.tail`, the session goes on, and what lay there is kept as well."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a")
    tail, elsewhere = log_of(home).with_suffix(".tail"), home.parent / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    if kind == "a folder":
        tail.mkdir()
    else:
        tail.symlink_to(elsewhere)
    with log_of(home).open("ab") as log:
        log.write(b'{"seq":')
    async with Record.open(home) as record:
        await say(record, "b")
        assert await ids_of(record) == ["a", "b"]
        await assert_clean(record)
    assert tail.read_bytes() == b'{"seq":\n'
    (aside,) = tail.parent.glob("*.tail.orphan-*")
    assert aside.is_dir() if kind == "a folder" else aside.is_symlink()
    assert elsewhere.read_bytes() == b"theirs"
