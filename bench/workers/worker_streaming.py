"""Streaming, measured: stamped chunks on one side, the age of each stamp on the other.

A chunk is 16 digits of CLOCK_MONOTONIC, which all processes of a Linux machine share, and filler up to a fixed size.
The size is fixed so that a follower may be given several chunks as one piece, or one in two, and still read each stamp.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from worker_subject import Subject

CHUNK_BYTES = 24
_STAMP_DIGITS = 16


def stamped_chunk() -> str:
    """A chunk that says when it was handed to the record."""
    return f"{time.monotonic_ns():0{_STAMP_DIGITS}d}".ljust(CHUNK_BYTES, ".")


class SteadyPace:
    """So many chunks a second for each reply, the replies spread evenly over the interval between two chunks."""

    def __init__(self, *, chunks_per_second: float, seconds: float, start_at_ns: int):
        self.interval_seconds = 1 / chunks_per_second
        self.chunks = round(chunks_per_second * seconds)
        self.start_at = start_at_ns / 1e9
        self.latest_lag_seconds = 0.0
        self.began_ns = 0
        self.ended_ns = 0
        self.cpu_seconds = 0.0

    async def run(self, writes: list[Callable[[str], Awaitable[None]]]) -> None:
        """One task a reply, as an agent with so many conversations has; late chunks are sent at once, and noted."""
        base = max(self.start_at, time.monotonic() + 0.05)
        self.began_ns = int(base * 1e9)
        cpu = time.process_time()
        async with asyncio.TaskGroup() as group:
            for number, write in enumerate(writes):
                group.create_task(self._one_reply(write, base + self.interval_seconds * number / len(writes)))
        self.cpu_seconds = time.process_time() - cpu
        self.ended_ns = time.monotonic_ns()

    async def _one_reply(self, write: Callable[[str], Awaitable[None]], base: float) -> None:
        for number in range(self.chunks):
            due = base + number * self.interval_seconds
            delay = due - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            self.latest_lag_seconds = max(self.latest_lag_seconds, time.monotonic() - due)
            await write(stamped_chunk())


async def write_streams(
    subject: Subject, *, sessions: list[str], chunks_per_second: float, seconds: float, start_at_ns: int
) -> dict[str, Any]:
    """Write all replies at once; says what rate was reached and what it cost."""
    pace = SteadyPace(chunks_per_second=chunks_per_second, seconds=seconds, start_at_ns=start_at_ns)
    stream: Callable[..., Awaitable[None]] = subject.stream  # type: ignore[attr-defined]
    await stream(sessions, pace)
    wall_seconds = (pace.ended_ns - pace.began_ns) / 1e9
    return {
        "chunks": pace.chunks * len(sessions),
        "seconds": wall_seconds,
        "cpu_share": pace.cpu_seconds / wall_seconds,
        "lag_ms": pace.latest_lag_seconds * 1000,
    }


async def follow_streams(
    subject: Subject, *, sessions: list[str], chunks: int, patience_seconds: float
) -> dict[str, Any]:
    """Follow every session until each has given its chunks, or the patience is over; the age of each chunk seen."""
    ages_us: list[int] = []
    seen_first_ns = 0
    cpu_first = cpu_last = 0.0

    async def one_session(session: str) -> None:
        nonlocal seen_first_ns, cpu_first, cpu_last
        rest, seen = "", 0
        async with contextlib.aclosing(subject.follow(session)) as pieces:  # type: ignore[attr-defined]
            async for piece in pieces:
                now = time.monotonic_ns()
                rest += piece
                end = len(rest) // CHUNK_BYTES * CHUNK_BYTES
                ages_us.extend((now - int(rest[at : at + _STAMP_DIGITS])) // 1000 for at in range(0, end, CHUNK_BYTES))
                rest, seen = rest[end:], seen + end // CHUNK_BYTES
                if not seen_first_ns:
                    seen_first_ns, cpu_first = now, time.process_time()
                if seen >= chunks:
                    break
        cpu_last = time.process_time()

    try:
        async with asyncio.timeout(patience_seconds), asyncio.TaskGroup() as group:
            for session in sessions:
                group.create_task(one_session(session))
    except TimeoutError:
        cpu_last = time.process_time()
    wall_seconds = (time.monotonic_ns() - seen_first_ns) / 1e9
    return {
        "ages_us": ages_us,
        "missing": chunks * len(sessions) - len(ages_us),
        "cpu_share": (cpu_last - cpu_first) / wall_seconds,
    }
