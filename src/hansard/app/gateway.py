"""The gateway: channels, intake, turns and delivery in one process, for as long as it is wanted.

Reads: cursors, queued turns. Writes: through intake, engine and delivery.
Invariants: the next batch is asked for when the last one is durable; one process serves an account on a home.
On crash: what was received is in the record; the next start runs what waits and shows what was not shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from hansard.app.health import ChannelHealth, Health, health_served
from hansard.app.logs import error_fields, log
from hansard.channels.matrix import open_matrix
from hansard.delivery.dispatch import Dispatcher
from hansard.delivery.sending import Pace
from hansard.delivery.typing import Typing
from hansard.errors import ConfigInvalid, GatewayRuns, HansardError
from hansard.intake.receive import Intake
from hansard.record.locks import TryLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hansard.app.wiring import App
    from hansard.domain.settings import Settings
    from hansard.ports.channel import Channel, Timeline

logger = logging.getLogger("hansard.gateway")

RECEIVE_PAUSE_SECONDS = 1.0
"""Before a channel that failed in an unforeseen way is asked again."""

FLUSH_SECONDS = 5.0
"""For what an interrupted turn still has to show, at the end of a drain."""

QUIET_SECONDS_MAX = 180.0
"""A platform that has not even said that there is nothing new for so long is not well."""

LAG_SECONDS_MAX = 60.0
"""A message that waits longer than this to be shown is a sign of trouble."""


SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another waits for it: by default ten times as long, for which the
loop would wait whenever the writer works."""


def prefer_promptness() -> None:
    """Let this process answer soon, rather than do most: for a program that does nothing but serve."""
    sys.setswitchinterval(SWITCH_SECONDS)


class Timing(NamedTuple):
    """How long a gateway waits; tests make it impatient."""

    drain_seconds: float = 30.0
    flush_seconds: float = FLUSH_SECONDS
    pace: Pace = Pace()


class Address(NamedTuple):
    """Where an account is."""

    homeserver: str
    user_id: str


def open_channels(home: Path, settings: Settings, environment: Mapping[str, str]) -> list[Channel]:
    """Return the channels that are configured."""
    matrix = settings.channels.matrix
    if matrix.homeserver is None or matrix.user_id is None:
        message = "no channel is configured: set channels.matrix.homeserver and channels.matrix.user_id"
        raise ConfigInvalid(message)
    return [open_matrix(home, Address(matrix.homeserver, matrix.user_id), environment)]


@contextmanager
def account_held(home: Path, channel: Channel) -> Iterator[None]:
    """Serve an account alone: a second gateway would receive and answer everything a second time."""
    digest = hashlib.sha256(f"{channel.name}:{channel.account}".encode()).hexdigest()[:16]
    lock = TryLock(home / "locks" / f"gateway-{digest}")
    try:
        if not lock.take():
            message = f"another gateway serves {channel.account} ({channel.name}) from {home}"
            raise GatewayRuns(message)
        yield
    finally:
        lock.close()


class Served:
    """One channel, and what runs for it."""

    def __init__(self, app: App, channel: Channel, timing: Timing) -> None:
        """Nothing runs yet."""
        self._app = app
        self.channel = channel
        timeline = cast("Timeline", channel) if channel.capabilities.timeline else None
        self.intake = Intake(
            app.record, channel, app.settings, timeline, self.report, model=lambda: self._app.models.name
        )
        self.dispatcher = Dispatcher(app.record, channel, timeline=timeline, report=self.report, pace=timing.pace)
        self.typing = Typing(app.record, channel)
        self.received_at = asyncio.get_running_loop().time()

    def report(self, where: str, error: BaseException) -> None:
        """Log what went wrong: ids and kinds, no words."""
        log(logger, logging.WARNING, "trouble", channel=self.channel.name, where=where, **error_fields(error))

    async def receive(self) -> None:
        """Take in what happens on the platform, until cancelled."""
        name, account = self.channel.name, self.channel.account
        while True:
            connected = False
            try:
                cursor = await self._app.record.cursor(name, account) or ""
                held = await self.intake.held()
                log(logger, logging.INFO, "receiving", channel=name, account=account, held=len(held))
                async with aclosing(self.channel.receive(cursor, held)) as batches:
                    async for batch in batches:
                        for wake in await self.intake.take(batch):
                            self._app.runner.wake(wake.session_id, wake.turn_id)
                        self.received_at = asyncio.get_running_loop().time()
                        if not connected:
                            log(logger, logging.INFO, "connected", channel=name, account=account)
                        connected = True
            except Exception as error:  # noqa: BLE001  # boundary: channel call
                self.report("receive", error)
            await asyncio.sleep(RECEIVE_PAUSE_SECONDS)

    async def wake_waiting(self) -> None:
        """Run the turns that waited when the last gateway ended."""
        found = {(turn.session_id, turn.id) for turn in await self._app.record.outbox.queued_turns(self.channel.name)}
        for turn in await self._app.record.queued_turns():
            session = await self._app.record.session(turn.session_id)
            if session.source == self.channel.name:
                found.add((turn.session_id, turn.id))
        for session_id, turn_id in sorted(found):
            self._app.runner.wake(session_id, turn_id)
        log(logger, logging.INFO, "turns found waiting", channel=self.channel.name, count=len(found))

    async def health(self, now_microseconds: int) -> ChannelHealth:
        """Return how the channel does."""
        backlog = await self._app.record.outbox.backlog(self.channel.name)
        standing = self.dispatcher.standing
        oldest = backlog.oldest_at_microseconds
        return ChannelHealth(
            name=self.channel.name,
            account=self.channel.account,
            trouble=str(getattr(self.channel, "trouble", "")) or standing.trouble,
            waiting=backlog.messages,
            lag_seconds=max(0.0, (now_microseconds - oldest) / 1_000_000) if oldest else 0.0,
            quiet_seconds=round(asyncio.get_running_loop().time() - self.received_at, 3),
            deliveries=backlog.deliveries,
        )


class Gateway:
    """All channels of a process."""

    def __init__(self, app: App, channels: Sequence[Channel], timing: Timing) -> None:
        """Nothing runs yet."""
        self._app = app
        self._timing = timing
        self._served = [Served(app, channel, timing) for channel in channels]
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; then let what runs finish, within the time for that."""
        home, settings = self._app.record.home, self._app.settings
        async with AsyncExitStack() as stack:
            for served in self._served:
                stack.enter_context(account_held(home, served.channel))
                stack.push_async_callback(served.channel.close)
            await stack.enter_async_context(health_served(home, settings.gateway.health_port, self.health))
            receiving = [asyncio.create_task(served.receive()) for served in self._served]
            showing = [asyncio.create_task(served.dispatcher.run()) for served in self._served]
            showing += [asyncio.create_task(served.typing.run()) for served in self._served]
            try:
                for served in self._served:
                    await served.wake_waiting()
                await self._wait(stop, receiving + showing)
                await self._drain(receiving)
            finally:
                await end_tasks(*receiving, *showing)
                log(logger, logging.INFO, "stopped")

    async def _wait(self, stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until told to stop. Nothing else ends by itself: a part that does takes the gateway along, loudly."""
        told = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({told, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        for task in tasks:
            if task.done():
                task.result()

    async def _drain(self, receiving: list[asyncio.Task[None]]) -> None:
        """Receive no more; let turns finish and show what they said; interrupt what takes too long, and show that."""
        self._stopping = True
        log(logger, logging.INFO, "draining", seconds=self._timing.drain_seconds)
        await end_tasks(*receiving)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.drain_seconds):
                await self._app.runner.idle()
                await self._shown()
        await self._app.runner.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.flush_seconds):
                await self._shown()

    async def _shown(self) -> None:
        for served in self._served:
            await served.dispatcher.drained()

    async def health(self) -> Health:
        """Return how everything does."""
        now = self._app.record.store.clock.now_microseconds()
        trouble = self._app.record.trouble
        channels: list[ChannelHealth] = []
        try:
            channels = [await served.health(now) for served in self._served]
        except HansardError as error:
            trouble = trouble or str(error)
        is_well = not trouble and all(is_healthy(channel) for channel in channels)
        status = "ok" if is_well else "degraded"
        return Health(
            status="stopping" if self._stopping else status,
            pid=os.getpid(),
            started_at=self._started_at,
            record=trouble,
            channels=tuple(channels),
        )


def is_healthy(channel: ChannelHealth) -> bool:
    """Return whether a channel does what it should."""
    in_time = channel.lag_seconds <= LAG_SECONDS_MAX and channel.quiet_seconds <= QUIET_SECONDS_MAX
    return in_time and not channel.trouble


async def end_tasks(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
