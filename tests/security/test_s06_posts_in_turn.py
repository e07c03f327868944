"""S6: one person's or one chat's posts, however many, do not hold up what others are shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from hansard.delivery.dispatch import Dispatcher
from hansard.delivery.sending import DeliveryTiming
from hansard.domain.messages import Message
from hansard.ports.channel import Post
from hansard.record.api import Record
from hansard.testing import Fault, FaultKind, Platform, RecordingChannel
from tests.gateway.stage import until

AGENT, GUEST, OWNER = "@agent:example.org", "@guest:example.org", "@owner:example.org"
POSTS = 30
PACE = DeliveryTiming(heal_seconds=0.05, full_look_seconds=0.5, careful_seconds=120.0, lane_messages_max=7)
NARROW = msgspec.structs.replace(PACE, lanes_max=8, calls_max=4, lane_messages_max=1)


class Hanging(Platform):
    """A platform that takes a guest's posts only when it is let."""

    def __init__(self) -> None:
        """Nothing is taken yet."""
        super().__init__()
        self.let = asyncio.Event()
        self.hanging = 0

    async def post(self, account: str, post: Post) -> str:
        """Show a post, at once unless it is the guest's."""
        if "guest" in post.markdown:
            self.hanging += 1
            await self.let.wait()
        return await super().post(account, post)


class Desk:
    """A record, and a platform of which the order of all posts is known."""

    def __init__(self, record: Record, platform: Platform) -> None:
        """Nothing is to be shown."""
        self.record = record
        self.platform = platform

    async def tell(self, person: str, chats: list[str], *texts: str) -> None:
        """Have something to show to a person, in chats of theirs."""
        for chat in chats:
            session = await self.record.create_session(source="matrix", owner=f"person:matrix:{person}")
            for text in texts:
                await self.record.append(session.id, Message.notice(text, chat=chat))

    def chats(self, person: str, count: int = 1) -> list[str]:
        """Return new chats of a person."""
        return [self.platform.create_room(person, AGENT) for _ in range(count)]

    def shown(self) -> list[str]:
        """Return what was shown anywhere, in the order in which it was."""
        events = [shown for room in self.platform.rooms.values() for shown in room.timeline]
        return [shown.text for shown in sorted(events, key=lambda shown: int(shown.id.removeprefix("$event")))]

    @asynccontextmanager
    async def dispatching(self, pace: DeliveryTiming = PACE) -> AsyncIterator[Dispatcher]:
        """Show what waits for as long as this lasts."""
        errors: list[BaseException] = []
        channel = RecordingChannel(self.platform, AGENT)
        dispatcher = Dispatcher(self.record, channel, report=lambda _, error: errors.append(error), pace=pace)
        task = asyncio.create_task(dispatcher.run())
        try:
            yield dispatcher
        finally:
            task.cancel()
            await asyncio.wait({task})
        assert not errors, errors

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        await until(condition)

    async def drained(self, dispatcher: Dispatcher) -> None:
        """Wait until everything is shown."""
        async with asyncio.timeout(120):
            await dispatcher.drained()


@asynccontextmanager
async def desk(home: Path, platform: Platform | None = None) -> AsyncIterator[Desk]:
    """Open a record; afterwards it must be in order."""
    async with Record.open(home) as record:
        yield Desk(record, platform or Platform())
        report = await record.verify()
        assert report.ok, report.findings


async def test_one_chat_with_many_posts_holds_up_no_other(home: Path) -> None:
    """While the server limits posts, chats are written to in turn: the owner's is not behind a guest's thirty."""
    platform = Hanging()
    async with desk(home, platform) as here:
        owner = here.chats(OWNER)
        await here.tell(OWNER, owner, "first")
        platform.faults.append(Fault(FaultKind.BUSY, 0.05))
        async with here.dispatching() as dispatcher:
            await here.drained(dispatcher)
            await here.tell(GUEST, here.chats(GUEST), *(f"guest {number}" for number in range(POSTS)))
            await here.until(lambda: platform.hanging == 1)
            await here.tell(OWNER, owner, "owner")
            await here.until(lambda: len(dispatcher.lanes) == 2)
            platform.let.set()
            await here.drained(dispatcher)
        shown = here.shown()[1:]
        assert shown.index("owner") <= 2
        assert [text for text in shown if text != "owner"] == [f"guest {number}" for number in range(POSTS)]


async def test_one_person_with_many_chats_holds_up_no_other(home: Path) -> None:
    """While the server limits posts, people are served in turn: the owner's chat is not behind thirty of a guest's."""
    platform = Hanging()
    async with desk(home, platform) as here:
        owner = here.chats(OWNER)
        await here.tell(OWNER, owner, "first")
        platform.faults.append(Fault(FaultKind.BUSY, 0.05))
        async with here.dispatching() as dispatcher:
            await here.drained(dispatcher)
            await here.tell(GUEST, here.chats(GUEST, POSTS), "guest")
            await here.until(lambda: platform.hanging == 1)
            await here.tell(OWNER, owner, "owner 1", "owner 2")
            await here.until(lambda: sum(len(lane.shows) for lane in dispatcher.lanes.values()) == POSTS + 2)
            platform.let.set()
            await here.drained(dispatcher)
        shown = here.shown()[1:]
        assert shown.index("owner 2") <= 4
        assert len(shown) == POSTS + 2


async def test_hanging_posts_of_one_person_leave_room_for_others(home: Path) -> None:
    """A person whose posts all hang takes a part of the lanes and of the calls, and the others are shown."""
    platform = Hanging()
    async with desk(home, platform) as here:
        await here.tell(GUEST, here.chats(GUEST, POSTS), "guest 1", "guest 2")
        async with here.dispatching(NARROW) as dispatcher:
            await here.until(lambda: platform.hanging > 0)
            await here.tell(OWNER, here.chats(OWNER), "owner")
            await here.until(lambda: "owner" in here.shown())
            platform.let.set()
            await here.drained(dispatcher)
        assert sorted(here.shown()) == sorted(["owner", *["guest 1", "guest 2"] * POSTS])
        for room in platform.rooms.values():
            assert [shown.text for shown in room.timeline] in (["owner"], ["guest 1", "guest 2"])
