"""A channel of an installed package in the gateway, as docs/build/channels.md has it, from metadata to an answer."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hansard.app.channels import GROUP, open_other
from hansard.domain.settings.channels import OtherChannel
from hansard.errors import ConfigInvalid
from hansard.gateway.health import ask_health
from hansard.record.api import Record
from tests.gateway.stage import WAIT_SECONDS_MAX, is_idle, write_script

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "folder_channel.py"
PACKAGE, SETTINGS = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "build" / "channels.md").read_text(), re.DOTALL)
PROGRAM = (sys.executable, "-c", "from hansard.cli.main import main; main()")


def install(site: Path, entries: dict[str, str] | None = None) -> None:
    """Lay out the documented package as an installer does: its module, and metadata that name the entry point."""
    project = tomllib.loads(PACKAGE)["project"]
    site.mkdir()
    shutil.copy(EXAMPLE, site)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in (entries or project["entry-points"][GROUP]).items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")


class Desk:
    """A home with the documented settings, and the folder that they name."""

    def __init__(self, folder: Path) -> None:
        """Write everything."""
        self.home, self.letters = folder / "home", folder / "letters"
        install(folder / "site")
        self.home.mkdir(mode=0o700)
        assert '"/srv/letters"' in SETTINGS
        settings = SETTINGS.replace('"/srv/letters"', json.dumps(str(self.letters)))
        script = write_script(folder / "script")
        (self.home / "config.toml").write_text(f"model = {json.dumps(f'scripted:{script}')}\n{settings}")
        path = os.pathsep.join([str(ROOT / "src"), str(folder / "site")])
        self.environment = {**os.environ, "HANSARD_HOME": str(self.home), "PYTHONPATH": path}
        (self.letters / "ann" / "in").mkdir(parents=True)

    def drop(self, name: str, text: str) -> None:
        """Write a letter, and let it be there all at once."""
        draft = self.letters / name
        draft.write_text(text)
        draft.rename(self.letters / "ann" / "in" / f"{name}.txt")

    @property
    def shown(self) -> list[str]:
        """What Ann finds in her folder."""
        return [path.read_text() for path in sorted(self.letters.glob("ann/shown/*.txt"))]

    async def until_shown(self, *texts: str) -> None:
        """Wait until she finds this, and only this."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while self.shown != list(texts):  # noqa: ASYNC110 - nobody rings when a file appears
                await asyncio.sleep(0.05)

    async def _is_well(self, pid: int) -> bool:
        health = await ask_health(self.home)
        return health is not None and (health.pid, health.status) == (pid, "ok")

    @asynccontextmanager
    async def running(self, end: signal.Signals) -> AsyncIterator[None]:
        """Run `hansard gateway`, and end it so."""
        process = subprocess.Popen([*PROGRAM, "gateway"], env=self.environment, stderr=subprocess.DEVNULL)
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not await self._is_well(process.pid):
                    assert process.poll() is None
                    await asyncio.sleep(0.05)
            yield
        finally:
            process.send_signal(end)
            process.wait(120)


@pytest.mark.loss("E5", "F8", "F11")
async def test_the_documented_channel_talks(tmp_path: Path) -> None:
    """With the package and the settings of the page, letters are answered, once each, also those of a downtime."""
    desk = Desk(tmp_path)
    check = subprocess.run([*PROGRAM, "config", "check"], env=desk.environment, capture_output=True, check=False)
    assert check.stdout == b"ok\n", check.stderr
    async with desk.running(signal.SIGKILL):
        desk.drop("one", "hello")
        await desk.until_shown("You said: hello")
        async with Record.open(desk.home) as record, asyncio.timeout(WAIT_SECONDS_MAX):
            while not await is_idle(record, "folder"):  # noqa: ASYNC110 - another process has no bell for us
                await asyncio.sleep(0.05)
    desk.drop("two", "anybody?")
    async with desk.running(signal.SIGTERM):
        await desk.until_shown("You said: hello", "You said: anybody?")
        desk.drop("three", "good")
        await desk.until_shown("You said: hello", "You said: anybody?", "You said: good")
    async with Record.open(desk.home) as record:
        (session,) = await record.sessions()
        assert (session.source, session.owner) == ("folder", "person:folder:ann")
        said = [message.text for message in await record.load_transcript(session.id)]
        assert said == ["hello", "You said: hello", "anybody?", "You said: anybody?", "good", "You said: good"]
        route = await record.routes.read("folder:chat:ann")
        assert route is not None
        assert route.session_id == session.id
        assert (await record.verify()).ok


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({}, "no installed package has a channel of that name"),
        ({"folder": "folder_channel:nothing"}, "cannot be loaded"),
        ({"folder": "no_such_module:open_folder"}, "cannot be loaded"),
        ({"letters": "folder_channel:open_folder"}, "calls itself 'folder'"),
    ],
)
def test_what_cannot_be_opened_is_told(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, str], told: str
) -> None:
    """A name without a package, a package without its function, a channel of another name: each is said as that."""
    install(tmp_path / "site", entries or {"another": "folder_channel:open_folder"})
    monkeypatch.syspath_prepend(tmp_path / "site")
    name = next(iter(entries), "folder")
    with pytest.raises(ConfigInvalid, match=told) as caught:
        open_other(home, name, OtherChannel(), {})
    assert f"channels.other.{name}" in str(caught.value)
