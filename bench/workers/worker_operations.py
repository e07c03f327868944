"""The operations of a worker: the measured loops, written once and run by every subject."""

import gc
import itertools
import os
import time
from asyncio import TaskGroup
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from worker_streaming import follow_streams, write_streams
from worker_subject import Subject
from worker_texts import lines, texts

_POOL = 512


async def hello(_subject: Subject) -> dict[str, Any]:
    """Answered once everything is imported."""
    return {"pid": os.getpid()}


async def open_home(subject: Subject, *, home: str) -> dict[str, Any]:
    """Open, not measured."""
    await subject.close()
    return await subject.open(home)


async def close_home(subject: Subject) -> None:
    """Close, so that an idle worker costs its neighbours nothing."""
    await subject.close()


async def create(subject: Subject, *, sessions: list[str]) -> None:
    """Create sessions, not measured."""
    await subject.create(sessions)


async def fill(subject: Subject, *, session: str, count: int, seed: int) -> dict[str, int]:
    """Fill a session, not measured; says how many bytes of text went in."""
    await subject.create([session])
    content = lines(count, seed=seed, prefix=f"fill-{session}")
    await subject.fill(session, content)
    return {"text_bytes": sum(len(text.encode()) for _, _, text in content)}


async def appends(
    subject: Subject, *, sessions: list[str], tasks: int, seconds: float, start_at_ns: int, tag: str
) -> dict[str, Any]:
    """Append from several tasks, each waiting for its own message, for so many seconds; every wait is kept."""
    tasks = min(tasks, subject.tasks_max)
    pool = list(itertools.islice(texts(seed=len(tag)), _POOL))
    waits_us: list[int] = []
    failures: list[str] = []
    gc.collect()
    while time.monotonic_ns() < start_at_ns:
        time.sleep(0.0005)  # noqa: ASYNC251 - nothing else runs yet, and the processes are to start together
    started = time.monotonic_ns()
    deadline = started + int(seconds * 1e9)

    async def one_task(number: int) -> None:
        session = sessions[number % len(sessions)]
        for turn in itertools.count():
            begun = time.monotonic_ns()
            if begun >= deadline:
                return
            first = turn * subject.group
            batch = [(f"{tag}-{number}-{n}", "user", pool[n % _POOL]) for n in range(first, first + subject.group)]
            try:
                await subject.append(session, batch, shared=tasks > 1)
            except Exception as error:  # noqa: BLE001 - a peer's lock error is a result, and is counted
                failures.append(f"{type(error).__name__}: {error}")
            else:
                waits_us.append((time.monotonic_ns() - begun) // 1000)

    async with TaskGroup() as group:
        for number in range(tasks):
            group.create_task(one_task(number))
    return {
        "messages": len(waits_us) * subject.group,
        "started_ns": started,
        "ended_ns": time.monotonic_ns(),
        "waits_us": waits_us,
        "failures": failures,
    }


async def loads(subject: Subject, *, session: str, repeats: int, expected: int) -> list[float]:
    """Milliseconds of each load of a whole session, decoded; the page cache is warm."""
    return await _times(lambda: subject.load(session), repeats, expected)


async def turns(subject: Subject, *, session: str, count: int, tail: int, tag: str, kind: str) -> list[float]:
    """Milliseconds of each turn: two durable appends and its context.

    The context is read as the library's own agent does (`plain`) or in the cheapest way it has (`page`); `leased` is a
    whole turn of the record, with a streamed reply.
    """
    content = iter(lines(2 * count, seed=len(tag), prefix=tag))

    async def one_turn() -> int:
        asked, answered = next(content), next(content)
        if kind == "leased":
            leased_turn: Callable[..., Awaitable[int]] = subject.leased_turn  # type: ignore[attr-defined]
            return await leased_turn(session, [asked, answered], tail)
        await subject.append(session, [asked], shared=False)
        await subject.append(session, [answered], shared=False)
        return await (subject.tail if kind == "page" else subject.context)(session, tail)

    return await _times(one_turn, count, tail)


async def reopen(subject: Subject, *, home: str, session: str, repeats: int, tail: int) -> dict[str, list[float]]:
    """Milliseconds to open a home, and to open it and read one page: some libraries do their opening at first use."""
    opened: list[float] = []
    paged: list[float] = []
    for _ in range(repeats):
        await subject.close()
        begun = time.monotonic_ns()
        await subject.open(home)
        opened.append((time.monotonic_ns() - begun) / 1e6)
        await subject.tail(session, tail)
        paged.append((time.monotonic_ns() - begun) / 1e6)
    return {"open_ms": opened, "page_ms": paged}


async def open_and_append(subject: Subject, *, home: str, session: str, tag: str) -> dict[str, float]:
    """Milliseconds to open a home, and until one message more is durable: what is left to mend may be mended late."""
    [line] = lines(1, seed=len(tag), prefix=tag)
    gc.collect()
    begun = time.monotonic_ns()
    await subject.open(home)
    opened = time.monotonic_ns()
    await subject.create([session])
    await subject.append(session, [line], shared=False)
    return {"open_ms": (opened - begun) / 1e6, "append_ms": (time.monotonic_ns() - begun) / 1e6}


async def append_to_each(subject: Subject, *, first: int, count: int, tasks: int) -> None:
    """Create so many sessions and append once to each."""
    numbers = iter(range(first, first + count))
    pool = list(itertools.islice(texts(seed=first), _POOL))
    tasks = min(tasks, subject.tasks_max)

    async def one_task() -> None:
        for number in numbers:
            session = f"session-{number}"
            await subject.create([session])
            await subject.append(session, [(f"only-{number}", "user", pool[number % _POOL])], shared=tasks > 1)

    async with TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(one_task())


async def memory(_subject: Subject) -> dict[str, float]:
    """What the process holds: memory now and at most, in MiB, and open files."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {key: int(status[name].split()[0]) / 1024 for key, name in (("now_mib", "VmRSS"), ("most_mib", "VmHWM"))}
    return {**sizes, "files": len(list(Path("/proc/self/fd").iterdir()))}


async def _times(work: Callable[[], Awaitable[int]], repeats: int, at_least: int) -> list[float]:
    """Milliseconds of each repetition; a result that is too short would be a measurement of nothing."""
    times: list[float] = []
    gc.collect()
    for _ in range(repeats):
        begun = time.monotonic_ns()
        found = await work()
        times.append((time.monotonic_ns() - begun) / 1e6)
        assert found >= at_least, f"{found} messages read, {at_least} expected"
    return times


OPERATIONS: dict[str, Callable[..., Awaitable[Any]]] = {
    "hello": hello,
    "open": open_home,
    "close": close_home,
    "create": create,
    "fill": fill,
    "appends": appends,
    "loads": loads,
    "turns": turns,
    "reopen": reopen,
    "open_and_append": open_and_append,
    "append_to_each": append_to_each,
    "memory": memory,
    "stream_write": write_streams,
    "stream_follow": follow_streams,
}
