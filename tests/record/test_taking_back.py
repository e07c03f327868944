"""Fork, undo and archive: nothing is copied or removed, and a further entry undoes each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from hansard import Message, Record
from hansard.domain.limits import UNIT_ENTRIES_MAX
from hansard.record.turns.entries import TurnStarted
from tests.counts import times
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, new_session, raw_rows, say

LONG, SHORT = times(test=2_000, long=10_000, prove=10_000), 10
RATIO_MAX = 2
"""A fork of many messages may take this many times the work of one of few: it looks into larger indexes."""

GROWTH_BYTES_MAX = 32 * 1024
"""What two forks may add to the record: a few pages of the database and one line, at any length."""


async def fill(record: Record, session_id: str, count: int) -> None:
    """Let people say many things, and one streamed answer at the end."""
    await new_session(record, session_id)
    said = [Message.user(f"what was said as number {number}", id=f"m{number}") for number in range(count - 1)]
    for start in range(0, len(said), UNIT_ENTRIES_MAX):
        await record.accept([(session_id, each) for each in said[start : start + UNIT_ENTRIES_MAX]])
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("all of it")


def record_bytes(home: Path) -> int:
    """The size of both legs of a record: the pages of the database, and the logs."""
    (pages,), (page_bytes,) = (raw_rows(home, f"PRAGMA {name}")[0] for name in ("page_count", "page_size"))
    return int(pages) * int(page_bytes) + sum(path.stat().st_size for path in home.rglob("*.jsonl"))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of SQLite's machine, one number for each statement on connections that are made from now on."""
    steps: list[int] = []

    def count(event: dict[str, Any]) -> None:
        steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    def watch(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, watch])
    return steps


async def fork_steps(home: Path, session_id: str, work: list[int]) -> int:
    """What SQLite does for one fork, the least of some: other threads of the record may add a statement."""
    found = []
    async with Record.open(home) as record:
        for _ in range(5):
            before = len(work)
            await record.fork(session_id)
            found.append(sum(work[before:]))
        await assert_clean(record)
    return min(found)


@pytest.mark.loss("I4")
async def test_a_fork_of_thousands_of_messages_is_instant_and_copies_nothing(home: Path, work: list[int]) -> None:
    """One entry and a few bytes more, for about the work of a fork of ten; all messages are there."""
    async with Record.open(home) as record:
        await fill(record, "long", LONG)
    before, entries_before = record_bytes(home), raw_rows(home, "SELECT count(*) FROM entry")[0][0]
    async with Record.open(home) as record:
        child = await record.fork("long")
        middle = await record.fork("long", at=LONG // 2)
        assert (child.messages, middle.messages) == (LONG, LONG // 2 - 1)
        assert len(await record.load_transcript(child.id)) == LONG
    assert raw_rows(home, "SELECT count(*) FROM entry")[0][0] == entries_before + 2
    for each in (child, middle):
        (log,) = home.rglob(f"{each.id}.jsonl")
        assert len(log.read_bytes().splitlines()) == 1
    assert record_bytes(home) - before < GROWTH_BYTES_MAX
    small = home.with_name("small")
    async with Record.open(small) as record:
        await fill(record, "short", SHORT)
    assert 0 < await fork_steps(home, "long", work) < RATIO_MAX * await fork_steps(small, "short", work)


@pytest.mark.loss("I4")
async def test_each_is_undone_by_a_further_entry(home: Path) -> None:
    """Undo and restore, archive and unarchive, end and reopen, in a session and its fork: entries only grow."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b", "c")
        child = (await record.fork(SESSION)).id
        for session_id in (SESSION, child):
            seen = await record.sessions.read_entries(session_id)
            for change in (
                record.messages.undo(session_id, ["b", "c"]),
                record.sessions.archive(session_id),
                record.end_session(session_id, "done"),
                record.messages.restore(session_id, ["c", "b"]),
                record.sessions.unarchive(session_id),
                record.reopen_session(session_id),
            ):
                await change
                entries = await record.sessions.read_entries(session_id)
                assert entries[:-1] == seen
                seen = entries
                await assert_clean(record)
            session = await record.sessions.read(session_id)
            assert (session.archived, session.state, await ids_of(record, session_id)) == (
                False,
                "open",
                ["a", "b", "c"],
            )
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with Record.open(home) as record:
        for session_id in (SESSION, child):
            assert await ids_of(record, session_id) == ["a", "b", "c"]
            assert (await record.sessions.read(session_id)).archived is False
        await assert_clean(record)


async def asked(record: Record) -> set[str]:
    """Run a turn; return who asked for it, as it is recorded."""
    async with record.turn(SESSION):
        pass
    bodies = [entry.body for entry in await record.sessions.read_entries(SESSION)]
    return {each.person for each in [body for body in bodies if isinstance(body, TurnStarted)][-1].by or ()}


async def test_whoever_said_only_undone_messages_asks_for_no_turn(home: Path) -> None:
    """Undone before a turn began, a message lends its author's name and budget to none; restored, it does."""
    async with Record.open(home) as record:
        await new_session(record)
        for number, author in enumerate(["@ann", "@bob", "@bob", "@carl"]):
            await record.append(SESSION, Message.user("hello", id=f"m{number}", author=author, chat="room"))
        await record.messages.undo(SESSION, ["m1", "m3"])
        assert await asked(record) == {"@ann", "@bob"}
        await record.append(SESSION, Message.user("hello", id="m4", author="@bob", chat="room"))
        await record.append(SESSION, Message.user("hello", id="m5", author="@ann", chat="room"))
        await record.messages.undo(SESSION, ["m4", "m5"])
        await record.messages.restore(SESSION, ["m5"])
        assert await asked(record) == {"@ann"}
        await assert_clean(record)
