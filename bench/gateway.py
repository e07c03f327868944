"""Measure the gateway: many rooms at once on the scripted model, what it keeps in memory, what a message costs.

    python bench/gateway.py [--quick] [--json FILE] [--homes DIR]

A whole gateway (intake, record, engine, delivery) serves the recording channel in one process; the platform answers at
once, so that everything measured is Hansard's own. Figures go to standard output, progress to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from environments import BENCH
from harness.figures import percentile
from harness.machine import MachineLoad, machine_facts

from hansard.app.gateway import Gateway, Timing, prefer_promptness
from hansard.app.wiring import App, open_app
from hansard.domain.settings import Channels, Matrix, Settings
from hansard.ports.channel import Capabilities, Post
from hansard.testing import Platform, RecordingChannel

ANN, AGENT = "@ann:example.org", "@agent:example.org"
SCRIPT = (
    '[[answers]]\ntext = "You said: {last}. Here are some more words, one after the other, as a model would say."\n'
)
PACED = 'pieces = "words"\ndelay_seconds = 0.05\n'
CAPABILITIES = Capabilities(text_bytes_max=7000, edit_seconds_min=1.0, repeat_seconds=86_400, timeline=True)
SETTLE_SECONDS_MAX = 600.0


class Size(NamedTuple):
    """How much is measured."""

    rooms: int
    rounds: int
    few_chats: int
    many_chats: int
    messages: int


FULL = Size(rooms=200, rounds=6, few_chats=10, many_chats=5000, messages=400)
QUICK = Size(rooms=50, rounds=3, few_chats=10, many_chats=500, messages=100)


class TimedPlatform(Platform):
    """A platform that tells when the next post of the agent is shown in a chat."""

    def __init__(self) -> None:
        """Nobody waits yet."""
        super().__init__()
        self.awaited: dict[str, asyncio.Future[float]] = {}

    async def post(self, account: str, post: Post) -> str:
        """Show it, and note the time."""
        event_id = await super().post(account, post)
        if not post.edits and (future := self.awaited.pop(post.chat, None)) is not None:
            future.set_result(time.perf_counter())
        return event_id


class Stage:
    """A gateway that runs, and its platform."""

    def __init__(self, app: App, platform: TimedPlatform) -> None:
        """Keep the parts."""
        self.app = app
        self.platform = platform

    async def settled(self) -> None:
        """Wait until everything is received, answered and shown."""
        record = self.app.record
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            while True:
                received = await record.cursor("matrix", AGENT) == self.platform.cursor
                if received and not self.app.runner.busy and not await record.outbox.waiting("matrix", limit=1):
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def staged(home: Path, script: str) -> AsyncIterator[Stage]:
    """Run a gateway for as long as this lasts."""
    home.mkdir(parents=True)
    (home / "script").write_text(script)
    settings = Settings(model=f"scripted:{home / 'script'}", channels=Channels(matrix=Matrix(allow=("*:example.org",))))
    platform = TimedPlatform()
    async with open_app(home, settings, {}, lambda _, error: print(error, file=sys.stderr)) as app:
        channel = RecordingChannel(platform, AGENT, capabilities=CAPABILITIES)
        stop = asyncio.Event()
        task = asyncio.create_task(Gateway(app, [channel], Timing()).run(stop))
        while platform.calls["poll"] <= 1:  # noqa: ASYNC110 - before anything is measured
            await asyncio.sleep(0.01)
        try:
            yield Stage(app, platform)
        finally:
            stop.set()
            await task


def resident_mib() -> float:
    """What this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024 / 1024


async def first_post(stage: Stage, chat: str, number: int, start_after: float) -> float:
    """Say something and wait for the first post that answers it."""
    await asyncio.sleep(start_after)
    shown: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    stage.platform.awaited[chat] = shown
    began = time.perf_counter()
    stage.platform.say(chat, ANN, f"message {number}")
    return await shown - began


async def measure_rooms(homes: Path, size: Size) -> dict[str, Any]:
    """All rooms talk at once, each answer streams for a second; several rounds, and memory after each."""
    async with staged(homes / "rooms", SCRIPT + PACED) as stage:
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(size.rooms)]
        waits: list[float] = []
        memory: list[float] = []
        for number in range(size.rounds):
            # Within one second, as people do; all in one instant would measure the queue.
            spread = (place / len(chats) for place in range(len(chats)))
            waits += await asyncio.gather(*(first_post(stage, chat, number, next(spread)) for chat in chats))
            await stage.settled()
            gc.collect()
            memory.append(resident_mib())
            print(f"rooms: round {number + 1}: p99 {percentile(waits, 0.99) * 1000:.0f} ms", file=sys.stderr)
        half = len(memory) // 2
        messages = (len(memory) - half) * size.rooms
        slope = (memory[-1] - memory[half - 1]) / messages * 1000 if half else 0.0
        return {
            "rooms": size.rooms,
            "messages": len(waits),
            "first_post_p50_ms": percentile(waits, 0.5) * 1000,
            "first_post_p99_ms": percentile(waits, 0.99) * 1000,
            "memory_mib": memory,
            "memory_slope_kib_per_message": slope * 1024 / 1000,
        }


async def cost(homes: Path, chats_count: int, messages: int) -> float:
    """Return the processor time of one message, answered and shown, in a home with so many chats, in milliseconds."""
    async with staged(homes / f"chats-{chats_count}", SCRIPT) as stage:
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(chats_count)]
        for place in range(0, chats_count, 100):
            for chat in chats[place : place + 100]:
                stage.platform.say(chat, ANN, "hello")
            await stage.settled()
        talking = chats[:: max(1, chats_count // 10)][:10]
        samples = []
        for number in range(messages // len(talking)):
            began = time.process_time()
            for chat in talking:
                stage.platform.say(chat, ANN, f"message {number}")
            await stage.settled()
            samples.append((time.process_time() - began) * 1000 / len(talking))
        print(f"cost: {chats_count} chats: {percentile(samples, 0.5):.2f} ms", file=sys.stderr)
        return percentile(samples, 0.5)


async def measure(homes: Path, size: Size) -> dict[str, Any]:
    """Measure everything."""
    rooms = await measure_rooms(homes, size)
    few = await cost(homes, size.few_chats, size.messages)
    many = await cost(homes, size.many_chats, size.messages)
    return {
        **rooms,
        "cost_ms": {str(size.few_chats): few, str(size.many_chats): many},
        "cost_ratio": many / few,
    }


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rooms, chats and rounds")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--homes", type=Path, default=BENCH / ".homes", help="where homes are made")
    arguments = parser.parse_args()
    arguments.homes.mkdir(parents=True, exist_ok=True)
    homes = Path(tempfile.mkdtemp(prefix="gateway-", dir=arguments.homes))
    load = MachineLoad()
    prefer_promptness()
    try:
        results = asyncio.run(measure(homes, QUICK if arguments.quick else FULL))
    finally:
        shutil.rmtree(homes, ignore_errors=True)
    run = {"results": results, "machine": machine_facts(homes.parent), "share_elsewhere": load.share_elsewhere()}
    if arguments.json:
        arguments.json.write_text(json.dumps(run, indent=2) + "\n")
    print(
        f"first post after an event, {results['rooms']} rooms at once: "
        f"p50 {results['first_post_p50_ms']:.0f} ms, p99 {results['first_post_p99_ms']:.0f} ms"
    )
    print(f"memory: {results['memory_slope_kib_per_message']:.1f} KiB a message in the second half")
    costs = ", ".join(f"{cost:.2f} ms at {chats} chats" for chats, cost in results["cost_ms"].items())
    print(f"processor time of a message: {costs}; ratio {results['cost_ratio']:.2f} (aim: at most 1.2)")


if __name__ == "__main__":
    main()
