"""Tools for testing Hansard and parts that others write for it: product code, kept like the rest.

conformance     the suite for record backends; its contracts are in `conformance_*`, what they share in `_kit`
channel_suite   the suite for channels; its contracts are in `channel_suite_*`, what they share in `_kit`
platform        a chat platform in memory; `channel` is the channel to it
fakes           a clock that is moved by hand, models and tools that misbehave
crash           points of a commit at which a process can be killed
"""

from hansard.journal.store import Wiring, abandon_store
from hansard.models.scripted import ScriptedModel
from hansard.testing.channel import RECORDING_CAPABILITIES, RecordingChannel
from hansard.testing.crash import CRASH_POINTS, CrashPoint, count_steps
from hansard.testing.fakes import (
    Counting,
    Echo,
    Failing,
    FakeClock,
    LargeOutput,
    RecordingModel,
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
