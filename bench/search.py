"""Measure search beside its floor and its peers, in one interleaved run.

    python bench/search.py [--messages N] [--rounds N] [--report FILE] [--json FILE]

100,000 messages (65 MB of text, a tenth of it Chinese), once in 500 sessions and once in 10 long ones. The report goes
to standard output, progress to standard error. The peers' environments are made as for bench/record.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from environments import BENCH, HERMES, RECORD, ROOT, Environment, python_of
from harness.figures import percentile
from harness.machine import MachineLoad, machine_facts
from harness.pages import write_part
from search_corpus import KINDS, TERMS, query

LLM = Environment(name="llm", requirements=BENCH / "requirements" / "llm.txt")
HANSARD = "Hansard"
SUBJECTS = {
    HANSARD: ("search_hansard.py", RECORD),
    "plain FTS5": ("search_fts5.py", RECORD),
    "Hermes": ("search_hermes.py", HERMES),
    "llm": ("search_llm.py", LLM),
}
SHAPES = {"500 sessions": 500, "10 long sessions": 10}
APPENDS = 1100
"""More than a thousand: Hermes optimises its index within every thousandth write."""

P50_MS_MAX = 10.0
AHEAD_MIN = 10.0
SIZE_MAX = 2.2
APPEND_COST_MAX = 1.4
APPEND_MS_MAX = 100.0
LISTING_MS_MAX = 250.0
"""The aims."""

APPEND_TEXT = "one more message of ordinary words " * 18


class Worker:
    """A process that holds one subject."""

    def __init__(self, name: str, homes: Path) -> None:
        """Start it, with an environment in which no person's settings are found."""
        script, environment = SUBJECTS[name]
        self.name = name
        kept = {each: os.environ[each] for each in ("PATH", "LANG", "TMPDIR") if each in os.environ}
        folders = {"HOME": str(homes), "HERMES_HOME": str(homes / "hermes"), "LLM_USER_PATH": str(homes / "llm")}
        with (homes / f"{script}.stderr").open("ab") as stderr:
            self.process = subprocess.Popen(
                [str(python_of(environment)), str(BENCH / script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**kept, **folders, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(BENCH)))},
            )

    def ask(self, do: str, **arguments: object) -> Any:  # noqa: ANN401 - whatever the operation gives
        """Ask and wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"{self.name} ended; see its .stderr")
        return json.loads(line)

    def end(self) -> None:
        """Let it leave; end it by its own id when it does not."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def say(text: str) -> None:
    """Tell whoever waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def measure_shape(shape: str, homes: Path, messages: int, rounds: int) -> dict[str, Any]:
    """Fill every subject, ask each kind of query in turn, then append; sizes are those once the process has left."""
    workers = {name: Worker(name, homes) for name in SUBJECTS}
    try:
        filled = {}
        for name, worker in workers.items():
            home = homes / f"{SHAPES[shape]}-{name.replace(' ', '-')}"
            filled[name] = worker.ask("fill", home=str(home), messages=messages, sessions=SHAPES[shape])
            say(f"{shape}: {name} filled in {filled[name]['seconds']:.0f} s")
        taken: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in workers} for kind in KINDS}
        hits: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        for number in range(rounds):
            for kind in KINDS:
                for name, worker in workers.items():
                    found = worker.ask("search", query=query(kind, number % TERMS))
                    taken[kind][name].append(found["us"])
                    hits[kind][name] = found["hits"]
        say(f"{shape}: searched")
        appends = measure_appends(workers)
    finally:
        for worker in workers.values():
            worker.end()
    for name, each in filled.items():
        home = homes / f"{SHAPES[shape]}-{name.replace(' ', '-')}"
        each["bytes"] = sum(path.stat().st_size for path in home.glob("*.db*"))
        each["text_bytes"] += sum(len(taken) for key, taken in appends.items() if key.startswith(name)) * len(
            APPEND_TEXT
        )
    return {"filled": filled, "taken": taken, "hits": hits, "appends": appends}


def measure_appends(workers: dict[str, Worker]) -> dict[str, list[float]]:
    """Append to the full record; Hansard also without its index being kept up."""
    texts = [APPEND_TEXT] * (APPENDS // 11)
    taken: dict[str, list[float]] = {}
    for _ in range(11):
        for name in (HANSARD, "plain FTS5", "Hermes"):
            taken.setdefault(name, []).extend(workers[name].ask("append", session="s0", texts=texts, indexed=True))
        bare = workers[HANSARD].ask("append", session="s0", texts=texts, indexed=False)
        taken.setdefault("Hansard, not indexing", []).extend(bare)
    return taken


def measure_listing(home: Path) -> float:
    """`hansard sessions` in milliseconds, the median of five."""
    command = [str(python_of(RECORD)), "-m", "hansard.cli.main", "--home", str(home), "sessions"]
    taken = []
    for _ in range(6):
        began = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken[1:])


def report_shape(shape: str, result: dict[str, Any]) -> list[str]:
    """Tables of one shape."""
    lines = [f"## {shape}", "", "p50 / p99 in ms of the first 20; in brackets how many of them were found.", ""]
    lines += ["| query | " + " | ".join(SUBJECTS) + " |", "|---" * (len(SUBJECTS) + 1) + "|"]
    for kind in KINDS:
        cells = []
        for name in SUBJECTS:
            taken = result["taken"][kind][name]
            p50, p99 = (percentile(taken, share) / 1000 for share in (0.5, 0.99))
            cells.append(f"{p50:.1f} / {p99:.1f} ({result['hits'][kind][name]})")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines += ["", "| | size on disk / text | filled and indexed in |", "|---|---|---|"]
    for name, filled in result["filled"].items():
        ratio = filled["bytes"] / filled["text_bytes"]
        lines.append(f"| {name} ({filled['version']}) | {ratio:.2f} | {filled['seconds']:.0f} s |")
    lines += ["", f"| {APPENDS} appends | p50 ms | p99 ms | worst ms |", "|---|---|---|---|"]
    for name, taken in result["appends"].items():
        p50, p99 = (percentile(taken, share) / 1000 for share in (0.5, 0.99))
        lines.append(f"| {name} | {p50:.2f} | {p99:.2f} | {max(taken) / 1000:.1f} |")
    return [*lines, ""]


def judge(results: dict[str, dict[str, Any]], listing_ms: float) -> list[str]:
    """The aims, and whether they were met."""
    lines = ["## Aims", ""]
    for shape, result in results.items():
        middle = {
            kind: {name: percentile(taken, 0.5) / 1000 for name, taken in result["taken"][kind].items()}
            for kind in KINDS
        }
        slow = [f"{kind} {row[HANSARD]:.1f}" for kind, row in middle.items() if row[HANSARD] >= P50_MS_MAX]
        behind = [kind for kind, row in middle.items() if row[HANSARD] > row["Hermes"]]
        near = [
            f"{kind} {row['Hermes'] / row[HANSARD]:.1f}×"
            for kind, row in middle.items()
            if (shape.startswith("10 ") or kind == "two CJK characters") and row["Hermes"] < AHEAD_MIN * row[HANSARD]
        ]
        filled, appends = result["filled"][HANSARD], result["appends"]
        size = filled["bytes"] / filled["text_bytes"]
        cost = statistics.median(appends[HANSARD]) / statistics.median(appends["Hansard, not indexing"])
        worst = max(appends[HANSARD]) / 1000
        lines += [
            f"- {shape}: p50 under 10 ms on every row: {verdict(not slow)} {', '.join(slow)}",
            f"- {shape}: never behind Hermes: {verdict(not behind)} {', '.join(behind)}",
            f"- {shape}: 10× ahead in long sessions and on two CJK characters: {verdict(not near)} {', '.join(near)}",
            f"- {shape}: database with index at most 2.2× the text: {verdict(size <= SIZE_MAX)} {size:.2f}",
            f"- {shape}: appends at most 40 % slower with the index: {verdict(cost <= APPEND_COST_MAX)} {cost:.2f}",
            f"- {shape}: no append over 100 ms: {verdict(worst <= APPEND_MS_MAX)} {worst:.1f} ms",
        ]
    return [
        *lines,
        f"- `hansard sessions` under 250 ms: {verdict(listing_ms < LISTING_MS_MAX)} {listing_ms:.0f} ms",
        "",
    ]


def verdict(met: bool) -> str:  # noqa: FBT001
    """In words."""
    return "met." if met else "NOT met:"


def main() -> None:
    """Measure, judge, report."""
    parser = argparse.ArgumentParser(description="Measure search beside its floor and its peers.")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=40, help="searches of each kind")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--homes", type=Path, default=BENCH / ".homes", help="where homes are made")
    arguments = parser.parse_args()
    arguments.homes.mkdir(parents=True, exist_ok=True)
    homes = Path(tempfile.mkdtemp(prefix="search-", dir=arguments.homes))
    load = MachineLoad()
    try:
        results = {shape: measure_shape(shape, homes, arguments.messages, arguments.rounds) for shape in SHAPES}
        listing_ms = measure_listing(homes / f"500-{HANSARD}")
    finally:
        shutil.rmtree(homes, ignore_errors=True)
    facts = machine_facts(arguments.homes)
    head = [
        "# Search",
        "",
        f"{arguments.messages} messages; {facts['cores']} cores, {facts['processor']}, {facts['file_system']}, Python",
        f"{facts['python']}; others used {load.share_elsewhere():.0%} of the machine. Written by `bench/search.py`.",
        "",
    ]
    tables = [line for shape, result in results.items() for line in report_shape(shape, result)]
    report = "\n".join([*head, *judge(results, listing_ms), *tables])
    print(report)
    if arguments.report:
        write_part(arguments.report, "search", report)
    if arguments.json:
        arguments.json.write_text(json.dumps({"results": results, "sessions_ms": listing_ms}, indent=1) + "\n")


if __name__ == "__main__":
    main()
