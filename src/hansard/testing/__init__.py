"""Tools for whoever tests Hansard or writes a part of it: product code, kept like the rest."""

from hansard.record.store import Wiring, abandon_store
from hansard.testing.clock import FakeClock
from hansard.testing.crash import CRASH_POINTS, CrashPoint, count_steps

__all__ = ["CRASH_POINTS", "CrashPoint", "FakeClock", "Wiring", "abandon_store", "count_steps"]
