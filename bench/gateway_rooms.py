"""The gateway on one channel in its own process: many rooms at once, what it keeps in memory, what a message costs.

A process of its own, started by bench/gateway.py. The platform answers at once, so that everything measured is
Hansard's own; what the platform itself remembers is in the memory that is measured.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway_scene import AGENT, CAPABILITIES, PACED, SCRIPT, resident_mib, run_measure, say
from harness.figures import percentile

from hansard.app.wiring import App, open_app
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.channels import Matrix
from hansard.gateway.channel import Timing
from hansard.gateway.process import Gateway
from hansard.ports.channel import Post
from hansard.testing import Platform, RecordingChannel

ANN = "@ann:example.org"
SETTLE_SECONDS_MAX = 600.0


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
                received = await record.intake.cursor("matrix", AGENT) == self.platform.cursor
                if (
                    received
                    and not self.app.runner.busy
                    and not await record.deliveries.list_waiting("matrix", limit=1)
                ):
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


async def first_post(stage: Stage, chat: str, number: int, start_after: float) -> float:
    """Say something and wait for the first post that answers it."""
    await asyncio.sleep(start_after)
    shown: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    stage.platform.awaited[chat] = shown
    began = time.perf_counter()
    stage.platform.say(chat, ANN, f"message {number}")
    return await shown - began


async def measure_rooms(homes: Path, size: dict[str, Any]) -> dict[str, Any]:
    """All rooms talk at once, each answer streams for a second; several rounds, and memory after each."""
    async with staged(homes / "rooms", SCRIPT + PACED) as stage:
        chats = [stage.platform.create_room(ANN, AGENT) for _ in range(size["rooms"])]
        waits: list[float] = []
        memory: list[float] = []
        for number in range(size["rounds"]):
            # Within one second, as people do; all in one instant would measure the queue.
            spread = (place / len(chats) for place in range(len(chats)))
            waits += await asyncio.gather(*(first_post(stage, chat, number, next(spread)) for chat in chats))
            await stage.settled()
            gc.collect()
            memory.append(resident_mib())
            say(f"rooms: round {number + 1}: p99 {percentile(waits, 0.99) * 1000:.0f} ms")
        half = len(memory) // 2
        messages = (len(memory) - half) * size["rooms"]
        slope = (memory[-1] - memory[half - 1]) / messages * 1000 if half else 0.0
        return {
            "rooms": size["rooms"],
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
        say(f"cost: {chats_count} chats: {percentile(samples, 0.5):.2f} ms")
        return percentile(samples, 0.5)


async def measure(folder: Path, size: dict[str, Any]) -> dict[str, Any]:
    """Measure everything."""
    rooms = await measure_rooms(folder, size)
    few = await cost(folder, size["few_chats"], size["messages"])
    many = await cost(folder, size["many_chats"], size["messages"])
    return {
        **rooms,
        "cost_ms": {str(size["few_chats"]): few, str(size["many_chats"]): many},
        "cost_ratio": many / few,
    }


if __name__ == "__main__":
    run_measure(measure)
