"""The numbers of a gateway, in the text format of Prometheus (0.0.4): counts, seconds and states.

Reads: what health is told, and what the process knows of itself. Writes nothing.
Invariants: no words of anybody, and no names of people or chats; labels are channels, states, classes of reasons.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hansard import __version__
from hansard.domain.deliveries import DeliveryState
from hansard.record.latency import BOUNDS_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard.app.health import Health
    from hansard.record.latency import Latency

KIB: Final = 1024


class Readings(NamedTuple):
    """What health does not tell."""

    running_turns: int
    queued_turns: int | None
    """None while the record cannot be read."""
    latency: Latency


class Sample(NamedTuple):
    """One number, with its labels."""

    value: float
    labels: tuple[tuple[str, str], ...] = ()
    suffix: str = ""


class Family(NamedTuple):
    """A metric: its name, what it is, and its numbers."""

    name: str
    kind: str
    meaning: str
    samples: tuple[Sample, ...]


def metrics_text(health: Health, readings: Readings) -> bytes:
    """Return the page."""
    lines = []
    for family in (
        *of_turns(health, readings),
        *of_channels(health),
        *of_record(health, readings),
        *of_process(health),
    ):
        if family.samples:
            lines += [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}"]
        lines += [line_of(family.name, sample) for sample in family.samples]
    return ("\n".join(lines) + "\n").encode()


def line_of(name: str, sample: Sample) -> str:
    """Return a line of the format."""
    labels = ",".join(f'{label}="{escaped(value)}"' for label, value in sample.labels)
    number = f"{sample.value:.10g}" if sample.value != int(sample.value) else str(int(sample.value))
    return f"{name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {number}"


def escaped(value: str) -> str:
    """Return a label's value as it is written between quotes."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def of_turns(health: Health, readings: Readings) -> Iterator[Family]:
    """Yield what runs, what waits, and how turns ended."""
    running, queued = readings.running_turns, readings.queued_turns
    yield Family("hansard_turns_running", "gauge", "Turns that this process runs.", (Sample(running),))
    waiting = () if queued is None else (Sample(queued),)
    yield Family("hansard_turns_queued", "gauge", "Turns that wait to run, in every session.", waiting)
    completed = (Sample(health.turns.completed),)
    yield Family("hansard_turns_completed_total", "counter", "Turns of this process that were answered.", completed)
    failed = tuple(Sample(count, (("reason", reason),)) for reason, count in sorted(health.turns.failed.items()))
    yield Family("hansard_turns_failed_total", "counter", "Turns of this process that failed, by reason.", failed)
    meaning = "How many turns failed, one after another, since a model last answered."
    yield Family("hansard_turns_failing", "gauge", meaning, (Sample(health.turns.failing),))


def of_channels(health: Health) -> Iterator[Family]:
    """Yield how each channel does."""
    channels = [((("channel", channel.name),), channel) for channel in health.channels]
    states = [state for state in DeliveryState if state is not DeliveryState.SENT]
    deliveries = [
        Sample(channel.deliveries.get(state, 0), (*label, ("state", state)))
        for label, channel in channels
        for state in states
    ]
    for name, kind, meaning, samples in (
        (
            "channel_up",
            "gauge",
            "1 when the channel has no trouble.",
            [Sample(not c.trouble, lab) for lab, c in channels],
        ),
        (
            "events_received_total",
            "counter",
            "Events that came from the platform.",
            [Sample(channel.events, label) for label, channel in channels],
        ),
        (
            "receive_quiet_seconds",
            "gauge",
            "How long ago the platform last answered.",
            [Sample(channel.quiet_seconds, label) for label, channel in channels],
        ),
        (
            "messages_waiting",
            "gauge",
            "Messages that are not shown yet.",
            [Sample(channel.waiting, label) for label, channel in channels],
        ),
        (
            "delivery_lag_seconds",
            "gauge",
            "How long the oldest of them has waited.",
            [Sample(channel.lag_seconds, label) for label, channel in channels],
        ),
        ("deliveries", "gauge", "Posts and edits that are not sent, by state.", deliveries),
        (
            "deliveries_sent_total",
            "counter",
            "Posts and edits that the platform took.",
            [Sample(channel.sent, label) for label, channel in channels],
        ),
    ):
        yield Family(f"hansard_{name}", kind, meaning, tuple(samples))


def of_record(health: Health, readings: Readings) -> Iterator[Family]:
    """Yield how the record does."""
    counted = readings.latency.read()
    buckets = [
        Sample(count, (("le", f"{bound:g}"),), "_bucket")
        for bound, count in zip(BOUNDS_SECONDS, counted.within, strict=True)
    ]
    commits = (
        *buckets,
        Sample(counted.commits, (("le", "+Inf"),), "_bucket"),
        Sample(counted.seconds, suffix="_sum"),
        Sample(counted.commits, suffix="_count"),
    )
    yield Family("hansard_record_up", "gauge", "1 when the record can be written.", (Sample(not health.record),))
    meaning = "How long group commits took, once the write lock was held."
    yield Family("hansard_record_commit_seconds", "histogram", meaning, commits)


def of_process(health: Health) -> Iterator[Family]:
    """Yield how the process does."""
    config = health.config
    stopping = health.status == "stopping"
    version = (("version", __version__),)
    yield Family("hansard_stopping", "gauge", "1 while the gateway drains.", (Sample(stopping),))
    meaning = "1 when the configuration was right the last time that it was read."
    yield Family("hansard_config_valid", "gauge", meaning, (Sample(not config.refused),))
    meaning = "How often the configuration was read again."
    yield Family("hansard_config_readings_total", "counter", meaning, (Sample(config.readings),))
    meaning = "Memory that is really there."
    yield Family("process_resident_memory_bytes", "gauge", meaning, (Sample(resident_bytes()),))
    yield Family("process_open_fds", "gauge", "Open files and connections.", tuple(map(Sample, open_files())))
    yield Family("hansard_build_info", "gauge", "Which Hansard this is.", (Sample(1, version),))


def resident_bytes() -> int:
    """Return how much memory the process takes; where the system does not tell, the most that it ever took."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * KIB
    return pages * resource.getpagesize()


def open_files() -> Iterator[int]:
    """Yield how many files and connections are open, where the system tells."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            yield len(list(Path(folder).iterdir()))
        except OSError:
            continue
        return
