"""Named crash points around each step of a commit: `Record.open(home, wiring=Wiring(reach=CrashPoint("logged")))`."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

CRASH_POINTS = (
    "locked",
    "begun",
    "applied",
    "logging",
    "logged",
    "ringing",
    "committed",
    "removed",
    "released",
    "acknowledged",
    "reconciling",
    "reconciled",
)
"""locked: the write lock is held. begun: the transaction has begun. applied: rows are in, nothing is logged.
logging: after each file that was logged. logged: all files are, COMMIT comes next. ringing: durable, nobody knows.
committed: other processes were woken. removed: part files of sealed messages are gone. released: the lock is free.
acknowledged: waiters were told. reconciling, reconciled: before and after a journal's files were brought in line with
the database."""

OPENING_POINTS = ("adopted", "mending", "mended", "copied", "altered", "folded", "migrated")
"""Steps that only some openings come to. adopted: a piece of a long log is in the database. mending, mended: before
and after logs are cut or written anew; what they gave was committed. Of a migration: copied (the backup is made),
altered (the tables have their new shape), folded (the entries are in the projections again), migrated (it is
committed)."""


class CrashPoint:
    """Kills this process, with SIGKILL, when a step is reached for the n-th time."""

    def __init__(self, name: str, occurrence: int = 1) -> None:
        if name not in CRASH_POINTS + OPENING_POINTS:
            raise ValueError(f"no crash point {name!r}: one of {', '.join(CRASH_POINTS + OPENING_POINTS)}")
        self._name = name
        self._left = occurrence

    def __call__(self, step: str) -> None:
        if step == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def count_steps() -> tuple[Counter[str], Callable[[str], None]]:
    """Return a counter and the hook that fills it, to see which steps a scenario reaches."""
    counter: Counter[str] = Counter()
    return counter, lambda step: counter.update([step])
