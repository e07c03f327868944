"""A gateway and a terminal that nobody uses sleep: they wake at most five times in twenty seconds."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.stories_program import Hansard
from tests.acceptance.stories_terminal import READY, ChatTerminal
from tests.channels.telegram.bot_api import bot_api
from tests.channels.telegram.program import Bot, running
from tests.cli.terminal import tmux
from tests.counts import times
from tests.gateway.stage import until, write_script

SECONDS = times(4, 20, 20)
WAKES_MAX = SECONDS // 4
DEADLINE_SECONDS = 120.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who woke, and of others' commits")


def count_wakes(pid: int) -> int:
    """Return how often the threads of a process went to sleep until now, those that ended not counted."""
    wakes = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = status.read_text().splitlines()
        wakes += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return wakes


def assert_sleeps(pid: int) -> None:
    """Wait until a process has wound up what it did, and sleeps."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        before = count_wakes(pid)
        time.sleep(SECONDS)
        if (woke := count_wakes(pid) - before) <= WAKES_MAX:
            return
        assert time.monotonic() < deadline, f"it woke {woke} times in {SECONDS} s"


async def test_a_gateway_sleeps(tmp_path: Path) -> None:
    """After a talk it waits for the platform, and looks at nothing again and again."""
    async with bot_api() as api:
        ann = api.world.person("Ann", "ann")
        bot = Bot(tmp_path / "home", api.url, api.token)
        bot.configure(write_script(tmp_path / "script"), f'allow = ["{ann}"]')
        async with running(bot) as program:
            api.world.say(ann, ann, "hello")
            await until(lambda: bool(api.world.of_bot(ann)))
            await asyncio.to_thread(assert_sleeps, program.pid)


@pytest.mark.skipif(not tmux.is_there(), reason="tmux is not installed: scripts/system-packages does that")
def test_a_terminal_sleeps(tmp_path: Path) -> None:
    """After an answer it waits for keys."""
    script = write_script(tmp_path / "script")
    hansard = Hansard(tmp_path / "home", f"scripted:{script}")
    with ChatTerminal(tmp_path, hansard) as terminal:
        terminal.wait(READY)
        terminal.type("hello")
        terminal.wait("You said: hello")
        shell = int(terminal.tmux("display-message", "-p", "#{pane_pid}"))
        (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        assert os.fsencode("hansard.cli.main") in Path(f"/proc/{child}/cmdline").read_bytes()
        assert_sleeps(int(child))
        terminal.leave()
