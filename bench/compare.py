"""Measure the record of this tree beside that of another commit, taking turns in one run.

    python bench/compare.py COMMIT [--rounds 9] [--only NAME]... [--json FILE]

A row is worse when it is more than 5 % worse in the median and the quartiles of the two do not overlap. The exit code
is 1 then. Read the rows, not the absolutes: see bench/README.md.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from environments import BENCH
from harness import appends
from harness.bench import FULL, Bench
from harness.machine import MachineLoad
from harness.run import tree_of
from harness.subjects import APPENDS, EXPERIMENTS, HANSARD, Subject
from record import MEASURES

WORSE_MAX = 0.05
OLD = "old"


def main() -> None:
    """Measure both, print a row for each figure, and judge it."""
    arguments = _arguments()
    chosen = [name for name in EXPERIMENTS if name in (arguments.only or EXPERIMENTS)]
    arguments.homes.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="compare-", dir=arguments.homes))
    load = MachineLoad()
    try:
        with tree_of(arguments.commit, folder / "tree") as tree:
            subjects = (HANSARD, dataclasses.replace(HANSARD, name=OLD, title=arguments.commit, tree=tree))
            results = _measure(folder / "homes", subjects, chosen, arguments.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = [row for name in chosen for row in _rows(name, results[name])]
    print(f"{'row':45} {'here':>24} {arguments.commit:>24}  here is")
    for row in rows:
        print(row["line"])
    print(f"Other work took {load.share_elsewhere():.0%} of the processors meanwhile.")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["is_worse"] for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the record of this tree beside that of another commit.")
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, help="only this experiment; may be repeated")
    parser.add_argument("--json", type=Path, help="write every row to this file too")
    parser.add_argument(
        "--homes", type=Path, default=BENCH / ".homes", help="where homes are made: which disk to measure"
    )
    return parser.parse_args()


def _measure(homes: Path, subjects: tuple[Subject, ...], chosen: list[str], rounds: int) -> dict[str, Any]:
    settings = dataclasses.replace(FULL, rounds=rounds, stream_rounds=rounds, stream_seconds=3.0)
    homes.mkdir()
    bench = Bench(settings=settings, homes=homes, subjects=subjects)
    try:
        bench.start(chosen, processes=appends.PROCESSES if APPENDS in chosen else 2)
        return {name: MEASURES[name](bench) for name in chosen}
    finally:
        bench.end()


def _rows(experiment: str, results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each figure of an experiment that both have: of the appends the rates, of all else milliseconds."""
    cases = {experiment: results} if experiment == "streaming" else results
    for case, subjects in cases.items():
        if not isinstance(subjects, dict) or not {HANSARD.name, OLD} <= subjects.keys():
            continue
        for key, more_is_better in (("rates", True), ("rounds_ms", False), ("p50s_ms", False), ("p99s_ms", False)):
            if key in subjects[OLD]:
                name = f"{experiment}, {case}, {key}" if case != experiment else f"{experiment}, {key}"
                here, old = subjects[HANSARD.name][key], subjects[OLD][key]
                yield _row(name, here, old, more_is_better=more_is_better)


def _row(name: str, here: list[float], old: list[float], *, more_is_better: bool) -> dict[str, Any]:
    lows = [statistics.quantiles(values, n=4) for values in (here, old)]
    ratio = lows[0][1] / lows[1][1]
    better = ratio if more_is_better else 1 / ratio
    ours, theirs = lows if more_is_better else lows[::-1]
    is_worse = better < 1 - WORSE_MAX and ours[2] < theirs[0]
    shown = [f"{middle:,.2f} ({low:,.2f}–{high:,.2f})" for low, middle, high in lows]
    line = f"{name:45} {shown[0]:>24} {shown[1]:>24}  {ratio:.3f}{'  WORSE' if is_worse else ''}"
    return {"name": name, "line": line, "here": here, "old": old, "ratio": ratio, "is_worse": is_worse}


if __name__ == "__main__":
    main()
