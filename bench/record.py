"""Measure the record beside its floors and its peers, in one interleaved run.

    python bench/record.py [--quick] [--only NAME]... [--json FILE] [--report FILE]

The report goes to standard output, progress to standard error. See bench/README.md.
"""

import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import appends, histories, streaming
from harness.aims import judge_all
from harness.bench import FULL, QUICK, Bench, Settings
from harness.report import write_report
from harness.run import make_parser, run_benchmark
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
    parser = make_parser(
        "Measure the record beside its floors and its peers.", quick="two minutes: fewer rounds, a smaller home"
    )
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment; may be repeated")
    arguments = parser.parse_args()
    settings = QUICK if arguments.quick else FULL
    chosen = [name for name in EXPERIMENTS if name in (arguments.only or EXPERIMENTS)]
    run_benchmark("record", arguments, lambda homes: _measure(homes, settings, chosen), write_report)


def _measure(homes: Path, settings: Settings, chosen: list[str]) -> dict[str, Any]:
    """Each experiment in turn, told to whoever waits."""
    bench, results = Bench(settings=settings, homes=homes), {}
    try:
        _say("starting workers")
        bench.start(chosen, processes=appends.PROCESSES if APPENDS in chosen else 2)
        for name in chosen:
            began = time.monotonic()
            _say(name)
            results[name] = MEASURES[name](bench)
            _say(f"{name} took {time.monotonic() - began:.0f} s")
    finally:
        bench.end()
    return {
        "settings": dataclasses.asdict(settings),
        "facts": bench.facts,
        "results": results,
        "aims": judge_all(results),
        "problems": bench.problems,
    }


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
