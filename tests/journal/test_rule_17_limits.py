"""Rule 17: every size has a limit, refused before anything is written; a full disk lets running turns end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hansard import Message, OutcomeUnknown, Record, RecordUnavailable, Session, TooLarge, ToolCall, TurnState
from hansard.domain.limits import (
    BLOB_BYTES_MAX,
    ENTRY_BYTES_MAX,
    ID_CHARACTERS_MAX,
    QUEUE_BYTES_MAX,
    REPLY_BYTES_MAX,
    RESERVE_BYTES,
    TITLE_CHARACTERS_MAX,
    UNIT_ENTRIES_MAX,
)
from hansard.journal.causes import Cause
from hansard.journal.locks import FairLock
from hansard.journal.sqlite.disk import Reserve
from hansard.journal.store import Wiring
from hansard.record.search.index import search_index
from tests.clock import leap_until
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    eventually,
    ids_of,
    log_of,
    new_session,
    raw_rows,
    retry_append,
    say,
)
from tests.record.helpers_process import Worker, WorkerError, fill_disk, small_disk

PATIENCE_SECONDS = 60.0
"""Longer than any machine stalls by itself. It passes by leaps of the clock."""

LARGE = "x" * (ENTRY_BYTES_MAX + 1)


@asynccontextmanager
async def unchanged(home: Path) -> AsyncIterator[tuple[Record, Session]]:
    """Open a record, and check afterwards that nothing was added to either leg."""
    async with Record.open(home) as record:
        session = await new_session(record)
        await say(record, "a")
        before = raw_rows(home, "SELECT count(*), max(key) FROM entry"), log_of(home).read_bytes()
        yield record, session
        assert (raw_rows(home, "SELECT count(*), max(key) FROM entry"), log_of(home).read_bytes()) == before
        await say(record, "b")
        await assert_clean(record)


@pytest.mark.loss("B3")
@pytest.mark.parametrize(
    "message",
    [
        Message.user(LARGE),
        Message.user("\x01" * (ENTRY_BYTES_MAX // 6 + 1)),
        Message.user([ToolCall(id="1", name="t", arguments=LARGE)]),
        Message.user("x", id="i" * (ID_CHARACTERS_MAX + 1)),
        Message.user("x", author="a" * 1001),
    ],
    ids=["text", "escaped", "arguments", "id", "author"],
)
async def test_an_oversized_message_is_refused_before_anything_is_written(home: Path, message: Message) -> None:
    """The text, its escaped form, a tool call's arguments or a name: TooLarge, and the record is unchanged."""
    async with unchanged(home) as (record, _):
        with pytest.raises(TooLarge):
            await record.append(SESSION, message)


@pytest.mark.loss("B3")
async def test_other_limits_refuse_too(home: Path) -> None:
    """Titles, many entries in one call, blobs: each has its limit."""
    async with unchanged(home) as (record, session):
        with pytest.raises(TooLarge):
            await record.set_title(session.id, "t" * (TITLE_CHARACTERS_MAX + 1))
        with pytest.raises(TooLarge):
            await record.accept([(SESSION, Message.user("x")) for _ in range(UNIT_ENTRIES_MAX + 1)])
        with pytest.raises(TooLarge):
            await record.blobs.put(bytes(BLOB_BYTES_MAX + 1))
        with pytest.raises(TooLarge):
            await record.create_session(source="s" * 1001)


async def test_the_largest_allowed_message_is_recorded(home: Path) -> None:
    """The limit itself is allowed, in both legs and through a rebuild."""
    text = "x" * (ENTRY_BYTES_MAX - 200)
    async with Record.open(home) as record:
        await new_session(record)
        await record.append(SESSION, Message.user(text, id="large"))
        await assert_clean(record)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home) as record:
        assert [message.text for message in await record.load_transcript(SESSION)] == [text]


async def write_until_too_large(record: Record, piece: str) -> int:
    """Stream one reply until it is refused; return how many pieces were taken."""
    written = 0
    try:
        async with record.turn(SESSION) as turn, turn.reply() as reply:
            while True:
                await reply.write(piece)
                written += 1
    except TooLarge as error:
        assert "Nothing was written" not in error.hint  # noqa: PT017 - it would be untrue
        return written


@pytest.mark.parametrize("character", ["x", "\x01", "é", "🙂"])
async def test_a_reply_that_grows_too_long_keeps_what_came_before(home: Path, character: str) -> None:
    """The write that would exceed the limit raises; what was shown is recorded, sealed as interrupted."""
    async with Record.open(home) as record:
        await new_session(record)
        piece = character * 10_000
        written = await write_until_too_large(record, piece)
        (message,) = await record.load_transcript(SESSION)
        assert message.text == piece * written
        assert message.status == "interrupted"
        assert REPLY_BYTES_MAX - len(piece.encode()) < len(message.text.encode()) <= REPLY_BYTES_MAX
        await assert_clean(record)


async def test_the_queue_holds_callers_back(home: Path) -> None:
    """More than the queue takes is offered while nothing can be written: it stays within its bound, and is refused."""
    text = "x" * (ENTRY_BYTES_MAX - 1000)
    async with Record.open(home, patience_seconds=PATIENCE_SECONDS) as record:
        await new_session(record)
        lock = FairLock(home / "locks")
        lock.acquire()
        calls = [record.append(SESSION, Message.user(text, id=f"m{number}")) for number in range(12)]
        many = asyncio.gather(*calls, return_exceptions=True)
        await eventually(lambda: record.store.writer.queue.bytes > QUEUE_BYTES_MAX / 2)
        assert record.store.writer.queue.bytes <= QUEUE_BYTES_MAX + ENTRY_BYTES_MAX
        await leap_until(many.done, PATIENCE_SECONDS)
        assert {type(each) for each in await many} == {RecordUnavailable}
        assert record.store.writer.queue.bytes == 0
        lock.release()
        lock.close()
        await retry_append(record, "a")
        assert await ids_of(record) == ["a"]


@pytest.mark.loss("B22", "A14")
async def test_a_running_turn_ends_on_a_full_disk(tmp_path: Path) -> None:
    """New words are refused in time, the running turn still ends with its text, and freed space heals it."""
    with small_disk(tmp_path / "disk", "4m") as disk:
        home = disk / "home"
        async with Record.open(home, patience_seconds=3) as record:
            await new_session(record)
            await say(record, "before")
            async with record.turn(SESSION) as turn:
                async with turn.reply(id="reply") as reply:
                    await reply.write("said before the disk was full")
                ballast = fill_disk(disk)
                acknowledged = await append_until_refused(record)
            (state,) = [info.state for info in await record.turns.list(SESSION)]
            assert state is TurnState.COMPLETED
            assert record.trouble
            ballast.unlink()
            await retry_append(record, "after")
            found = await ids_of(record)
            assert [id for id in found if not id.startswith("fill")] == ["before", "reply", "after"]
            assert set(acknowledged) <= set(found)
            assert not record.trouble
            await assert_clean(record)
        assert (home / "reserve").stat().st_blocks * 512 >= RESERVE_BYTES


async def append_until_refused(record: Record) -> list[str]:
    """Append until the disk is full; return what was acknowledged."""
    acknowledged: list[str] = []
    for number in range(10_000):
        try:
            await record.append(SESSION, Message.user("y" * 2000, id=f"fill-{number}"))
        except (RecordUnavailable, OutcomeUnknown):
            return acknowledged
        acknowledged.append(f"fill-{number}")
    raise AssertionError("the disk never was full")


@pytest.mark.loss("B22")
@pytest.mark.parametrize("size", ["2m", "5m"])
async def test_a_disk_that_runs_full_loses_nothing(tmp_path: Path, size: str) -> None:
    """Written until full, also mid-reply, killed there and opened again: everything acknowledged is intact."""
    with small_disk(tmp_path / "disk", size) as disk:
        home = disk / "home"
        (disk / "room").write_bytes(bytes(400_000))
        with Worker(home, patience_seconds=3) as worker:
            worker.ask("create", session=SESSION)
            refusal = ""
            acknowledged: list[str] = []
            for number in range(10_000):
                worker.send("append", session=SESSION, id=f"m{number}", text="z", times=3000)
                try:
                    worker.receive()
                except WorkerError as error:
                    refusal = error.name
                    break
                acknowledged.append(f"m{number}")
            assert refusal in {"RecordUnavailable", "OutcomeUnknown"}
            worker.kill()
        (disk / "room").unlink()
        async with Record.open(home) as record:
            found = await ids_of(record)
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) <= len(acknowledged) + 1
            await say(record, "after")
            await assert_clean(record)


@pytest.mark.loss("B19", "B22")
async def test_a_home_cannot_be_made_on_a_full_disk_and_can_be_later(tmp_path: Path) -> None:
    """No room for the first file: a typed error; with room, the half-made home opens."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        ballast = fill_disk(disk)
        with pytest.raises(RecordUnavailable):
            async with Record.open(disk / "home", patience_seconds=0.3):
                pass
        ballast.unlink()
        async with Record.open(disk / "home") as record:
            await new_session(record)
            await say(record, "a")
            await assert_clean(record)


@pytest.mark.loss("B19", "B24")
@pytest.mark.parametrize("size", ["5600k", "6000k"])
async def test_a_commit_in_doubt_on_a_full_disk_is_no_progress(tmp_path: Path, size: str) -> None:
    """Recovering the same lines again and again, in vain, does not prolong the patience of whoever waits."""
    with small_disk(tmp_path / "disk", size) as disk:
        home = disk / "home"
        async with Record.open(home) as record:
            await new_session(record)
        async with Record.open(home, patience_seconds=2) as record, asyncio.timeout(120):
            with pytest.raises((RecordUnavailable, OutcomeUnknown)) as refused:
                await talk_endlessly(record)
            assert refused.value.cause == Cause.DISK_FULL


async def talk_endlessly(record: Record) -> None:
    """Say long things, and let the agent say some."""
    while True:
        async with record.turn(SESSION) as turn, turn.reply() as reply:
            for _ in range(5):
                await reply.write("x" * 3_000)
        await record.append(SESSION, Message.user("y" * 20_000))


@pytest.mark.loss("B22", "B24")
async def test_a_full_disk_is_left_alone(tmp_path: Path) -> None:
    """The writer does not try again and again, the index is not made anew, and both go on when there is room."""
    steps: list[str] = []
    with small_disk(tmp_path / "disk", "6m") as disk:
        home = disk / "home"
        async with Record.open(home, patience_seconds=2, wiring=Wiring(reach=steps.append)) as record:
            await new_session(record)
            await say(record, "before")
            index = search_index(record.store)
            while index.step().more:
                pass
            made = (home / "search.db").stat().st_ino
            ballast = fill_disk(disk)
            acknowledged = await append_until_refused(record)
            steps.clear()
            with pytest.raises(RecordUnavailable):
                await say(record, "refused")
            assert steps.count("locked") < 10
            for _ in range(20):
                index.tick()
            assert (home / "search.db").stat().st_ino == made
            ballast.unlink()
            await retry_append(record, "after")
            assert set(acknowledged) <= set(await ids_of(record))
            await assert_clean(record)


@pytest.mark.alone
@pytest.mark.skipif(not os.environ.get("HANSARD_PROVE"), reason="takes ten seconds: a part of `make prove`")
async def test_a_process_on_a_full_disk_is_nearly_idle(tmp_path: Path) -> None:
    """Ten seconds on a full disk, with words that wait: less than 5 % of a core, and no index made anew."""
    with small_disk(tmp_path / "disk", "6m") as disk:
        home = disk / "home"
        with Worker(home, patience_seconds=20) as worker:
            worker.ask("create", session=SESSION)
            worker.ask("burst", session=SESSION, prefix="b", count=200, times=500)
            fill_disk(disk)
            worker.send("burst", session=SESSION, prefix="c", count=50, times=20_000)
            await asyncio.sleep(2)
            before = cpu_seconds(worker.pid)
            await asyncio.sleep(10)
            spent = cpu_seconds(worker.pid) - before
            worker.kill()
            assert worker.stderr().count("made anew") == 0
            assert spent < 0.5, f"{spent:.2f} s of 10"


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("kind", ["a folder", "a link"])
def test_a_reserve_is_made_in_place_of_what_is_none(tmp_path: Path, kind: str) -> None:
    """A folder is moved away and a link is removed; what a link led to is left alone."""
    path, elsewhere = tmp_path / "reserve", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    if kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to(elsewhere)
    Reserve(tmp_path)
    assert not path.is_symlink()
    assert path.stat().st_blocks * 512 >= RESERVE_BYTES
    assert elsewhere.read_bytes() == b"theirs"


def test_a_reserve_that_cannot_be_given_back_is_no_error(tmp_path: Path) -> None:
    """A folder that was put in its place while it is in use: nothing is given back, and the writer goes on."""
    reserve = Reserve(tmp_path)
    (tmp_path / "reserve").unlink()
    (tmp_path / "reserve").mkdir()
    reserve.spend()
    assert reserve.spent
