"""A day of many chats in virtual time: the record's clock is moved to each minute in which somebody speaks.

A process of its own, started by bench/gateway.py. Everything but the clock is as it is: both channels, turns, posts.
"""

from __future__ import annotations

import asyncio
import random
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from gateway_scene import SCRIPT, WHOLE, Crowd, Troubles, crowd_of, gateway_for, resident_mib, run_measure, say, slope
from harness.figures import percentile

from hansard.app.wiring import App
from hansard.domain.sessions import Link
from hansard.domain.settings import Resets
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.testing import FakeClock

MIDNIGHT_SECONDS = 1_700_006_400
"""A midnight, by UTC."""
HOUR_WEIGHTS = (2, 1, 1, 1, 1, 2, 4, 8, 10, 9, 8, 8, 10, 9, 7, 7, 8, 9, 10, 12, 13, 12, 8, 4)
"""How likely somebody is to begin to talk in each hour of a day."""
TALKS_MAX = 3
"""Times a day at which somebody talks; each is one to three messages, some minutes apart."""
RESETS = Resets(idle_minutes=120, daily_hour=4)
DAILY_MINUTE = 4 * 60
LAST_MINUTE = 24 * 60 - 1
SETTLE_SECONDS_MAX = 60.0


def said_by(chance: random.Random) -> list[int]:
    """Return the minutes of the day in which one person speaks."""
    minutes: set[int] = set()
    for _ in range(chance.randint(1, TALKS_MAX)):
        (hour,) = chance.choices(range(24), HOUR_WEIGHTS)
        minute = hour * 60 + chance.randrange(60)
        for _ in range(chance.randint(1, 3)):
            minutes.add(min(minute, LAST_MINUTE))
            minute += chance.randint(1, 20)
    return sorted(minutes)


def sessions_of(minutes: list[int]) -> int:
    """Return how many sessions a chat has after such a day: the settings' two rules, told once more."""
    count, began, last = 0, 0, 0
    for minute in minutes:
        is_idle = minute - last >= (RESETS.idle_minutes or 0)
        if not count or is_idle or began < DAILY_MINUTE <= minute:
            count, began = count + 1, minute
        last = minute
    return count


async def measure(folder: Path, size: dict[str, Any]) -> dict[str, Any]:
    """Live through the day, and see what it left."""
    chance = random.Random(size["seed"])
    days = [said_by(chance) for _ in range(size["chats"])]
    clock = FakeClock(MIDNIGHT_SECONDS * 1_000_000)
    troubles = Troubles()
    home = folder / "home"
    # The store that is open already is shared, and its clock with it.
    async with Record.open(home, wiring=Wiring(clock=clock)) as record, crowd_of(size["chats"]) as crowd:
        async with gateway_for(crowd, home, SCRIPT + WHOLE, RESETS) as app:
            assert app.record.store is record.store
            began, processor = time.perf_counter(), time.process_time()
            lived = await live(crowd, app, clock, days)
            seconds, processor = time.perf_counter() - began, time.process_time() - processor
            memory_end = resident_mib()
            commits = record.latency.read()
        sessions = await record.sessions(limit=10_000)
        began = time.perf_counter()
        report = await record.verify()
        verify_seconds = time.perf_counter() - began
    said = sum(map(len, days))
    memory = lived["memory"]
    half = len(memory) // 2
    return {
        **size,
        "said": said,
        "answered": lived["answered"],
        "unanswered": lived["unanswered"],
        "notices": lived["notices"],
        "notices_seen": lived["notices_seen"],
        "seconds": seconds,
        "processor_seconds": processor,
        "first_p50_ms": percentile(lived["first"], 0.5) * 1000,
        "first_p99_ms": percentile(lived["first"], 0.99) * 1000,
        "sessions": len(sessions),
        "sessions_expected": sum(map(sessions_of, days)),
        "resets": sum(session.parent is not None and session.parent.link is Link.RESET for session in sessions),
        "commits": commits.commits,
        "commit_mean_ms": commits.seconds / max(commits.commits, 1) * 1000,
        "memory_mib": [round(mib, 1) for _, mib in memory],
        "memory_end_mib": memory_end,
        "memory_kib_per_message": slope(memory[half:]) * 1024,
        "bytes": sizes_of(home),
        "verify_ok": report.ok,
        "verify_seconds": verify_seconds,
        "entries": report.entries,
        "findings": [str(finding) for finding in report.findings[:5]],
        "troubles": troubles.count,
    }


async def live(crowd: Crowd, app: App, clock: FakeClock, days: list[list[int]]) -> dict[str, Any]:
    """Move the clock to each minute in which somebody speaks; go on when all of them are answered."""
    moments = sorted((minute, person) for person, minutes in enumerate(days) for minute in minutes)
    now_minute, answered, first = 0, 0, list[float]()
    memory = [(0.0, resident_mib())]
    told: dict[str, Any] = {}
    for minute, group in groupby(moments, key=lambda moment: moment[0]):
        if minute // 60 > now_minute // 60:
            memory.append((float(answered), resident_mib()))
            say(f"day: {minute // 60:02}:00, {answered} answered, {memory[-1][1]:.0f} MiB")
        clock.advance((minute - now_minute) * 60)
        now_minute = minute
        told = await crowd.ask(do="say", said=[(person, f"message of minute {minute}") for _, person in group])
        answered += len(told["waits"])
        first += [wait[1] for wait in told["waits"]]
        await settled(app)
    clock.advance((24 * 60 - now_minute) * 60)
    memory.append((float(answered), resident_mib()))
    return told | {"answered": answered, "first": first, "memory": memory}


async def settled(app: App) -> None:
    """Wait until what was seen is recorded as seen: that, too, belongs to the minute in which it happened."""
    async with asyncio.timeout(SETTLE_SECONDS_MAX):
        while app.runner.busy or await is_waiting(app):  # noqa: ASYNC110 - only whoever measures looks on
            await asyncio.sleep(0.005)


async def is_waiting(app: App) -> bool:
    """Return whether anything waits to be shown on either channel."""
    waiting = app.record.deliveries.list_waiting
    return bool(await waiting("matrix", limit=1) or await waiting("telegram", limit=1))


def sizes_of(home: Path) -> dict[str, int]:
    """Return what a home takes on the disk: the database with its WAL, the logs, the search index, all of it."""
    sizes = {path.relative_to(home): path.stat().st_size for path in home.rglob("*") if path.is_file()}
    return {
        "database": sum(size for path, size in sizes.items() if path.name.startswith("state.db")),
        "logs": sum(size for path, size in sizes.items() if path.parts[0] == "sessions"),
        "search": sum(size for path, size in sizes.items() if path.name.startswith("search")),
        "all": sum(sizes.values()),
    }


if __name__ == "__main__":
    run_measure(measure)
