"""Contracts of turns: one holder at a time, stale holders refused, and every turn and message ends (L6)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from hansard.domain.messages import Message, Status
from hansard.domain.sessions import TurnInfo, TurnState
from hansard.errors import IdConflict, LeaseHeld, SessionEnded, StaleLease
from hansard.testing.conformance_kit import (
    RecordUnderTest,
    all_entries,
    contract,
    fresh,
    new_session,
    record_contract,
    require,
    require_equal,
    require_error,
    session_contract,
    texts,
)

if TYPE_CHECKING:
    from hansard.record.api import Record


class Trouble(Exception):
    """Something goes wrong in a turn."""


async def last_turn(record: Record, session_id: str) -> TurnInfo:
    return (await record.turns.list(session_id))[-1]


@session_contract("fencing")
async def a_session_has_one_holder(record: Record, session_id: str) -> None:
    """While a turn runs, another one is LeaseHeld, which names the holder; afterwards the session is free."""
    other = await new_session(record)
    async with record.turn(session_id):
        running = await last_turn(record, session_id)
        require_equal(running.state, TurnState.RUNNING, "the state")
        with require_error(LeaseHeld, "a second turn") as caught:
            async with record.turn(session_id):
                require(condition=False, claim="the second turn never begins")
        require_equal(getattr(caught.error, "holder", ""), running.owner, "the holder that is named")
        require(running.owner, "the holder has a name")
        require(caught.error.retryable, "LeaseHeld says that trying again can help")
        async with record.turn(other):
            await record.append(session_id, Message.user("people may always speak"))
    async with record.turn(session_id):
        pass
    states = [turn.state for turn in await record.turns.list(session_id)]
    require_equal(states, [TurnState.COMPLETED, TurnState.COMPLETED], "the states")


@session_contract("fencing")
async def a_turn_may_wait(record: Record, session_id: str) -> None:
    """With wait_seconds, a turn begins as soon as the one before it ended."""
    order: list[str] = []

    async def wait() -> None:
        async with record.turn(session_id, wait_seconds=120) as turn:
            order.append("second")
            await turn.append(Message.assistant("second"))

    async with record.turn(session_id) as turn:
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.05)
        await turn.append(Message.assistant("first"))
        order.append("first")
    await waiting
    require_equal(order, ["first", "second"], "the order of the turns")
    require_equal(await texts(record, session_id), ["first", "second"], "the transcript")


@session_contract("fencing")
async def a_stale_holder_is_refused(record: Record, session_id: str) -> None:
    """What a turn writes after its end is a StaleLease, which names the new holder; nothing of it is recorded."""
    async with record.turn(session_id) as old:
        await old.append(Message.assistant("kept", id="m1"))
    with require_error(StaleLease, "a write after the end") as caught:
        await old.append(Message.assistant("late", id="m2"))
    require_equal(getattr(caught.error, "holder", None), "", "the holder when nobody holds the session")
    async with record.turn(session_id):
        holder = (await last_turn(record, session_id)).owner
        with require_error(StaleLease, "a write beside the new holder") as caught:
            await old.append(Message.assistant("late", id="m3"))
        require_equal(getattr(caught.error, "holder", ""), holder, "the new holder")
        with require_error(StaleLease, "a reply beside the new holder"):
            async with old.reply() as reply:
                await reply.write("late")
    require_equal(await texts(record, session_id), ["kept"], "the transcript")


@session_contract("fencing")
async def a_stale_stream_is_refused(record: Record, session_id: str) -> None:
    """A reply that goes on after its turn ended is refused, and what it said in time is kept as interrupted."""
    async with record.turn(session_id) as turn:
        reply = turn.reply(id="r1")
        await reply.__aenter__()
        await reply.write("in time")
    with require_error(StaleLease, "a stream after the end"):
        for _ in range(20_000):
            await reply.write("too late")
            await asyncio.sleep(0.005)
    message = (await record.load_transcript(session_id))[0]
    require_equal((message.text, message.status), ("in time", Status.INTERRUPTED), "the message")
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("the session goes on")


@contract("fencing")
async def fences_only_grow(backend: RecordUnderTest) -> None:
    """Each turn of a session has a higher fence than the one before it, also after reopening."""
    session_id = fresh("fences")
    fences = []
    for _ in range(3):
        async with backend.open_record() as record:
            await record.create_session(id=session_id, source="conformance")
            for _ in range(2):
                async with record.turn(session_id) as turn:
                    fences.append(turn.fence)
    require_equal(fences, sorted(set(fences)), "the fences")


@session_contract("fencing")
async def a_turn_ends_as_what_it_was(record: Record, session_id: str) -> None:
    """Left normally it is completed, by an exception failed with its reason, by fail() and interrupt() as they say."""
    async with record.turn(session_id):
        pass
    with suppress(Trouble):
        async with record.turn(session_id):
            raise Trouble("the model broke")
    async with record.turn(session_id) as turn:
        turn.fail("no credit")
    async with record.turn(session_id) as turn:
        turn.interrupt("a new message")
    found = [(turn.state, turn.reason) for turn in await record.turns.list(session_id)]
    require_equal(
        [state for state, _ in found],
        [TurnState.COMPLETED, TurnState.FAILED, TurnState.FAILED, TurnState.INTERRUPTED],
        "the states",
    )
    require("the model broke" in found[1][1], "an exception's text is the reason")
    require_equal([reason for _, reason in found[2:]], ["no credit", "a new message"], "the reasons")


@session_contract("fencing")
async def an_exception_seals_what_was_said(record: Record, session_id: str) -> None:
    """A reply left by an exception keeps its text as interrupted, and the turn's end follows at once."""
    with suppress(Trouble):
        async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
            await reply.write("half a sen")
            raise Trouble
    message = (await record.load_transcript(session_id))[-1]
    require_equal((message.text, message.status), ("half a sen", Status.INTERRUPTED), "the message")
    kinds = [entry.kind for entry in await all_entries(record, session_id)]
    require_equal(kinds[-2:], ["message.sealed", "turn.ended"], "the last two entries")


@session_contract("fencing")
async def a_turn_survives_a_broken_reply(record: Record, session_id: str) -> None:
    """A turn may catch what broke its reply and say something else: the first stays as interrupted, in its place."""
    async with record.turn(session_id) as turn:
        with suppress(Trouble):
            async with turn.reply() as reply:
                await reply.write("first try")
                raise Trouble
        async with turn.reply() as reply:
            await reply.write("second try")
    found = [(message.text, message.status) for message in await record.load_transcript(session_id)]
    require_equal(found, [("first try", Status.INTERRUPTED), ("second try", Status.COMPLETE)], "the transcript")
    require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")


@session_contract("fencing")
async def a_reply_id_is_taken_once(record: Record, session_id: str) -> None:
    """A reply under an id that names other words is IdConflict, and costs neither those words nor the turn."""
    await record.append(session_id, Message.user("question", id="m1"))
    async with record.turn(session_id) as turn:
        async with turn.reply(id="r1") as reply:
            await reply.write("first")
        with suppress(Trouble):
            async with turn.reply(id="r2") as reply:
                await reply.write("broken")
                raise Trouble
        for taken in ("m1", "r1"):
            with require_error(IdConflict, f"other words as {taken}"):
                async with turn.reply(id=taken) as reply:
                    await reply.write("other words")
        async with turn.reply(id="r3") as reply:
            await reply.write("last")
    require_equal(await texts(record, session_id), ["question", "first", "broken", "last"], "the transcript")
    require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")


@record_contract("fencing")
async def a_cancelled_turn_always_ends(record: Record) -> None:
    """Cancelled at whatever moment, claiming and opening included: no turn runs on, no message stays open."""

    async def speak(session_id: str) -> None:
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("words ")
            await asyncio.sleep(60)

    for round_number in range(40):
        session_id = await new_session(record)
        task = asyncio.create_task(speak(session_id))
        await asyncio.sleep(round_number * 0.00015)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        states = {turn.state for turn in await record.turns.list(session_id)}
        require(states <= {TurnState.INTERRUPTED}, f"no turn runs on after cancellation, not {states}")
        statuses = {message.status for message in await record.load_transcript(session_id)}
        require(statuses <= {Status.INTERRUPTED}, f"no message stays open, not {statuses}")
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("next")


@session_contract("fencing")
async def a_turn_takes_its_open_reply_with_it(record: Record, session_id: str) -> None:
    """A reply that nobody left when its turn ended is sealed as interrupted: the session is never stuck."""
    async with record.turn(session_id) as turn:
        reply = turn.reply()
        await reply.__aenter__()
        await reply.write("unfinished")
    message = (await record.load_transcript(session_id))[0]
    require_equal((message.text, message.status), ("unfinished", Status.INTERRUPTED), "the message")
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("next")
    require_equal(await texts(record, session_id), ["unfinished", "next"], "the transcript")


@session_contract("fencing")
async def a_queued_turn_is_one_and_is_claimed(record: Record, session_id: str) -> None:
    """A session has at most one waiting turn; whoever begins a turn there begins that one."""
    queued = await record.turns.queue(session_id)
    require_equal((await record.turns.queue(session_id)).id, queued.id, "a second queued turn")
    require(queued.id in {turn.id for turn in await record.turns.list_queued()}, "it is listed as queued")
    async with record.turn(session_id) as turn:
        require_equal(turn.id, queued.id, "the turn that runs")
        following = await record.turns.queue(session_id)
        require(following.id != queued.id, "a turn can be queued while one runs")
    found = [(turn.id, turn.state) for turn in await record.turns.list(session_id)]
    require_equal(
        sorted(found),
        sorted([(queued.id, TurnState.COMPLETED), (following.id, TurnState.QUEUED)]),
        "the turns",
    )


@session_contract("fencing")
async def an_ended_session_lets_its_turn_end(record: Record, session_id: str) -> None:
    """Ending a session refuses new turns; the one that runs can still end there, with its words."""
    async with record.turn(session_id) as turn:
        async with turn.reply() as reply:
            await reply.write("said before")
        await record.end_session(session_id, "reset")
    require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")
    require_equal(await texts(record, session_id), ["said before"], "the transcript")
    with require_error(SessionEnded, "a new turn"):
        async with record.turn(session_id):
            pass
    with require_error(SessionEnded, "a queued turn"):
        await record.turns.queue(session_id)
