"""`hansard sessions` and `hansard sessions fork` in a home of many sessions, as a person waits for them.

    python bench/sessions.py                 500 sessions of 40 messages, 15 rounds
    python bench/sessions.py --rounds 5 --sessions 100

Each command is a process of its own; the first of each is not counted. The aim is below 250 ms at 500 sessions.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from environments import BENCH, ROOT
from harness.figures import percentile
from harness.machine import MachineLoad, machine_facts

from hansard import Message, Record

AIM_MS = 250
MESSAGES = 40
LONG_MESSAGES = 10_000
WORDS = "what was said in this session, at some length "
INDEX_SECONDS = 10
"""How long the home stays open after it was filled, so that what is kept in the background is up to date."""


class Taken(NamedTuple):
    """What a command took: by the clock, and of the processor, which a busy machine does not change much."""

    wall_ms: float
    processor_ms: float


async def fill(home: Path, sessions: int) -> None:
    """Make the home: every other session has a title, of the rest the first words are shown; one is long."""
    async with Record.open(home) as record:
        for number in range(sessions):
            session = await record.create_session(source="cli", title=f"Talk {number}" if number % 2 else None)
            await add(record, session.id, MESSAGES)
        long = await record.create_session(id="long", source="cli")
        await add(record, long.id, LONG_MESSAGES)
        await asyncio.sleep(INDEX_SECONDS)


async def add(record: Record, session_id: str, count: int) -> None:
    """Say something many times."""
    for start in range(0, count, 100):
        said = [Message.user(f"{WORDS * 4}{number}") for number in range(start, min(count, start + 100))]
        await record.accept([(session_id, each) for each in said])


def run(home: Path, *arguments: str) -> Taken:
    """Run a command to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-m", "hansard.cli.main", "--home", str(home), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(wall * 1000, processor * 1000)


def measure(home: Path, sessions: int, rounds: int) -> dict[str, dict[str, float]]:
    """Run each command once a round."""
    cases = {
        "hansard --help": ("--help",),
        "hansard sessions": ("sessions",),
        f"hansard sessions --limit {sessions}": ("sessions", "--limit", str(sessions)),
        "hansard sessions --json": ("sessions", "--json"),
        f"hansard sessions fork, {LONG_MESSAGES:,} messages": ("sessions", "fork", "long"),
    }
    taken: dict[str, list[Taken]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, arguments in cases.items():
            taken[name] += [run(home, *arguments)][: bool(number)]
    return {
        name: {
            "p50_ms": statistics.median(each.wall_ms for each in found),
            "p99_ms": percentile([each.wall_ms for each in found], 0.99),
            "best_ms": min(each.wall_ms for each in found),
            "processor_ms": statistics.median(each.processor_ms for each in found),
        }
        for name, found in taken.items()
    }


def main() -> int:
    """Measure and print; exit code 1 when the list misses its aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    homes = BENCH / ".homes"
    homes.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sessions-", dir=homes))
    load = MachineLoad()
    try:
        asyncio.run(fill(folder / "home", given.sessions))
        figures = measure(folder / "home", given.sessions, given.rounds)
    finally:
        shutil.rmtree(folder)
    facts = {**machine_facts(BENCH), "used_by_others": round(load.share_elsewhere(), 2)}
    print(f"{given.sessions} sessions of {MESSAGES} messages; {given.rounds} rounds; {facts}\n")
    print("| command | p50 ms | p99 ms | best ms | processor ms |\n|---|---|---|---|---|")
    for name, each in figures.items():
        print(f"| `{name}` | {' | '.join(f'{value:.0f}' for value in each.values())} |")
    if given.json is not None:
        given.json.write_text(json.dumps({"machine": facts, "figures": figures}, indent=2), encoding="utf-8")
    return int(figures["hansard sessions"]["p50_ms"] >= AIM_MS)


if __name__ == "__main__":
    sys.exit(main())
