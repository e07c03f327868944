"""Delivery on a platform that knows no keys and tells nothing of the past: never lost, and marked if maybe twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hansard.channels.telegram import TelegramChannel
from hansard.channels.telegram.channel import TEXT_UNITS_MAX
from hansard.delivery.dispatch import Dispatcher
from hansard.delivery.sending import UNSETTLED, DeliveryTiming
from hansard.delivery.split import MARK, MARKS_MAX, room_of, with_mark
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.domain.ids import delivery_id, new_id
from hansard.domain.messages import File, Message, Role, Text
from hansard.record.api import Record
from hansard.record.deliveries import DeliveryMoved
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.stage import WAIT_SECONDS_MAX, channel_on, until
from tests.delivery.splitting import split
from tests.gateway.stage import entries_of

PACE = DeliveryTiming(
    down_seconds_min=0.02,
    down_seconds_max=0.05,
    heal_seconds=0.05,
    full_look_seconds=0.5,
    careful_seconds=0,
    busy_seconds_max=0.2,
)
MARKED = f"{MARK}\n\n"


class Stage:
    """A record, a chat with Ann, and a dispatcher between them."""

    def __init__(self, record: Record, channel: TelegramChannel, api: BotApi, ann: int) -> None:
        """Keep the parts."""
        self.record, self.channel, self.api, self.ann = record, channel, api, ann
        self.errors: list[BaseException] = []

    @property
    def chat(self) -> str:
        """The chat's name."""
        return f"telegram:chat:{self.ann}"

    @property
    def shown(self) -> list[str]:
        """What Ann sees of the agent."""
        return self.api.world.of_bot(self.ann)

    @asynccontextmanager
    async def dispatching(self, pace: DeliveryTiming = PACE) -> AsyncIterator[Dispatcher]:
        """Deliver for as long as this lasts."""
        dispatcher = Dispatcher(self.record, self.channel, report=lambda _, error: self.errors.append(error), pace=pace)
        task = asyncio.create_task(dispatcher.run())
        try:
            yield dispatcher
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def drained(self) -> None:
        """Deliver everything."""
        async with self.dispatching() as dispatcher, asyncio.timeout(WAIT_SECONDS_MAX):
            await dispatcher.drained()

    async def session(self) -> str:
        """Return a session in which Ann said something."""
        session = await self.record.create_session(source="telegram")
        said = Message.user("hello", author=str(self.ann), chat=self.chat, event_id=new_id())
        await self.record.append(session.id, said)
        return session.id

    async def say(self, *texts: str) -> str:
        """Let the agent say something to Ann, a notice each; return the session."""
        session_id = await self.session()
        for text in texts:
            await self.record.append(session_id, Message.notice(text, chat=self.chat))
        return session_id

    async def deliveries(self, session_id: str) -> list[Delivery]:
        """Return a session's deliveries."""
        return await self.record.deliveries.list(session_id=session_id)


@pytest.fixture
async def stage(api: BotApi, home: Path) -> AsyncIterator[Stage]:
    """A stage whose record is verified in the end."""
    ann = api.world.person("Ann")
    async with Record.open(home) as record, channel_on(api, home) as channel:
        played = Stage(record, channel, api, ann)
        yield played
        report = await record.verify()
        assert report.ok, report.findings
        assert not played.errors


@pytest.mark.loss("E4", "F8")
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FaultKind.CUT_AFTER, ["Hello", f"{MARKED}Hello"]),
        (FaultKind.CUT_BEFORE, [f"{MARKED}Hello"]),
        (FaultKind.BROKEN, [f"{MARKED}Hello"]),
        (FaultKind.BUSY, ["Hello"]),
    ],
)
async def test_a_post_of_which_nobody_knows_is_shown_again_with_a_mark(
    stage: Stage, kind: FaultKind, expected: list[str]
) -> None:
    """Whether it was shown or not: it is shown once more, marked; the record said so before anybody saw it."""
    stage.api.faults.append(Fault(kind, "sendMessage"))
    session_id = await stage.say("Hello")
    await stage.drained()
    assert stage.shown == expected
    (delivery,) = await stage.deliveries(session_id)
    is_marked = kind is not FaultKind.BUSY
    assert (delivery.state, delivery.mark) == (DeliveryState.SENT, MARK if is_marked else "")
    moves = [
        entry.body for entry in await entries_of(stage.record, session_id) if isinstance(entry.body, DeliveryMoved)
    ]
    assert [move.state for move in moves if move.mark] == [DeliveryState.SENDING] * is_marked


async def test_a_mark_stays_while_the_message_grows(stage: Stage) -> None:
    """A reply whose first post was cut is marked to its end: the copy without a mark stays as it was."""
    session_id = await stage.session()
    stage.api.faults.append(Fault(FaultKind.CUT_AFTER, "sendMessage"))
    async with stage.dispatching() as dispatcher, stage.record.turn(session_id) as turn:
        async with turn.reply() as reply:
            await reply.write("One")
            await until(lambda: len(stage.shown) == 2)
            await reply.write(", two")
            await until(lambda: stage.shown[1] == f"{MARKED}One, two")
            await reply.write(", three.")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await dispatcher.drained()
    assert stage.shown == ["One", f"{MARKED}One, two, three."]
    marks = [delivery.mark for delivery in await stage.deliveries(session_id)]
    assert len(marks) == 3
    assert set(marks) == {MARK}


async def test_an_edit_of_which_nobody_knows_is_made_again(stage: Stage) -> None:
    """It shows the same words in the same place: there is nothing to mark."""
    session_id = await stage.session()
    async with stage.dispatching() as dispatcher, stage.record.turn(session_id) as turn:
        async with turn.reply() as reply:
            await reply.write("One")
            await until(lambda: stage.shown == ["One"])
            stage.api.faults.append(Fault(FaultKind.CUT_AFTER, "editMessageText"))
            await reply.write(", two.")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await dispatcher.drained()
    assert stage.shown == ["One, two."]
    assert stage.api.calls["editMessageText"] == 2


@pytest.mark.loss("F16")
async def test_it_is_not_tried_for_ever(stage: Stage) -> None:
    """Cut after every effect, the copies count their marks; after a few of them a person has to decide."""
    stage.api.faults.extend([Fault(FaultKind.CUT_AFTER, "sendMessage")] * 20)
    session_id = await stage.say("Hello", "And on")
    async with stage.dispatching():
        await until(lambda: len(stage.shown) >= MARKS_MAX + 1)
        stage.api.faults.clear()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await stage.record.deliveries.list_waiting("telegram"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert stage.shown[: MARKS_MAX + 1] == [with_mark("Hello", MARK * count) for count in range(MARKS_MAX + 1)]
    first = next(each for each in await stage.deliveries(session_id) if each.state is DeliveryState.FAILED)
    assert first.reason == UNSETTLED
    assert stage.shown[-1].endswith("And on")


async def test_a_file_of_which_nobody_knows_is_marked_too(stage: Stage) -> None:
    """Its caption is the mark."""
    blob = await stage.record.blobs.put(b"words")
    session_id = await stage.session()
    parts = (Text("See:"), File(blob=blob, name="n.txt", media_type="text/plain", size_bytes=5))
    stage.api.faults.append(Fault(FaultKind.CUT_AFTER, "sendDocument"))
    await stage.record.append(session_id, Message(id=new_id(), role=Role.NOTICE, parts=parts, chat=stage.chat))
    await stage.drained()
    assert stage.shown == ["See:", "", MARK]
    assert [posted.file for posted in stage.api.world.chats[stage.ann].timeline] == [None, b"words", b"words"]


@pytest.mark.loss("F11")
async def test_what_a_dead_process_was_sending_is_shown_with_a_mark(stage: Stage) -> None:
    """It was on its way when its sender died: the next one cannot know, and says so."""
    session_id = await stage.session()
    notice = Message.notice("Hello", chat=stage.chat)
    await stage.record.append(session_id, notice)
    delivery = Delivery(
        id=delivery_id(notice.id, stage.chat, 1),
        session_id=session_id,
        channel="telegram",
        target=stage.chat,
        message_id=notice.id,
        end_bytes=5,
    )
    await stage.record.deliveries.begin(delivery)
    await stage.record.deliveries.move(session_id, delivery.id, DeliveryState.UNKNOWN, reason="its sender is gone")
    await stage.drained()
    assert stage.shown == [f"{MARKED}Hello"]


async def test_a_mark_counts_once_however_busy_the_platform_is(stage: Stage) -> None:
    """A rate limit after a cut is surely not shown: the mark stays one."""
    stage.api.faults.extend([Fault(FaultKind.CUT_BEFORE, "sendMessage"), Fault(FaultKind.BUSY, "sendMessage", 1)])
    await stage.say("Hello")
    await stage.drained()
    assert stage.shown == [f"{MARKED}Hello"]


async def test_long_texts_fit_with_all_their_marks(stage: Stage) -> None:
    """A message of many posts is shown whole, each within Telegram's limit, also when one of them is marked."""
    text = "😀" * 9000
    stage.api.faults.extend([Fault(FaultKind.CUT_BEFORE, "sendMessage")] * MARKS_MAX)
    await stage.say(text)
    await stage.drained()
    posts = [post.shown for post in split(text, room_of(stage.channel.capabilities))]
    assert "".join(posts) == text
    assert stage.shown == [with_mark(posts[0], MARK * MARKS_MAX), *posts[1:]]
    assert stage.channel.capabilities.size(stage.shown[0]) > TEXT_UNITS_MAX - 2


@pytest.mark.loss("F9")
async def test_a_storm_of_rate_limits(stage: Stage) -> None:
    """While everything is refused with 429, nothing is shown; afterwards all of it is, once, in order."""
    stage.api.storm_seconds = 1
    await stage.say("One", "Two", "Three")
    async with stage.dispatching() as dispatcher:
        await until(lambda: "asks to wait" in dispatcher.sender.health.trouble)
        assert stage.shown == []
        stage.api.storm_seconds = 0
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await dispatcher.drained()
    assert stage.shown == ["One", "Two", "Three"]


@pytest.mark.loss("F9")
async def test_a_busy_group_holds_up_nobody_else(stage: Stage) -> None:
    """A group's own limit lets its posts wait, in order; a private chat is served meanwhile."""
    group = stage.api.world.group("Friends", stage.ann)
    session = await stage.record.create_session(source="telegram")
    stage.api.faults.append(Fault(FaultKind.BUSY, "sendMessage", 30))
    async with stage.dispatching(msgspec.structs.replace(PACE, busy_seconds_max=30)) as dispatcher:
        for text in ("One", "Two"):
            await stage.record.append(session.id, Message.notice(text, chat=f"telegram:chat:{group}"))
        await until(lambda: not stage.api.faults)
        await stage.say("Hello, Ann")
        await until(lambda: stage.shown == ["Hello, Ann"])
        assert stage.api.world.of_bot(group) == []
        assert dispatcher.sender.health.trouble == ""
    await stage.drained()
    assert stage.api.world.of_bot(group) == ["One", "Two"]


async def test_a_chat_that_is_gone_is_set_aside(stage: Stage) -> None:
    """What could not be shown is failed, visibly, without asking Telegram each time; others are served."""
    bob = stage.api.world.person("Bob")
    stage.api.world.block(stage.ann)
    session_id = await stage.say("One", "Two")
    other = await stage.record.create_session(source="telegram")
    await stage.record.append(other.id, Message.notice("Hello, Bob", chat=f"telegram:chat:{bob}"))
    await stage.drained()
    assert stage.shown == []
    assert stage.api.world.of_bot(bob) == ["Hello, Bob"]
    assert {each.state for each in await stage.deliveries(session_id)} == {DeliveryState.FAILED}
    assert stage.api.calls["sendMessage"] == 2


async def test_a_long_line_is_shown_to_its_last_sign(stage: Stage) -> None:
    """Posts that begin in the middle of a line show what was said, also when that begins with a sign of Markdown."""
    text = " ".join(f"{number} > 3, {number} # 4, - 5 and + 6:" for number in range(400))
    await stage.say(text)
    await stage.drained()
    assert len(stage.shown) > 1
    assert " ".join(stage.shown) == text
