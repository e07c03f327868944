"""Measure how much of the attainable rate of appends Hansard has: beside its floor and SQLiteSession, taking turns.

    python bench/floor.py [--quick] [--rounds 15] [--json FILE] [--report FILE]

The floor does what the guarantees of an append need, and nothing else (bench/workers/floor_worker.py). Hansard is to
have 0.8 of its rate, alone and with four processes on four sessions. The report goes to standard output.
"""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

from harness import appends
from harness.aims import FLOOR_AIMS, judge_all, rate_ratio
from harness.bench import FULL, QUICK, Bench, Settings
from harness.figures import round_ratios
from harness.report import figure, table, write_aims, write_problems, write_subjects
from harness.run import make_parser, run_benchmark
from harness.subjects import ALONE, APPENDS, FLOOR, FOUR_PROCESSES, HANSARD, SQLITE_SESSION_SUBJECT, TITLES

CASES = (ALONE, FOUR_PROCESSES)
SUBJECTS = (HANSARD, FLOOR, SQLITE_SESSION_SUBJECT)
ROUNDS = 15
QUARTILES_ROUNDS_MIN = 4
"""Below that, quartiles would lie outside what was measured."""

BUSY_MAX = 0.1
"""The share of the processors that others may use. Beyond it, a bare loop waits for its time slice after each fsync."""


def main() -> None:
    """Measure, judge, report."""
    parser = make_parser(
        "Measure how much of the attainable rate of appends Hansard has.", quick="a few seconds: two short rounds"
    )
    parser.add_argument("--rounds", type=int, help=f"how often each subject takes its turn; {ROUNDS} unless --quick")
    arguments = parser.parse_args()
    settings = QUICK if arguments.quick else dataclasses.replace(FULL, rounds=ROUNDS)
    settings = dataclasses.replace(settings, rounds=arguments.rounds or settings.rounds)
    run_benchmark("floor", arguments, lambda homes: _measure(homes, settings), write_report)


def _measure(homes: Path, settings: Settings) -> dict[str, Any]:
    bench = Bench(settings=settings, homes=homes, subjects=SUBJECTS)
    try:
        bench.start([APPENDS], processes=appends.PROCESSES)
        results = {APPENDS: appends.measure(bench, CASES)}
    finally:
        bench.end()
    return {
        "settings": dataclasses.asdict(settings),
        "facts": bench.facts,
        "results": results,
        "aims": judge_all(results, FLOOR_AIMS),
        "problems": bench.problems,
    }


def write_report(run: dict[str, Any]) -> str:
    """The whole page, from the results alone."""
    machine = run["machine"]
    busy = "**The machine was busy: these shares are not Hansard's. Measure again on an idle one.**"
    parts = [
        f"""# The floor of an append

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["file_system"]}, Python
{machine["python"]}, commit {run["commit"]}. Other work on the machine and its host took
{machine["busy_elsewhere"]:.0%} of the processors meanwhile: the more, the less any figure but a ratio means.
Again: `python bench/floor.py --report docs/proof/performance.md`.

The floor: one INSERT, one UPDATE, two SHA-256 hashes, one `write` of the log line and COMMIT under one flock, in a bare
loop. {run["settings"]["rounds"]} rounds in turn. A rate is the median of the rounds, a share the median of each round's
(with its quartiles); waits are over all rounds. Messages have 200 bytes of text.""",
        *([busy] if machine["busy_elsewhere"] > BUSY_MAX else []),
        write_aims(run["aims"]),
        write_subjects(run["facts"]),
        _rates(run["results"]),
    ]
    return "\n\n".join([*parts, *write_problems(run["problems"])]) + "\n"


def _rates(results: dict[str, Any]) -> str:
    rows = []
    for case, subjects in results[APPENDS].items():
        for name, figures in subjects.items():
            waits = [figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
            share = _share(subjects, results, case) if name == HANSARD.name else ""
            rows.append([case, TITLES[name], f"{figures['rate']:,.0f}", share, *waits, str(figures["failures"] or "")])
    header = ["case", "subject", "messages/s", "of the floor", "wait p50 ms", "p99", "worst", "failed"]
    return "## Rates\n\n" + table(header, rows)


def _share(subjects: dict[str, Any], results: dict[str, Any], case: str) -> str:
    """The share of the floor, and how far the rounds lie apart."""
    if FLOOR.name not in subjects:
        return figure(None)
    shares = round_ratios(subjects[HANSARD.name]["rates"], subjects[FLOOR.name]["rates"])
    share = figure(rate_ratio(results, case, FLOOR.name), "×")
    if len(shares) < QUARTILES_ROUNDS_MIN:
        return share
    low, _, high = statistics.quantiles(shares, n=4)
    return f"{share} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
