"""What the tests of chats share: people who talk on a platform, the intake that listens, and maybe a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hansard.delivery.stream import files_of
from hansard.domain.deliveries import Delivery, Operation
from hansard.domain.ids import delivery_id
from hansard.domain.messages import Message, Role
from hansard.domain.settings import Channels, Pairing, Person, Resets, Settings
from hansard.domain.settings.channels import Matrix
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.receive import ChannelIntake, Wake
from hansard.journal.store import Wiring
from hansard.ports.channel import Batch, Capabilities, Event, EventKind, Post, RemoteFile
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from hansard.testing.fakes import FakeClock
from tests.engine.stage import QUICK, WAIT_SECONDS_MAX, PlayedModel, fixed

AGENT = "@hansard:example.org"
ANN = "@ann:example.org"
BOB = "@bob:example.org"
EVE = "@eve:elsewhere.net"
HOME_OF_ANN = "matrix:room:!ann:example.org"
ROOM = "matrix:room:!room:example.org"


class Doorman:
    """A channel that sends nothing: it only remembers which invitations were accepted."""

    name = "matrix"
    account = AGENT
    capabilities = Capabilities(text_bytes_max=1000)

    def __init__(self) -> None:
        """Nobody asked yet."""
        self.answers: list[tuple[str, bool]] = []
        self.reasons: list[str] = []
        self.files: dict[str, bytes | BaseException] = {}
        self.fetches: list[str] = []

    async def receive(self, cursor: str, held: Sequence[str]) -> AsyncGenerator[Batch, None]:
        """Tests bring the batches themselves."""
        del cursor, held
        for _ in ():
            yield Batch(cursor="")

    async def send(self, post: Post) -> str:
        """Intake never sends."""
        raise AssertionError(post)

    async def typing(self, chat: str, *, on: bool) -> None:
        """Intake never types."""
        raise AssertionError((chat, on))

    async def answer(self, chat: str, *, accept: bool, reason: str = "") -> None:
        """Remember."""
        self.reasons.append(reason)
        self.answers.append((chat, accept))

    async def close(self) -> None:
        """Nothing is held."""

    def history(self, chat: str, *, events_max: int = 10_000) -> AsyncGenerator[Any, None]:
        """Intake reads no history."""
        raise AssertionError((chat, events_max))

    async def fetch(self, file: RemoteFile, *, bytes_max: int) -> bytes:
        """Give what a test put there."""
        del bytes_max
        self.fetches.append(file.reference)
        found = self.files[file.reference]
        if isinstance(found, BaseException):
            raise found
        return found


class Town:
    """A record, a channel, and people on it."""

    def __init__(self, record: Record, clock: FakeClock, settings: Settings, model: PlayedModel | None) -> None:
        """Nobody said anything yet."""
        self.record = record
        self.clock = clock
        self.settings = settings
        self.channel = Doorman()
        self.reports: list[tuple[str, BaseException]] = []
        self.model = model or PlayedModel(["ok"])
        self.runner = Runner(
            Agent(record=record, models=fixed([self.model]), tools={}, limits=QUICK),
            lambda _id, error: self._report("", error),
        )
        self.intake = self.new_intake(settings)
        self._events = 0

    def _report(self, event_id: str, error: BaseException) -> None:
        self.reports.append((event_id, error))

    def new_intake(self, settings: Settings) -> ChannelIntake:
        """An intake as a restart makes it: it knows nothing but the record."""
        self.settings = settings
        self.intake = ChannelIntake(self.record, self.channel, settings, self.channel, self._report)
        return self.intake

    def event(self, text: str = "", sender: str = ANN, chat: str = HOME_OF_ANN, **fields: Any) -> Event:  # noqa: ANN401
        """Something happens, now, with an id of its own; a chat of one's own is direct."""
        self._events += 1
        given: dict[str, Any] = {
            "id": f"$event{self._events}",
            "kind": EventKind.MESSAGE,
            "is_direct": chat != ROOM and not chat.startswith(ROOM),
            "sent_at_ms": self.clock.now_microseconds() // 1000,
        }
        return Event(text=text, sender=sender, chat=chat, **{**given, **fields})

    async def take(self, *events: Event, cursor: str = "") -> list[Wake]:
        """A batch comes in, and what it asks for beside is done."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            wakes = await self.intake.take_batch(Batch(cursor=cursor or f"after {events[-1].id}", events=events))
            for job in self.intake.jobs():
                await job.finish_jobs()
            return wakes

    async def say(self, text: str, sender: str = ANN, chat: str = HOME_OF_ANN, **fields: Any) -> list[Wake]:  # noqa: ANN401
        """Somebody says something."""
        return await self.take(self.event(text, sender, chat, **fields))

    async def ask(self, text: str, sender: str = ANN, chat: str = HOME_OF_ANN, **fields: Any) -> None:  # noqa: ANN401
        """Somebody says something, and it is answered."""
        for wake in await self.say(text, sender, chat, **fields):
            self.runner.wake(wake.session_id, wake.turn_id)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await self.runner.settled(wake.session_id)

    async def session(self, key: str = HOME_OF_ANN) -> str:
        """The session that a chat is in."""
        route = await self.record.routes.read(key)
        assert route is not None
        return route.session_id

    async def messages(self, session_id: str = "", *roles: Role) -> list[Message]:
        """The messages of a session, notices left out unless they are asked for."""
        found = await self.record.load_transcript(session_id or await self.session())
        return [message for message in found if message.role in (roles or (Role.USER, Role.ASSISTANT))]

    async def words(self, session_id: str = "", *roles: Role) -> list[str]:
        """Their words."""
        return [message.text for message in await self.messages(session_id, *roles)]

    async def notices(self, session_id: str = "") -> list[str]:
        """What people were told about a session."""
        found = await self.messages(session_id, Role.NOTICE)
        return [message.text for message in found if not message.author]

    async def entries(self, session_id: str) -> list[Entry]:
        """A session's journal."""
        return await self.record.sessions.read_entries(session_id)

    def at_home(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of a kind in the home journal, as its log has them."""
        lines = [json.loads(line) for line in (self.record.home / "home.jsonl").read_text().splitlines()]
        return [line["body"] for line in lines if line["kind"] == kind]

    def told_at_home(self, chat: str) -> list[str]:
        """What people without a session were told in a chat."""
        return [body["parts"][0]["text"] for body in self.at_home("message.added") if body.get("chat", "") == chat]

    async def deliver(self, *, shows_files: bool = True) -> dict[str, str]:
        """Show everything that waits, as a dispatcher does; return the receipts by what is said."""
        shown: dict[str, str] = {}
        for waiting in await self.record.deliveries.list_waiting("matrix"):
            message = await self.record.messages.read(waiting.session_id, waiting.message_id)
            files = range(1, len(files_of(message)) + 1)
            texts = [(0, len(message.text.encode())), *((number, 0) for number in files)]
            for place, (file, size) in enumerate(texts, 1):
                delivery = Delivery(
                    id=delivery_id(message.id, waiting.chat, place),
                    session_id=waiting.session_id,
                    channel="matrix",
                    target=waiting.chat,
                    message_id=message.id,
                    operation=Operation.POST,
                    end_bytes=size,
                    file=file,
                )
                await self.record.deliveries.begin(delivery)
                receipt = f"$post-{message.id}-{place}"
                state = "sent" if shows_files or not file else "failed"
                await self.record.deliveries.move(waiting.session_id, delivery.id, state, receipt=receipt)
                shown.setdefault(message.text, receipt)
            await self.record.deliveries.finish_message(waiting.session_id, message.id, waiting.chat)
        return shown

    async def count_sessions(self) -> int:
        """How many sessions there are."""
        return len(await self.record.sessions())

    async def cursor(self) -> str | None:
        """How far the platform's stream was received."""
        return await self.record.intake.cursor(self.channel.name, self.channel.account)

    async def check(self) -> None:
        """Both legs agree, and nothing went wrong that no test expects."""
        report = await self.record.verify()
        assert report.ok, report.findings
        assert self.reports == []


def settings_of(*allow: str, **fields: Any) -> Settings:  # noqa: ANN401
    """Settings with a list of people; the fields are those of the channel, and whole sections."""
    sections = {
        name: fields.pop(name, default)
        for name, default in (("resets", Resets()), ("pairing", Pairing()), ("people", {}))
    }
    top = {name: fields.pop(name) for name in ("busy", "left_sessions") if name in fields}
    return Settings(channels=Channels(matrix=Matrix(allow=allow or (ANN, BOB), **fields)), **sections, **top)


@asynccontextmanager
async def town(
    home: Path, settings: Settings | None = None, model: PlayedModel | None = None, clock: FakeClock | None = None
) -> AsyncIterator[Town]:
    """A town with its clock stopped."""
    moved = clock or FakeClock()
    async with Record.open(home, wiring=Wiring(clock=moved)) as record:
        ready = Town(record, moved, settings or settings_of(), model)
        try:
            yield ready
        finally:
            await ready.runner.close()


__all__ = ["AGENT", "ANN", "BOB", "EVE", "HOME_OF_ANN", "ROOM", "Doorman", "Person", "Town", "settings_of", "town"]
