"""Tools for whoever tests Hansard or writes a part of it: product code, kept like the rest."""

from hansard.journal.store import Wiring, abandon_store
from hansard.testing.channel import RECORDING_CAPABILITIES, RecordingChannel
from hansard.testing.crash import CRASH_POINTS, CrashPoint, count_steps
from hansard.testing.fakes import (
    Counting,
    Echo,
    Failing,
    FakeClock,
    LargeOutput,
    RecordingModel,
    ScriptedModel,
    Slow,
    tools_by_name,
)
from hansard.testing.platform import Fault, FaultKind, Platform

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
