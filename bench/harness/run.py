"""What the benchmarks of the record do around their measuring: options, a folder for homes, facts, the report."""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environments import BENCH, ROOT

from harness.machine import MachineLoad, commit, machine_facts, now
from harness.pages import write_part


def make_parser(description: str, *, quick: str) -> argparse.ArgumentParser:
    """The options that they share; `quick` says what is less."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", type=Path, help="write every figure to this file too")
    parser.add_argument("--report", type=Path, help="write the report to this file, or into its part of this page, too")
    parser.add_argument(
        "--homes", type=Path, default=BENCH / ".homes", help="where homes are made: which disk to measure"
    )
    return parser


def run_benchmark(
    name: str,
    arguments: argparse.Namespace,
    measure: Callable[[Path], dict[str, Any]],
    write_report: Callable[[dict[str, Any]], str],
) -> None:
    """Measure in a folder of its own, which is removed; print the report, and write it wherever that was asked for.

    `measure` ends its processes before it returns: only then is known what others took of the machine.
    """
    arguments.homes.mkdir(parents=True, exist_ok=True)
    homes = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=arguments.homes))
    began, load = time.monotonic(), MachineLoad()
    try:
        measured = measure(homes)
    finally:
        shutil.rmtree(homes, ignore_errors=True)
    run = {
        "date": now(),
        "commit": commit(),
        "seconds": time.monotonic() - began,
        "machine": {**machine_facts(arguments.homes), "busy_elsewhere": load.share_elsewhere()},
        **measured,
    }
    report = write_report(run)
    print(report)
    if arguments.json:
        arguments.json.write_text(json.dumps(run, indent=1) + "\n")
    if arguments.report:
        write_part(arguments.report, name, report)


@contextmanager
def tree_of(name: str, tree: Path) -> Iterator[Path]:
    """Check another commit out into a folder that is not there yet, for as long as this lasts."""
    subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), name], cwd=ROOT, check=True)
    try:
        yield tree
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=False)
