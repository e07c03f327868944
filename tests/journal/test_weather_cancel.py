"""Bad weather: callers that are cancelled. Each call has a definite outcome, and nothing is written after it."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from pathlib import Path

import pytest

from hansard import Chunk, Message, Record, Status, TurnState
from hansard.journal.locks import FairLock
from tests.record.helpers_facts import SESSION, assert_clean, assert_contiguous, ids_of, log_lines, new_session, say


@pytest.mark.loss("I2", "A1")
async def test_cancelled_appends_are_written_or_not_and_once_on_retry(home: Path, seed: int) -> None:
    """Cancelled at random moments under load: what is there at that moment is final; the retried id is there once."""
    chance = random.Random(seed)
    async with Record.open(home) as record:
        await new_session(record)
        ids = [f"m{number}" for number in range(300)]
        settled: dict[str, bool] = {}

        async def cancel_at_some_moment(id: str) -> None:
            call = asyncio.create_task(record.append(SESSION, Message.user(f"text of {id}", id=id)))
            await asyncio.sleep(chance.choice([0, 0, 0.0002, 0.001, 0.003]))
            call.cancel()
            await asyncio.wait({call})
            settled[id] = id in await ids_of(record)
            if not call.cancelled():
                assert settled[id]

        for start in range(0, len(ids), 20):
            await asyncio.gather(*(cancel_at_some_moment(id) for id in ids[start : start + 20]))
        await asyncio.sleep(0.1)
        assert set(await ids_of(record)) == {id for id, there in settled.items() if there}
        for id in ids:
            await say(record, id)
        found = await ids_of(record)
        assert sorted(found) == sorted(ids)
        await assert_contiguous(record)
        await assert_clean(record)


@pytest.mark.loss("I9")
async def test_cancelled_before_the_writer_took_it_is_not_written(home: Path) -> None:
    """It waits behind a lock, is cancelled, the lock is released: it never appears, and the call ended at once."""
    async with Record.open(home) as record:
        await new_session(record)
        lock = FairLock(home / "locks")
        lock.acquire()
        call = asyncio.create_task(say(record, "cancelled"))
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.wait({call}, timeout=120)
        assert call.cancelled()
        lock.release()
        lock.close()
        await say(record, "next")
        assert await ids_of(record) == ["next"]


async def watch_the_end(record: Record) -> list[str]:
    """Follow up to the turn's end; return the kinds as they came, with a mark between what came apart."""
    kinds: list[str] = []
    async with aclosing(record.follow(SESSION)) as following:
        async for item in following:
            kinds.append("chunk" if isinstance(item, Chunk) else item.kind)
            if kinds[-1] == "turn.ended":
                return kinds
    return kinds


class ModelError(Exception):
    """What a provider may raise."""


@pytest.mark.loss("A5", "A6", "A7", "A13", "A14")
@pytest.mark.parametrize("way", ["error", "cancel", "cancel twice", "cancel in the reply's own end"])
async def test_leaving_a_turn_seals_and_ends_in_one_commit(home: Path, way: str) -> None:
    """By exception or cancellation, also cancelled again under the shield: text kept, both entries in one unit."""
    async with Record.open(home) as record:
        await new_session(record)
        watcher = asyncio.create_task(watch_the_end(record))
        speaking, finish = asyncio.Event(), asyncio.Event()

        async def speak() -> None:
            async with record.turn(SESSION) as turn, turn.reply(id="reply") as reply:
                await reply.write("shown ")
                await reply.write("to people")
                speaking.set()
                if way == "error":
                    raise ModelError("the provider hung up")
                await finish.wait()

        lock = FairLock(home / "locks")
        task = asyncio.create_task(speak())
        await speaking.wait()
        if way != "error":
            lock.acquire()  # so that the end has to wait, and can be cancelled again
            if way == "cancel in the reply's own end":
                finish.set()
                await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.sleep(0.05)
            if way == "cancel twice":
                task.cancel()
                await asyncio.sleep(0.05)
                task.cancel()
            assert not task.done()
            lock.release()
        await asyncio.wait({task})
        lock.close()
        if way == "error":
            assert isinstance(task.exception(), ModelError)
        else:
            assert task.cancelled()
        (message,) = await record.load_transcript(SESSION)
        assert (message.text, message.status) == ("shown to people", Status.INTERRUPTED)
        (turn,) = await record.turns.list(SESSION)
        assert turn.state is (TurnState.FAILED if way == "error" else TurnState.INTERRUPTED)
        seal, end = log_lines(home)[-2:]
        assert (seal["kind"], end["kind"]) == ("message.sealed", "turn.ended")
        assert (await watcher)[-2:] == ["message.sealed", "turn.ended"]
        await assert_clean(record)


async def speak_and_fail(record: Record, id: str) -> None:
    """Say half of something."""
    async with record.turn(SESSION) as turn, turn.reply(id=id) as reply:
        await reply.write("half")
        raise ModelError


@pytest.mark.loss("A13")
async def test_no_observer_sees_the_seal_without_the_end(home: Path) -> None:
    """Snapshots taken all the time: whenever the message is interrupted, the turn has ended."""
    async with Record.open(home) as record:
        await new_session(record)
        seen = set()
        done = asyncio.Event()

        async def observe() -> None:
            while not done.is_set():
                entries = await record.sessions.read_entries(SESSION)
                kinds = [entry.kind for entry in entries]
                seen.add((kinds.count("message.sealed"), kinds.count("turn.ended")))

        observer = asyncio.create_task(observe())
        for number in range(30):
            with pytest.raises(ModelError):
                await speak_and_fail(record, f"reply-{number}")
        done.set()
        await observer
        assert all(seals == ends for seals, ends in seen)
        await assert_clean(record)


@pytest.mark.loss("A5")
async def test_a_cancelled_follower_or_reader_disturbs_nobody(home: Path) -> None:
    """Readers and followers are cancelled all the time while a writer writes: the others get everything."""
    async with Record.open(home) as record:
        await new_session(record)

        async def give_up() -> None:
            async with aclosing(record.follow(SESSION)) as following:
                async for _ in following:
                    pass

        for number in range(50):
            tasks = [asyncio.create_task(give_up()), asyncio.create_task(ids_of(record))]
            await say(record, f"m{number}")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        assert await ids_of(record) == [f"m{number}" for number in range(50)]
        await assert_clean(record)


@pytest.mark.loss("A1", "A5")
async def test_cancelled_openings_leave_a_usable_home(home: Path, seed: int) -> None:
    """Opening is cancelled at random moments: no lock, no owner and no thread stays behind that stops the next one."""
    chance = random.Random(seed)

    async def open_and_say(id: str) -> None:
        async with Record.open(home, patience_seconds=10) as record:
            await new_session(record)
            await say(record, id)

    for number in range(25):
        task = asyncio.create_task(open_and_say(f"m{number}"))
        await asyncio.sleep(chance.random() * 0.03)
        task.cancel()
        await asyncio.wait({task})
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "last")
        await assert_contiguous(record)
        await assert_clean(record)
