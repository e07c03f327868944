"""How long commits take: counted where they are made, once for each group, and read by whoever wants to know."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a fast disk to one that is in trouble."""


class Counted(NamedTuple):
    """Commits so far: how many took at most each bound, in all, and how long together."""

    within: tuple[int, ...]
    commits: int
    seconds: float


class Latency:
    """Written by the writer's thread alone; a reader may be one commit behind."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self._seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self._seconds += seconds

    def read(self) -> Counted:
        """Return what was counted."""
        counts = list(self._counts)
        within = [sum(counts[: place + 1]) for place in range(len(BOUNDS_SECONDS))]
        return Counted(tuple(within), sum(counts), self._seconds)
