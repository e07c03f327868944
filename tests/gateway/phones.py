"""Two platforms in one gateway: rooms on one, telephones on the other, and people who are on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from hansard.app.wiring import open_app
from hansard.domain.chats import parse_key
from hansard.domain.settings import Busy, Channels, Settings
from hansard.domain.settings.channels import Matrix, Telegram
from hansard.errors import ChatGone
from hansard.gateway.process import Gateway
from hansard.record.api import Record
from hansard.testing import Platform, RecordingChannel
from hansard.testing.channel import Remembers
from hansard.testing.platform import PlatformRoom
from tests.gateway.stage import AGENT, ANN, TIMING, WAIT_SECONDS_MAX, is_idle

BOT = "1000"
PHONE, BOBS_PHONE = "42", "77"


class Phones(Platform):
    """A platform on which a chat with a person has that person's number."""

    def create_room(self, *members: str) -> str:
        """Return the chat with the first of the members; a group has a number of its own."""
        room_id = members[0] if len(members) <= 2 else f"-{next(self._numbers)}"
        self.rooms[room_id] = PlatformRoom(room_id, members)
        return f"telegram:chat:{room_id}"

    def room(self, chat: str) -> PlatformRoom:
        """Return the room of a chat."""
        room_id = parse_key(chat).place
        if room_id not in self.rooms:
            message = f"there is no chat {room_id}"
            raise ChatGone(message)
        return self.rooms[room_id]


class Both:
    """The two platforms, with a chat of Ann's on each, and what the agent is called there."""

    def __init__(self) -> None:
        """Ann has a room with the agent, and a telephone."""
        self.matrix, self.phones = Platform(), Phones()
        self.room = self.matrix.create_room(ANN, AGENT)
        self.phone = self.phones.create_room(PHONE, BOT)

    def platform(self, chat: str) -> Platform:
        """Return where a chat is."""
        return self.matrix if chat.startswith("matrix:") else self.phones

    def say(self, chat: str, text: str, sender: str = "") -> str:
        """Let Ann say something in a chat of hers, or somebody else."""
        own = ANN if chat.startswith("matrix:") else PHONE
        return self.platform(chat).say(chat, sender or own, text)

    def texts(self, chat: str) -> list[str]:
        """Return what a person reads of the agent in a chat."""
        return [text for sender, text in self.platform(chat).seen(chat) if sender in {AGENT, BOT}]

    async def reads(self, chat: str, text: str, times: int = 1) -> None:
        """Wait until the agent's posts of a chat hold a text."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while sum(text in each for each in self.texts(chat)) < times:  # noqa: ASYNC110 - platforms have no bell
                await asyncio.sleep(0.01)

    async def settled(self, record: Record) -> None:
        """Wait until everything that people said is received, answered and shown, on both."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not await self._is_settled(record):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.02)

    async def _is_settled(self, record: Record) -> bool:
        for name, account, platform in (("matrix", AGENT, self.matrix), ("telegram", BOT, self.phones)):
            if await record.intake.cursor(name, account) != platform.cursor:
                return False
        return await is_idle(record, "matrix", "telegram")


def both_allowed(script: Path, busy: Busy = Busy.QUEUE) -> Settings:
    """Everybody of example.org may talk, and two telephones."""
    channels = Channels(
        matrix=Matrix(allow=("*:example.org",)), telegram=Telegram(enabled=True, allow=(PHONE, BOBS_PHONE))
    )
    return Settings(model=f"scripted:{script}", busy=busy, channels=channels)


def channels_on(matrix: Remembers, phones: Remembers) -> list[RecordingChannel]:
    """Return a channel for each platform, here or behind a socket."""
    return [RecordingChannel(matrix, AGENT), RecordingChannel(phones, BOT, name="telegram")]


@asynccontextmanager
async def both_served(home: Path, settings: Settings, both: Both) -> AsyncIterator[Record]:
    """Run a gateway on both platforms, drain it, and verify the record."""
    errors: list[BaseException] = []
    stop = asyncio.Event()
    async with open_app(home, settings, {}, lambda _, error: errors.append(error)) as app:
        gateway = Gateway(app, channels_on(both.matrix, both.phones), TIMING)
        task = asyncio.create_task(gateway.run(stop))
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not await received(app.record):  # noqa: ASYNC110 - the same
                    await asyncio.sleep(0.01)
            yield app.record
        finally:
            stop.set()
            await asyncio.wait({task})
        task.result()
        report = await app.record.verify()
        assert report.ok, report.findings
    assert not errors, errors


async def received(record: Record) -> Mapping[str, str]:
    """Return the cursors, once there is one for each channel."""
    found = {
        name: await record.intake.cursor(name, account) or ""
        for name, account in (("matrix", AGENT), ("telegram", BOT))
    }
    return found if all(found.values()) else {}
