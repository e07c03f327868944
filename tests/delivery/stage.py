"""A record, a platform in memory and a dispatcher between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hansard.delivery.dispatch import Dispatcher
from hansard.delivery.sending import DeliveryTiming
from hansard.domain.deliveries import Delivery
from hansard.domain.ids import new_id
from hansard.domain.messages import Message
from hansard.journal.store import Wiring
from hansard.ports.channel import Capabilities
from hansard.record.api import Record
from hansard.testing import RECORDING_CAPABILITIES, Platform, RecordingChannel

ANN, AGENT = "@ann:example.org", "@agent:example.org"
WAIT_SECONDS_MAX = 120.0
PACE = DeliveryTiming(down_seconds_min=0.02, down_seconds_max=0.1, heal_seconds=0.05, full_look_seconds=0.5)


class Stage:
    """What a test of delivery plays on."""

    def __init__(self, record: Record, platform: Platform, capabilities: Capabilities) -> None:
        """Begin without a dispatcher."""
        self.record = record
        self.platform = platform
        self.channel = RecordingChannel(platform, AGENT, capabilities=capabilities)
        self.errors: list[BaseException] = []
        self.dispatcher = Dispatcher(
            record, self.channel, timeline=self.channel, report=lambda _, error: self.errors.append(error), pace=PACE
        )

    @asynccontextmanager
    async def dispatching(self) -> AsyncIterator[None]:
        """Deliver for as long as this lasts."""
        task = asyncio.create_task(self.dispatcher.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def drained(self) -> None:
        """Wait until everything is delivered."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.dispatcher.drained()

    async def session(self, chat: str, text: str = "hello") -> str:
        """Return a session in which Ann said something in a chat, with a turn that waits."""
        session = await self.record.create_session(source="matrix")
        await self.record.append(session.id, Message.user(text, author=ANN, chat=chat, event_id=f"${new_id()}"))
        return session.id

    async def answer(self, session_id: str, *pieces: str) -> str:
        """Run a turn that says something; return the message's id."""
        message_id = new_id()
        async with self.record.turn(session_id) as turn, turn.reply(id=message_id) as reply:
            for piece in pieces:
                await reply.write(piece)
        return message_id

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not condition():  # noqa: ASYNC110 - the platform has no bell for whoever looks on
                await asyncio.sleep(0.005)

    def texts(self, chat: str) -> list[str]:
        """Return what a member of a chat reads of the agent."""
        return [text for sender, text in self.platform.seen(chat) if sender == AGENT]

    async def deliveries(self, session_id: str) -> list[Delivery]:
        """Return a session's deliveries."""
        return await self.record.deliveries.list(session_id=session_id)


@asynccontextmanager
async def staged(
    home: Path, *, capabilities: Capabilities = RECORDING_CAPABILITIES, wiring: Wiring | None = None
) -> AsyncIterator[Stage]:
    """Set the stage; afterwards the record must be in order."""
    async with Record.open(home, wiring=wiring) as record:
        yield Stage(record, Platform(), capabilities)
        report = await record.verify()
        assert report.ok, report.findings
