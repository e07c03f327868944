"""Streaming: from `write` in one process to a follower in another, with 200 replies growing at once.

The peers have no such thing, and take no part. The floor commits what gathered in 5 ms and looks every 5 ms.
"""

import functools
import statistics
import time
from typing import Any

from harness.bench import Bench
from harness.client import Worker
from harness.figures import waits
from harness.subjects import STREAMING, Subject

REPLIES = 200
CHUNKS_PER_SECOND = 50
# Time for the followers and the replies to be set up, before the first chunk is due.
HEAD_START_SECONDS = 1.2
_PATIENCE_SECONDS = 5.0


def measure(bench: Bench) -> dict[str, Any]:
    """Rounds of the record and the floor; a writer and a follower process each."""

    def prepare(subject: Subject) -> bool:
        bench.open(subject, bench.home(STREAMING, subject.name), processes=2)
        return True

    def one_round(subject: Subject, number: int) -> dict[str, Any]:
        writer, follower = bench.workers[subject.name][:2]
        sessions = [f"round-{number}-reply-{index}" for index in range(REPLIES)]
        return stream_once(writer, follower, sessions, bench.settings.stream_seconds)

    subjects = bench.taking_part(STREAMING)
    ready = [each for each in subjects if bench.attempt(each, STREAMING, functools.partial(prepare, each))]
    measured = bench.rounds(ready, bench.settings.stream_rounds, STREAMING, one_round)
    bench.close(ready, STREAMING)
    return {name: _figures(rounds) for name, rounds in measured.items() if rounds}


def stream_once(writer: Worker, follower: Worker, sessions: list[str], seconds: float) -> dict[str, Any]:
    """One round: the follower is listening before the first chunk is written."""
    writer.call("create", sessions=sessions)
    follower.ask(
        "stream_follow",
        sessions=sessions,
        chunks=round(CHUNKS_PER_SECOND * seconds),
        patience_seconds=HEAD_START_SECONDS + seconds + _PATIENCE_SECONDS,
    )
    writer.ask(
        "stream_write",
        sessions=sessions,
        chunks_per_second=CHUNKS_PER_SECOND,
        seconds=seconds,
        start_at_ns=time.monotonic_ns() + int(HEAD_START_SECONDS * 1e9),
    )
    answers: dict[str, Any] = {"written": None, "seen": None}
    try:
        answers["written"] = writer.answer()
    finally:
        # Read in any case: an answer left in the pipe would be taken for the next one.
        answers["seen"] = follower.answer()
    return answers


def _figures(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Percentiles over all chunks of all rounds, and of each round; what it cost the two processes."""
    ages = [age for each in rounds for age in each["seen"]["ages_us"]]
    if not ages:
        return {"missing": sum(each["seen"]["missing"] for each in rounds)}
    return {
        **waits(ages),
        **{
            f"{name}s_ms": [waits(each["seen"]["ages_us"])[f"{name}_ms"] for each in rounds if each["seen"]["ages_us"]]
            for name in ("p50", "p99")
        },
        "chunks_per_second": statistics.median(
            each["written"]["chunks"] / each["written"]["seconds"] for each in rounds
        ),
        "lag_ms": max(each["written"]["lag_ms"] for each in rounds),
        "missing": sum(each["seen"]["missing"] for each in rounds),
        "writer_cpu": statistics.median(each["written"]["cpu_share"] for each in rounds),
        "follower_cpu": statistics.median(each["seen"]["cpu_share"] for each in rounds),
    }
