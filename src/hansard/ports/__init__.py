"""What the outside must offer: one module for each port. The clock, which everybody uses, stands here."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now_microseconds(self) -> int:
        """Return the wall clock's time since 1970, as a label."""

    def monotonic_seconds(self) -> float:
        """Return a time that never goes back, for deadlines."""


class SystemClock:
    """The machine's own clock."""

    def now_microseconds(self) -> int:
        return time.time_ns() // 1000

    def monotonic_seconds(self) -> float:
        return time.monotonic()
