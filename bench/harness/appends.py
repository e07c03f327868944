"""Appends: how many messages a second become durable, and how long the caller of each one waits."""

import functools
import statistics
import time
from collections.abc import Iterable
from typing import Any

from harness.bench import Bench
from harness.client import Worker
from harness.figures import waits
from harness.subjects import (
    ALONE,
    APPENDS,
    EIGHT_TASKS,
    FOUR_PROCESSES,
    FOUR_PROCESSES_IN_ONE,
    MANY_TASKS,
    MANY_TASKS_IN_ONE,
    Subject,
)

PROCESSES = 4
# Each case: how many processes, how many tasks in each of them, how many sessions in all.
CASES = {
    ALONE: (1, 1, 1),
    EIGHT_TASKS: (1, 8, 8),
    MANY_TASKS: (1, 64, 64),
    MANY_TASKS_IN_ONE: (1, 64, 1),
    FOUR_PROCESSES_IN_ONE: (PROCESSES, 1, 1),
    FOUR_PROCESSES: (PROCESSES, 1, 4),
}
_HEAD_START_SECONDS = 0.03


def measure(bench: Bench, cases: Iterable[str] = CASES) -> dict[str, Any]:
    """Each case in interleaved rounds. Each subject keeps one home a case, which grows over the rounds."""
    return {case: _measure_case(bench, case) for case in cases}


def _measure_case(bench: Bench, case: str) -> dict[str, Any]:
    """One case: a fresh home for each subject, opened in as many processes as the case wants."""
    processes, tasks, session_count = CASES[case]
    sessions = [f"session-{number}" for number in range(session_count)]

    def prepare(subject: Subject) -> bool:
        bench.open(subject, bench.home(APPENDS, case.replace(" ", "-").replace(",", ""), subject.name), processes)
        for worker in bench.workers[subject.name][:processes]:
            worker.call("create", sessions=sessions)
        return True

    def one_round(subject: Subject, number: int) -> dict[str, Any]:
        return _append_at_once(bench, bench.workers[subject.name][:processes], tasks, sessions, number)

    subjects = [each for each in bench.taking_part(APPENDS) if not each.cases or case in each.cases]
    ready = [each for each in subjects if bench.attempt(each, case, functools.partial(prepare, each))]
    measured = bench.rounds(ready, bench.settings.rounds, case, one_round)
    bench.close(ready, case)
    figures = {name: _figures(rounds) for name, rounds in measured.items() if rounds}
    for name in [name for name in figures if not figures[name]["rate"]]:
        bench.problems.append(f"{case}: {name} appended nothing: {figures.pop(name)['failure']}")
    return figures


def _append_at_once(bench: Bench, crew: list[Worker], tasks: int, sessions: list[str], number: int) -> dict[str, Any]:
    """One round of one subject: all its processes start at the same moment."""
    start_at_ns = time.monotonic_ns() + int(_HEAD_START_SECONDS * 1e9)
    for index, worker in enumerate(crew):
        worker.ask(
            "appends",
            # A process among several has its own session where there is one for each, or shares the only one.
            sessions=sessions if len(crew) == 1 else [sessions[index % len(sessions)]],
            tasks=tasks,
            seconds=bench.settings.append_seconds,
            start_at_ns=start_at_ns,
            tag=f"round-{number}-{index}",
        )
    answers = [worker.answer() for worker in crew]
    seconds = (max(each["ended_ns"] for each in answers) - min(each["started_ns"] for each in answers)) / 1e9
    return {
        "rate": sum(each["messages"] for each in answers) / seconds,
        "waits_us": [wait for each in answers for wait in each["waits_us"]],
        "failures": [failure for each in answers for failure in each["failures"]],
    }


def _figures(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The median rate; waits over all rounds together, because the worst is what a person remembers."""
    rates = [each["rate"] for each in rounds]
    failures = [failure for each in rounds for failure in each["failures"]]
    return {
        "rate": statistics.median(rates),
        "rates": rates,
        **waits([wait for each in rounds for wait in each["waits_us"]] or [0]),
        "failures": len(failures),
        "failure": failures[0] if failures else None,
    }
