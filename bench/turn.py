"""Measure turns: what the engine and the record add to a provider's stream, many turns at once, long pasts, starting.

    python bench/turn.py [--quick] [--only NAME]... [--json FILE] [--report FILE]

The report goes to standard output, progress to standard error. See the report for what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime as dt
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any

from environments import BENCH, ROOT
from harness.machine import MachineLoad, machine_facts
from harness.pages import write_part
from turn_history import measure_history
from turn_report import judge_all, write_report
from turn_scene import FULL, QUICK, Scene, serving
from turn_start import measure_start
from turn_streams import measure_crowd, measure_first, measure_stream

from hansard.models.pydantic import preload

ASYNC_MEASURES: dict[str, Callable[[Scene], Coroutine[Any, Any, dict[str, Any]]]] = {
    "first": measure_first,
    "stream": measure_stream,
    "crowd": measure_crowd,
    "history": measure_history,
}
EXPERIMENTS = (*ASYNC_MEASURES, "start")
LIBRARIES = ("hansard", "pydantic-ai-slim", "openai", "httpx2", "apsw", "prompt-toolkit")


def main() -> None:
    """Measure, judge, report."""
    arguments = _arguments()
    settings = QUICK if arguments.quick else FULL
    arguments.homes.mkdir(parents=True, exist_ok=True)
    homes = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.homes))
    began, load = time.monotonic(), MachineLoad()
    preload()
    try:
        with serving(homes / "server.stderr") as base_url:
            results = _measure(Scene(settings=settings, homes=homes, base_url=base_url), arguments.only or EXPERIMENTS)
    finally:
        shutil.rmtree(homes, ignore_errors=True)
    run = {
        "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "seconds": time.monotonic() - began,
        "machine": {**machine_facts(arguments.homes), "busy_elsewhere": load.share_elsewhere()},
        "settings": dataclasses.asdict(settings),
        "libraries": {name: version(name) for name in LIBRARIES},
        "results": results,
        "aims": judge_all(results),
    }
    report = write_report(run)
    print(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(run, indent=1) + "\n")
    if arguments.report:
        write_part(arguments.report, "turn", report)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure turns beside reading the provider's stream raw.")
    parser.add_argument("--quick", action="store_true", help="a minute or two: fewer rounds")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment; may be repeated")
    parser.add_argument("--json", type=Path, help="write every figure to this file too")
    parser.add_argument("--report", type=Path, help="write the report to this file, or into its part of this page, too")
    parser.add_argument(
        "--homes", type=Path, default=BENCH / ".homes", help="where homes are made: which disk to measure"
    )
    return parser.parse_args()


def _measure(scene: Scene, chosen: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Each experiment in turn, told to whoever waits."""
    results: dict[str, Any] = {}
    for name in EXPERIMENTS:
        if name not in chosen:
            continue
        began = time.monotonic()
        results[name] = measure_start(scene) if name == "start" else asyncio.run(ASYNC_MEASURES[name](scene))
        print(f"bench: {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return results


def _commit() -> str:
    """The commit, and whether the tree differs from it: a figure without that cannot be compared later."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
