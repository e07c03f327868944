"""What the measurements of the gateway share: a gateway on both channels, the crowd that talks to it, its memory."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from environments import BENCH, ROOT

from hansard.app.wiring import App, open_app
from hansard.channels.telegram import open_telegram
from hansard.domain.settings import Channels, Resets, Settings
from hansard.domain.settings.channels import Matrix, Telegram
from hansard.gateway.channel import Timing
from hansard.gateway.process import Gateway, prefer_promptness
from hansard.ports.channel import Capabilities
from hansard.testing import RecordingChannel
from tests.gateway.socket_platform import SocketPlatform

AGENT = "@agent:example.org"
SCRIPT = (
    '[[answers]]\ntext = "You said: {last}. Here are some more words, one after the other, as a model would say."\n'
)
WHOLE = 'pieces = "whole"\n'
PACED = 'pieces = "words"\ndelay_seconds = 0.05\n'
CAPABILITIES = Capabilities(text_bytes_max=7000, edit_seconds_min=1.0, repeat_seconds=86_400, timeline=True)
TOKEN = "HANSARD_TELEGRAM_TOKEN"  # noqa: S105  # the variable's name
LINE_BYTES_MAX = 64 * 1024 * 1024
SAMPLE_SECONDS = 1.0
TROUBLES_TOLD_MAX = 3


class Crowd:
    """People on two platforms, in a process of their own; `bench/gateway_people.py` says what they do."""

    def __init__(self, process: asyncio.subprocess.Process, told: dict[str, Any]) -> None:
        """Keep the process, and where its platforms are."""
        self._process = process
        self.matrix_port: int = told["matrix_port"]
        self.telegram_url: str = told["telegram_url"]
        self.token: str = told["token"]
        self.telegram_people: list[str] = told["telegram_people"]

    async def ask(self, **command: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Have them do something; return what they say of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()
        return await read_line(self._process)


async def read_line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Read one object of what a process says."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        message = "the people's process ended"
        raise RuntimeError(message)
    told: dict[str, Any] = json.loads(line)
    return told


@asynccontextmanager
async def crowd_of(chats: int, *, calls_per_second_max: int = 0) -> AsyncIterator[Crowd]:
    """Let people be there, half on each platform. 0: their Telegram takes as many calls as come."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(BENCH / "gateway_people.py"),
        json.dumps({"chats": chats, "calls_per_second_max": calls_per_second_max}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": python_path()},
        limit=LINE_BYTES_MAX,
    )
    try:
        yield Crowd(process, await read_line(process))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


def python_path() -> str:
    """Return where a process of the benchmark finds the product and the loopback platforms of its tests."""
    return os.pathsep.join([str(ROOT), str(ROOT / "src")])


@asynccontextmanager
async def gateway_for(crowd: Crowd, home: Path, script: str, resets: Resets | None = None) -> AsyncIterator[App]:
    """Run a gateway on both channels for as long as this lasts."""
    home.mkdir(parents=True, exist_ok=True)
    path = home.with_name("script")
    path.write_text(script)
    telegram = Telegram(enabled=True, base_url=crowd.telegram_url, allow=tuple(crowd.telegram_people))
    settings = Settings(
        model=f"scripted:{path}",
        channels=Channels(matrix=Matrix(allow=("*:example.org",)), telegram=telegram),
        resets=resets or Resets(),
    )
    async with open_app(home, settings, {}, lambda _, error: print(error, file=sys.stderr)) as app:
        recording = RecordingChannel(SocketPlatform(crowd.matrix_port), AGENT, capabilities=CAPABILITIES)
        channels = [recording, open_telegram(home, {TOKEN: crowd.token}, base_url=crowd.telegram_url)]
        stop = asyncio.Event()
        gateway = Gateway(app, channels, Timing())
        task = asyncio.create_task(gateway.run(stop))
        await crowd.ask(do="expect")
        try:
            yield app
        finally:
            stop.set()
            await task


class Sample(NamedTuple):
    """What the gateway's process has and has used, at a moment of the monotonic clock."""

    at: float
    memory_mib: float
    processor_seconds: float


def sample() -> Sample:
    """Take one."""
    return Sample(time.perf_counter(), resident_mib(), time.process_time())


def resident_mib() -> float:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


async def sample_on(samples: list[Sample]) -> None:
    """Take one a second, until cancelled."""
    while True:
        samples.append(sample())
        await asyncio.sleep(SAMPLE_SECONDS)


def slope(points: list[tuple[float, float]]) -> float:
    """Return by how much the second value grows with the first: the line of least squares."""
    count = len(points)
    mean_x, mean_y = (sum(point[place] for point in points) / count for place in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


class Troubles(logging.Handler):
    """Counts what the gateway complains of: a figure that was made with trouble says so."""

    def __init__(self) -> None:
        """Hear warnings and worse of the whole product."""
        super().__init__(logging.WARNING)
        self.count = 0
        logging.getLogger("hansard").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Count one; the first few are told."""
        self.count += 1
        if self.count <= TROUBLES_TOLD_MAX:
            print(f"trouble: {record.getMessage()}", file=sys.stderr)


def say(text: str) -> None:
    """Tell whoever waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run_measure(measure: Callable[[Path, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]) -> None:
    """Be the process of one measurement: its size and its folder are given, its figures are printed."""
    given = json.loads(sys.argv[1])
    prefer_promptness()
    print(json.dumps(asyncio.run(measure(Path(given["folder"]), given["size"]))))
