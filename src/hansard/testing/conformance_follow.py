"""Contracts of following: each byte once, from whatever position, live and afterwards (rule 13)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hansard.domain.messages import Message, Status
from hansard.errors import InvalidInput
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk, Entry, MessageSealed
from hansard.testing import conformance_kit as kit

WORDS = ["Grüße, ", "naïve ", "𝄞 clef ", "語る ", "plain ", "\n", "end"]


async def converse(record: Record, session_id: str, replies: int = 2) -> None:
    """Fill a session with what people and the agent say, an interrupted reply and other entries included."""
    for number in range(replies):
        await record.append(session_id, Message.user(f"question {number}"))
        async with record.turn(session_id) as turn:
            async with turn.reply(id=f"r{number}") as reply:
                await reply.write("hm… ", part="reasoning")
                for word in WORDS:
                    await reply.write(word)
                    await asyncio.sleep(0)
            await turn.append(Message.tool("call", f"result {number}"))
    await record.set_title(session_id, "A conversation")
    with suppress(RuntimeError):
        async with record.turn(session_id) as turn, turn.reply(id="broken") as reply:
            await reply.write("cut sho")
            raise RuntimeError


async def follow_again(record: Record, session_id: str) -> list[kit.Item]:
    """Follow a session to its head, and again from each position on; return what was given the first time."""
    head = (await record.sessions.read(session_id)).head_seq
    items = await kit.follow_until(record, session_id, kit.reached(head))
    for number, item in enumerate(items[:-1], start=1):
        kit.require(isinstance(item.position, str), "a position is text")
        rest = await kit.follow_until(record, session_id, kit.reached(head), after=item.position)
        kit.require_equal(kit.summary(rest), kit.summary(items[number:]), f"the rest after {item.position!r}")
    kit.require_equal(items[-1].position, str(head), "the position of the last entry")
    return items


@kit.session_contract("follow")
async def everything_is_given_once_and_in_order(record: Record, session_id: str) -> None:
    """From the start: every entry, each message's bytes, the opening before and the seal after its chunks."""
    await converse(record, session_id)
    head = (await record.sessions.read(session_id)).head_seq
    items = await kit.follow_until(record, session_id, kit.reached(head))
    seqs, spoken = kit.summary(items)
    kit.require_equal(seqs, list(range(1, head + 1)), "the seqs")
    kit.require_equal(spoken["r0"], "hm… " + "".join(WORDS), "the chunks of a reply")
    kit.require_equal(spoken["broken"], "cut sho", "the chunks of an interrupted reply")
    opened: set[str] = set()
    for item in items:
        if isinstance(item, Entry) and item.kind == "message.opened":
            opened.add(item.id)
        elif isinstance(item, Entry) and isinstance(item.body, MessageSealed):
            opened.discard(item.body.message_id)
        elif isinstance(item, Chunk):
            kit.require(item.message_id in opened, "chunks come between the opening and the seal")


@kit.session_contract("follow")
async def openings_and_seals_have_no_text(record: Record, session_id: str) -> None:
    """The text of an opening and of a seal is empty: their words come as chunks. A whole message has its own."""
    await converse(record, session_id, replies=1)
    items = await kit.follow_until(record, session_id, kit.reached((await record.sessions.read(session_id)).head_seq))
    found = {item.kind: item.text for item in items if isinstance(item, Entry)}
    kit.require_equal((found["message.opened"], found["message.sealed"]), ("", ""), "opening and seal")
    kit.require_equal([i.text for i in items if isinstance(i, Entry) and i.text], ["question 0", "result 0"], "texts")


@kit.session_contract("follow")
async def reconnecting_loses_and_repeats_nothing(record: Record, session_id: str) -> None:
    """A follower that comes back at any position it was given gets exactly what it had not been given yet."""
    await converse(record, session_id)
    await follow_again(record, session_id)


@kit.session_contract("follow")
async def offsets_count_bytes(record: Record, session_id: str) -> None:
    """A chunk begins where the one before it ended, counted in UTF-8 bytes of all the message's chunks."""
    await converse(record, session_id)
    items = await kit.follow_until(record, session_id, kit.reached((await record.sessions.read(session_id)).head_seq))
    ends: dict[str, int] = {}
    for item in items:
        if isinstance(item, Chunk):
            kit.require_equal(item.offset, ends.get(item.message_id, 0), "the offset")
            ends[item.message_id] = item.offset + len(item.text.encode())
    kit.require_equal({item.part for item in items if isinstance(item, Chunk)}, {"text", "reasoning"}, "parts")


@kit.session_contract("follow")
async def live_followers_miss_nothing(record: Record, session_id: str) -> None:
    """Followers that watch while it is said, each from another moment on, are given every byte once."""
    watchers = []
    text = "".join(f"{number} " for number in range(60))
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        for number in range(60):
            if number % 15 == 0:
                following = kit.follow_until(record, session_id, kit.came("turn.ended"))
                watchers.append(asyncio.create_task(following))
            await reply.write(f"{number} ")
            await asyncio.sleep(0.001)
    for items in await asyncio.gather(*watchers):
        seqs, spoken = kit.summary(items)
        kit.require_equal(seqs, list(range(1, len(seqs) + 1)), "the seqs")
        kit.require_equal(spoken, {"r1": text}, "the text")


@kit.session_contract("follow")
async def kept_positions_of_an_open_message_hold(record: Record, session_id: str) -> None:
    """Positions that were kept while a message was open still give its remainder, and then its seal, afterwards."""
    kept: list[tuple[str, int]] = []
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        text = ""
        for word in WORDS:
            text += word
            await reply.write(word)
            items = await kit.follow_until(record, session_id, kit.said("r1", text))
            kit.require_equal(kit.streamed(items), {"r1": text}, "the text so far")
            kept.append((items[-1].position, len(text)))
            first, length = kept[0]
            if text[length:]:
                rest = await kit.follow_until(record, session_id, kit.said("r1", text[length:]), first)
                kit.require_equal(kit.streamed(rest), {"r1": text[length:]}, "the text since")
        await record.append(session_id, Message.user("meanwhile"))
    for position, length in kept:
        items = await kit.follow_until(record, session_id, kit.came("message.sealed"), position)
        kit.require_equal(kit.streamed(items).get("r1", ""), text[length:], f"the remainder after {position!r}")
        kit.require_equal([i.text for i in items if isinstance(i, Entry)], ["meanwhile", ""], "the entries")


@kit.session_contract("follow")
async def an_open_message_is_in_the_transcript(record: Record, session_id: str) -> None:
    """While a message is open, the transcript has its text so far; the seal changes its status, not its place."""
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        await reply.write("so far")
        await kit.follow_until(record, session_id, kit.said("r1", "so far"))
        await record.append(session_id, Message.user("meanwhile", id="m1"))
        found = await record.load_transcript(session_id)
        kit.require_equal([message.id for message in found], ["r1", "m1"], "the order")
        kit.require_equal((found[0].text, found[0].status), ("so far", Status.OPEN), "the open message")
    found = await record.load_transcript(session_id)
    kit.require_equal([message.id for message in found], ["r1", "m1"], "the order afterwards")
    kit.require_equal(found[0].status, Status.COMPLETE, "the status afterwards")


@kit.session_contract("follow")
async def a_fork_is_followed_from_its_beginning(record: Record, parent: str) -> None:
    """Following a fork gives the inherited prefix first, under the fork's own name, and then its own entries."""
    await converse(record, parent, replies=1)
    child = await record.fork(parent)
    await record.append(child.id, Message.user("of the child"))
    head = (await record.sessions.read(child.id)).head_seq
    items = await follow_again(record, child.id)
    kit.require_equal(kit.summary(items)[0], list(range(1, head + 1)), "the seqs")
    kit.require_equal({item.session_id for item in items if isinstance(item, Entry)}, {child.id}, "the session")


@kit.session_contract("follow")
async def nonsense_is_no_position(record: Record, session_id: str) -> None:
    """A position that this record never gave is InvalidInput: no crash, no silent start from elsewhere."""
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        await reply.write("ééé")
        items = await kit.follow_until(record, session_id, kit.said("r1", "ééé"))
        inside = items[-1].position.replace(".6.", ".3.")
        for wrong in ("x", "", "-1", "1.x.r1", "1" * 500, "3." + "9" * 40 + ".r1", inside):
            following = kit.follow_until(record, session_id, lambda _: True, wrong)
            await kit.refusal(InvalidInput, f"position {wrong!r}", following)


@kit.contract("follow", "elsewhere")
async def other_processes_are_followed_live(backend: kit.RecordUnderTest) -> None:
    """What another process appends and streams reaches a follower here, once and in order."""
    async with backend.open_record() as record:
        session_id = await kit.new_session(record)
        watching = asyncio.create_task(kit.follow_until(record, session_id, kit.came("turn.ended")))
        await asyncio.sleep(0.05)
        await kit.offered(backend.elsewhere)(speak_elsewhere, session_id)
        seqs, spoken = kit.summary(await watching)
        kit.require_equal(seqs, list(range(1, len(seqs) + 1)), "the seqs")
        kit.require_equal(spoken, {"r1": "".join(WORDS)}, "the text")


async def speak_elsewhere(record: Record, session_id: str) -> None:
    """Run in another process: say something, slowly enough to be watched."""
    await record.append(session_id, Message.user("question"))
    async with record.turn(session_id) as turn, turn.reply(id="r1") as reply:
        for word in WORDS:
            await reply.write(word)
            await asyncio.sleep(0.02)
