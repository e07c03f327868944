"""Measure the record where it is strained: a slow disk, very many sessions, an opening after a kill.

    python bench/edges.py [--quick] [--only NAME]... [--rounds 5] [--json FILE] [--report FILE]

`slow` runs each subject under strace, which makes every fsync and fdatasync 20 ms longer. `memory` appends once to each
of 100,000 sessions in one process. `kill` ends a process while it appends, and opens its record in another one. The
report goes to standard output, progress to standard error. See bench/README.md.
"""

import dataclasses
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import appends
from harness.bench import FULL, QUICK, Bench
from harness.client import Worker
from harness.report import figure, table, write_problems, write_subjects
from harness.run import make_parser, run_benchmark
from harness.subjects import (
    ALONE,
    APPENDS,
    FLOOR,
    HANSARD,
    MANY_TASKS,
    SQLITE_SESSION_SUBJECT,
    SUBJECTS,
    TITLES,
    Subject,
)

SLOW, MEMORY, KILL = "slow", "memory", "kill"
FSYNC_MS = 20
STRACE = (
    *("strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"),
    *("-e", f"inject=fsync,fdatasync:delay_exit={FSYNC_MS * 1000}"),
)
SLOW_SECONDS = 3.0

# Raw apsw has sessions only by name: it is what the interpreter, SQLite and its cache take.
MEMORY_SUBJECTS = (HANSARD, next(each for each in SUBJECTS if each.name == "apsw"))
MEMORY_TASKS = 64
MEMORY_STEP = 5_000
"""Sessions of one request: it must end before the harness takes the worker for dead, on a slow disk too."""

KILL_SUBJECTS = (HANSARD, SQLITE_SESSION_SUBJECT)
KILL_SESSIONS = 100
KILL_TASKS = 8
KILL_AFTER_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is measured."""

    rounds: int
    memory_sessions: tuple[int, ...]
    kill_messages: tuple[int, ...]


FULL_EXTENT = Extent(rounds=5, memory_sessions=(1_000, 10_000, 100_000), kill_messages=(10_000, 100_000))
QUICK_EXTENT = Extent(rounds=1, memory_sessions=(100, 1_000), kill_messages=(1_000, 10_000))


def measure_slow(bench: Bench, extent: Extent) -> dict[str, Any]:
    """Appends alone and from 64 tasks, in rounds; the report reads what `bench/record.py` reads."""
    if shutil.which(STRACE[0]) is None:
        bench.problems.append("a slow disk: there is no strace")
        return {}
    slow = tuple(dataclasses.replace(each, under=STRACE) for each in (HANSARD, FLOOR, SQLITE_SESSION_SUBJECT))
    settings = dataclasses.replace(bench.settings, rounds=extent.rounds)
    inner = Bench(settings=settings, homes=bench.homes / SLOW, subjects=slow, facts=bench.facts)
    inner.problems = bench.problems
    inner.homes.mkdir()
    try:
        inner.start([APPENDS], processes=1)
        return appends.measure(inner, (ALONE, MANY_TASKS))
    finally:
        inner.end()


def measure_memory(bench: Bench, extent: Extent) -> dict[str, Any]:
    """What a process holds when it is open, and after one append to each of so many sessions."""

    def one_subject(subject: Subject) -> list[dict[str, Any]]:
        with_home = bench.homes / MEMORY / subject.name
        worker = _start(bench, subject, "memory")
        try:
            bench.facts[subject.name] = worker.call("open", home=str(with_home))
            rows = [{"sessions": 0, "seconds": 0.0, **worker.call("memory")}]
            began = time.monotonic()
            for before, count in itertools.pairwise((0, *extent.memory_sessions)):
                for first in range(before, count, MEMORY_STEP):
                    here = min(MEMORY_STEP, count - first)
                    worker.call("append_to_each", first=first, count=here, tasks=MEMORY_TASKS)
                rows.append({"sessions": count, "seconds": time.monotonic() - began, **worker.call("memory")})
            return rows
        finally:
            worker.end()
            shutil.rmtree(with_home, ignore_errors=True)

    measured = {each.name: bench.attempt(each, MEMORY, lambda each=each: one_subject(each)) for each in MEMORY_SUBJECTS}
    return {name: rows for name, rows in measured.items() if rows}


def measure_kill(bench: Bench, extent: Extent) -> dict[str, Any]:
    """Milliseconds of an opening after a kill, and after a close, of records of several sizes."""
    return {
        str(messages): bench.rounds(
            list(KILL_SUBJECTS),
            extent.rounds,
            f"{KILL}, {messages:,} messages",
            lambda subject, number, messages=messages: _kill_once(bench, subject, messages, number),
        )
        for messages in extent.kill_messages
    }


def _kill_once(bench: Bench, subject: Subject, messages: int, number: int) -> dict[str, Any]:
    """One record: the process that wrote all of it is killed while it appends; two others open it after each other."""
    home = bench.homes / KILL / f"{subject.name}-{messages}-{number}"
    sessions = [f"session-{index}" for index in range(KILL_SESSIONS)]
    writer, after_kill, after_close = (_start(bench, subject, what) for what in ("writer", "killed", "closed"))
    try:
        bench.facts[subject.name] = writer.call("open", home=str(home))
        for index, session in enumerate(sessions):
            writer.call("fill", session=session, count=messages // KILL_SESSIONS, seed=index)
        writer.ask(
            "appends", sessions=sessions, tasks=KILL_TASKS, seconds=60, start_at_ns=time.monotonic_ns(), tag="killed"
        )
        time.sleep(KILL_AFTER_SECONDS)
        writer.kill()
        killed = after_kill.call("open_and_append", home=str(home), session=sessions[0], tag="first")
        for session in (sessions[0], sessions[-1]):
            after_kill.call("loads", session=session, repeats=1, expected=messages // KILL_SESSIONS)
        after_kill.call("close")
        closed = after_close.call("open_and_append", home=str(home), session=sessions[0], tag="second")
        return {"killed": killed, "closed": closed}
    finally:
        for worker in (writer, after_kill, after_close):
            worker.end()
        shutil.rmtree(home, ignore_errors=True)


def _start(bench: Bench, subject: Subject, what: str) -> Worker:
    """A worker of its own, with everything imported."""
    worker = Worker(dataclasses.replace(subject, name=f"{subject.name}-{what}"), 0, bench.homes)
    worker.call("hello")
    return worker


MEASURES: dict[str, Callable[[Bench, Extent], dict[str, Any]]] = {
    SLOW: measure_slow,
    MEMORY: measure_memory,
    KILL: measure_kill,
}


def main() -> None:
    """Measure and report."""
    parser = make_parser(
        "Measure the record where it is strained.", quick="about a minute: one round, fewer sessions and messages"
    )
    parser.add_argument("--only", action="append", choices=MEASURES, help="only this; may be repeated")
    parser.add_argument("--rounds", type=int, help="how often each subject takes its turn (slow, kill)")
    arguments = parser.parse_args()
    extent = QUICK_EXTENT if arguments.quick else FULL_EXTENT
    extent = dataclasses.replace(extent, rounds=arguments.rounds or extent.rounds)
    settings = QUICK if arguments.quick else FULL
    settings = dataclasses.replace(settings, append_seconds=1.0 if arguments.quick else SLOW_SECONDS)
    chosen = [each for each in MEASURES if each in (arguments.only or MEASURES)]

    def measure(homes: Path) -> dict[str, Any]:
        bench, results = Bench(settings=settings, homes=homes), {}
        for name in chosen:
            print(f"bench: {name}", file=sys.stderr, flush=True)
            results[name] = MEASURES[name](bench, extent)
        return {
            "settings": dataclasses.asdict(extent),
            "facts": bench.facts,
            "results": results,
            "problems": bench.problems,
        }

    run_benchmark("edges", arguments, measure, write_report)


def write_report(run: dict[str, Any]) -> str:
    """The whole page, from the results alone."""
    machine, results = run["machine"], run["results"]
    parts = [
        f"""# Edges

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["file_system"]}, Python
{machine["python"]}, commit {run["commit"]}; {run["settings"]["rounds"]} rounds in turn. Other work on the machine and
its host took {machine["busy_elsewhere"]:.0%} of the processors meanwhile.
Again: `python bench/edges.py --report docs/proof/performance.md`.""",
        write_subjects(run["facts"]),
    ]
    for name, write in ((SLOW, _write_slow), (MEMORY, _write_memory), (KILL, _write_kill)):
        if results.get(name):
            parts.append(write(results[name]))
    return "\n\n".join([*parts, *write_problems(run["problems"])]) + "\n"


def _write_slow(results: dict[str, Any]) -> str:
    rows = []
    for case, subjects in results.items():
        for name, figures in subjects.items():
            waits = [figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
            rows.append([case, TITLES[name], f"{figures['rate']:,.1f}", *waits, str(figures["failures"] or "")])
    header = ["case", "subject", "messages/s", "wait p50 ms", "p99", "worst", "failed"]
    return f"""## Appends on a slow disk

Every fsync and fdatasync takes {FSYNC_MS} ms longer, by strace: one after another, at most {1000 // FSYNC_MS} a second.

{table(header, rows)}"""


def _write_memory(results: dict[str, Any]) -> str:
    rows = []
    for name, steps in results.items():
        for step in steps:
            each = (
                (step["now_mib"] - steps[0]["now_mib"]) * 1024 * 1024 / step["sessions"] if step["sessions"] else None
            )
            shown = [f"{step['now_mib']:.1f}", figure(each), f"{step['most_mib']:.1f}", f"{step['files']:.0f}"]
            rows.append([TITLES[name], f"{step['sessions']:,}", *shown, f"{step['seconds']:.0f}"])
    header = ["subject", "sessions", "MiB", "bytes more a session", "MiB at most", "open files", "after s"]
    return f"""## Memory of many sessions

One process, {MEMORY_TASKS} tasks: each session is created and appended to once. Resident memory, after a collection.
Raw apsw keeps nothing of a session: it is what the interpreter, SQLite and its cache take.

{table(header, rows)}"""


def _write_kill(results: dict[str, Any]) -> str:
    rows = []
    for messages, subjects in results.items():
        for name, rounds in subjects.items():
            cells = [
                f"{statistics.median(times):,.1f} ({max(times):,.1f})"
                for how in ("killed", "closed")
                for key in ("open_ms", "append_ms")
                for times in [[each[how][key] for each in rounds]]
            ]
            rows.append([f"{int(messages):,}", TITLES[name], *cells])
    header = ["messages", "subject", "open after a kill, ms", "… and append", "open after a close", "… and append"]
    return f"""## Opening after a kill

The process that wrote the whole record, in {KILL_SESSIONS} sessions, is killed while {KILL_TASKS} tasks append. Another
opens it and appends a message; then it closes, and a third one does the same. Everything is imported, the page cache is
warm. The median, and the worst in brackets. SQLiteSession opens at first use.

{table(header, rows)}"""


if __name__ == "__main__":
    main()
