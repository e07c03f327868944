"""Contracts of delivery: what waits to be shown, where, and what becomes of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import msgspec

from hansard.domain.arrivals import Origin
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.ids import HOME_JOURNAL, delivery_id
from hansard.domain.messages import Message, Text
from hansard.domain.settings import Busy
from hansard.errors import IdConflict, InvalidInput, NotFound, WrongState
from hansard.record.api import Record
from hansard.record.messages.entries import MessageEdited
from hansard.record.messages.operations import ImportedMessage
from hansard.testing import conformance_kit as kit


def new_chat() -> tuple[str, str]:
    """Return a channel that no other contract uses, and a chat on it."""
    channel = kit.fresh("channel")
    return channel, f"{channel}:room:one"


async def waiting(record: Record, channel: str, after: int = 0) -> list[tuple[str, str]]:
    """Return what waits on a channel: (message, chat), the oldest first."""
    return [(each.message_id, each.chat) for each in await record.deliveries.list_waiting(channel, after=after)]


@kit.session_contract("outbox")
async def a_turn_is_shown_where_it_was_asked(record: Record, session_id: str) -> None:
    """Answers and notices of a turn wait in the chats of the messages that it answers, and in no other."""
    channel, chat = new_chat()
    await kit.ask(record, session_id, "hello", chat=chat)
    await kit.ask(record, session_id, "hello", chat=f"{chat}:thread:two")
    kit.require_equal([turn.session_id for turn in await record.turns.list_queued(channel)], [session_id], "queued")
    async with record.turn(session_id) as turn:
        chats = [chat, f"{chat}:thread:two"]
        kit.require_equal(await record.turns.list_running_chats(channel), chats, "chats of the running turn")
        reply_id = kit.fresh("reply")
        async with turn.reply(id=reply_id) as reply:
            await reply.write("yes")
            found = await record.deliveries.list_waiting(channel)
            kit.require(all(each.is_open for each in found), "an open message waits as open")
        notice = await turn.append(Message.notice("told"))
    expected = [(message, where) for message in (reply_id, notice.id) for where in chats]
    kit.require_equal(await waiting(record, channel), expected, "what waits")
    kit.require_equal(await record.turns.list_running_chats(channel), [], "chats of running turns")
    async with record.turn(session_id) as turn:
        await turn.append(Message.notice("nobody asked for this one in a chat"))
    kit.require_equal(await waiting(record, channel), expected, "what waits after a turn without a chat")


@kit.session_contract("outbox")
async def a_steered_turn_is_shown_there_too(record: Record, session_id: str) -> None:
    """A message that goes into a running turn brings its chat along; so does a turn that is queued for a chat."""
    channel, chat = new_chat()
    async with record.turn(session_id) as turn:
        await kit.ask(record, session_id, "hello", chat=chat, busy=Busy.STEER)
        notice = await turn.append(Message.notice("told"))
    kit.require_equal(await waiting(record, channel), [(notice.id, chat)], "what a steered turn told")
    other = await kit.new_session(record)
    await record.turns.queue(other, chat=chat)
    async with record.turn(other) as turn:
        second = await turn.append(Message.notice("again"))
    kit.require_equal(await waiting(record, channel), [(notice.id, chat), (second.id, chat)], "what waits")


@kit.session_contract("outbox")
async def what_has_a_chat_of_its_own_is_shown_there(record: Record, session_id: str) -> None:
    """A notice with a chat waits there; a person's own words, commands and observed ones do not."""
    channel, chat = new_chat()
    notice = Message.notice("to you", chat=chat)
    await record.append(session_id, notice)
    await record.append(session_id, Message.make(notice.role, "/status", author=kit.ANN, chat=chat))
    overheard = Message.user("overheard", author=kit.ANN, chat=chat)
    await record.append(session_id, msgspec.structs.replace(overheard, is_observed=True))
    kit.require_equal(await waiting(record, channel), [(notice.id, chat)], "what waits")
    async with record.turn(session_id):
        kit.require_equal(await record.turns.list_running_chats(channel), [], "chats of a turn that nobody asked for")


@kit.record_contract("outbox")
async def people_without_a_session_are_told_too(record: Record) -> None:
    """What is told in the home journal waits, is delivered and settled like everything else."""
    channel, chat = new_chat()
    origin = Origin(channel=channel, account="agent", event_id=kit.fresh("event"), chat=chat)
    await record.intake.pass_event(origin, "Who are you?")
    (found,) = await record.deliveries.list_waiting(channel)
    kit.require_equal((found.session_id, found.chat), (HOME_JOURNAL, chat), "where it waits")
    message = await record.messages.read(HOME_JOURNAL, found.message_id)
    kit.require_equal(message.text, "Who are you?", "its words")
    delivery = delivery_of(HOME_JOURNAL, channel, chat, found.message_id)
    await record.deliveries.begin(delivery)
    await record.deliveries.move(HOME_JOURNAL, delivery.id, "sent", receipt="r1")
    kit.require(await record.deliveries.finish_message(HOME_JOURNAL, found.message_id, chat), "it waited")
    kit.require_equal(await record.deliveries.list_waiting(channel), [], "what waits")
    (kept,) = await record.deliveries.list(channel=channel)
    kit.require_equal((kept.session_id, kept.receipt), (HOME_JOURNAL, "r1"), "its delivery")


def delivery_of(session_id: str, channel: str, chat: str, message_id: str) -> Delivery:
    return Delivery(
        id=delivery_id(message_id, chat, 1),
        session_id=session_id,
        channel=channel,
        target=chat,
        message_id=message_id,
        end_bytes=1,
    )


async def undelivered(record: Record, session_id: str) -> Delivery:
    """Tell something in a chat of its own; return the delivery of it, which has not begun."""
    channel, chat = new_chat()
    notice = Message.notice("to you", chat=chat)
    await record.append(session_id, notice)
    return delivery_of(session_id, channel, chat, notice.id)


@kit.session_contract("outbox")
async def a_delivery_begins_once(record: Record, session_id: str) -> None:
    """Beginning records the delivery as on its way; again is refused until it is settled; its order is its id's."""
    delivery = await undelivered(record, session_id)
    begun = await record.deliveries.begin(delivery)
    kit.require_equal((begun.state, begun.attempts), (DeliveryState.SENDING, 1), "a delivery that began")
    await kit.refusal(WrongState, "beginning what is on its way", record.deliveries.begin(delivery))
    await record.deliveries.move(session_id, delivery.id, "pending", reason="busy")
    kit.require_equal((await record.deliveries.begin(delivery)).attempts, 2, "attempts")
    await record.deliveries.move(session_id, delivery.id, "sent", receipt="r1")
    found = await record.deliveries.list_of_message(session_id, delivery.message_id, delivery.target)
    kit.require_equal([each.receipt for each in found], ["r1"], "receipts")
    there = [each.id for each in await record.deliveries.list_of_chat(delivery.target)]
    kit.require_equal(there, [delivery.id], "sent there")


@kit.session_contract("outbox")
async def a_mark_stays_with_its_delivery(record: Record, session_id: str) -> None:
    """A delivery that may be shown twice is marked when it is sent again, and keeps that, whatever becomes of it."""
    delivery = await undelivered(record, session_id)
    kit.require_equal((await record.deliveries.begin(delivery)).mark, "", "the mark of a first try")
    await record.deliveries.move(session_id, delivery.id, "unknown", reason="cut")
    marked = msgspec.structs.replace(delivery, mark="↻")
    kit.require_equal((await record.deliveries.begin(marked)).mark, "↻", "the mark of a second try")
    await record.deliveries.move(session_id, delivery.id, "pending", reason="busy")
    await record.deliveries.begin(marked)
    await record.deliveries.move(session_id, delivery.id, "sent", receipt="r1")
    found = await record.deliveries.list_of_message(session_id, delivery.message_id, delivery.target)
    kit.require_equal([(each.mark, each.receipt) for each in found], [("↻", "r1")], "marks and receipts")


@kit.session_contract("outbox")
async def a_delivery_that_grew_is_tried_again(record: Record, session_id: str) -> None:
    """Words that were surely not shown may grow. When their outcome is unknown after that, they can be tried again."""
    delivery = await undelivered(record, session_id)
    await record.deliveries.begin(delivery)
    for state, end_bytes in (("pending", 4), ("unknown", 4), ("pending", 6)):
        tried = await record.deliveries.move(session_id, delivery.id, state, reason="busy")
        begun = await record.deliveries.begin(msgspec.structs.replace(tried, end_bytes=end_bytes))
        kit.require_equal((begun.state, begun.end_bytes), (DeliveryState.SENDING, end_bytes), f"tried after {state}")
    await record.deliveries.move(session_id, begun.id, "unknown", reason="cut")
    grown = msgspec.structs.replace(begun, end_bytes=7)
    await kit.refusal(IdConflict, "growing what may have been shown", record.deliveries.begin(grown))


@kit.session_contract("outbox")
async def a_message_is_settled_once(record: Record, session_id: str) -> None:
    """Settled, it waits no longer; settled again changes nothing; a retry lets it wait again, at the end."""
    channel, chat = new_chat()
    first, second = (Message.notice(text, chat=chat) for text in ("first", "second"))
    for message in (first, second):
        await record.append(session_id, message)
    await record.end_session(session_id, "done")
    finish = partial(record.deliveries.finish_message, session_id)
    kit.require(await finish(first.id, chat, "set_aside", "gone"), "it waited")
    kit.require(not await finish(first.id, chat), "it does not wait any more")
    kit.require(not await finish(second.id, chat, "retried"), "it still waits")
    kit.require(await finish(first.id, chat, "retried"), "it waits again")
    kit.require_equal(await waiting(record, channel), [(second.id, chat), (first.id, chat)], "what waits")
    last = (await record.deliveries.list_waiting(channel))[0].number
    kit.require_equal(await waiting(record, channel, last), [(first.id, chat)], "new")
    await kit.refusal(InvalidInput, "an outcome that there is not", finish(first.id, chat, "lost"))
    await kit.refusal(NotFound, "a message that there is not", finish("nothing", chat, "retried"))


@kit.session_contract("outbox")
async def whoever_asked_to_be_notified_is(record: Record, session_id: str) -> None:
    """A commit sets the event of whoever waits for anything, and of whoever waits for that session."""
    other = await kit.new_session(record)
    anything, this, that = asyncio.Event(), asyncio.Event(), asyncio.Event()
    with record.notify(anything), record.notify(this, session_id), record.notify(that, other):
        that.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(kit.FOLLOW_SECONDS_MAX):
                while that.is_set():  # a watcher that has just begun rings once for everybody
                    for event in (anything, this, that):
                        event.clear()
                    await record.append(session_id, Message.user("hello"))
                    await anything.wait()
                    await this.wait()
        kit.require(anything.is_set() and this.is_set(), "both are told")
        kit.require(not that.is_set(), "another session's follower is not")


@kit.session_contract("outbox")
async def what_was_imported_is_not_shown(record: Record, session_id: str) -> None:
    """Words from elsewhere name chats and are sent to none, not even during a turn; changes of them come once."""
    channel, chat = new_chat()
    asked = Message.user("first", id=kit.fresh("old"), author=kit.ANN, chat=f"{chat}:old", event_id=kit.fresh("event"))
    edit = MessageEdited(message_id=asked.id, parts=(Text("second"),))
    old = [
        ImportedMessage(asked, (edit,)),
        ImportedMessage(Message.assistant("an old answer", id=kit.fresh("old"), chat=chat)),
        ImportedMessage(Message.notice("an old notice", id=kit.fresh("old"))),
    ]
    await kit.ask(record, session_id, "hello", chat=chat)
    async with record.turn(session_id) as turn:
        for _ in range(2):
            await record.messages.import_messages(session_id, old)
        kit.require_equal(await waiting(record, channel), [], "what waits after an import")
        kit.require_equal(await record.turns.list_running_chats(channel), [chat], "where the turn is shown")
        notice = await turn.append(Message.notice("told"))
    kit.require_equal(await waiting(record, channel), [(notice.id, chat)], "what waits after the turn")
    transcript = await record.load_transcript(session_id)
    imported = [(message.text, message.is_edited) for message in transcript if message.is_imported]
    expected = [("second", True), ("an old answer", False), ("an old notice", False)]
    kit.require_equal(imported, expected, "what was imported")
    kit.require(len(transcript) == len(expected) + 2, "that nothing came twice")
    async with record.turn(session_id):
        kit.require_equal(await record.turns.list_running_chats(channel), [], "where the next turn is shown")
