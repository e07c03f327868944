"""One run: its settings, its workers, and the rounds in which subjects take turns.

Reads: nothing. Writes: homes under one temporary folder, removed at the end.
A subject that fails is left out of that experiment with the reason in the report; the others go on.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.client import Worker, WorkerError
from harness.subjects import SUBJECTS, Subject


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured."""

    rounds: int
    append_seconds: float
    stream_rounds: int
    stream_seconds: float
    load_repeats: int
    turn_repeats: int
    open_sessions: int
    open_messages_each: int


FULL = Settings(
    rounds=5,
    append_seconds=0.8,
    stream_rounds=3,
    stream_seconds=5.0,
    load_repeats=5,
    turn_repeats=20,
    open_sessions=100,
    open_messages_each=1000,
)
QUICK = Settings(
    rounds=2,
    append_seconds=0.2,
    stream_rounds=1,
    stream_seconds=2.0,
    load_repeats=3,
    turn_repeats=15,
    open_sessions=10,
    open_messages_each=1000,
)


@dataclass(kw_only=True)
class Bench:
    """The run as the experiments see it."""

    settings: Settings
    homes: Path
    subjects: tuple[Subject, ...] = SUBJECTS
    workers: dict[str, list[Worker]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    text_bytes: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def start(self, experiments: Iterable[str], processes: int) -> None:
        """Start the workers of every subject that takes part, all at once; they import while they wait."""
        chosen = [subject for subject in self.subjects if set(subject.experiments) & set(experiments)]
        for subject in chosen:
            count = processes if subject.is_shared else 1
            self.workers[subject.name] = [Worker(subject, number, self.homes) for number in range(count)]
            for worker in self.workers[subject.name]:
                worker.ask("hello")
        for subject in chosen:
            self._await_start(subject)

    def end(self) -> None:
        """End every process of this run."""
        for worker in [worker for workers in self.workers.values() for worker in workers]:
            worker.end()

    def taking_part(self, experiment: str) -> list[Subject]:
        """The subjects of this experiment that are alive."""
        return [each for each in self.subjects if experiment in each.experiments and each.name in self.workers]

    def home(self, *parts: str) -> str:
        """A folder for one subject in one case."""
        return str(self.homes.joinpath(*parts))

    def attempt(self, subject: Subject, what: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Do something with a subject; a failure is noted and gives None."""
        try:
            return work()
        except WorkerError as error:
            self.problems.append(f"{what}: {error}")
            print(f"  {what}: {subject.name} failed: {error}", file=sys.stderr)
            return None

    def open(self, subject: Subject, home: str, processes: int = 1) -> None:
        """Open a home in so many processes of a subject, and keep what the subject says of itself."""
        for worker in self.workers[subject.name][:processes]:
            self.facts[subject.name] = worker.call("open", home=home)

    def close(self, subjects: list[Subject], what: str) -> None:
        """Close whatever these subjects have open."""
        for subject in subjects:
            for worker in self.workers[subject.name]:
                self.attempt(subject, f"{what}, closing", functools.partial(worker.call, "close"))

    def rounds(
        self, subjects: list[Subject], count: int, what: str, work: Callable[[Subject, int], Any]
    ) -> dict[str, list[Any]]:
        """Interleave: every subject once, then every subject again. One that fails takes no further part."""
        results: dict[str, list[Any]] = {subject.name: [] for subject in subjects}
        for number in range(count):
            for subject in [each for each in subjects if each.name in results]:
                result = self.attempt(subject, what, functools.partial(work, subject, number))
                if result is None:
                    del results[subject.name]
                else:
                    results[subject.name].append(result)
        return results

    def _await_start(self, subject: Subject) -> None:
        """Drop a subject whose workers cannot be started."""
        for worker in self.workers[subject.name]:
            try:
                worker.answer()
            except WorkerError as error:
                self.problems.append(f"{subject.title} was not measured: {error}")
                print(f"  {subject.name} was not measured: {error}", file=sys.stderr)
                for each in self.workers.pop(subject.name):
                    each.end()
                return
