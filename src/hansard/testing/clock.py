"""A clock that moves only when told to."""

from __future__ import annotations

START_MICROSECONDS = 1_700_000_000_000_000


class FakeClock:
    """Wall time and monotonic time, each moved by hand; wall time may jump back, as real clocks do."""

    def __init__(self, now_microseconds: int = START_MICROSECONDS) -> None:
        """Start at a fixed moment."""
        self._now = now_microseconds
        self._monotonic = 0.0

    def now_microseconds(self) -> int:
        """Return the wall time."""
        return self._now

    def monotonic_seconds(self) -> float:
        """Return the monotonic time."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += round(seconds * 1_000_000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forth or back, as an administrator or NTP does."""
        self._now += round(seconds * 1_000_000)
