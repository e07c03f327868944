"""Contracts of content: deliveries, blobs, limits, and text that JSON or UTF-8 cannot carry."""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from hansard.domain import limits
from hansard.domain.deliveries import DELIVERY_MOVES, Delivery, DeliveryState, Operation
from hansard.domain.messages import File, Message, Part, Reasoning, Text, ToolCall, ToolOutcome, ToolResult
from hansard.errors import IdConflict, InvalidInput, NotFound, TooLarge, WrongState
from hansard.record.api import Record
from hansard.testing import conformance_kit as kit

PENDING, SENDING, SENT = DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.SENT
PATHS: dict[DeliveryState, tuple[DeliveryState, ...]] = {
    PENDING: (),
    SENDING: (SENDING,),
    SENT: (SENDING, SENT),
    DeliveryState.FAILED: (DeliveryState.FAILED,),
    DeliveryState.UNKNOWN: (SENDING, DeliveryState.UNKNOWN),
}
"""How a new delivery gets into each state."""

BROKEN_TEXTS = [
    ("a\0b", "a\ufffdb"),
    ("a\ud800b", "a\ufffdb"),
    ("\udc00", "\ufffd"),
    ("\ud834\udd1e", "\U0001d11e"),
    ("\ud834x\udd1e", "\ufffdx\ufffd"),
    ("é\0é", "é\ufffdé"),
]
"""Text that cannot be recorded as it is, and what becomes of it (the table of hansard.domain.text)."""


@kit.session_contract("deliveries")
async def states_move_by_the_table(record: Record, session_id: str) -> None:
    """From every state, every move that the table allows is made and every other one is WrongState."""
    await record.append(session_id, Message.assistant("x", id="m1"))
    for before, path in PATHS.items():
        for after in DeliveryState:
            name = kit.fresh("delivery")
            delivery = Delivery(id=name, session_id=session_id, channel="c", target="t", message_id="m1")
            await record.deliveries.create(delivery)
            for state in path:
                await record.deliveries.move(session_id, name, state)
            if after in DELIVERY_MOVES[before]:
                moved = await record.deliveries.move(session_id, name, after)
                kit.require_equal(moved.state, after, f"{before} → {after}")
            else:
                await kit.refusal(WrongState, f"{before} → {after}", record.deliveries.move(session_id, name, after))
    await kit.refusal(InvalidInput, "a state that does not exist", record.deliveries.move(session_id, name, "posted"))


@kit.session_contract("deliveries")
async def a_delivery_is_created_once(record: Record, session_id: str) -> None:
    """The same delivery again changes nothing, wherever it stands by now; another one of the same id is IdConflict."""
    name = kit.fresh("delivery")
    await record.append(session_id, Message.assistant("hello", id="m1"))
    delivery = Delivery(id=name, session_id=session_id, channel="matrix", target="!room", message_id="m1", end_bytes=5)
    created = await record.deliveries.create(delivery)
    kit.require_equal((created.state, created.attempts, created.end_bytes), (PENDING, 0, 5), "the delivery")
    await record.deliveries.move(session_id, name, SENDING)
    again = await record.deliveries.create(delivery)
    kit.require_equal((again.state, again.attempts), (SENDING, 1), "created again")
    other = msgspec.structs.replace(delivery, target="!x", operation=Operation.EDIT)
    await kit.refusal(IdConflict, "another delivery of the same id", record.deliveries.create(other))
    for start, end in ((-1, 5), (5, 4), (0, 2**70)):
        wrong = msgspec.structs.replace(delivery, id=kit.fresh("d"), start_bytes=start, end_bytes=end)
        await kit.refusal(InvalidInput, f"a stretch from {start} to {end}", record.deliveries.create(wrong))


@kit.contract("deliveries")
async def receipts_and_attempts_are_kept(backend: kit.RecordUnderTest) -> None:
    """Attempts count; a receipt once known stays; an ended session still settles; lists filter (E3, E5)."""
    name, channel = kit.fresh("delivery"), kit.fresh("channel")
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        await record.append(session_id, Message.assistant("hello", id="m1"))
        delivery = Delivery(id=name, session_id=session_id, channel=channel, target="t", message_id="m1")
        await record.deliveries.create(delivery)
        await record.end_session(session_id, "done")
        await record.deliveries.move(session_id, name, SENDING)
        await record.deliveries.move(session_id, name, PENDING, reason="rate limit")
        await record.deliveries.move(session_id, name, SENDING)
        sent = await record.deliveries.move(session_id, name, SENT, receipt="$event")
        kit.require_equal((sent.attempts, sent.receipt), (2, "$event"), "attempts and receipt")
        await kit.refusal(InvalidInput, "a list of a state that does not exist", record.deliveries.list(state="posted"))
    async with backend.open_record() as record:
        found = await record.deliveries.list(session_id=session_id, state=SENT, channel=channel)
        kit.require_equal([(each.id, each.receipt) for each in found], [(name, "$event")], "the list after reopening")
        kit.require_equal(await record.deliveries.list(channel=channel, state=PENDING), [], "what is pending")


@kit.record_contract("deliveries")
async def deliveries_come_in_pages(record: Record) -> None:
    """Page after page gives each delivery once, in the order of the whole list; of one session, or of all."""
    channel, whole = kit.fresh("channel"), []
    for _ in range(2):
        session_id = await kit.new_session(record)
        said = await record.append(session_id, Message.assistant("words"))
        for number in range(5):
            delivery = Delivery(id=f"d{number}", session_id=session_id, channel=channel, target="t", message_id=said.id)
            whole.append(await record.deliveries.create(delivery))
    for wanted, expected in ((None, whole), (session_id, whole[5:])):
        found: list[Delivery] = []
        while page := await record.deliveries.list(
            session_id=wanted, channel=channel, limit=2, after=found[-1] if found else None
        ):
            found += page
        kit.require_equal(found, expected, "the pages together")


@kit.contract("blobs")
async def a_blob_is_its_bytes(backend: kit.RecordUnderTest) -> None:
    """Bytes are stored once, under their digest, and come back as they were, also after reopening."""
    data = b"\0\xff" * 5000 + kit.fresh("blob").encode()
    async with backend.open_record() as record:
        digest = await record.blobs.put(data)
        kit.require_equal(await record.blobs.put(data), digest, "the digest of the same bytes")
        session_id = await kit.new_session(record)
        parts: list[Part] = [Text("see"), File(blob=digest, name="a.bin", size_bytes=len(data))]
        await record.append(session_id, Message.user(parts, id="m1"))
    async with backend.open_record() as record:
        kit.require_equal(await record.blobs.read(digest), data, "the bytes")
        (message,) = await record.load_transcript(session_id)
        kit.require_equal(message.parts, tuple(parts), "the parts")


@kit.session_contract("blobs")
async def a_blob_must_be_there_before_it_is_named(record: Record, session_id: str) -> None:
    """A message that names a blob that is not there is NotFound, and is not recorded."""
    missing, wrong = (Message.user([File(blob=blob)]) for blob in ("0" * 64, "../../etc/passwd"))
    await kit.refusal(NotFound, "a file without its blob", record.append(session_id, missing))
    await kit.refusal(InvalidInput, "a blob's name that is none", record.append(session_id, wrong))
    await kit.refusal(InvalidInput, "reading a name that is none", record.blobs.read("../../etc/passwd"))
    kit.require_equal((await record.sessions.read(session_id)).head_seq, 1, "the head")


@kit.session_contract("content")
async def every_kind_of_part_comes_back(record: Record, session_id: str) -> None:
    """Reasoning with its signature, tool calls as they were written, results with their outcome: all as given (N3)."""
    call = ToolCall(id="c1", name="search", arguments='{"q": not json')
    parts: list[Part] = [Reasoning(text="hm", signature="sig", model="m"), Text("text"), call]
    await record.append(session_id, Message.assistant(parts))
    await record.append(session_id, Message.tool("c1", "nothing found", outcome=ToolOutcome.ERROR))
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("thinking", part="reasoning")
        await reply.write("saying")
        reply.add(call)
    found = [message.parts for message in await record.load_transcript(session_id)]
    result = ToolResult(call_id="c1", text="nothing found", outcome=ToolOutcome.ERROR)
    streamed = (Reasoning(text="thinking"), Text("saying"), call)
    kit.require_equal(found, [tuple(parts), (result,), streamed], "the parts")


@kit.session_contract("limits")
async def too_large_is_refused_before_anything_is_written(record: Record, session_id: str) -> None:
    """Content over a limit is TooLarge, nothing of it is written, and the next append works."""
    grows = Message.user("\n" * (limits.ENTRY_BYTES_MAX // 2 + 1))
    verbs: dict[str, Awaitable[object]] = {
        "an entry": record.append(session_id, Message.user("x" * (limits.ENTRY_BYTES_MAX + 1))),
        "an entry that grows by escapes": record.append(session_id, grows),
        "an entry id": record.append(session_id, Message.user("x", id="x" * (limits.ID_CHARACTERS_MAX + 1))),
        "a title": record.set_title(session_id, "x" * (limits.TITLE_CHARACTERS_MAX + 1)),
        "an owner": record.create_session(source="x", owner="x" * (limits.NAME_CHARACTERS_MAX + 1)),
        "entries of one call": record.accept([(session_id, Message.user("x"))] * (limits.UNIT_ENTRIES_MAX + 1)),
    }
    await kit.require_errors(TooLarge, verbs)
    kit.require_equal((await record.sessions.read(session_id)).head_seq, 1, "the head")
    await record.append(session_id, Message.user("next"))


@kit.session_contract("limits")
async def a_reply_that_grows_too_long_is_kept_up_to_there(record: Record, session_id: str) -> None:
    """A reply over its limit is refused at the write that exceeds it; what came before is recorded."""
    most = "\x01" * (limits.REPLY_BYTES_MAX - 10)

    async def say_too_much() -> None:
        async with record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write(most)
            await reply.write("x" * 11)

    await kit.refusal(TooLarge, "a reply", say_too_much())
    kit.require_equal(await kit.texts(record, session_id), [most], "what came before")


@kit.contract("text")
async def broken_text_is_replaced_by_the_table(backend: kit.RecordUnderTest) -> None:
    """Lone surrogates and NUL become U+FFFD and split pairs their character, whole, streamed and cut in two (C11)."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        for given, _ in BROKEN_TEXTS:
            await record.append(session_id, Message.user(given))
            async with record.turn(session_id) as turn, turn.reply() as reply:
                for character in given:
                    await reply.write(character)
        expected = [kept for _, kept in BROKEN_TEXTS for _ in range(2)]
        kit.require_equal(await kit.texts(record, session_id), expected, "the texts")
    async with backend.open_record() as record:
        kit.require_equal(await kit.texts(record, session_id), expected, "the texts after reopening")


@kit.session_contract("text")
async def any_other_text_is_kept_byte_for_byte(record: Record, session_id: str) -> None:
    """Scripts, joiners, line separators, escapes, quotes and empty text come back as they were."""
    given = [
        "",
        " ",
        "\r\n\t",
        "'; DROP TABLE entry; --",
        "\u2028\u2029",
        "👩‍👩‍👧",
        "e\u0301",
        "\x1b[31m",
        '{"a":1}',
        "\ufeff",
    ]
    for text in given:
        await record.append(session_id, Message.user(text))
    kit.require_equal(await kit.texts(record, session_id), given, "the texts")
    for wrong in ("", "two\nlines", "\x1b[31m"):
        await kit.refusal(InvalidInput, f"the title {wrong!r}", record.set_title(session_id, wrong))
