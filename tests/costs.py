"""What tests cost: `--costs` prints the slowest tests and the processor seconds of each ring (a folder of tests/).

The cost of a test is the processor time that its process and the processes below it used between two reports, fixtures
included. A server that several tests share costs each of them what it used while that test ran. Processor time is
missed in two cases: a process that nobody waits for, such as one whose parent was killed, and a system without /proc,
where a process counts once it was waited for.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

SLOWEST_SHOWN = 20
COLLECTING = "hansard_collecting"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def children_of(pid: int) -> list[int]:
    """The processes that any thread of this process started. Threads, and the process itself, may end meanwhile."""
    found: list[int] = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found
    for thread in threads:
        try:
            found.extend(int(child) for child in (thread / "children").read_text().split())
        except OSError:
            continue
    return found


def used_below(pid: int) -> float:
    """The processor seconds of the running processes below this one, with the children that they waited for."""
    seconds = 0.0
    for child in children_of(pid):
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        seconds += sum(int(ticks) for ticks in fields[11:15]) / TICKS_A_SECOND + used_below(child)
    return seconds


def used_by_now() -> float:
    """The processor seconds of this process and of all below it since it started."""
    own, waited_for = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime + used_below(os.getpid())


class Meter:
    """Measures tests where they run: in this process, or in each worker of pytest-xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.read = 0.0

    def pytest_collection_finish(self) -> None:
        """Set apart what starting up and collecting took. A worker hands it to the process that reports."""
        self.read = used_by_now()
        vars(self.config).get("workeroutput", vars(self.config))[COLLECTING] = self.read

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write into a report what was used since the report before it. Workers send reports with such attributes."""
        report = yield
        now = used_by_now()
        # A killed process that its parent never waited for takes its share along: less is no cost.
        vars(report)["processor_seconds"] = max(0.0, now - self.read)
        self.read = now
        return report


class Costs:
    """Adds up and prints what the tests of a run cost, in the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = time.monotonic()
        self.collecting = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test: its setup, its call or its teardown."""
        self.seconds[report.nodeid] += report.duration
        self.processor[report.nodeid] += vars(report).get("processor_seconds", 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist has no types for its workers
        """Add what a worker took to start and to collect. A worker that crashed has said nothing."""
        self.collecting += getattr(node, "workeroutput", {}).get(COLLECTING, 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print both tables."""
        terminalreporter.section("costs")
        for line in self.slowest() + self.rings():
            terminalreporter.write_line(line)

    def slowest(self) -> list[str]:
        """The slowest tests, the slowest first."""
        names = sorted(self.seconds, key=lambda name: -self.seconds[name])[:SLOWEST_SHOWN]
        rows = [f"{self.seconds[name]:9.1f} {self.processor[name]:9.1f}  {name}" for name in names]
        return ["  seconds processor  the slowest tests", *rows, ""]

    def rings(self) -> list[str]:
        """The processor seconds of each ring, the dearest first, and of all."""
        of_ring: dict[str, list[float]] = defaultdict(list)
        for name, used in self.processor.items():
            of_ring[name.split("/")[1]].append(used)
        rows = [
            f"{sum(of_ring[ring]):9.1f} {len(of_ring[ring]):6d}  {ring}"
            for ring in sorted(of_ring, key=lambda ring: -sum(of_ring[ring]))
        ]
        collecting = self.collecting + vars(self.config).get(COLLECTING, 0.0)
        whole = collecting + sum(self.processor.values())
        return [
            "processor  tests  ring",
            *rows,
            f"{collecting:9.1f}      0  (starting and collecting)",
            f"{whole:9.1f} {len(self.processor):6d}  all, in {time.monotonic() - self.started:.0f} seconds",
        ]


def measure(config: pytest.Config) -> None:
    """Measure this run and print its costs at the end. Workers of pytest-xdist measure, and their controller prints."""
    config.pluginmanager.register(Meter(config))
    if not hasattr(config, "workeroutput"):
        config.pluginmanager.register(Costs(config))
