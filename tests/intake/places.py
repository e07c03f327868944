"""What the tests of one person in several places share: Matrix, Telegram and a terminal on one record."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hansard.delivery.sending import may_follow
from hansard.domain.messages import Message, Role
from hansard.domain.people import People, terminal_owner
from hansard.domain.settings import Channels, Person, Settings
from hansard.domain.settings.channels import Matrix, Telegram
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.receive import ChannelIntake
from hansard.intake.speak import parse
from hansard.journal.store import Wiring
from hansard.ports.channel import Batch, Capabilities, Event, EventKind
from hansard.record.api import Record
from hansard.testing.fakes import FakeClock
from hansard.tools.builtin import SessionSearch
from tests.engine.stage import QUICK, WAIT_SECONDS_MAX, PlayedModel, fixed
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, Doorman

BOBS = "matrix:room:!bob:example.org"
PHONE = "42"
PHONE_OF_ANN = "telegram:chat:42"
MALLORY = "666"
PHONE_OF_MALLORY = "telegram:chat:666"
ON_MATRIX, ON_TELEGRAM, AT_HOME = f"person:matrix:{ANN}", "person:telegram:42", "person:admin"
CODE = re.compile(r"/link ([a-z0-9]{4}-[a-z0-9]{4})\b")
SENDERS = {HOME_OF_ANN: ANN, BOBS: BOB, PHONE_OF_ANN: PHONE, PHONE_OF_MALLORY: MALLORY}


class Caller(Doorman):
    """A channel of a name of its own, of which it is known who is where."""

    capabilities = Capabilities(text_bytes_max=1000, company=True)

    def __init__(self, name: str, account: str) -> None:
        """Everybody is alone in their chat."""
        super().__init__()
        self.name = name
        self.account = account
        self.crowded: set[str] = set()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        """What happens while the platform is asked who is there."""

    async def is_direct(self, chat: str) -> bool:
        """Return what the test says."""
        if self.meanwhile is not None:
            await self.meanwhile()
        return chat not in self.crowded


def settings_with(people: dict[str, Person] | None = None, telegram: tuple[str, ...] = (PHONE, MALLORY)) -> Settings:
    """Ann and Bob may talk on Matrix, two telephones on Telegram."""
    channels = Channels(matrix=Matrix(allow=(ANN, BOB)), telegram=Telegram(allow=telegram))
    return Settings(channels=channels, people=people or {})


class Places:
    """A record, and three places on it."""

    def __init__(self, record: Record, clock: FakeClock, settings: Settings) -> None:
        """Nobody said anything yet."""
        self.record = record
        self.clock = clock
        self.model = PlayedModel(["ok"])
        self.errors: list[BaseException] = []
        self.tool = SessionSearch(record)
        self.channels = {"matrix": Caller("matrix", "@hansard:example.org"), "telegram": Caller("telegram", "1000")}
        self.runner = Runner(
            Agent(record=record, models=fixed([self.model]), tools={}, limits=QUICK),
            lambda _, error: self.errors.append(error),
        )
        self.terminal = ""
        self._events = 0
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Intakes as a restart makes them."""
        self.settings = settings
        self.intakes = {
            name: ChannelIntake(self.record, channel, settings, None, lambda _, error: self.errors.append(error))
            for name, channel in self.channels.items()
        }

    async def may_follow(self, session_id: str, chat: str) -> bool:
        """Whether a chat is shown, now, what is said elsewhere in a session."""
        channel = self.channels[chat.partition(":")[0]]
        return await may_follow(self.record, channel, People(self.settings, channel.name), session_id, chat)

    def event(self, text: str, chat: str, **fields: Any) -> Event:  # noqa: ANN401
        """Somebody says something in their chat, or in the room."""
        self._events += 1
        given: dict[str, Any] = {
            "id": f"$event{self._events}",
            "kind": EventKind.MESSAGE,
            "sender": SENDERS.get(chat, ANN),
            "is_direct": chat in SENDERS,
            "is_for_agent": True,
            "sent_at_ms": self.clock.now_microseconds() // 1000,
        }
        return Event(text=text, chat=chat, **{**given, **fields})

    async def take(self, event: Event) -> str:
        """An event comes in, and is answered; return the session that its chat is in then."""
        intake = self.intakes[event.chat.partition(":")[0]]
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            for wake in await intake.take_batch(Batch(cursor=f"after {event.id}", events=(event,))):
                self.runner.wake(wake.session_id, wake.turn_id)
                await self.runner.settled(wake.session_id)
        route = await self.record.routes.read(event.chat)
        return route.session_id if route is not None else ""

    async def say(self, text: str, chat: str, **fields: Any) -> str:  # noqa: ANN401
        """Somebody says something; return the session that the chat is in then."""
        return await self.take(self.event(text, chat, **fields))

    async def command(self, text: str, chat: str, **fields: Any) -> str:  # noqa: ANN401
        """Somebody gives a command in a chat; return its reply."""
        session_id = await self.say(text, chat, **fields)
        told = [each for each in await self.record.load_transcript(session_id) if each.role is Role.NOTICE]
        assert told[-1].chat == chat
        assert not told[-1].author
        return told[-1].text

    async def type(self, text: str) -> str:
        """The person at the terminal gives a command; return its reply."""
        owner = terminal_owner(self.settings.people)
        if not self.terminal:
            self.terminal = (await self.record.create_session(source="cli", owner=owner)).id
        parsed = parse(text)
        assert parsed is not None
        outcome = await run_command(
            CommandScene(record=self.record, session_id=self.terminal, owner=owner), text, parsed
        )
        self.terminal = outcome.session_id
        return outcome.text

    async def speak(self, text: str) -> str:
        """The person at the terminal says something, and nobody answers; return the session."""
        owner = terminal_owner(self.settings.people)
        if not self.terminal:
            self.terminal = (await self.record.create_session(source="cli", owner=owner)).id
        await self.record.append(self.terminal, Message.user(text))
        return self.terminal

    async def code(self, chat: str) -> str:
        """Return the code that a person is shown, in a chat or at the terminal."""
        reply = await (self.command("/link", chat) if chat else self.type("/link"))
        return code_in(reply)

    async def link(self, one: str = HOME_OF_ANN, other: str = PHONE_OF_ANN) -> None:
        """Make two chats one person's."""
        assert "one person with" in await self.command(f"/link {await self.code(one)}", other)

    async def told(self, chat: str) -> list[str]:
        """Return what waits to be shown in a chat, in order: texts of home and of sessions."""
        channel = chat.partition(":")[0]
        waiting = [each for each in await self.record.deliveries.list_waiting(channel) if each.chat == chat]
        return [(await self.record.messages.read(each.session_id, each.message_id)).text for each in waiting]

    async def check(self) -> None:
        """Both legs agree, every table is the fold of its entries, and nothing went wrong."""
        report = await self.record.verify()
        assert report.ok, report.findings
        assert self.errors == []


def code_in(reply: str) -> str:
    """Return the code in a reply."""
    found = CODE.search(reply)
    assert found, reply
    return found[1]


@asynccontextmanager
async def places(home: Path, settings: Settings | None = None, clock: FakeClock | None = None) -> AsyncIterator[Places]:
    """Three places with their clock stopped."""
    moved = clock or FakeClock()
    async with Record.open(home, wiring=Wiring(clock=moved)) as record:
        chosen = settings or settings_with()
        await record.people.declare(chosen.people)
        here = Places(record, moved, chosen)
        try:
            yield here
        finally:
            await here.runner.close()


__all__ = ["ANN", "BOB", "HOME_OF_ANN", "ROOM", "Person", "Places", "code_in", "places", "settings_with"]
