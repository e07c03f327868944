"""One channel that is served: what is received from it, shown on it, and how it does.

Reads: the cursor, queued turns. Writes: through intake, engine and delivery.
Invariants: the next batch is asked for when the last one is durable; receiving ends between two batches, not within
one, unless that takes too long; one process serves an account on a home.
On crash: what was received is in the record; whoever serves next runs what waits and shows what was not shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import ExitStack, aclosing, suppress
from typing import NamedTuple, cast

from hansard.app.wiring import App
from hansard.delivery.dispatch import Dispatcher, Typing
from hansard.delivery.sending import DeliveryTiming
from hansard.domain.people import People
from hansard.domain.settings import Settings
from hansard.errors import MUST_END, GatewayRuns, HansardError
from hansard.gateway.health import ChannelHealth
from hansard.gateway.logs import error_fields, log
from hansard.intake.receive import ChannelIntake
from hansard.journal.locks import TryLock
from hansard.ports.channel import Channel, Fetches, Timeline
from hansard.tasks import cancel_all

logger = logging.getLogger("hansard.gateway")

RECEIVE_PAUSE_SECONDS = 1.0
"""Before a channel that failed in an unforeseen way is asked again."""

TAKE_SECONDS_MAX = 5.0
"""For the batch that is being taken when receiving is to end. What is not taken then comes again."""

TEND_SECONDS = 2.0
"""How often to look whether those who say something in a chat are still alive."""


class Timing(NamedTuple):
    """How long a gateway waits; tests make it impatient."""

    drain_seconds: float = 30.0
    flush_seconds: float = 5.0
    """For what an interrupted turn still has to show, at the end of a drain."""
    pace: DeliveryTiming = DeliveryTiming()


class Served:
    """One channel, and what runs for it."""

    def __init__(self, app: App, channel: Channel, timing: Timing, settings: Settings) -> None:
        self._app = app
        self.channel = channel
        timeline = cast("Timeline", channel) if channel.capabilities.timeline else None
        fetches = cast("Fetches", channel) if channel.capabilities.fetches else timeline
        self.intake = ChannelIntake(
            app.record, channel, settings, fetches, self.report, model=lambda: self._app.models.name
        )
        self.dispatcher = Dispatcher(app.record, channel, timeline=timeline, report=self.report, pace=timing.pace)
        self.typing = Typing(app.record, channel)
        self.received_at = asyncio.get_running_loop().time()
        self.events = 0
        """How many events came, some maybe again."""
        self._taking = asyncio.Lock()
        self._held = ExitStack()
        self._receiving: asyncio.Task[None] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.apply_settings(settings)

    def apply_settings(self, settings: Settings) -> None:
        self.intake.apply_settings(settings)
        self.dispatcher.sender.people = People(settings, self.channel.name)

    def report(self, where: str, error: BaseException) -> None:
        """Log what went wrong: ids and kinds, no words."""
        log(logger, logging.WARNING, "trouble", channel=self.channel.name, where=where, **error_fields(error))

    # Its life.

    @property
    def holds(self) -> tuple[str, str]:
        return self.channel.name, self.channel.account

    def hold_account(self) -> None:
        """Serve the account alone: a second gateway would receive and answer everything a second time.

        The lock is taken again whenever its file may have been removed. If another gateway has it then, nothing more
        is written here, and so nothing is shown.
        """
        store, (name, account) = self._app.record.store, self.holds
        digest = hashlib.sha256(f"{name}:{account}".encode()).hexdigest()[:16]
        lock = TryLock(store.home / "locks" / f"gateway-{digest}")
        self._held.callback(lock.close)

        def take_again() -> None:
            if not lock.take_lock():
                raise GatewayRuns(f"another gateway serves {account} ({name}) from {store.home}")

        take_again()
        store.held_locks.append(take_again)
        self._held.callback(store.held_locks.remove, take_again)

    def hold_after(self, other: Served) -> None:
        """Take over the account from whoever served it before in this process: nobody can come between."""
        self._held = other._held.pop_all()

    def start(self) -> None:
        self._receiving = asyncio.create_task(self.receive())
        showing = (self.dispatcher.run(), self.typing.run(), self.tend(), *(job.run() for job in self.intake.jobs()))
        self.tasks = [self._receiving, *(asyncio.create_task(each) for each in showing)]

    async def stop_receiving(self) -> None:
        """Receive no more, once the batch that is being taken is in the record."""
        if self._receiving is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(TAKE_SECONDS_MAX), self._taking:
                self._receiving.cancel()
        await cancel_all(self._receiving)

    async def close(self) -> None:
        """End what runs for the channel, let go of it and of the account."""
        with self._held:
            await cancel_all(*self.tasks)
            await self.channel.close()

    # Receiving.

    async def receive(self) -> None:
        """Run the turns that wait, then take in what happens on the platform, until cancelled."""
        woken = False
        while True:
            try:
                if not woken:
                    await self.wake_waiting()
                woken = True
                await self._receive_on()
            except MUST_END:
                raise
            except Exception as error:  # noqa: BLE001  # boundary: channel call
                self.report("receive", error)
            await asyncio.sleep(RECEIVE_PAUSE_SECONDS)

    async def _receive_on(self) -> None:
        """Take in what happens from the cursor on, for as long as the channel gives anything."""
        name, account = self.channel.name, self.channel.account
        connected = False
        cursor = await self._app.record.intake.cursor(name, account) or ""
        held = await self.intake.held()
        log(logger, logging.INFO, "receiving", channel=name, account=account, held=len(held))
        async with aclosing(self.channel.receive(cursor, held)) as batches:
            async for batch in batches:
                async with self._taking:
                    for wake in await self.intake.take_batch(batch):
                        self._app.runner.wake(wake.session_id, wake.turn_id, after_seconds=wake.after_seconds)
                self.events += len(batch.events)
                self.received_at = asyncio.get_running_loop().time()
                if not connected:
                    log(logger, logging.INFO, "connected", channel=name, account=account)
                connected = True

    async def tend(self) -> None:
        """End what a program that is gone, such as a terminal, was saying in these chats; run what waits instead."""
        heard = asyncio.Event()
        heard.set()
        with self._app.record.notify(heard, chunks=False):
            while True:
                await heard.wait()
                await asyncio.sleep(TEND_SECONDS)
                heard.clear()
                try:
                    for session_id in await self._app.record.turns.end_lost(self.channel.name):
                        self._app.runner.wake(session_id)
                except MUST_END:
                    raise
                except HansardError as error:
                    self.report("tend", error)
                    heard.set()

    async def wake_waiting(self) -> None:
        found = {(turn.session_id, turn.id) for turn in await self._app.record.turns.list_queued(self.channel.name)}
        for turn in await self._app.record.turns.list_queued():
            session = await self._app.record.sessions.read(turn.session_id)
            if session.source == self.channel.name:
                found.add((turn.session_id, turn.id))
        for session_id, turn_id in sorted(found):
            self._app.runner.wake(session_id, turn_id)
        log(logger, logging.INFO, "turns found waiting", channel=self.channel.name, count=len(found))

    async def health(self, now_microseconds: int) -> ChannelHealth:
        backlog = await self._app.record.deliveries.count_waiting(self.channel.name)
        sender = self.dispatcher.sender
        oldest = backlog.oldest_at_microseconds
        return ChannelHealth(
            name=self.channel.name,
            account=self.channel.account,
            trouble=str(getattr(self.channel, "trouble", "")) or sender.health.trouble,
            note="; ".join(each for each in (str(getattr(self.channel, "note", "")), sender.health.note) if each),
            waiting=backlog.messages,
            lag_seconds=max(0.0, (now_microseconds - oldest) / 1_000_000) if oldest else 0.0,
            quiet_seconds=round(asyncio.get_running_loop().time() - self.received_at, 3),
            deliveries=backlog.deliveries,
            events=self.events,
            sent=sender.sent,
        )
