"""What the kernel knows of threads: how long each ran, and how long it waited for a core."""

from __future__ import annotations

import re
import threading
from pathlib import Path

_NUMBER = re.compile(r"[_-]\d+$")


def ran_seconds() -> dict[str, float]:
    """Return the processor time of each living thread; those of a pool are counted together, under its name."""
    ran: dict[str, float] = {}
    for thread in threading.enumerate():
        name = _NUMBER.sub("", thread.name)
        ran[name] = ran.get(name, 0.0) + _schedule(f"/proc/self/task/{thread.native_id}/schedstat")[0]
    return ran


def process_seconds(pid: int) -> float:
    """Return the processor time of all living threads of another process."""
    return sum(_schedule(f"{task}/schedstat")[0] for task in Path(f"/proc/{pid}/task").glob("*"))


def waited_seconds() -> float:
    """Return how long this thread could have run and had no core: the noise of others, in seconds."""
    return _schedule("/proc/thread-self/schedstat")[1]


def _schedule(path: str) -> tuple[float, float]:
    """Read a thread's times; nothing where the kernel keeps none, or the thread has just ended."""
    try:
        ran, waited, _ = Path(path).read_text().split()
    except OSError:
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9
