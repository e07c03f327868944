"""A gateway is killed at random moments of a conversation, and started again: nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from hansard.record.api import Record
from hansard.testing import Platform
from tests.counts import times
from tests.gateway.socket_platform import served_platform
from tests.gateway.stage import AGENT, ANN, BOB, settled, until, write_script
from tests.gateway.town import check

KILLS = times(test=2, long=5, prove=100)
ROOMS = 3


def start(home: Path, port: int, script: Path) -> subprocess.Popen[bytes]:
    """Start a gateway."""
    arguments = [sys.executable, "-m", "tests.gateway.worker", str(home), str(port), str(script)]
    return subprocess.Popen(arguments, stderr=subprocess.DEVNULL)


def polled(platform: Platform, polls: int) -> bool:
    """Return whether the platform was asked more often than that."""
    return platform.calls["poll"] > polls


async def talk(platform: Platform, chats: list[str], draw: random.Random, sent: list[str], seconds: float) -> None:
    """Let people talk for a while, now and then in a burst."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        for _ in range(draw.choice([1, 1, 3])):
            sent.append(f"message-{len(sent)}")
            platform.say(draw.choice(chats), draw.choice([ANN, BOB]), sent[-1])
            await asyncio.sleep(draw.random() * 0.02)
        await asyncio.sleep(draw.random() * 0.4)


@pytest.mark.slow
@pytest.mark.loss("A1", "A13", "E5", "E13", "F8", "F11", "F12", "F15", "F16", "H3", "I2")
@pytest.mark.timeout(900)
async def test_kills_at_random_moments(home: Path, tmp_path: Path, seed: int) -> None:
    """However often the gateway is killed, what was said is recorded once and answered once, and shown once."""
    draw = random.Random(seed)
    platform = Platform()
    script = write_script(tmp_path / "script", "{last} is what you said.", delay_seconds=0.03)
    chats = [platform.create_room(ANN, AGENT) for _ in range(ROOMS)]
    sent: list[str] = []
    async with served_platform(platform) as port:
        for number in range(KILLS):
            worker = start(home, port, script)
            try:
                # The first one asks twice: once for the present, once for what comes after.
                polls = platform.calls["poll"] + (number == 0)
                await until(partial(polled, platform, polls))
                await talk(platform, chats, draw, sent, 0.1 + draw.random())
            finally:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
            if draw.random() < 0.5:
                await talk(platform, chats, draw, sent, 0.2)
        worker = start(home, port, script)
        try:
            await until(partial(polled, platform, platform.calls["poll"]))
            async with Record.open(home) as record:
                await settled(record, platform, AGENT, lambda: False)
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(120) == 0
    await check(home, platform, chats, sent)
