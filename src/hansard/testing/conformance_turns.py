"""Contracts of turns: one holder at a time, stale holders refused, every turn and message ends (L6).

And of talking beside them: stop, steer and queue across processes, undo, what a session's model is told.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, Status, ToolCall, ToolOutcome
from hansard.domain.sessions import TurnInfo, TurnState
from hansard.domain.settings import Busy
from hansard.errors import IdConflict, LeaseHeld, NotFound, SessionEnded, StaleLease
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from hansard.record.sessions import SessionFrozen
from hansard.testing import conformance_kit as kit


class Trouble(Exception):
    """Something goes wrong in a turn."""


async def last_turn(record: Record, session_id: str) -> TurnInfo:
    return (await record.turns.list(session_id))[-1]


@kit.session_contract("fencing")
async def a_session_has_one_holder(record: Record, session_id: str) -> None:
    """While a turn runs, another one is LeaseHeld, which names the holder; afterwards the session is free."""
    other = await kit.new_session(record)
    async with record.turn(session_id):
        running = await last_turn(record, session_id)
        kit.require_equal(running.state, TurnState.RUNNING, "the state")
        error = await kit.refusal(LeaseHeld, "a second turn", kit.run_turn(record, session_id))
        kit.require_equal(error.holder, running.owner, "the holder that is named")
        kit.require(running.owner, "the holder has a name")
        kit.require(error.retryable, "LeaseHeld says that trying again can help")
        async with record.turn(other):
            await record.append(session_id, Message.user("people may always speak"))
    await kit.run_turn(record, session_id)
    states = [turn.state for turn in await record.turns.list(session_id)]
    kit.require_equal(states, [TurnState.COMPLETED, TurnState.COMPLETED], "the states")


@kit.session_contract("fencing")
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
    kit.require_equal(order, ["first", "second"], "the order of the turns")
    kit.require_equal(await kit.texts(record, session_id), ["first", "second"], "the transcript")


@kit.session_contract("fencing")
async def a_stale_holder_is_refused(record: Record, session_id: str) -> None:
    """What a turn writes after its end is a StaleLease, which names the new holder; nothing of it is recorded."""
    async with record.turn(session_id) as old:
        await old.append(Message.assistant("kept", id="m1"))
    error = await kit.refusal(StaleLease, "a write after the end", old.append(Message.assistant("late", id="m2")))
    kit.require_equal(error.holder, "", "the holder when nobody holds the session")
    async with record.turn(session_id):
        holder = (await last_turn(record, session_id)).owner
        late = Message.assistant("late", id="m3")
        error = await kit.refusal(StaleLease, "a write beside the new holder", old.append(late))
        kit.require_equal(error.holder, holder, "the new holder")
        await kit.refusal(StaleLease, "a reply beside the new holder", kit.reply(old, "late"))
    kit.require_equal(await kit.texts(record, session_id), ["kept"], "the transcript")


@kit.session_contract("fencing")
async def a_stale_stream_is_refused(record: Record, session_id: str) -> None:
    """A reply that goes on after its turn ended is refused, and what it said in time is kept as interrupted."""
    async with record.turn(session_id) as turn:
        reply = turn.reply(id="r1")
        await reply.__aenter__()
        await reply.write("in time")

    async def go_on() -> None:
        for _ in range(20_000):
            await reply.write("too late")
            await asyncio.sleep(0.005)

    await kit.refusal(StaleLease, "a stream after the end", go_on())
    kit.require_equal(await kit.spoken(record, session_id), [("in time", Status.INTERRUPTED)], "the message")
    await kit.run_turn(record, session_id, "the session goes on")


@kit.contract("fencing")
async def fences_only_grow(backend: kit.RecordUnderTest) -> None:
    """Each turn of a session has a higher fence than the one before it, also after reopening."""
    session_id = kit.fresh("fences")
    fences = []
    for _ in range(3):
        async with backend.open_record() as record:
            await record.create_session(id=session_id, source="conformance")
            for _ in range(2):
                async with record.turn(session_id) as turn:
                    fences.append(turn.fence)
    kit.require_equal(fences, sorted(set(fences)), "the fences")


@kit.session_contract("fencing")
async def a_turn_ends_as_what_it_was(record: Record, session_id: str) -> None:
    """Left normally it is completed, by an exception failed with its reason, by fail() and interrupt() as they say."""
    await kit.run_turn(record, session_id)
    with suppress(Trouble):
        async with record.turn(session_id):
            raise Trouble("the model broke")
    async with record.turn(session_id) as turn:
        turn.fail("no credit")
    async with record.turn(session_id) as turn:
        turn.interrupt("a new message")
    turns = await record.turns.list(session_id)
    expected = [TurnState.COMPLETED, TurnState.FAILED, TurnState.FAILED, TurnState.INTERRUPTED]
    kit.require_equal([turn.state for turn in turns], expected, "the states")
    kit.require("the model broke" in turns[1].reason, "an exception's text is the reason")
    kit.require_equal([turn.reason for turn in turns[2:]], ["no credit", "a new message"], "the reasons")


@kit.session_contract("fencing")
async def an_exception_seals_what_was_said(record: Record, session_id: str) -> None:
    """A reply left by an exception keeps its text as interrupted, and the turn's end follows at once."""
    with suppress(Trouble):
        async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
            await reply.write("half a sen")
            raise Trouble
    kit.require_equal(await kit.spoken(record, session_id), [("half a sen", Status.INTERRUPTED)], "the message")
    last = (await kit.kinds(record, session_id))[-2:]
    kit.require_equal(last, ["message.sealed", "turn.ended"], "the last two entries")


@kit.session_contract("fencing")
async def a_turn_survives_a_broken_reply(record: Record, session_id: str) -> None:
    """A turn may catch what broke its reply and say something else: the first stays as interrupted, in its place."""
    async with record.turn(session_id) as turn:
        with suppress(Trouble):
            async with turn.reply() as reply:
                await reply.write("first try")
                raise Trouble
        await kit.reply(turn, "second try")
    expected = [("first try", Status.INTERRUPTED), ("second try", Status.COMPLETE)]
    kit.require_equal(await kit.spoken(record, session_id), expected, "the transcript")
    kit.require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")


@kit.session_contract("fencing")
async def a_reply_id_is_taken_once(record: Record, session_id: str) -> None:
    """A reply under an id that names other words is IdConflict, and costs neither those words nor the turn."""
    await record.append(session_id, Message.user("question", id="m1"))
    async with record.turn(session_id) as turn:
        await kit.reply(turn, "first", id="r1")
        with suppress(Trouble):
            async with turn.reply(id="r2") as reply:
                await reply.write("broken")
                raise Trouble
        for taken in ("m1", "r1", "r2"):
            await kit.refusal(IdConflict, f"other words as {taken}", kit.reply(turn, "other words", id=taken))
        await kit.reply(turn, "last", id="r3")
    kit.require_equal(await kit.texts(record, session_id), ["question", "first", "broken", "last"], "the transcript")
    kit.require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")


@kit.session_contract("fencing")
async def a_reply_that_said_nothing_may_begin_again(record: Record, session_id: str) -> None:
    """Left before its first word, or in doubt whether it began, a reply begins again under its id."""
    async with record.turn(session_id) as turn:
        with suppress(Trouble):
            async with turn.reply(id="r1"):
                raise Trouble
        async with turn.reply(id="r1") as reply:
            await reply.write("words ")
            await reply.write("and more")
        await kit.reply(turn, "last")
    expected = [("words and more", Status.COMPLETE), ("last", Status.COMPLETE)]
    kit.require_equal(await kit.spoken(record, session_id), expected, "the transcript")


@kit.record_contract("fencing")
async def a_cancelled_turn_always_ends(record: Record) -> None:
    """Cancelled at whatever moment, claiming and opening included: no turn runs on, no message stays open."""

    async def speak(session_id: str) -> None:
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("words ")
            await asyncio.sleep(60)

    for round_number in range(40):
        session_id = await kit.new_session(record)
        task = asyncio.create_task(speak(session_id))
        await asyncio.sleep(round_number * 0.00015)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        states = {turn.state for turn in await record.turns.list(session_id)}
        kit.require(states <= {TurnState.INTERRUPTED}, f"no turn runs on after cancellation, not {states}")
        statuses = {message.status for message in await record.load_transcript(session_id)}
        kit.require(statuses <= {Status.INTERRUPTED}, f"no message stays open, not {statuses}")
        await kit.run_turn(record, session_id, "next")


@kit.session_contract("fencing")
async def a_turn_takes_its_open_reply_with_it(record: Record, session_id: str) -> None:
    """A reply that nobody left when its turn ended is sealed as interrupted: the session is never stuck."""
    async with record.turn(session_id) as turn:
        reply = turn.reply()
        await reply.__aenter__()
        await reply.write("unfinished")
    kit.require_equal(await kit.spoken(record, session_id), [("unfinished", Status.INTERRUPTED)], "the message")
    await kit.run_turn(record, session_id, "next")
    kit.require_equal(await kit.texts(record, session_id), ["unfinished", "next"], "the transcript")


@kit.session_contract("fencing")
async def a_queued_turn_is_one_and_is_claimed(record: Record, session_id: str) -> None:
    """A session has at most one waiting turn; whoever begins a turn there begins that one."""
    queued = await record.turns.queue(session_id)
    kit.require_equal((await record.turns.queue(session_id)).id, queued.id, "a second queued turn")
    kit.require(queued.id in {turn.id for turn in await record.turns.list_queued()}, "it is listed as queued")
    async with record.turn(session_id) as turn:
        kit.require_equal(turn.id, queued.id, "the turn that runs")
        following = await record.turns.queue(session_id)
        kit.require(following.id != queued.id, "a turn can be queued while one runs")
    states = {turn.id: turn.state for turn in await record.turns.list(session_id)}
    kit.require_equal(states, {queued.id: TurnState.COMPLETED, following.id: TurnState.QUEUED}, "the turns")


@kit.session_contract("fencing")
async def an_ended_session_lets_its_turn_end(record: Record, session_id: str) -> None:
    """Ending a session refuses new turns; the one that runs can still end there, with its words."""
    async with record.turn(session_id) as turn:
        await kit.reply(turn, "said before")
        await record.end_session(session_id, "reset")
    kit.require_equal((await last_turn(record, session_id)).state, TurnState.COMPLETED, "the turn")
    kit.require_equal(await kit.texts(record, session_id), ["said before"], "the transcript")
    await kit.refusal(SessionEnded, "a new turn", kit.run_turn(record, session_id))
    await kit.refusal(SessionEnded, "a queued turn", record.turns.queue(session_id))


@kit.record_contract("talk")
async def a_message_may_interrupt_queue_or_steer(record: Record) -> None:
    """What a message means for the running turn is recorded with it, once for a turn that is to stop."""
    for busy, stops, steers in ((Busy.INTERRUPT, 1, 0), (Busy.STEER, 0, 2), (Busy.QUEUE, 0, 0)):
        session_id = await kit.new_session(record)
        async with record.turn(session_id):
            await kit.ask(record, session_id, "first", busy=busy)
            await kit.ask(record, session_id, "second", busy=busy)
        found = await kit.kinds(record, session_id)
        kit.require_equal(found.count("turn.stopping"), stops, "stops")
        kit.require_equal(found.count("turn.steered"), steers, "steers")
        kit.require_equal(found.count("turn.queued"), 1, "turns that wait")
        kit.require_equal(await kit.texts(record, session_id), ["first", "second"], "what was said")


@kit.session_contract("talk")
async def a_message_to_an_idle_session_stops_nothing(record: Record, session_id: str) -> None:
    """Without a running turn there is nothing to stop or to steer."""
    for busy in Busy:
        await kit.ask(record, session_id, "hello", busy=busy)
    found = {"turn.stopping", "turn.steered"} & {*await kit.kinds(record, session_id)}
    kit.require_equal(found, set(), "stops and steers")


@kit.session_contract("talk")
async def stopping_reaches_the_holder_and_ends_what_waits(record: Record, session_id: str) -> None:
    """A request to stop names the running turn and comes to its follower; a queued turn ends as interrupted."""
    await record.turns.queue(session_id)
    async with record.turn(session_id) as turn:
        await kit.ask(record, session_id, "waits")
        stopped = await record.turns.stop(session_id, "enough", queued=True)
        states = sorted(each.state for each in stopped)
        kit.require_equal(states, [TurnState.INTERRUPTED, TurnState.RUNNING], "what was stopped")
        items = await kit.follow_until(record, session_id, kit.came("turn.stopping"), turn.fence, chunks=False)
        stopping = getattr(items[-1], "body", None)
        kit.require_equal(getattr(stopping, "turn_id", ""), turn.id, "the turn that is to stop")
    kit.require_equal(await record.turns.stop(session_id, "again", queued=True), [], "what there is to stop")
    claimed = kit.run_turn(record, session_id, waiting="")
    await kit.refusal(NotFound, "claiming a turn when none waits", claimed)


@kit.session_contract("talk")
async def ending_a_session_ends_what_waits_there(record: Record, session_id: str) -> None:
    """A turn that waits in a session that ends is ended too; one that runs finishes where it is."""
    async with record.turn(session_id) as turn:
        waiting = await record.turns.queue(session_id)
        await record.end_session(session_id, "new")
        await kit.reply(turn, "finished here")
    states = {each.id: each.state for each in await record.turns.list(session_id)}
    kit.require_equal(states, {turn.id: TurnState.COMPLETED, waiting.id: TurnState.INTERRUPTED}, "the states")
    kit.require_equal(await kit.texts(record, session_id), ["finished here"], "what was said")


@kit.session_contract("talk")
async def undo_leaves_the_record_whole(record: Record, session_id: str) -> None:
    """Undone messages leave transcript and conversation; their entries stay. A running turn forbids it."""
    kept = await record.append(session_id, Message.user("kept"))
    gone = await record.append(session_id, Message.user("gone"))
    before = await kit.all_entries(record, session_id)
    async with record.turn(session_id):
        await kit.refusal(LeaseHeld, "undoing under a running turn", record.messages.undo(session_id, [gone.id]))
    await kit.refusal(NotFound, "undoing what is not there", record.messages.undo(session_id, [kit.fresh("none")]))
    await record.messages.undo(session_id, [gone.id])
    kit.require_equal([message.id for message in await record.load_transcript(session_id)], [kept.id], "the transcript")
    conversation = await record.conversation(session_id)
    kit.require_equal([placed.message.id for placed in conversation.placed], [kept.id], "the conversation")
    kit.require_equal((await kit.all_entries(record, session_id))[: len(before)], before, "the entries before")
    child = await record.fork(session_id)
    kit.require_equal([message.id for message in await record.load_transcript(child.id)], [kept.id], "the fork's")


@kit.session_contract("talk")
async def an_undo_is_undone(record: Record, session_id: str) -> None:
    """Restored messages are at their old places in transcript and conversation, by an entry more; also in a fork."""
    said = [(await record.append(session_id, Message.user(text))).id for text in ("one", "two", "three")]
    await record.messages.undo(session_id, said[:2])
    child = await record.fork(session_id)
    before = await kit.all_entries(record, session_id)
    async with record.turn(session_id):
        await kit.refusal(LeaseHeld, "restoring under a running turn", record.messages.restore(session_id, said[:1]))
    await kit.refusal(NotFound, "restoring what is not there", record.messages.restore(session_id, [kit.fresh("none")]))
    await record.messages.restore(session_id, said[:1])
    expected = [said[0], said[2]]
    kit.require_equal([each.id for each in await record.load_transcript(session_id)], expected, "the transcript")
    conversation = await record.conversation(session_id)
    shown = [placed.message.id for placed in conversation.placed + conversation.waiting]
    kit.require_equal(shown, expected, "the conversation")
    kit.require_equal(list(conversation.undone), said[1:2], "what is still away")
    kit.require_equal((await kit.all_entries(record, session_id))[: len(before)], before, "the entries before")
    await record.messages.restore(child.id, said[:2])
    kit.require_equal([each.id for each in await record.load_transcript(child.id)], said, "the fork's transcript")
    kit.require_equal([each.id for each in await record.load_transcript(session_id)], expected, "the parent's")
    kit.require((await record.verify()).ok, "the record is whole")


@kit.session_contract("talk")
async def what_a_model_is_told_is_fixed_once(record: Record, session_id: str) -> None:
    """The first frozen prompt stays, for the session and for what is forked from it; settings change."""
    first = await record.sessions.freeze(session_id, SessionFrozen(system="first"))
    second = await record.sessions.freeze(session_id, SessionFrozen(system="second"))
    kit.require_equal((first.system, second.system), ("first", "first"), "the prompt")
    child = await record.fork(session_id)
    third = await record.sessions.freeze(child.id, SessionFrozen(system="third"))
    kit.require_equal(third.system, "first", "the fork's prompt")
    await record.sessions.set_setting(session_id, "busy", "queue")
    await record.sessions.set_setting(session_id, "busy", "steer")
    kit.require_equal((await record.conversation(session_id)).settings, {"busy": "steer"}, "the settings")


@kit.session_contract("talk")
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
    expected = ["", "done", "outcome unknown", "that was all"]
    kit.require_equal(await kit.texts(record, session_id), expected, "the messages")
    found = await kit.kinds(record, session_id)
    kit.require_equal(found[-4:], ["turn.used", "message.added", "message.added", "turn.ended"], "how the turn ends")
    usage = (await record.conversation(session_id)).usage
    kit.require_equal(usage, {"some:model": Usage(input_tokens=3, output_tokens=4)}, "what was used")


@kit.session_contract("talk")
async def calls_that_were_never_recorded_have_no_results(record: Record, session_id: str) -> None:
    """A message that was cut before its seal has no calls, so that its turn's end records no results for them."""
    with suppress(asyncio.CancelledError):
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("let me look")
            reply.add(ToolCall(id="a", name="tool"))
            turn.settle_calls(reply.id, [Message.tool("a", "not started", outcome=ToolOutcome.NOT_STARTED)])
            raise asyncio.CancelledError
    kit.require_equal(await kit.texts(record, session_id), ["let me look"], "the messages")


@kit.session_contract("talk")
async def entries_can_be_followed_without_chunks(record: Record, session_id: str) -> None:
    """Who follows entries only is given every entry and no chunk."""
    await kit.run_turn(record, session_id, "words")
    expected = [entry.id for entry in await kit.all_entries(record, session_id)]
    given = await kit.follow_until(record, session_id, lambda items: len(items) == len(expected), chunks=False)
    kit.require(all(isinstance(item, Entry) for item in given), "no chunk is given")
    kit.require_equal([item.id for item in given if isinstance(item, Entry)], expected, "the ids")


@kit.record_contract("talk")
async def an_owner_resolves_only_their_own(record: Record) -> None:
    """Resolving for an owner finds their sessions by id, beginning and title, and nobody else's (L11)."""
    title = kit.fresh("trip")
    mine = await record.create_session(source="test", owner="person:a", title=title)
    theirs = await record.create_session(source="test", owner="person:b", title=title)
    kit.require_equal((await record.resolve(title, owner="person:a")).id, mine.id, "by title")
    kit.require_equal((await record.resolve(mine.id, owner="person:a")).id, mine.id, "by id")
    await kit.refusal(NotFound, "another owner's id", record.resolve(theirs.id, owner="person:a"))
