"""Measure the record beside its floors and its peers, in one interleaved run.

    python bench/record.py [--quick] [--only NAME]... [--json FILE] [--report FILE]

The report goes to standard output, progress to standard error. See bench/README.md.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from environments import BENCH
from harness import appends, histories, streaming
from harness.aims import judge_all
from harness.bench import FULL, QUICK, Bench
from harness.machine import MachineLoad, commit, machine_facts, now
from harness.pages import write_part
from harness.report import write_report
from harness.subjects import APPENDS, EXPERIMENTS, LOAD, OPEN, STREAMING, TURN

MEASURES: dict[str, Callable[[Bench], dict[str, Any]]] = {
    APPENDS: appends.measure,
    STREAMING: streaming.measure,
    LOAD: histories.measure_load,
    TURN: histories.measure_turn,
    OPEN: histories.measure_open,
}


def main() -> None:
    """Measure, judge, report."""
    arguments = _arguments()
    settings = QUICK if arguments.quick else FULL
    chosen = [name for name in EXPERIMENTS if name in (arguments.only or EXPERIMENTS)]
    arguments.homes.mkdir(parents=True, exist_ok=True)
    homes = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.homes))
    bench = Bench(settings=settings, homes=homes)
    began, load = time.monotonic(), MachineLoad()
    try:
        results = _measure(bench, chosen)
    finally:
        bench.end()
        shutil.rmtree(homes, ignore_errors=True)
    busy_elsewhere = load.share_elsewhere()
    run = {
        "date": now(),
        "commit": commit(),
        "seconds": time.monotonic() - began,
        "machine": {**machine_facts(arguments.homes), "busy_elsewhere": busy_elsewhere},
        "settings": dataclasses.asdict(settings),
        "facts": bench.facts,
        "results": results,
        "aims": judge_all(results),
        "problems": bench.problems,
    }
    report = write_report(run)
    print(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(run, indent=1) + "\n")
    if arguments.report:
        write_part(arguments.report, "record", report)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the record beside its floors and its peers.")
    parser.add_argument("--quick", action="store_true", help="two minutes: fewer rounds, a smaller home")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment; may be repeated")
    parser.add_argument("--json", type=Path, help="write every figure to this file too")
    parser.add_argument("--report", type=Path, help="write the report to this file, or into its part of this page, too")
    parser.add_argument(
        "--homes", type=Path, default=BENCH / ".homes", help="where homes are made: which disk to measure"
    )
    return parser.parse_args()


def _measure(bench: Bench, chosen: list[str]) -> dict[str, Any]:
    """Each experiment in turn, told to whoever waits."""
    _say("starting workers")
    bench.start(chosen, processes=appends.PROCESSES if APPENDS in chosen else 2)
    results = {}
    for name in chosen:
        began = time.monotonic()
        _say(name)
        results[name] = MEASURES[name](bench)
        _say(f"{name} took {time.monotonic() - began:.0f} s")
    return results


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
