"""A whole gateway on a platform in memory, with a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hansard.app.wiring import AgentWiring, App, open_app
from hansard.delivery.audit import Audit, audit_chat
from hansard.delivery.sending import DeliveryTiming
from hansard.domain.settings import Busy, Channels, Settings
from hansard.domain.settings.channels import Matrix
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.gateway.channel import Timing
from hansard.gateway.process import Gateway
from hansard.ports.channel import Capabilities
from hansard.ports.model import Model
from hansard.record.api import Record
from hansard.record.messages.entries import Entry
from hansard.testing import RECORDING_CAPABILITIES, Platform, RecordingChannel
from hansard.testing.channel import Remembers
from tests.counts import times

if TYPE_CHECKING:
    from hansard.app.wiring import Models

ANN, BOB, AGENT = "@ann:example.org", "@bob:example.org", "@agent:example.org"
WAIT_SECONDS_MAX = times(test=120, long=300, prove=1200)
"""Against hanging. The larger counts of the longer runs take longer."""
PACE = DeliveryTiming(down_seconds_min=0.02, down_seconds_max=0.2, heal_seconds=0.05, full_look_seconds=0.5)
TIMING = Timing(drain_seconds=5, flush_seconds=2, pace=PACE)


def write_script(path: Path, text: str = "You said: {last}", *, delay_seconds: float = 0.0) -> Path:
    """Write a script for the model: one answer, for ever."""
    lines = ["[[answers]]", f"text = {json.dumps(text)}", 'pieces = "words"', f"delay_seconds = {delay_seconds}"]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_settings(script: Path, busy: Busy = Busy.INTERRUPT) -> Settings:
    """Everybody of example.org may talk."""
    return Settings(model=f"scripted:{script}", busy=busy, channels=Channels(matrix=Matrix(allow=("*:example.org",))))


class Playing:
    """A gateway that runs, and the platform that it serves."""

    def __init__(self, app: App, platform: Platform, channel: RecordingChannel, gateway: Gateway) -> None:
        """Keep the parts."""
        self.app = app
        self.record = app.record
        self.platform = platform
        self.channel = channel
        self.gateway = gateway
        self.stop = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so. If it never is, say how things stand."""
        try:
            await until(condition)
        except TimeoutError:
            waiting = await self.record.deliveries.list_waiting(self.channel.name)
            sessions = [await entries_of(self.record, each.id) for each in await self.record.sessions()]
            story = [f"{each.seq} {each.kind}" for entries in sessions for each in entries[-30:]]
            raise AssertionError(f"to be shown: {waiting}; runner: {self.app.runner.busy}; {story}") from None

    async def settled(self) -> None:
        """Wait until every turn has run and everything is shown."""
        await settled(self.record, self.platform, self.channel.account, lambda: self.app.runner.busy)

    def texts(self, chat: str) -> list[str]:
        """Return what a member of a chat reads of the agent."""
        return [text for sender, text in self.platform.seen(chat) if sender == AGENT]

    async def audit(self, chat: str) -> Audit:
        """Compare a chat with the record."""
        return await audit_chat(self.record, self.channel, "matrix", AGENT, chat)


async def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the platform has no bell for whoever looks on
            await asyncio.sleep(0.01)


async def is_idle(record: Record, *channels: str) -> bool:
    """Return whether nothing waits to run, nothing runs, and nothing waits to be shown.

    Asked in the order in which a turn moves on: one that moves meanwhile is met at the next question.
    """
    if await record.turns.list_queued():
        return False
    if any([await record.turns.list_running_chats(channel) for channel in channels]):
        return False
    return not any([await record.deliveries.list_waiting(channel) for channel in channels])


async def settled(record: Record, platform: Platform, account: str, busy: Callable[[], bool]) -> None:
    """Wait until everything that people said is received, answered and shown."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            received = await record.intake.cursor("matrix", account) == platform.cursor
            if received and not busy() and await is_idle(record, "matrix"):
                return
            await asyncio.sleep(0.02)


class OneModel:
    """In place of the models of a process: one that a test brings."""

    def __init__(self, model: Model) -> None:
        """Give this one."""
        self.name = model.name
        self._model = model

    async def __call__(self) -> list[Model]:
        """Return it."""
        return [self._model]


@asynccontextmanager
async def app_with(record: Record, settings: Settings, model: Model, *others: Model) -> AsyncIterator[App]:
    """What a gateway needs, with a model of the test's own, and others that a session can choose by their names."""

    async def choose(name: str) -> Model:
        return next(other for other in others if other.name == name)

    errors: list[BaseException] = []
    models = cast("Models", OneModel(model))
    agent = Agent(
        record=record, models=models, tools={}, limits=settings.limits, choose=choose, compaction=settings.compaction
    )
    runner = Runner(agent, lambda _, error: errors.append(error))
    try:
        yield App(
            record=record,
            settings=settings,
            models=models,
            runner=runner,
            wiring=AgentWiring(record.home, record, models, settings, {}),
        )
    finally:
        await runner.close()
    assert not errors, errors


@asynccontextmanager
async def gateway_on(app: App, platform: Platform, capabilities: Capabilities) -> AsyncIterator[Playing]:
    """Run a gateway on an app that is there."""
    channel = RecordingChannel(platform, AGENT, capabilities=capabilities)
    gateway = Gateway(app, [channel], TIMING)
    play = Playing(app, platform, channel, gateway)
    task = asyncio.create_task(gateway.run(play.stop))
    try:
        await until(lambda: platform.calls["poll"] > 1)
        yield play
    finally:
        play.stop.set()
        await asyncio.wait({task})
    task.result()


@asynccontextmanager
async def playing(
    home: Path,
    settings: Settings,
    platform: Platform,
    *,
    served: Remembers | None = None,
    capabilities: Capabilities = RECORDING_CAPABILITIES,
    timing: Timing = TIMING,
) -> AsyncIterator[Playing]:
    """Run a gateway for as long as this lasts, then drain it, and verify the record."""
    errors: list[BaseException] = []
    async with open_app(home, settings, {}, lambda _, error: errors.append(error)) as app:
        channel = RecordingChannel(served or platform, AGENT, capabilities=capabilities)
        gateway = Gateway(app, [channel], timing)
        play = Playing(app, platform, channel, gateway)
        task = asyncio.create_task(gateway.run(play.stop))
        try:
            await asyncio.sleep(0)
            yield play
        finally:
            play.stop.set()
            await asyncio.wait({task})
        task.result()
        report = await app.record.verify()
        assert report.ok, report.findings
    assert not errors, errors


async def entries_of(record: Record, session_id: str) -> list[Entry]:
    """Return every entry of a session."""
    found: list[Entry] = []
    while page := await record.sessions.read_entries(session_id, after=found[-1].seq if found else 0):
        found += page
    return found


ROUNDS = 6


def write_rounds(path: Path) -> Path:
    """A model that wants to remember something each time, which nobody lets it do unasked, and then says what came."""
    rounds = []
    for number in range(ROUNDS):
        arguments = json.dumps({"action": "add", "text": f"note {number}"})
        rounds.append(f"[[answers]]\ncalls = [{{ name = 'memory', arguments = '{arguments}', id = 'c{number}' }}]\n")
        rounds.append(f"[[answers]]\ntext = 'Round {number} is over.'\n")
    path.write_text("".join(rounds))
    return path
