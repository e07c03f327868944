"""The gateway: channels, intake, turns and delivery in one process, for as long as it is wanted.

Reads: cursors, queued turns; the configuration (`config.toml`, `notices.toml`, environment variables), again when it is
told to. Writes: through intake, engine and delivery.
Invariants: settings are one frozen value, which is swapped as a whole once all of it was found right; what is wrong
changes nothing. When a newer Hansard has migrated the record, or the home or the account's lock was taken away, nothing
more is received, and the process ends.
On crash: what was received is in the record; the next start runs what waits and shows what was not shown.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hansard.app.config import load_config, value_at
from hansard.app.home_files import check_modes, load_wording, refusal_of
from hansard.app.keys import check_keys
from hansard.app.wiring import App, declare_settings
from hansard.domain.notices import Wording
from hansard.domain.settings import SETTINGS, Settings
from hansard.engine.turns import Ran
from hansard.errors import MUST_END, HansardError, RecordMigrated
from hansard.gateway.channel import Served, Timing
from hansard.gateway.health import (
    ChannelHealth,
    ConfigHealth,
    Health,
    Page,
    Readings,
    TurnsHealth,
    health_served,
    metrics_text,
)
from hansard.gateway.logs import error_fields, log
from hansard.ports.channel import Channel
from hansard.tasks import cancel_all, wait_until

logger = logging.getLogger("hansard.gateway")

QUIET_SECONDS_MAX = 180.0
"""A platform that has not even said that there is nothing new for so long is not well."""

LAG_SECONDS_MAX = 60.0
"""A message that waits longer than this to be shown is a sign of trouble."""

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another waits for it: by default ten times as long, for which the
loop would wait whenever the writer works."""

LOOK_SECONDS = 0.25
"""How long after a commit to look whether the record was migrated or the home taken away."""

LOOK_SECONDS_MAX = 30.0
"""How often to look although nothing was heard: a folder above the home may have been renamed."""

LIMIT = "limit"
"""The reason of turns that reached a limit of theirs: that says nothing of the model."""

IN_PLACE = frozenset({"allow", "observe", "rooms", "answer", "answer_age_seconds_max", "attachment_bytes_max"})
"""Settings of a channel that are taken up while it is open. With any other, it is opened again."""

TOKEN_FILE = "token"  # noqa: S105  # the name of a file
"""In the folder of a channel, where people put it."""

FIXED = ("gateway.health_port",)
"""Settings that count from the next start on."""


class LoadedConfig(NamedTuple):
    """What a gateway goes by: one value, never changed, only replaced."""

    settings: Settings
    words: Wording
    tokens: Mapping[str, object] = {}
    """By channel, which file holds its token: a new one opens the channel again."""


class ConfigReload(NamedTuple):
    """Where a gateway finds its configuration anew, and how it opens a channel by it."""

    read: Callable[[], LoadedConfig]
    """ConfigInvalid when anything is wrong with it."""
    openers: Callable[[Settings], Mapping[str, Callable[[], Channel]]]
    """The channels that are configured, by name."""


def prefer_promptness() -> None:
    """Let this process answer soon, rather than do most: for a program that does nothing but serve."""
    sys.setswitchinterval(SWITCH_SECONDS)


class Gateway:
    """All channels of a process."""

    def __init__(
        self,
        app: App,
        channels: Sequence[Channel],
        timing: Timing,
        *,
        loaded: LoadedConfig | None = None,
        reloading: ConfigReload | None = None,
    ) -> None:
        """Nothing runs yet. Without a `reloading` the configuration stays as it is."""
        self._app = app
        self._timing = timing
        self._loaded = loaded or LoadedConfig(app.settings, app.record.words)
        self._reloading = reloading
        self._served = [Served(app, channel, timing, self._loaded.settings) for channel in channels]
        self._started_at = now_text()
        self._config = ConfigHealth(taken_up_at=self._started_at)
        self._turns = TurnsHealth()
        app.runner.listen(self._turn_ended)
        self._wanted = asyncio.Event()
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop; then let what runs finish, within the time for that."""
        home, port = self._app.record.home, self._loaded.settings.gateway.health_port
        pages = {"/health": self._health_page, "/healthz": self._health_page, "/metrics": self._metrics_page}
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            for served in self._served:
                served.hold_account()
            await stack.enter_async_context(health_served(home, port, pages))
            for served in self._served:
                served.start()
            await self._serve(stop)
            await self._drain()

    async def _close(self) -> None:
        for served in self._served:
            await served.close()
        log(logger, logging.INFO, "stopped")

    async def _serve(self, stop: asyncio.Event) -> None:
        """Serve until told to stop. Nothing else ends by itself: a part that does takes the gateway along, loudly."""
        told = asyncio.create_task(stop.wait())
        unfit = asyncio.create_task(self._until_unfit())
        renewing = asyncio.create_task(self._wanted.wait())
        try:
            while not told.done():
                tasks = [task for served in self._served for task in served.tasks]
                await asyncio.wait({told, unfit, renewing, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                if unfit.done() or any(task.done() for task in tasks):
                    await self._give_up([unfit, *tasks])
                    return
                if renewing.done() and not told.done():
                    self._wanted.clear()
                    await self._renew_unless(told)
                    renewing = asyncio.create_task(self._wanted.wait())
        finally:
            await cancel_all(told, unfit, renewing)

    async def _until_unfit(self) -> None:
        """Wait until this process may not write any more; then raise why."""
        heard = asyncio.Event()
        with self._app.record.notify(heard):
            while True:
                heard.clear()
                self._app.record.check_fit()
                await wait_until(heard, asyncio.get_running_loop().time() + LOOK_SECONDS_MAX)
                await asyncio.sleep(LOOK_SECONDS)

    async def _give_up(self, tasks: list[asyncio.Task[None]]) -> None:
        """A part ended that should not have: receive no more, and raise why."""
        for served in self._served:
            await served.stop_receiving()
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                if isinstance(error, MUST_END):
                    told = "the record was migrated" if isinstance(error, RecordMigrated) else "the gateway must end"
                    log(logger, logging.ERROR, told, **error_fields(error))
                raise error

    async def _drain(self) -> None:
        """Receive no more; let turns finish and show what they said; interrupt what takes too long, and show that."""
        self._stopping = True
        seconds = self._timing.drain_seconds
        log(logger, logging.INFO, "draining", seconds=seconds)
        await asyncio.gather(*(served.stop_receiving() for served in self._served))
        self._app.runner.leave_waiting()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._app.runner.idle()
                await self._shown()
        await self._app.runner.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.flush_seconds):
                await self._shown()

    async def _shown(self) -> None:
        for served in self._served:
            await served.dispatcher.drained()

    # A new configuration.

    def renew(self) -> None:
        """Have the configuration read again, soon. What became of it is in the health, and in the log."""
        self._wanted.set()

    async def _renew_unless(self, told: asyncio.Task[Any]) -> None:
        """Take up a new configuration, unless told to stop meanwhile: it may have to wait for the record."""
        work = asyncio.create_task(self._renew())
        await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
        else:
            await cancel_all(work)

    async def _renew(self) -> None:
        """Take up a new configuration, if it is right; otherwise go on with the present one, and say so."""
        if self._reloading is None:
            return
        number = self._config.readings + 1
        try:
            loaded = await asyncio.to_thread(self._reloading.read)
            changed = changes_between(self._loaded, loaded)
            await self._take_up(self._reloading, loaded)
        except MUST_END:
            raise
        except HansardError as error:
            self._config = ConfigHealth(taken_up_at=self._config.taken_up_at, readings=number, refused=str(error))
            log(logger, logging.ERROR, "configuration refused", error=type(error).__name__, why=str(error))
            return
        fixed = tuple(key for key in changed if key in FIXED)
        taken = tuple(key for key in changed if key not in FIXED)
        self._config = ConfigHealth(taken_up_at=now_text(), readings=number, fixed=fixed)
        log(logger, logging.INFO, "configuration taken up", changed=taken, after_a_restart=fixed)

    async def _take_up(self, reloading: ConfigReload, loaded: LoadedConfig) -> None:
        """Swap what everything goes by. Channels are made before any is closed: what fails then changes nothing."""
        openers = reloading.openers(loaded.settings)
        old = {served.channel.name: served for served in self._served}
        wanted = [name for name in old if name in openers]
        kept = [name for name in wanted if connection_of(self._loaded, name) == connection_of(loaded, name)]
        made = await self._make({name: opened for name, opened in openers.items() if name not in kept}, loaded)
        app = self._app
        self._loaded = loaded
        self._timing = self._timing._replace(drain_seconds=loaded.settings.gateway.drain_seconds)
        app.wiring.apply_settings(loaded.settings, app.runner.outlived)
        app.runner.use_agent(app.wiring.agent())
        app.record.use_words(loaded.words)
        for name in kept:
            old[name].apply_settings(loaded.settings)
        left = [served for name, served in old.items() if name not in kept]
        for served in left:
            log(logger, logging.INFO, "channel closed", channel=served.channel.name, account=served.channel.account)
            await served.stop_receiving()
            for new in made:
                if new.holds == served.holds:
                    new.hold_after(served)
            await served.close()
        self._served = [old[name] for name in kept] + made
        for new in made:
            new.start()

    async def _make(self, openers: Mapping[str, Callable[[], Channel]], loaded: LoadedConfig) -> list[Served]:
        """Make channels, and hold their accounts, but those that this gateway serves already; note who people are."""
        held = {served.holds for served in self._served}
        made: list[Served] = []
        try:
            for opened in openers.values():
                made.append(Served(self._app, opened(), self._timing, loaded.settings))
                if made[-1].holds not in held:
                    made[-1].hold_account()
            await declare_settings(self._app.record, loaded.settings)
        except HansardError:
            for served in made:
                await served.close()
            raise
        return made

    # How it does.

    def _turn_ended(self, session_id: str, ran: Ran) -> None:
        """Count a turn, and log it if it failed: the class of the reason, no words of anybody."""
        if ran.stopped:
            return
        model = ran.model or self._app.models.name
        self._turns = count_turn(self._turns, ran.failed, model, now_text())
        if ran.failed:
            fields = {"session": session_id, "turn": ran.turn_id, "reason": ran.failed, "model": model}
            log(logger, logging.WARNING, "a turn failed", **fields)

    async def health(self) -> Health:
        now = self._app.record.clock.now_microseconds()
        trouble = self._app.record.trouble
        channels: list[ChannelHealth] = []
        try:
            channels = [await served.health(now) for served in self._served]
        except HansardError as error:
            trouble = trouble or str(error)
        status = "degraded"
        if self._stopping:
            status = "stopping"
        elif not trouble and not self._turns.failing and all(map(is_healthy, channels)):
            status = "ok"
        return Health(
            status=status,
            pid=os.getpid(),
            started_at=self._started_at,
            record=trouble,
            channels=tuple(channels),
            config=self._config,
            turns=self._turns,
        )

    async def _health_page(self) -> Page:
        health = await self.health()
        status = "200 OK" if health.status == "ok" else "503 Service Unavailable"
        return Page(msgspec.json.encode(health) + b"\n", "application/json", status)

    async def _metrics_page(self) -> Page:
        """Return the numbers; those that only the record knows are left out while it cannot be read."""
        record, queued = self._app.record, None
        with suppress(HansardError):
            queued = len(await record.turns.list_queued())
        readings = Readings(self._app.runner.running, queued, record.latency)
        return Page(metrics_text(await self.health(), readings), "text/plain; version=0.0.4; charset=utf-8")


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def count_turn(turns: TurnsHealth, failed: str, model: str, now: str) -> TurnsHealth:
    """Return how turns stand after one more has ended; `failed` is empty when it did not fail."""
    if not failed:
        return TurnsHealth(completed=turns.completed + 1, failed=turns.failed)
    counts = {**turns.failed, failed: turns.failed.get(failed, 0) + 1}
    if failed == LIMIT:
        return msgspec.structs.replace(turns, failed=counts)
    return TurnsHealth(
        completed=turns.completed,
        failed=counts,
        failing=turns.failing + 1,
        reason=failed,
        model=model,
        failing_since=turns.failing_since or now,
    )


def is_healthy(channel: ChannelHealth) -> bool:
    in_time = channel.lag_seconds <= LAG_SECONDS_MAX and channel.quiet_seconds <= QUIET_SECONDS_MAX
    return in_time and not channel.trouble


def load_gateway_config(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> LoadedConfig:
    """Return what is configured now, or raise ConfigInvalid with everything that is wrong."""
    check_modes(home)
    settings = load_config(home, environment, options).settings
    tokens = {name: look_at(home / name / TOKEN_FILE) for name in settings.channels.sections()}
    return LoadedConfig(settings, load_wording(home), tokens)


def read_again(home: Path, environment: Mapping[str, str], options: Mapping[str, object]) -> LoadedConfig:
    """Return what is configured now, or raise ConfigInvalid, also for keys: what runs must not be left without them."""
    if findings := check_keys(home, environment):
        raise refusal_of(findings)
    return load_gateway_config(home, environment, options)


def look_at(path: Path) -> tuple[int, ...]:
    """Return what tells a file from the one that was there before; of one that is not there, nothing."""
    try:
        seen = path.stat()
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def changes_between(old: LoadedConfig, new: LoadedConfig) -> list[str]:
    """Return what is different, by the names of settings; never their values, which may be private."""
    keys = [key for key in SETTINGS if value_at(old.settings, key) != value_at(new.settings, key)]
    return keys if old.words == new.words else [*keys, "notices"]


def connection_of(loaded: LoadedConfig, channel: str) -> tuple[object, ...]:
    """Return what a channel is opened by: when that is the same again, the channel stays open."""
    section = loaded.settings.channels.section(channel)
    given = [(name, getattr(section, name)) for name in section.__struct_fields__ if name not in IN_PLACE]
    return (*given, loaded.tokens.get(channel))
