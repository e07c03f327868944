"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random

DOUBLINGS_MAX = 16
"""More would change nothing but the size of the number."""

HALF = 0.5


def backoff_seconds(failures: int, first_seconds: float, seconds_max: float, *, spread: float = 0.0) -> float:
    """Return the pause after so many failures in a row: twice as long each time, up to a limit.

    Up to the part `spread` of it is left out by lot: many who wait for one server then do not come back at once.
    """
    longest = min(first_seconds * 2.0 ** min(failures - 1, DOUBLINGS_MAX), seconds_max)
    return longest * (1.0 - spread * random.random())  # noqa: S311 - it spreads load and hides nothing
