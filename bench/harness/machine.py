"""What the figures depend on besides the code. No host names: the report is published."""

import datetime as dt
import os
import platform
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

from environments import ROOT


def machine_facts(homes: Path) -> dict[str, Any]:
    """Processor, system, file system, interpreter."""
    kind = subprocess.run(["df", "--output=fstype", str(homes)], capture_output=True, text=True, check=False)
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": models[0] if models else platform.machine(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "file_system": kind.stdout.split()[-1] if kind.returncode == 0 else "unknown file system",
        "python": platform.python_version(),
    }


def now() -> str:
    """When this was measured."""
    return dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def commit() -> str:
    """The commit, and whether the tree differs from it: a figure without that cannot be compared later."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


class MachineLoad:
    """How much of the machine went to others during the run.

    Busy and stolen time of all processors, less what the harness and its ended children used. A benchmark on a shared
    machine that does not say this invites trust in its absolute figures.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.busy_seconds = _busy_seconds()
        self.own_seconds = _own_seconds()

    def share_elsewhere(self) -> float:
        """The share of all processors since the start; call it once the workers have ended."""
        busy = _busy_seconds() - self.busy_seconds
        own = _own_seconds() - self.own_seconds
        capacity = (time.monotonic() - self.began) * (os.cpu_count() or 1)
        return max(0.0, (busy - own) / capacity)


def _busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
