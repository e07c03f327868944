"""From the outbox to a platform: everything once, in order, whatever the platform does."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hansard.delivery.dispatch import Typing
from hansard.domain.deliveries import DeliveryState
from hansard.domain.messages import Message
from hansard.testing import RECORDING_CAPABILITIES, Fault, FaultKind
from hansard.testing.conformance_kit import begin_new
from tests.delivery.stage import AGENT, ANN, PACE, Stage, staged
from tests.record.helpers_process import Worker
from tests.record.helpers_worker import STILL


async def test_an_answer_is_shown_where_it_was_asked(home: Path) -> None:
    """A reply goes to the chat of the message that it answers, with its receipt, and then nothing waits."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        await stage.answer(session_id, "Hello ", "Ann.")
        await stage.drained()
        assert stage.texts(chat) == ["Hello Ann."]
        assert await stage.record.deliveries.list_waiting("matrix") == []
        receipts = {each.receipt for each in await stage.deliveries(session_id)}
        assert receipts == {shown.id for shown in stage.platform.timeline(chat)}


@pytest.mark.loss("E7", "E10")
async def test_a_stream_is_one_post_that_is_edited(home: Path) -> None:
    """The first post comes with the first words, edits at the platform's pace, the last one is the recorded text."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("First")
            began = asyncio.get_running_loop().time()
            await stage.until(lambda: stage.texts(chat) == ["First"])
            for number in range(40):
                await reply.write(f" and {number}")
                await asyncio.sleep(0.01)
            await stage.until(lambda: len(stage.platform.timeline(chat)) >= 2)
            await reply.write(" and the end")
        await stage.drained()
        (message,) = [m for m in await stage.record.load_transcript(session_id) if m.role == "assistant"]
        assert stage.texts(chat) == [message.text]
        timeline = stage.platform.timeline(chat)
        seconds = asyncio.get_running_loop().time() - began
        assert 3 <= len(timeline) <= seconds / RECORDING_CAPABILITIES.edit_seconds_min + 3
        assert all(message.text.startswith(shown.text) for shown in timeline)


def is_shown(stage: Stage, chat: str, text: str) -> bool:
    """Whether a chat shows this."""
    return text in stage.texts(chat)


@pytest.mark.loss("E1")
async def test_a_dispatcher_that_sleeps_hears_of_other_processes(home: Path) -> None:
    """Nothing waits, nobody here follows the session: what another process says in it is shown all the same."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        with Worker(home, crash=STILL) as terminal:
            for number in range(3):
                await stage.drained()
                await asyncio.sleep(1.5 * PACE.full_look_seconds)  # by then it has looked for the last time
                text = f"notice {number}"
                await terminal.ask_soon("append", session=session_id, id=f"n{number}", text=text, chat=chat)
                await stage.until(partial(is_shown, stage, chat, text))


@pytest.mark.loss("E10")
async def test_a_long_stream_is_split_as_it_grows(home: Path) -> None:
    """Beyond the limit a second post begins; no more posts are made than the text needs, and they add up to it."""
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, text_bytes_max=300)
    async with staged(home, capabilities=capabilities) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            for number in range(150):
                await reply.write(f"Sentence {number}. ")
                await asyncio.sleep(0.002)
        await stage.drained()
        (message,) = [m for m in await stage.record.load_transcript(session_id) if m.role == "assistant"]
        texts = stage.texts(chat)
        assert " ".join(text.strip() for text in texts) == message.text.strip()
        assert len(texts) <= len(message.text) // 150 + 1
        assert all(len(text.encode()) <= 300 for text in texts)


@pytest.mark.loss("E1")
async def test_nothing_is_lost_while_the_platform_is_down(home: Path) -> None:
    """What is said while the platform cannot be reached is shown afterwards, once, in order."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.is_down = True
        for number in range(3):
            await stage.record.append(session_id, Message.notice(f"notice {number}", chat=chat))
        await stage.until(lambda: stage.platform.calls["post"] >= 3)
        assert stage.texts(chat) == []
        assert stage.dispatcher.sender.health.trouble
        stage.platform.is_down = False
        await stage.drained()
        assert stage.texts(chat) == ["notice 0", "notice 1", "notice 2"]


@pytest.mark.loss("E4", "E5")
@pytest.mark.parametrize("kind", [FaultKind.CUT_AFTER, FaultKind.CUT_BEFORE])
async def test_a_cut_call_is_settled_by_its_key(home: Path, kind: FaultKind) -> None:
    """A connection that breaks before or after the effect leads to one post, and its receipt is recorded."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.faults.extend([Fault(kind), Fault(kind)])
        await stage.record.append(session_id, Message.notice("once", chat=chat))
        await stage.drained()
        (shown,) = stage.platform.timeline(chat)
        (delivery,) = await stage.deliveries(session_id)
        assert (delivery.state, delivery.receipt) == (DeliveryState.SENT, shown.id)
        assert shown.text == "once"


@pytest.mark.loss("E4")
@pytest.mark.parametrize("kind", [FaultKind.CUT_AFTER, FaultKind.CUT_BEFORE])
async def test_a_cut_call_is_settled_from_the_timeline(home: Path, kind: FaultKind) -> None:
    """Where keys are not good any more, the room's own timeline tells whether it was shown."""
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, repeat_seconds=0)
    async with staged(home, capabilities=capabilities) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.faults.append(Fault(kind))
        await stage.record.append(session_id, Message.notice("once", chat=chat))
        await stage.drained()
        (shown,) = stage.platform.timeline(chat)
        (delivery,) = await stage.deliveries(session_id)
        assert (delivery.state, delivery.receipt) == (DeliveryState.SENT, shown.id)
        assert stage.platform.calls["repeated"] == 0


@pytest.mark.loss("E4")
async def test_what_nobody_can_tell_is_marked(home: Path) -> None:
    """Without keys and without a timeline, an unknown post is not repeated: people see it in the list."""
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, repeat_seconds=0)
    async with staged(home, capabilities=capabilities) as stage:
        stage.dispatcher.sender.timeline = None  # a channel that cannot look back
        async with stage.dispatching():
            chat = stage.platform.create_room(ANN, AGENT)
            session_id = await stage.session(chat)
            stage.platform.faults.append(Fault(FaultKind.CUT_AFTER))
            await stage.record.append(session_id, Message.notice("perhaps", chat=chat))
            await stage.record.append(session_id, Message.notice("surely", chat=chat))
            await stage.drained()
            states = [each.state for each in await stage.deliveries(session_id)]
            assert sorted(states) == [DeliveryState.FAILED, DeliveryState.SENT]
            assert stage.texts(chat) == ["perhaps", "surely"]


async def test_a_busy_platform_is_given_its_time(home: Path) -> None:
    """After a 429 nothing is tried before the time that the platform named, in any chat."""
    async with staged(home) as stage, stage.dispatching():
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(3)]
        session_id = await stage.session(chats[0])
        loop = asyncio.get_running_loop()
        stage.platform.faults.append(Fault(FaultKind.BUSY, 0.3))
        began = loop.time()
        await stage.record.append(session_id, Message.notice("a", chat=chats[0]))
        await stage.until(lambda: stage.platform.calls["post"] >= 1)
        for chat in chats[1:]:
            await stage.record.append(session_id, Message.notice("b", chat=chat))
        await stage.drained()
        assert loop.time() - began >= 0.3
        assert [len(stage.texts(chat)) for chat in chats] == [1, 1, 1]


async def test_scarce_posts_go_to_first_words_and_ends(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once the platform limits posts, a growing answer is edited no more before it is complete; the log hears of it."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("First")
            await stage.until(lambda: stage.texts(chat) == ["First"])
            stage.platform.faults.append(Fault(FaultKind.BUSY, 0.1))
            await reply.write(" and second")
            await stage.until(lambda: stage.dispatcher.sender.health.trouble != "")
            for number in range(20):
                await reply.write(f" and {number}")
                await asyncio.sleep(0.02)
            assert stage.texts(chat) == ["First"]
        await stage.drained()
        (message,) = [m for m in await stage.record.load_transcript(session_id) if m.role == "assistant"]
        assert [shown.text for shown in stage.platform.timeline(chat)] == ["First", message.text]
        assert {each.state for each in await stage.deliveries(session_id)} == {DeliveryState.SENT}
        assert "limits how often" in stage.dispatcher.sender.health.note
        assert caplog.text.count("limits how often") == 1


async def test_a_post_that_waited_shows_all_there_is(home: Path) -> None:
    """First words that could not be posted are posted later with what was said meanwhile: one post, not two."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.is_down = True
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("First")
            await stage.until(lambda: stage.platform.calls["post"] >= 1)
            await reply.write(" and last")
        # A try that began before the end may still be on its way; the one after it has read all there is.
        tried = stage.platform.calls["post"]
        await stage.until(lambda: stage.platform.calls["post"] >= tried + 2)
        stage.platform.is_down = False
        await stage.drained()
        assert [shown.text for shown in stage.platform.timeline(chat)] == ["First and last"]
        (delivery,) = await stage.deliveries(session_id)
        assert (delivery.state, delivery.end_bytes) == (DeliveryState.SENT, len("First and last"))


async def test_one_chat_at_a_time_tries_a_platform_that_is_down(home: Path) -> None:
    """However many chats wait, an outage costs a few tries, not all of them again and again."""
    async with staged(home) as stage:
        stage.platform.is_down = True
        session_id = await stage.session(stage.platform.create_room(ANN, AGENT))
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(30)]
        for chat in chats:
            await stage.record.append(session_id, Message.notice("at last", chat=chat))
        async with stage.dispatching():
            await stage.until(lambda: stage.platform.calls["post"] >= 40)
            entries = (await stage.record.sessions.read(session_id)).head_seq
            assert entries < 31 * 2 + 3 * 45
            stage.platform.is_down = False
            await stage.drained()
        assert all(stage.texts(chat) == ["at last"] for chat in chats)
        assert stage.platform.calls["post"] < 30 * 4


async def test_a_chat_that_is_gone_stops_no_other(home: Path) -> None:
    """What cannot be shown is set aside, visibly; another chat's messages pass; a retry shows it after all."""
    async with staged(home) as stage, stage.dispatching():
        gone, other = (stage.platform.create_room(ANN, AGENT) for _ in range(2))
        session_id = await stage.session(gone)
        stage.platform.room(gone).is_gone = True
        message = Message.notice("into the void", chat=gone)
        await stage.record.append(session_id, message)
        await stage.record.append(session_id, Message.notice("heard", chat=other))
        await stage.drained()
        assert stage.texts(other) == ["heard"]
        failed = [each for each in await stage.deliveries(session_id) if each.state is DeliveryState.FAILED]
        assert [each.target for each in failed] == [gone]
        entries = await stage.record.sessions.read_entries(session_id)
        outcomes = [entry.body.outcome for entry in entries if entry.kind == "message.delivered"]  # type: ignore[attr-defined]
        assert sorted(outcomes) == ["set_aside", "shown"]
        stage.platform.room(gone).is_gone = False
        await stage.record.deliveries.move(session_id, failed[0].id, DeliveryState.PENDING, reason="a person asked")
        assert await stage.record.deliveries.finish_message(session_id, message.id, gone, "retried")
        await stage.drained()
        assert stage.texts(gone) == ["into the void"]


async def test_what_was_dropped_is_not_shown(home: Path) -> None:
    """A person drops what waits, from whichever process, and it is never shown."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.is_down = True
        messages = [Message.notice(text, chat=chat) for text in ("first", "second")]
        for message in messages:
            await stage.record.append(session_id, message)
        await stage.until(lambda: stage.platform.calls["post"] >= 2)
        assert await stage.record.deliveries.finish_message(session_id, messages[1].id, chat, "dropped")
        await stage.until(lambda: sum(len(lane.shows) for lane in stage.dispatcher.lanes.values()) == 1)
        stage.platform.is_down = False
        await stage.drained()
        assert stage.texts(chat) == ["first"]


async def test_an_answer_without_words_is_settled(home: Path) -> None:
    """A message that has nothing to show needs no post."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        await stage.answer(session_id, " \n")
        await stage.drained()
        assert stage.platform.timeline(chat) == []


async def test_a_notice_passes_a_message_that_says_nothing_yet(home: Path) -> None:
    """A command's answer does not wait for a model that thinks; a stream goes on beside it, in its own post."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("hm", part="reasoning")
            await turn.append(Message.notice("status"))
            await stage.until(lambda: stage.texts(chat) == ["status"])
            await reply.write("Done.")
        await stage.drained()
        assert stage.texts(chat) == ["status", "Done."]


@pytest.mark.loss("H1")
async def test_an_answer_goes_to_its_chat_after_a_reset(home: Path) -> None:
    """A reply that was begun before a reset is shown where its turn belongs, in full."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        await stage.record.routes.move(chat, session_id)
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("before ")
            new_id = await begin_new(stage.record, chat)
            await reply.write("and after")
        await stage.drained()
        answer, notice = stage.texts(chat)
        assert answer == "before and after"
        assert notice.startswith(f"A new session: {new_id}.")


async def test_storms_of_faults_lose_and_double_nothing(home: Path, seed: int) -> None:
    """Ten chats, random faults: each message is shown once, in order, with its receipt in the record."""
    draw = random.Random(seed)
    kinds = [FaultKind.BUSY, FaultKind.DOWN, FaultKind.CUT_BEFORE, FaultKind.CUT_AFTER]
    async with staged(home) as stage:
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(10)]
        stage.platform.faults.extend(Fault(draw.choice(kinds), 0.01) for _ in range(60))
        async with stage.dispatching():
            await asyncio.gather(*(chatter(stage, chat) for chat in chats))
            await stage.drained()
        for chat in chats:
            assert stage.texts(chat) == [f"answer {number} goes on and on" for number in range(5)]
        receipts = {each.receipt for each in await stage.record.deliveries.list()}
        assert receipts == {shown.id for chat in chats for shown in stage.platform.timeline(chat)}


async def chatter(stage: Stage, chat: str) -> None:
    """Answer five times in a chat."""
    session_id = await stage.session(chat)
    for number in range(5):
        await stage.record.append(session_id, Message.user("and?", author=ANN, chat=chat))
        await stage.answer(session_id, f"answer {number} ", "goes on ", "and on")


async def test_typing_is_shown_while_a_turn_runs(home: Path) -> None:
    """The sign is there while a turn runs in a chat, and is gone when it has ended."""
    async with staged(home) as stage:
        typing = asyncio.create_task(Typing(stage.record, stage.channel).run())
        chat = stage.platform.create_room(ANN, AGENT)
        room = stage.platform.room(chat)
        session_id = await stage.session(chat)
        async with stage.record.turn(session_id):
            assert await stage.record.turns.list_running_chats("matrix") == [chat]
            await stage.until(lambda: room.typing == {AGENT})
        await stage.until(lambda: room.typing == set())
        typing.cancel()
        await asyncio.wait({typing})
