"""Contracts of talking: stop, steer and queue across processes, undo, what a session's model is told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, ToolCall, ToolOutcome
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.errors import LeaseHeld, NotFound
from hansard.record.messages.entries import Entry
from hansard.record.sessions import SessionFrozen
from hansard.testing.conformance_kit import (
    FOLLOW_SECONDS_MAX,
    all_entries,
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


async def kinds(record: Record, session_id: str) -> list[str]:
    return [entry.kind for entry in await all_entries(record, session_id)]


async def say(record: Record, session_id: str, text: str, busy: Busy) -> str:
    """Say something and ask for a turn; return the message's id."""
    accepted = await record.accept([(session_id, Message.user(text, id=fresh("said")))], queue_turn=True, busy=busy)
    return accepted.entries[0].id


@record_contract("talk")
async def a_message_may_interrupt_queue_or_steer(record: Record) -> None:
    """What a message means for the running turn is recorded with it, once for a turn that is to stop."""
    for busy, expected in ((Busy.INTERRUPT, "turn.stopping"), (Busy.STEER, "turn.steered"), (Busy.QUEUE, "")):
        session_id = await new_session(record)
        async with record.turn(session_id):
            await say(record, session_id, "first", busy)
            await say(record, session_id, "second", busy)
        found = await kinds(record, session_id)
        times = {"turn.stopping": 1, "turn.steered": 2}.get(expected, 0)
        if expected:
            require_equal(found.count(expected), times, f"entries {expected}")
        require_equal(found.count("turn.queued"), 1, "turns that wait")
        require_equal(await texts(record, session_id), ["first", "second"], "what was said")


@session_contract("talk")
async def a_message_to_an_idle_session_stops_nothing(record: Record, session_id: str) -> None:
    """Without a running turn there is nothing to stop or to steer."""
    for busy in Busy:
        await say(record, session_id, "hello", busy)
    found = await kinds(record, session_id)
    require_equal([kind for kind in found if kind in {"turn.stopping", "turn.steered"}], [], "stops and steers")


@session_contract("talk")
async def stopping_reaches_the_holder_and_ends_what_waits(record: Record, session_id: str) -> None:
    """A request to stop names the running turn and comes to its follower; a queued turn ends as interrupted."""
    await record.turns.queue(session_id)
    async with record.turn(session_id) as turn:
        await say(record, session_id, "waits", Busy.QUEUE)
        stopped = await record.turns.stop(session_id, "enough", queued=True)
        require_equal(
            sorted(each.state for each in stopped), [TurnState.INTERRUPTED, TurnState.RUNNING], "what was stopped"
        )
        async with (
            asyncio.timeout(FOLLOW_SECONDS_MAX),
            aclosing(record.follow(session_id, turn.fence, chunks=False)) as items,
        ):
            async for item in items:
                if isinstance(item, Entry) and item.kind == "turn.stopping":
                    require_equal(getattr(item.body, "turn_id", ""), turn.id, "the turn that is to stop")
                    break
    require_equal(await record.turns.stop(session_id, "again", queued=True), [], "what there is to stop")
    with require_error(NotFound, "claiming a turn when none waits"):
        async with record.turn(session_id, waiting=""):
            pass


@session_contract("talk")
async def ending_a_session_ends_what_waits_there(record: Record, session_id: str) -> None:
    """A turn that waits in a session that ends is ended too; one that runs finishes where it is."""
    async with record.turn(session_id) as turn:
        waiting = await record.turns.queue(session_id)
        await record.end_session(session_id, "new")
        async with turn.reply() as reply:
            await reply.write("finished here")
    states = {each.id: each.state for each in await record.turns.list(session_id)}
    require_equal(states, {turn.id: TurnState.COMPLETED, waiting.id: TurnState.INTERRUPTED}, "the states")
    require_equal(await texts(record, session_id), ["finished here"], "what was said")


@session_contract("talk")
async def undo_leaves_the_record_whole(record: Record, session_id: str) -> None:
    """Undone messages leave transcript and conversation; their entries stay. A running turn forbids it."""
    kept = await record.append(session_id, Message.user("kept"))
    gone = await record.append(session_id, Message.user("gone"))
    before = await all_entries(record, session_id)
    async with record.turn(session_id):
        with require_error(LeaseHeld, "undoing under a running turn"):
            await record.messages.undo(session_id, [gone.id])
    with require_error(NotFound, "undoing what is not there"):
        await record.messages.undo(session_id, [fresh("none")])
    await record.messages.undo(session_id, [gone.id])
    require_equal([message.id for message in await record.load_transcript(session_id)], [kept.id], "the transcript")
    conversation = await record.conversation(session_id)
    require_equal([placed.message.id for placed in conversation.placed], [kept.id], "the conversation")
    require_equal((await all_entries(record, session_id))[: len(before)], before, "the entries before")
    child = await record.fork(session_id)
    require_equal([message.id for message in await record.load_transcript(child.id)], [kept.id], "the fork's")


@session_contract("talk")
async def an_undo_is_undone(record: Record, session_id: str) -> None:
    """Restored messages are at their old places in transcript and conversation, by an entry more; also in a fork."""
    said = [(await record.append(session_id, Message.user(text))).id for text in ("one", "two", "three")]
    await record.messages.undo(session_id, said[:2])
    child = await record.fork(session_id)
    before = await all_entries(record, session_id)
    async with record.turn(session_id):
        with require_error(LeaseHeld, "restoring under a running turn"):
            await record.messages.restore(session_id, said[:1])
    with require_error(NotFound, "restoring what is not there"):
        await record.messages.restore(session_id, [fresh("none")])
    await record.messages.restore(session_id, said[:1])
    expected = [said[0], said[2]]
    require_equal([each.id for each in await record.load_transcript(session_id)], expected, "the transcript")
    conversation = await record.conversation(session_id)
    shown = [placed.message.id for placed in conversation.placed + conversation.waiting]
    require_equal(shown, expected, "the conversation")
    require_equal(list(conversation.undone), said[1:2], "what is still away")
    require_equal((await all_entries(record, session_id))[: len(before)], before, "the entries before")
    await record.messages.restore(child.id, said[:2])
    require_equal([each.id for each in await record.load_transcript(child.id)], said, "the fork's transcript")
    require_equal([each.id for each in await record.load_transcript(session_id)], expected, "the parent's")
    require((await record.verify()).ok, "the record is whole")


@session_contract("talk")
async def what_a_model_is_told_is_fixed_once(record: Record, session_id: str) -> None:
    """The first frozen prompt stays, for the session and for what is forked from it; settings change."""
    first = await record.sessions.freeze(session_id, SessionFrozen(system="first"))
    second = await record.sessions.freeze(session_id, SessionFrozen(system="second"))
    require_equal((first.system, second.system), ("first", "first"), "the prompt")
    child = await record.fork(session_id)
    require_equal(
        (await record.sessions.freeze(child.id, SessionFrozen(system="third"))).system, "first", "the fork's prompt"
    )
    await record.sessions.set_setting(session_id, "busy", "queue")
    await record.sessions.set_setting(session_id, "busy", "steer")
    require_equal((await record.conversation(session_id)).settings, {"busy": "steer"}, "the settings")


@session_contract("talk")
async def a_turn_ends_with_what_it_left_open(record: Record, session_id: str) -> None:
    """Results for unfinished calls, notices and what was used are recorded with the turn's end; a result stays."""
    async with record.turn(session_id) as turn:
        async with turn.reply() as reply:
            reply.add(ToolCall(id="a", name="tool"))
            reply.add(ToolCall(id="b", name="tool"))
        done = await turn.append(Message.tool("a", "done"))
        turn.add_usage("some:model", Usage(input_tokens=3, output_tokens=4))
        late = Message.tool("b", "outcome unknown", outcome=ToolOutcome.UNKNOWN)
        stray = Message.tool("c", "of no call")
        turn.settle_calls(reply.id, [Message.tool("a", "never", id=done.id), late, stray])
        turn.tell("that was all")
    require_equal(await texts(record, session_id), ["", "done", "outcome unknown", "that was all"], "the messages")
    found = await kinds(record, session_id)
    require_equal(found[-4:], ["turn.used", "message.added", "message.added", "turn.ended"], "how the turn ends")
    usage = (await record.conversation(session_id)).usage
    require_equal(usage, {"some:model": Usage(input_tokens=3, output_tokens=4)}, "what was used")


@session_contract("talk")
async def calls_that_were_never_recorded_have_no_results(record: Record, session_id: str) -> None:
    """A message that was cut before its seal has no calls, so that its turn's end records no results for them."""
    with suppress(asyncio.CancelledError):
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("let me look")
            reply.add(ToolCall(id="a", name="tool"))
            turn.settle_calls(reply.id, [Message.tool("a", "not started", outcome=ToolOutcome.NOT_STARTED)])
            raise asyncio.CancelledError
    require_equal(await texts(record, session_id), ["let me look"], "the messages")


@session_contract("talk")
async def entries_can_be_followed_without_chunks(record: Record, session_id: str) -> None:
    """Who follows entries only is given every entry and no chunk."""
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("words")
    expected = await all_entries(record, session_id)
    given = []
    async with (
        asyncio.timeout(FOLLOW_SECONDS_MAX),
        aclosing(record.follow(session_id, chunks=False)) as items,
    ):
        async for item in items:
            given.append(item)
            if len(given) == len(expected):
                break
    require(all(isinstance(item, Entry) for item in given), "no chunk is given")
    require_equal([item.id for item in given if isinstance(item, Entry)], [each.id for each in expected], "the ids")


@record_contract("talk")
async def an_owner_resolves_only_their_own(record: Record) -> None:
    """Resolving for an owner finds their sessions by id, beginning and title, and nobody else's (L11)."""
    title = fresh("trip")
    mine = await record.create_session(source="test", owner="person:a", title=title)
    theirs = await record.create_session(source="test", owner="person:b", title=title)
    require_equal((await record.resolve(title, owner="person:a")).id, mine.id, "by title")
    require_equal((await record.resolve(mine.id, owner="person:a")).id, mine.id, "by id")
    with require_error(NotFound, "another owner's id"):
        await record.resolve(theirs.id, owner="person:a")
