"""Tools for whoever tests Hansard or writes a part of it: product code, kept like the rest."""

from hansard.journal.store import Wiring, abandon_store
from hansard.testing.channel import RECORDING_CAPABILITIES, RecordingChannel
from hansard.testing.clock import FakeClock
from hansard.testing.crash import CRASH_POINTS, CrashPoint, count_steps
from hansard.testing.models import RecordingModel, ScriptedModel
from hansard.testing.platform import Fault, FaultKind, Platform
from hansard.testing.tools import Counting, Echo, Failing, LargeOutput, Slow, tools_by_name

__all__ = [
    "CRASH_POINTS",
    "RECORDING_CAPABILITIES",
    "Counting",
    "CrashPoint",
    "Echo",
    "Failing",
    "FakeClock",
    "Fault",
    "FaultKind",
    "LargeOutput",
    "Platform",
    "RecordingChannel",
    "RecordingModel",
    "ScriptedModel",
    "Slow",
    "Wiring",
    "abandon_store",
    "count_steps",
    "tools_by_name",
]
