"""Files of a message: shown after its words, once, in order; and what cannot be shown is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hansard.delivery.audit import audit_chat
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.messages import File, Message, Text
from hansard.testing import RECORDING_CAPABILITIES, Fault, FaultKind
from tests.delivery.stage import AGENT, ANN, Stage, staged

PICTURE = bytes(range(256)) * 40


async def message_with(stage: Stage, chat: str, *contents: bytes, text: str = "Here you are.") -> Message:
    """Return an answer of the agent with files."""
    files = [
        File(
            blob=await stage.record.blobs.put(data), name=f"{number}.png", media_type="image/png", size_bytes=len(data)
        )
        for number, data in enumerate(contents, 1)
    ]
    return Message.assistant([*([Text(text)] if text else []), *files], chat=chat)


def seen(stage: Stage, chat: str) -> list[str | bytes]:
    """Return what a member sees of the agent: words, and the bytes of files."""
    shown_files = stage.platform.shown_files
    own = [shown for shown in stage.platform.timeline(chat) if shown.sender == AGENT]
    return [shown_files[shown.id].data if shown.id in shown_files else shown.text for shown in own]


async def audited(stage: Stage, chat: str) -> list[str]:
    """Return what an audit finds."""
    audit = await audit_chat(stage.record, stage.channel, "matrix", AGENT, chat)
    return [difference.what for difference in audit.differences]


async def files_of(stage: Stage, session_id: str) -> list[Delivery]:
    """Return a session's deliveries of files."""
    return [each for each in await stage.deliveries(session_id) if each.file]


@pytest.mark.parametrize("text", ["Here you are.", ""])
async def test_files_follow_the_words(home: Path, text: str) -> None:
    """Each file is a post of its own with its own receipt, byte for byte, in order, before what is said next."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        await stage.record.append(session_id, await message_with(stage, chat, PICTURE, b"two", text=text))
        await stage.record.append(session_id, Message.notice("and then", chat=chat))
        await stage.drained()
        assert seen(stage, chat) == [*([text] if text else []), PICTURE, b"two", "and then"]
        first, second = await files_of(stage, session_id)
        own = {shown.id: shown for shown in stage.platform.timeline(chat)}
        assert [own[first.receipt].file, own[second.receipt].file] == ["1.png", "2.png"]
        assert own[first.receipt].key == f"{first.id}#1"
        assert stage.platform.shown_files[first.receipt].media_type == "image/png"
        assert await audited(stage, chat) == []


@pytest.mark.loss("E4", "E5")
@pytest.mark.parametrize("kind", [FaultKind.CUT_AFTER, FaultKind.CUT_BEFORE, FaultKind.DOWN, FaultKind.BUSY])
@pytest.mark.parametrize("repeat_seconds", [86_400, 0])
async def test_a_file_is_shown_once_whatever_happens(home: Path, kind: FaultKind, repeat_seconds: int) -> None:
    """A call that is cut or refused for now leads to one post of each file; its receipt is recorded."""
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, repeat_seconds=repeat_seconds)
    async with staged(home, capabilities=capabilities) as stage:
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.faults.extend([Fault(kind)] * 3)
        await stage.record.append(session_id, await message_with(stage, chat, PICTURE, b"two", text=""))
        async with stage.dispatching():
            await stage.drained()
        assert seen(stage, chat) == [PICTURE, b"two"]
        assert [each.state for each in await files_of(stage, session_id)] == [DeliveryState.SENT] * 2
        assert await audited(stage, chat) == []


async def test_a_restart_goes_on_with_the_next_file(home: Path) -> None:
    """Stopped between two files, with one of unknown fate, the next process shows what is missing, and only that."""
    async with staged(home) as stage:
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.latency_seconds = 0.05
        await stage.record.append(session_id, await message_with(stage, chat, b"one", b"two", b"three"))
        async with stage.dispatching():
            await stage.until(lambda: len(seen(stage, chat)) >= 2)
        stage.platform.latency_seconds = 0.0
        again = Stage(stage.record, stage.platform, stage.channel.capabilities)
        async with again.dispatching():
            await again.drained()
        assert seen(stage, chat) == ["Here you are.", b"one", b"two", b"three"]
        assert await audited(stage, chat) == []


async def test_a_file_that_cannot_be_shown_is_told(home: Path) -> None:
    """Too large, or lost: its delivery fails with the reason, the others are shown, and people in the chat are told."""
    large = b"x" * (RECORDING_CAPABILITIES.file_bytes_max + 1)
    async with staged(home) as stage:
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        message = await message_with(stage, chat, large, b"two")
        await stage.record.append(session_id, message)
        async with stage.dispatching():
            await stage.drained()
        told = "The file 1.png could not be shown here: it has 1.0 MB, and 1.0 MB can be shown here. "
        assert seen(stage, chat) == ["Here you are.", b"two", f"{told}It is kept in the record."]
        failed, sent = await files_of(stage, session_id)
        assert (failed.state, sent.state) == (DeliveryState.FAILED, DeliveryState.SENT)
        assert failed.reason.startswith("it has 1.0 MB")
        assert await audited(stage, chat) == []


async def test_a_refused_file_is_shown_when_a_person_retries(home: Path) -> None:
    """What the platform refused once is shown after a retry; what was shown already is not shown again."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.faults.append(Fault(FaultKind.REFUSED))
        await stage.record.append(session_id, await message_with(stage, chat, b"one", b"two", text=""))
        await stage.drained()
        told = "The file 1.png could not be shown here: not this one. It is kept in the record."
        assert seen(stage, chat) == [b"two", told]
        (failed,) = await stage.record.deliveries.list(state=DeliveryState.FAILED)
        await stage.record.deliveries.move(session_id, failed.id, DeliveryState.PENDING)
        await stage.record.deliveries.finish_message(session_id, failed.message_id, chat, "retried")
        await stage.drained()
        assert seen(stage, chat) == [b"two", told, b"one"]
        assert await stage.record.deliveries.list_waiting("matrix") == []


async def test_a_chat_that_is_gone_takes_no_file(home: Path) -> None:
    """The message is set aside with its reason; nothing is told where nobody hears it."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        stage.platform.room(chat).is_gone = True
        await stage.record.append(session_id, await message_with(stage, chat, b"one", b"two", text=""))
        await stage.drained()
        (failed,) = await stage.deliveries(session_id)
        assert (failed.file, failed.state) == (1, DeliveryState.FAILED)
        assert await stage.record.deliveries.list_waiting("matrix") == []


async def test_an_audit_knows_files(home: Path) -> None:
    """A file that nobody recorded, another file in its place, and one that is missing are each found."""
    async with staged(home) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        await stage.record.append(session_id, await message_with(stage, chat, b"one", b"two"))
        await stage.drained()
        room = stage.platform.room(chat)
        timeline = list(room.timeline)
        room.timeline.append(msgspec.structs.replace(timeline[1], id="$stranger", key=""))
        assert await audited(stage, chat) == ["unrecorded"]
        room.timeline = [timeline[0], msgspec.structs.replace(timeline[1], file="other.png"), timeline[2]]
        assert await audited(stage, chat) == ["words"]
        room.timeline = timeline[:2]
        assert await audited(stage, chat) == ["incomplete"]


async def test_a_streamed_answer_keeps_its_files_before_what_comes_next(home: Path) -> None:
    """While the last edit waits for the platform's pace, nothing passes an answer whose files are still to come."""
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, edit_seconds_min=0.4)
    async with staged(home, capabilities=capabilities) as stage, stage.dispatching():
        chat = stage.platform.create_room(ANN, AGENT)
        session_id = await stage.session(chat)
        blob = await stage.record.blobs.put(b"one")
        async with stage.record.turn(session_id) as turn, turn.reply() as reply:
            await reply.write("Look")
            await stage.until(lambda: seen(stage, chat) == ["Look"])
            await reply.write(" here.")
            reply.add(File(blob=blob, name="1.png", size_bytes=3))
        await stage.record.append(session_id, Message.notice("and then", chat=chat))
        await stage.drained()
        assert seen(stage, chat) == ["Look", "Look here.", b"one", "and then"]
        assert await audited(stage, chat) == []
