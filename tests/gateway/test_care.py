"""Reload, upgrade and SIGTERM while many people talk. No message is lost, and none is answered twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from hansard.domain.notices import ENGLISH
from hansard.gateway.health import ask_health
from hansard.record.api import Record
from hansard.record.schema import SCHEMA
from hansard.testing import Platform
from tests.gateway.care import write_config
from tests.gateway.care_worker import EXIT_MIGRATED
from tests.gateway.socket_platform import served_platform
from tests.gateway.stage import AGENT, settled, until, write_script
from tests.gateway.town import ROOT, Town, check

ROUNDS = 25 if os.environ.get("HANSARD_PROVE") else 1
RELOADS = 4
NEXT = "CREATE TABLE of_the_next_hansard (id INTEGER PRIMARY KEY) STRICT;\n"


@asynccontextmanager
async def talking(town: Town) -> AsyncIterator[None]:
    """Let people talk for as long as this lasts."""
    task = asyncio.create_task(town.talk())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def ended(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process has ended, and return how."""
    await until(lambda: process.poll() is not None)
    assert process.returncode is not None
    return process.returncode


async def readings(home: Path) -> int:
    """Return how often a gateway has read its configuration."""
    health = await ask_health(home)
    return -1 if health is None else health.config.readings


def make_newer(folder: Path) -> Path:
    """Return the source of a Hansard that has one migration more."""
    package = folder / "hansard"
    # With what is compiled already, but not what another process is just compiling.
    shutil.copytree(ROOT / "src" / "hansard", package, ignore=shutil.ignore_patterns("*.pyc.*"))
    record = package / "record"
    (record / "migrations" / "9999_next.sql").write_text(NEXT)
    (record / "memory.sql").write_text(NEXT + (record / "memory.sql").read_text())
    return folder


def go_back(home: Path) -> None:
    """Undo the migration, so that this process may look at the record."""
    connection = apsw.Connection(str(home / "state.db"))
    assert connection.pragma("user_version") == SCHEMA.version + 1
    connection.execute("DROP TABLE of_the_next_hansard")
    connection.pragma("user_version", SCHEMA.version)
    connection.close()


def migrate(newer: Path, home: Path) -> None:
    """Open the record with the newer Hansard, as any command of it would."""
    arguments = [sys.executable, "-m", "hansard.cli.main", "--home", str(home), "sessions", "list"]
    environment = {**os.environ, "PYTHONPATH": str(newer)}
    subprocess.run(arguments, env=environment, cwd=newer, check=True, timeout=120, stdout=subprocess.DEVNULL)


def is_answered(platform: Platform, chat: str) -> bool:
    """Return whether the last that was said in a chat has its answer, or people were told that it was lost."""
    seen = platform.seen(chat)
    last = max((place for place, (sender, _) in enumerate(seen) if sender != AGENT), default=-1)
    if last < 0:
        return True
    told = f"{seen[last][1]} is what you said.", ENGLISH.recovered
    return any(text.endswith(told) for sender, text in seen[last + 1 :] if sender == AGENT)


async def reload_often(town: Town, process: subprocess.Popen[bytes], script: Path) -> None:
    """Change the configuration again and again: what is taken up in place, and what opens the channel again."""
    for number in range(RELOADS):
        address = "http://127.0.0.1:1" if number % 2 else "http://127.0.0.1:2"
        write_config(town.home, script, matrix=f"observe = {str(number % 3 == 0).lower()}", address=address)
        process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(120):
            while await readings(town.home) <= number:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        health = await ask_health(town.home)
        assert health is not None
        assert health.config.refused == ""
        await town.more(town.draw.randrange(20))


async def play(town: Town, script: Path, newer: Path) -> None:
    """Let people talk while the gateway is reloaded, stopped, started, upgraded and stopped again."""
    process = await town.start(ROOT / "src")
    try:
        async with talking(town):
            await town.more(20)
            await reload_often(town, process, script)
            process.send_signal(signal.SIGTERM)
            await town.more(20)
            assert await ended(process) == 0
            process = await town.start(ROOT / "src")
            await town.more(20)
            await asyncio.to_thread(migrate, newer, town.home)
            assert await ended(process) == EXIT_MIGRATED
            process = await town.start(newer)
            await town.more(20)
        await until(lambda: all(is_answered(town.platform, chat) for chat in town.chats))
        process.send_signal(signal.SIGTERM)
        assert await ended(process) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.loss("E5", "F8", "F15", "M1")
@pytest.mark.timeout(900)
async def test_reload_upgrade_and_end_under_load(tmp_path: Path, seed: int) -> None:
    """Thirty chats talk while the configuration changes, the gateway is stopped, and a newer Hansard comes."""
    draw = random.Random(seed)
    script = write_script(tmp_path / "script", "{last} is what you said.", delay_seconds=0.01)
    newer = make_newer(tmp_path / "newer")
    for number in range(ROUNDS):
        home, platform = tmp_path / f"home-{number}", Platform()
        write_config(home, script)
        async with served_platform(platform) as port:
            town = Town(home, platform, port, draw)
            await play(town, script, newer)
        go_back(home)
        async with Record.open(home) as record:
            await settled(record, platform, AGENT, lambda: False)
        await check(home, platform, town.chats, town.sent)
