"""Rule 12: reads never linger, so the WAL can always start over."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import apsw
import pytest

from hansard import Message, Record
from tests.record.helpers_facts import SESSION, assert_clean, new_session
from tests.record.helpers_process import Worker

MESSAGES = 120
MESSAGE_BYTES = 256 * 1024
TOTAL_BYTES = MESSAGES * MESSAGE_BYTES


def naive_wal_bytes(folder: Path, *, half_read: bool) -> int:
    """Commit as much to a raw database, with checkpoints, and with or without a cursor that was left half read."""
    path = folder / f"naive-{half_read}.db"
    writer = apsw.Connection(str(path))
    writer.pragma("journal_mode", "WAL")
    writer.pragma("synchronous", "OFF")
    writer.pragma("wal_autocheckpoint", 1000)
    writer.execute("CREATE TABLE entry (body BLOB)")
    writer.execute("INSERT INTO entry VALUES ('a'), ('b')")
    reader = apsw.Connection(str(path))
    cursor = reader.execute("SELECT body FROM entry")
    next(cursor)
    if not half_read:
        list(cursor)
    for _ in range(MESSAGES):
        writer.execute("INSERT INTO entry VALUES (zeroblob(?))", (MESSAGE_BYTES,))
    return Path(f"{path}-wal").stat().st_size


@pytest.mark.loss("B12")
def test_control_a_half_read_cursor_grows_the_wal(tmp_path: Path) -> None:
    """Without the rule: one cursor that nobody reads to its end keeps everything that is committed after it."""
    assert naive_wal_bytes(tmp_path, half_read=True) > TOTAL_BYTES
    assert naive_wal_bytes(tmp_path, half_read=False) < TOTAL_BYTES / 2


@pytest.mark.loss("B12", "B24")
async def test_the_wal_stays_bounded_while_everybody_reads(home: Path) -> None:
    """Followers that stopped half way, and transcripts being loaded, hold nothing: the WAL starts over and over."""
    async with Record.open(home) as record:
        await new_session(record)
        for number in range(3):
            await record.append(SESSION, Message.user("x" * 1000, id=f"first-{number}"))
        async with aclosing(record.follow(SESSION)) as slow:
            await anext(slow)
            await anext(slow)
            loads = asyncio.create_task(load_again_and_again(record))
            await append_until_restarted(record, home)
            loads.cancel()
            assert (await anext(slow)).text == "x" * 1000
        await asyncio.gather(loads, return_exceptions=True)
        assert loads.cancelled()
        await assert_clean(record)


async def append_until_restarted(record: Record, home: Path) -> None:
    """Append until the WAL was started over twice. Each time its header gets another salt."""
    salts: set[bytes] = set()
    async with asyncio.timeout(120):
        while len(salts) < 3:
            await record.append(SESSION, Message.user("y" * MESSAGE_BYTES))
            salts.add((home / "state.db-wal").read_bytes()[16:24])
            salts.discard(b"")
            await asyncio.sleep(0.01)


async def load_again_and_again(record: Record) -> None:
    """Always have a read in flight."""
    while True:
        await record.sessions.read_entries(SESSION, limit=3)
        await record.sessions.read(SESSION)
        await asyncio.sleep(0)


@pytest.mark.loss("B24")
async def test_idle_connections_of_other_processes_hold_nothing(home: Path) -> None:
    """Another process has read and followed, and now sits there: the WAL still starts over."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as idle:
            assert idle.ask("texts", session=SESSION) == []
            assert idle.ask("verify") == []
            idle.send("follow", session=SESSION, until="never")
            await append_until_restarted(record, home)
            idle.kill()


async def test_a_reader_never_blocks_the_writer(home: Path) -> None:
    """A read transaction of a stranger stays open: appends go on, and reads see what is new."""
    async with Record.open(home) as record:
        await new_session(record)
        stranger = apsw.Connection(str(home / "state.db"))
        stranger.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        stranger.execute("BEGIN")
        assert stranger.execute("SELECT count(*) FROM entry").get >= 1
        for number in range(50):
            await record.append(SESSION, Message.user("x", id=f"m{number}"))
        assert len(await record.load_transcript(SESSION)) == 50
        stranger.close()
        await assert_clean(record)


async def test_two_verifications_at_once(home: Path) -> None:
    """Each reads in snapshots of its own."""
    async with Record.open(home) as record:
        await new_session(record)
        for number in range(50):
            await record.append(SESSION, Message.user("text", id=f"m{number}"))
        reports = await asyncio.gather(*(record.verify() for _ in range(4)))
        assert [report.ok for report in reports] == [True] * 4
