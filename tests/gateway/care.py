"""A gateway that is cared for while it runs: its configuration is a file, and its platform is a test's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hansard.app.wiring import open_app
from hansard.domain.settings import Settings
from hansard.gateway.process import ConfigReload, Gateway, read_again
from hansard.ports.channel import Channel
from hansard.testing import Platform, RecordingChannel
from tests.gateway.stage import AGENT, TIMING, Playing, until


def write_config(
    home: Path,
    script: Path,
    *,
    allow: str = "*:example.org",
    more: str = "",
    matrix: str = "",
    address: str = "http://127.0.0.1:1",
) -> None:
    """Write a configuration: who may talk, the model's script, and whatever else a test wants."""
    home.mkdir(mode=0o700, exist_ok=True)
    lines = [
        f"model = {json.dumps(f'scripted:{script}')}",
        more,
        "[channels.matrix]",
        f'homeserver = "{address}"',
        f"allow = [{json.dumps(allow)}]",
        matrix if "user_id" in matrix else f'user_id = "{AGENT}"\n{matrix}',
    ]
    draft = home / "config.toml.draft"
    draft.write_text("\n".join(lines) + "\n")
    draft.replace(home / "config.toml")


class Doors:
    """Opens channels on a platform, and remembers which."""

    def __init__(self, platform: Platform) -> None:
        """None was opened yet."""
        self.platform = platform
        self.opened: list[ClosedChannel] = []

    def openers(self, settings: Settings) -> dict[str, object]:
        """Return how the channel of these settings is opened."""
        account = settings.channels.matrix.user_id or ""
        return {"matrix": lambda: self.open(account)}

    def open(self, account: str) -> Channel:
        """Open a channel."""
        self.opened.append(ClosedChannel(self.platform, account))
        return self.opened[-1]


class ClosedChannel(RecordingChannel):
    """A channel that remembers that it was closed."""

    is_closed = False

    async def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class Cared(Playing):
    """A gateway in this process whose configuration can be changed."""

    doors: Doors

    async def renew(self) -> None:
        """Have the configuration read again, and wait until it was."""
        before = (await self.gateway.health()).config.readings
        self.gateway.renew()
        async with asyncio.timeout(120):
            while (await self.gateway.health()).config.readings == before:  # noqa: ASYNC110 - it rings no bell
                await asyncio.sleep(0.005)


@asynccontextmanager
async def cared(home: Path, platform: Platform) -> AsyncIterator[Cared]:
    """Run a gateway by the configuration of a home, then drain it, and verify the record."""
    errors: list[BaseException] = []
    doors = Doors(platform)
    reloading = ConfigReload(read=lambda: read_again(home, {}, {}), openers=doors.openers)  # type: ignore[arg-type]
    terms = reloading.read()
    async with open_app(home, terms.settings, {}, lambda _, error: errors.append(error)) as app:
        channel = doors.open(terms.settings.channels.matrix.user_id or "")
        gateway = Gateway(app, [channel], TIMING, loaded=terms, reloading=reloading)
        play = Cared(app, platform, doors.opened[0], gateway)
        play.doors = doors
        task = asyncio.create_task(gateway.run(play.stop))
        try:
            await until(lambda: platform.calls["poll"] > 1)
            yield play
        finally:
            play.stop.set()
            await asyncio.wait({task})
        task.result()
        report = await app.record.verify()
        assert report.ok, report.findings
    assert not errors, errors
