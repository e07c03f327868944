"""Rule 6: in a group commit each item stands or falls alone; another process's migration is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard import (
    HansardError,
    IdConflict,
    Intake,
    Message,
    NotFound,
    Record,
    RecordTooNew,
    SessionEnded,
    WrongState,
)
from hansard.journal.store import Wiring
from hansard.record.schema import SCHEMA
from tests.record.helpers_facts import SESSION, assert_clean, assert_contiguous, ids_of, new_session, raw_rows, say


@pytest.mark.loss("B3", "I2")
async def test_one_bad_item_never_aborts_its_neighbours(home: Path) -> None:
    """One commit holds good calls and one of each kind of bad one: the good are written, the bad are told why."""
    async with Record.open(home) as record:
        await new_session(record)
        await new_session(record, "ended")
        await record.end_session("ended", "over")
        await say(record, "taken")
        calls = [
            record.append(SESSION, Message.user("good", id="good-1")),
            record.append(SESSION, Message.user("another body", id="taken")),
            record.append(SESSION, Message.user("good", id="good-2")),
            record.append("absent", Message.user("nowhere")),
            record.append("ended", Message.user("too late")),
            record.deliveries.move(SESSION, "no-delivery", "sent"),
            record.accept([(SESSION, Message.user("half", id="half")), ("absent", Message.user("x"))]),
            record.routes.move("room", SESSION, expect=7),
            record.append(SESSION, Message.user("good", id="good-3")),
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        errors = [type(each) if isinstance(each, HansardError) else None for each in outcomes]
        assert errors == [None, IdConflict, None, NotFound, SessionEnded, NotFound, NotFound, WrongState, None]
        assert await ids_of(record) == ["taken", "good-1", "good-2", "good-3"]
        await assert_contiguous(record)
        await assert_clean(record)


@pytest.mark.loss("B3", "I2")
async def test_a_bad_item_at_every_place_of_a_batch(home: Path) -> None:
    """Wherever the bad item stands among ten, exactly the other nine are written, in order; nothing stays locked."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "taken")
        expected = ["taken"]
        for bad in range(10):
            wanted = ["taken" if place == bad else f"{bad}-{place}" for place in range(10)]
            calls = [record.append(SESSION, Message.user("body", id=id)) for id in wanted]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(each, IdConflict) for each in outcomes] == [place == bad for place in range(10)]
            expected += [id for id in wanted if id != "taken"]
            raw_rows(home, "BEGIN IMMEDIATE; ROLLBACK")
        assert await ids_of(record) == expected
        await assert_clean(record)


@pytest.mark.loss("I1", "I2", "I13")
async def test_the_same_id_twice_in_one_batch_is_one_entry(home: Path) -> None:
    """A hundred repeats of one call, together and later: one entry, one seq for everybody."""
    async with Record.open(home) as record:
        await new_session(record)
        calls = [record.append(SESSION, Message.user("body", id="once")) for _ in range(100)]
        seqs = {entry.seq for entry in await asyncio.gather(*calls)}
        seqs.add((await record.append(SESSION, Message.user("body", id="once"))).seq)
        assert len(seqs) == 1
        assert await ids_of(record) == ["once"]


async def test_a_unit_is_whole_or_absent(home: Path) -> None:
    """`accept` with one bad entry leaves nothing of it: no entry, no intake, so that it can be handed in again."""
    intake = Intake(channel="matrix", account="a", event_id="$1")
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "taken")
        half = [(SESSION, Message.user("new", id="new")), (SESSION, Message.user("other", id="taken"))]
        with pytest.raises(IdConflict):
            await record.accept(half, intake)
        assert await ids_of(record) == ["taken"]
        accepted = await record.accept(half[:1], intake)
        assert not accepted.duplicate
        assert await ids_of(record) == ["taken", "new"]
        await assert_clean(record)


async def test_items_that_gathered_are_one_commit(home: Path) -> None:
    """What was queued together costs one commit, not one each."""
    async with Record.open(home, wiring=Wiring(threads=False)) as record:

        async def drive() -> None:
            while True:
                record.store.writer.step()
                await asyncio.sleep(0)

        driver = asyncio.create_task(drive())
        await new_session(record)
        ((before,),) = raw_rows(home, "SELECT commits FROM record")
        await asyncio.gather(*(record.append(SESSION, Message.user("x", id=f"m{n}")) for n in range(50)))
        ((after,),) = raw_rows(home, "SELECT commits FROM record")
        assert after - before == 1
        driver.cancel()


async def test_a_migration_by_another_process_is_noticed(home: Path) -> None:
    """Another process raises the schema version: writes stop with a clear error, and the database stays untouched."""
    async with Record.open(home, patience_seconds=5) as record:
        await new_session(record)
        await say(record, "before")
        raw_rows(home, "PRAGMA user_version = 99")
        before = raw_rows(home, "SELECT count(*), max(key) FROM entry"), raw_rows(home, "SELECT commits FROM record")
        with pytest.raises(RecordTooNew, match="99"):
            await say(record, "after")
        with pytest.raises(RecordTooNew):
            await record.create_session(source="test")
        after = raw_rows(home, "SELECT count(*), max(key) FROM entry"), raw_rows(home, "SELECT commits FROM record")
        assert before == after
        assert await ids_of(record) == ["before"]
        raw_rows(home, f"PRAGMA user_version = {SCHEMA.version}")
        await say(record, "after")
        assert await ids_of(record) == ["before", "after"]
        await assert_clean(record)
