"""Many people at a gateway whose model answers when a test lets it: who was begun, in which order, how many at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.requests import Delta, Finished, FinishReason, ModelEvent, ModelRules, Request
from hansard.domain.settings import Channels, Person, Settings, TurnLimits
from hansard.domain.settings.channels import Matrix
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing import RECORDING_CAPABILITIES, Platform
from tests.gateway.stage import AGENT, WAIT_SECONDS_MAX, Playing, app_with, gateway_on, until

OWNER, GUEST, OTHER = "@owner:example.org", "@guest:example.org", "@other:example.org"


class Doors:
    """A model behind a door: each request waits there until the test lets it pass, in their order."""

    name = "doors"
    uses_tools = False
    rules = ModelRules()

    def __init__(self) -> None:
        """The door is closed."""
        self.begun: list[str] = []
        """What was said last in each request, in the order in which they came."""
        self.running: Counter[str] = Counter()
        """By the first word of that, how many requests are open."""
        self.most: Counter[str] = Counter()
        """The most that were open at once; of all, under the empty word."""
        self._door = asyncio.Semaphore(0)

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Wait, and answer."""
        said = getattr(request.messages[-1], "text", "")
        word = said.split()[0]
        self.begun.append(said)
        self.running[word] += 1
        self.most[word] = max(self.most[word], self.running[word])
        self.most[""] = max(self.most[""], self.running.total())
        try:
            await self._door.acquire()
            yield Delta(f"to {said}")
        finally:
            self.running[word] -= 1
        yield Finished(reason=FinishReason.STOP, usage=Usage())

    def let(self, count: int = 1) -> None:
        """Let so many pass."""
        for _ in range(count):
            self._door.release()

    async def close(self) -> None:
        """Nothing is held."""


class Crowd:
    """A gateway, its platform, and the model behind the door."""

    def __init__(self, play: Playing, model: Doors) -> None:
        """Nobody has spoken."""
        self.play = play
        self.platform = play.platform
        self.record = play.record
        self.model = model

    def chat(self, *people: str) -> str:
        """Return the chat of a new room of some people and the agent."""
        return self.platform.create_room(*people, AGENT)

    def threads(self, chat: str, count: int) -> list[str]:
        """Return threads of a chat, each a conversation of its own."""
        return [f"{chat}:thread:$thread{number}" for number in range(count)]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        await until(condition)

    async def until_taken(self) -> None:
        """Wait until everything that was said is in the record."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await self.record.intake.cursor("matrix", AGENT) != self.platform.cursor:  # noqa: ASYNC110 - no bell
                await asyncio.sleep(0.01)

    async def until_queued(self, count: int) -> None:
        """Wait until so many turns wait, in the record and in the gateway's line."""
        await self.until_taken()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(await self.record.turns.list_queued()) != count:  # noqa: ASYNC110 - no bell
                await asyncio.sleep(0.01)
        await self.until(lambda: self.play.app.runner.waiting == count)

    async def answered(self) -> None:
        """Let everybody pass, and wait until all is answered and shown."""
        self.model.let(100_000)
        await self.play.settled()


def crowd_settings(limits: TurnLimits | None = None, people: dict[str, Person] | None = None) -> Settings:
    """Return settings by which everybody of example.org may talk."""
    return Settings(
        limits=limits or TurnLimits(), people=people or {}, channels=Channels(matrix=Matrix(allow=("*:example.org",)))
    )


@asynccontextmanager
async def crowd(
    home: Path,
    settings: Settings | None = None,
    platform: Platform | None = None,
    wiring: Wiring | None = None,
) -> AsyncIterator[Crowd]:
    """Open the gateway; afterwards the record must be in order."""
    model, used = Doors(), settings or crowd_settings()
    capabilities = msgspec.structs.replace(RECORDING_CAPABILITIES, edit_seconds_min=0.0)
    async with Record.open(home, wiring=wiring) as record:
        await record.people.declare(used.people)
        async with app_with(record, used, model) as app, gateway_on(app, platform or Platform(), capabilities) as play:
            yield Crowd(play, model)
        report = await record.verify()
        assert report.ok, report.findings
