"""Contracts of concurrency and crashes: many tasks, many processes, and processes that die (L3, L4, L6)."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from asyncio import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

from hansard.domain.arrivals import Cursor, Intake
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.messages import Message, Status
from hansard.domain.sessions import TurnState
from hansard.errors import LeaseHeld
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk
from hansard.testing import conformance_kit as kit

TASKS = 16
MESSAGES_A_TASK = 20
PROCESSES = 3


@kit.session_contract("concurrency")
async def many_tasks_share_a_session(record: Record, session_id: str) -> None:
    """Everything that many tasks append to one session is there once; each task's messages are in its order."""
    await asyncio.gather(*(append_many(record, session_id, f"t{task}") for task in range(TASKS)))
    await require_whole(record, session_id, [f"t{task}" for task in range(TASKS)])


async def append_many(record: Record, session_id: str, name: str) -> None:
    """Append messages one after the other; runs here and in other processes."""
    for number in range(MESSAGES_A_TASK):
        await record.append(session_id, Message.user(f"{name} {number}", id=f"{name}-{number}"))


async def require_whole(record: Record, session_id: str, names: list[str]) -> None:
    """Break the contract unless every writer's messages are there, once, in its order, and seqs are contiguous."""
    found = await kit.texts(record, session_id)
    for name in names:
        own = [text for text in found if text.startswith(f"{name} ")]
        kit.require_equal(own, [f"{name} {number}" for number in range(MESSAGES_A_TASK)], f"what {name} appended")
    kit.require_equal(len(found), len(names) * MESSAGES_A_TASK, "the number of messages")
    seqs = [entry.seq for entry in await kit.all_entries(record, session_id)]
    kit.require_equal(seqs, list(range(1, len(seqs) + 1)), "the seqs")


@kit.record_contract("concurrency")
async def many_tasks_use_many_sessions(record: Record) -> None:
    """Tasks that each write to a session of their own, streaming included, never meet."""

    async def converse(session_id: str) -> None:
        for number in range(4):
            await record.append(session_id, Message.user(f"{session_id} {number}"))
            async with record.turn(session_id) as turn, turn.reply() as reply:
                for _ in range(5):
                    await reply.write(f"{session_id} ")

    sessions = [await kit.new_session(record) for _ in range(TASKS)]
    await asyncio.gather(*map(converse, sessions))
    for session_id in sessions:
        found = await kit.texts(record, session_id)
        kit.require_equal(found[::2], [f"{session_id} {number}" for number in range(4)], "the questions")
        kit.require_equal(found[1::2], [f"{session_id} " * 5] * 4, "the answers")


@kit.record_contract("concurrency")
async def concurrent_creation_makes_one_session(record: Record) -> None:
    """Many tasks that create the same id at once get the same session, and none of them an error."""
    session_id = kit.fresh("created")
    made = await asyncio.gather(*(record.create_session(id=session_id, source="x") for _ in range(TASKS)))
    kit.require_equal({session.id for session in made}, {session_id}, "the ids")
    kit.require_equal(await kit.kinds(record, session_id), ["session.created"], "the entries")


@kit.session_contract("concurrency")
async def concurrent_repeats_are_one_entry(record: Record, session_id: str) -> None:
    """Many tasks that append the same id at once, or take in the same event, get the same entry."""
    account = kit.fresh("account")
    same = Message.user("hello", id="m1")
    entries = await asyncio.gather(*(record.append(session_id, same) for _ in range(TASKS)))
    kit.require_equal({entry.seq for entry in entries}, {2}, "the seqs")
    intake = Intake(channel="c", account=account, event_id="1")
    messages = [Message.user("event", id=f"e{number}") for number in range(TASKS)]
    accepted = await asyncio.gather(*(record.accept([(session_id, each)], intake) for each in messages))
    kit.require_equal(sorted(each.duplicate for each in accepted), [False] + [True] * (TASKS - 1), "duplicates")
    kit.require_equal(len({each.entries[0].id for each in accepted}), 1, "what the event became")
    kit.require_equal(await kit.texts(record, session_id), ["hello", "event"], "the transcript")


@kit.session_contract("concurrency")
async def a_bad_item_fails_alone(record: Record, session_id: str) -> None:
    """Refused calls among many good ones are refused alone: their neighbours are written (B3)."""
    gone = kit.fresh("gone")
    calls = (record.append(gone if n % 3 == 0 else session_id, Message.user(f"{n}", id=f"m{n}")) for n in range(30))
    results = await asyncio.gather(*calls, return_exceptions=True)
    failed = [number for number, result in enumerate(results) if isinstance(result, BaseException)]
    kit.require_equal(failed, list(range(0, 30, 3)), "the refused ones")
    rest = [str(number) for number in range(30) if number % 3]
    kit.require_equal(await kit.texts(record, session_id), rest, "the rest")


@kit.contract("concurrency", "elsewhere")
async def many_processes_share_a_session(backend: kit.RecordUnderTest) -> None:
    """Processes that append to one session at once, this one too, lose and double nothing."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        names = [f"p{number}" for number in range(PROCESSES)]
        others = [kit.offered(backend.elsewhere)(append_many, session_id, name) for name in names]
        await asyncio.gather(append_many(record, session_id, "here"), *others)
        await require_whole(record, session_id, ["here", *names])


@kit.contract("concurrency", "elsewhere")
async def a_lease_holds_between_processes(backend: kit.RecordUnderTest) -> None:
    """A turn that runs here is LeaseHeld elsewhere, and the holder that is named there is the one here."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        async with record.turn(session_id):
            told = await kit.offered(backend.elsewhere)(try_turn, session_id)
            kit.require_equal(told, [(await record.turns.list(session_id))[-1].owner], "the holder that is named")


async def try_turn(record: Record, session_id: str) -> None:
    """Run in another process: try to begin a turn that somebody else holds."""
    error = await kit.refusal(LeaseHeld, "a turn that another process holds", kit.run_turn(record, session_id))
    tell(error.holder)


@kit.contract("crash", "elsewhere")
async def what_was_acknowledged_survives(backend: kit.RecordUnderTest) -> None:
    """After a process was killed, everything that it was told is written is there once, and repeats are no-ops."""
    session_id = kit.fresh("crash")
    for _ in range(2):
        told = await kit.offered(backend.elsewhere)(append_and_die, session_id)
        async with backend.open_record() as record:
            found = [message.id for message in await record.load_transcript(session_id)]
            kit.require_equal(found[: len(told)], told, "what was acknowledged")
            kit.require_equal(len(set(found)), len(found), "each message once")
            route = await record.routes.read(f"key:{session_id}")
            kit.require(route is not None and route.session_id == session_id, "the route")
            kit.require_equal(await record.intake.cursor("crash", session_id), told[-1], "the cursor")
    async with backend.open_record() as record:
        await record.append(session_id, Message.user("the next healthy append works"))


async def append_and_die(record: Record, session_id: str) -> None:
    """Run in another process: append, tell what was acknowledged, and die with a call on its way."""
    await record.create_session(id=session_id, source="crash")
    if await record.routes.read(f"key:{session_id}") is None:
        await record.routes.move(f"key:{session_id}", session_id)
    for number in range(MESSAGES_A_TASK):
        cursor = Cursor(channel="crash", account=session_id, value=f"m{number}")
        intake = Intake(channel="crash", account=session_id, event_id=f"{number}")
        message = Message.user(f"{number}", id=f"m{number}")
        accepted = await record.accept([(session_id, message)], intake, cursor)
        tell(accepted.entries[0].id)
    die()


@kit.contract("crash", "elsewhere")
async def a_dead_turn_is_lost_and_its_words_are_kept(backend: kit.RecordUnderTest) -> None:
    """After its process was killed, a turn is lost, its message interrupted, and all that was shown is in it (L6)."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        told = await kit.offered(backend.elsewhere)(stream_and_die, session_id)
        await kit.run_turn(record, session_id, "the session is free")
        lost, after = await record.turns.list(session_id)
        kit.require_equal((lost.state, after.state), (TurnState.LOST, TurnState.COMPLETED), "the turns")
        message = (await record.load_transcript(session_id))[0]
        kit.require_equal(message.status, Status.INTERRUPTED, "the status of the message")
        kit.require(message.text.startswith("".join(told)), f"what was shown is recorded: {told}, not {message.text!r}")
        kit.require(told, "something was shown")
        (delivery,) = await record.deliveries.list(session_id=session_id)
        on_its_way = {DeliveryState.SENDING, DeliveryState.UNKNOWN}
        kit.require(delivery.state in on_its_way, "a post on its way is not forgotten")
    async with backend.open_record() as record:
        (delivery,) = await record.deliveries.list(session_id=session_id)
        kit.require_equal(delivery.state, DeliveryState.UNKNOWN, "what a dead process was sending")
        kit.require_equal((await record.turns.list(session_id))[0].state, TurnState.LOST, "the turn")


async def stream_and_die(record: Record, session_id: str) -> None:
    """Run in another process: stream a reply, tell what a follower was shown, and die in the middle."""
    delivery = Delivery(id="d1", session_id=session_id, channel="c", target="t", message_id="r1")
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        await record.deliveries.create(delivery)
        await record.deliveries.move(session_id, "d1", DeliveryState.SENDING)
        await reply.write("first ")
        shown = 0
        async for item in record.follow(session_id):
            if isinstance(item, Chunk):
                tell(item.text)
                shown += 1
                if shown > 5:  # noqa: PLR2004
                    die()
                await reply.write(f"word-{shown} ")


@kit.contract("crash", "elsewhere")
async def a_queued_turn_survives(backend: kit.RecordUnderTest) -> None:
    """A turn that was queued when its process died still waits afterwards, and can be run."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        told = await kit.offered(backend.elsewhere)(queue_and_die, session_id)
        async with record.turn(session_id) as turn:
            kit.require_equal([turn.id], told, "the turn that runs")


async def queue_and_die(record: Record, session_id: str) -> None:
    """Run in another process: queue a turn with a message, and die."""
    accepted = await record.accept([(session_id, Message.user("x"))], None, None, queue_turn=True)
    tell(accepted.turns[0].id)
    die()


ELSEWHERE_SECONDS_MAX = 120.0


def elsewhere(open_record: kit.OpenRecord) -> kit.Elsewhere:
    """Return a runner of coroutine functions `f(record, *arguments)` in a process that opens the record itself.

    It returns the lines that the function told. A process that ends in another way than by returning or by `die`
    breaks the contract.
    """

    async def run(function: Callable[..., Awaitable[None]], *arguments: str) -> list[str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(ELSEWHERE_SECONDS_MAX):
                told, trouble = await process.communicate(pickle.dumps((open_record, function, arguments)))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode not in {0, -signal.SIGKILL}:
            message = f"{function.__name__} in another process ended with {process.returncode}: {trouble.decode()}"
            raise kit.ContractBroken(message)
        return told.decode().splitlines()

    return run


def tell(line: str) -> None:
    """Say something to the process that started this one; it arrives also when this one dies next."""
    sys.stdout.buffer.write(f"{line}\n".encode())
    sys.stdout.buffer.flush()


def die() -> None:
    """Die as a crash does: nothing is flushed, closed or caught."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _main() -> None:
    work: tuple[kit.OpenRecord, Callable[..., Awaitable[None]], tuple[Any, ...]]
    work = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from the process that started this one
    open_record, function, arguments = work
    async with open_record() as record:
        await function(record, *arguments)


if __name__ == "__main__":
    asyncio.run(_main())
