"""Both channels in one gateway: many chats at once, everybody speaking again as soon as they are answered.

A process of its own, started by bench/gateway.py. The platforms and the people are in another one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gateway_scene import PACED, SCRIPT, Sample, Troubles, crowd_of, gateway_for, run_measure, sample_on, say, slope
from harness.figures import percentile

SETTLE_SECONDS_MAX = 60.0


async def measure(folder: Path, size: dict[str, Any]) -> dict[str, Any]:
    """Let everybody talk, and look at the gateway meanwhile."""
    troubles = Troubles()
    async with crowd_of(size["chats"], calls_per_second_max=size["calls_per_second_max"]) as crowd:
        async with gateway_for(crowd, folder / "home", SCRIPT + PACED) as app:
            samples: list[Sample] = []
            sampling = asyncio.create_task(sample_on(samples))
            told = await crowd.ask(do="talk", seconds=size["seconds"], pause_seconds=size["pause_seconds"])
            sampling.cancel()
            await asyncio.wait_for(app.runner.idle(), SETTLE_SECONDS_MAX)
            commits = app.record.latency.read()
        say(f"{size['chats']} chats: {len(told['matrix']) + len(told['telegram'])} messages were answered")
    waits = told["matrix"] + told["telegram"]
    return {
        **size,
        "talked_seconds": told["seconds"],
        "answered": len(waits),
        "messages_per_second": len(waits) / told["seconds"],
        "unanswered": told["unanswered"],
        "notices": told["notices"],
        "waits": {name: waits_of(found) for name, found in by_channel(told).items()},
        "commits": commits.commits,
        "commit_mean_ms": commits.seconds / max(commits.commits, 1) * 1000,
        "people_processor_share": told["processor_seconds"] / told["seconds"],
        **process_figures(samples, [began for began, _, _ in waits]),
        "troubles": troubles.count,
        **{name: value for name, value in told.items() if name.startswith("telegram_")},
    }


def by_channel(told: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Return the waits of all, and of each half."""
    return {"both": told["matrix"] + told["telegram"], "matrix": told["matrix"], "telegram": told["telegram"]}


def waits_of(waits: list[list[float]]) -> dict[str, float]:
    """From what was said to the first words that were seen of its answer, and to all of them."""
    first = [wait[1] * 1000 for wait in waits]
    whole = [wait[2] * 1000 for wait in waits]
    return {
        "messages": len(waits),
        "first_p50_ms": percentile(first, 0.5),
        "first_p99_ms": percentile(first, 0.99),
        "first_worst_ms": max(first),
        "whole_p50_ms": percentile(whole, 0.5),
        "whole_p99_ms": percentile(whole, 0.99),
    }


def process_figures(samples: list[Sample], said_at: list[float]) -> dict[str, Any]:
    """What the gateway's process used; growth is that of the second half, when everything has been used once."""
    later = samples[len(samples) // 2 :]
    seconds = later[-1].at - later[0].at
    messages = sum(later[0].at <= at < later[-1].at for at in said_at)
    mib_per_second = slope([(each.at, each.memory_mib) for each in later])
    processor = samples[-1].processor_seconds - samples[0].processor_seconds
    every = max(1, len(samples) // 12)
    return {
        "memory_mib": [round(each.memory_mib, 1) for each in samples[::every]] + [round(samples[-1].memory_mib, 1)],
        "memory_every_seconds": every,
        "memory_mib_per_hour": mib_per_second * 3600,
        "memory_kib_per_message": mib_per_second * seconds * 1024 / max(messages, 1),
        "processor_share": processor / (samples[-1].at - samples[0].at),
        "processor_ms_per_message": processor * 1000 / max(len(said_at), 1),
    }


if __name__ == "__main__":
    run_measure(measure)
