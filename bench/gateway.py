"""Measure the gateway: many chats at once, both channels together, a whole day, what a message costs.

    python bench/gateway.py [--quick] [--only NAME]... [--chats N] [--seconds S] [--json FILE] [--report FILE]

Each measurement is a process of its own, so that none begins with the memory of another. The report goes to standard
output, progress to standard error. See bench/README.md.

    rooms   the recording channel alone, in memory: 200 rooms within a second; what a message costs among many chats
    both    the recording channel and Telegram's in one gateway: everybody speaks again as soon as they are answered
    paced   the same people at a pace which Telegram takes from one bot: 30 posts and edits a second in all, or 429
    day     a day of 1,000 chats in virtual time, with resets
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from environments import BENCH, ROOT
from gateway_report import write_report
from harness.machine import MachineLoad, machine_facts
from harness.pages import write_part

PROGRAMS = {"rooms": "gateway_rooms", "both": "gateway_both", "paced": "gateway_both", "day": "gateway_day"}
FULL: dict[str, dict[str, float]] = {
    "rooms": {"rooms": 200, "rounds": 6, "few_chats": 10, "many_chats": 5000, "messages": 400},
    "both": {"chats": 200, "seconds": 120, "pause_seconds": 0, "calls_per_second_max": 0},
    "paced": {"chats": 200, "seconds": 120, "pause_seconds": 10, "calls_per_second_max": 30},
    "day": {"chats": 1000, "seed": 1},
}
QUICK: dict[str, dict[str, float]] = {
    "rooms": {"rooms": 50, "rounds": 3, "few_chats": 10, "many_chats": 500, "messages": 100},
    "both": {"chats": 40, "seconds": 15, "pause_seconds": 0, "calls_per_second_max": 0},
    "paced": {"chats": 40, "seconds": 15, "pause_seconds": 2, "calls_per_second_max": 30},
    "day": {"chats": 50, "seed": 1},
}


def main() -> None:
    """Measure and report."""
    arguments = _arguments()
    sizes = QUICK if arguments.quick else FULL
    chosen = [name for name in PROGRAMS if name in (arguments.only or PROGRAMS)]
    arguments.homes.mkdir(parents=True, exist_ok=True)
    run: dict[str, Any] = {}
    results: dict[str, Any] = {}
    for name in chosen:
        given = {"chats": arguments.chats, "seconds": arguments.seconds}
        size = sizes[name] | {key: value for key, value in given.items() if value is not None and key in sizes[name]}
        results[name] = _measure(name, size, arguments.homes)
        run = {
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": _commit(),
            "machine": machine_facts(arguments.homes),
            "results": results,
        }
        if arguments.json:  # after each: what was measured is kept when the next one fails
            arguments.json.write_text(json.dumps(run, indent=1) + "\n")
    report = write_report(run)
    print(report)
    if arguments.report:
        write_part(arguments.report, "gateway", report)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a minute: fewer chats, rounds and seconds")
    parser.add_argument("--only", action="append", choices=tuple(PROGRAMS), help="only this one; may be repeated")
    parser.add_argument("--chats", type=int, help="how many chats, in `both`, `paced` and `day`")
    parser.add_argument("--seconds", type=float, help="for how long people talk, in `both` and `paced`")
    parser.add_argument("--json", type=Path, help="write every figure to this file too")
    parser.add_argument("--report", type=Path, help="write the report to this file, or into its part of this page, too")
    parser.add_argument("--homes", type=Path, default=BENCH / ".homes", help="where homes are made")
    return parser.parse_args()


def _measure(name: str, size: dict[str, float], homes: Path) -> dict[str, Any]:
    """Run one measurement to its end, in a folder of its own that is removed."""
    folder = Path(tempfile.mkdtemp(prefix=f"gateway-{name}-", dir=homes))
    began, load = time.monotonic(), MachineLoad()
    try:
        done = subprocess.run(
            [sys.executable, str(BENCH / f"{PROGRAMS[name]}.py"), json.dumps({"folder": str(folder), "size": size})],
            stdout=subprocess.PIPE,
            check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    figures |= {"took_seconds": time.monotonic() - began, "busy_elsewhere": load.share_elsewhere()}
    print(f"bench: {name} took {figures['took_seconds']:.0f} s", file=sys.stderr, flush=True)
    return figures


def _commit() -> str:
    """The commit, and whether the tree differs from it: a figure without that cannot be compared later."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
