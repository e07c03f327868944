"""Loads, turns and opens: what a history costs once it is long. And what it takes on disk."""

import functools
import statistics
from pathlib import Path
from typing import Any

from harness.bench import Bench
from harness.subjects import LOAD, OPEN, TURN, Subject

LOAD_SIZES = (1_000, 10_000)
TURN_SIZES = (100, 1_000, 10_000)
# How a turn reads its context: see the operation `turns`. Each kind that a subject has.
TURN_KINDS = {"hansard_worker.py": ("plain", "leased"), "hermes_worker.py": ("plain", "page")}
TAIL_MESSAGES = 20


def measure_load(bench: Bench) -> dict[str, Any]:
    """The whole session, decoded into values, in a process that has the home open and has read it before."""
    subjects = _grown(bench, LOAD)

    def one_round(subject: Subject, _number: int) -> dict[str, float]:
        worker = bench.workers[subject.name][0]
        return {
            str(size): statistics.median(
                worker.call("loads", session=f"size-{size}", repeats=bench.settings.load_repeats, expected=size)
            )
            for size in LOAD_SIZES
        }

    measured = bench.rounds(subjects, bench.settings.rounds, LOAD, one_round)
    bench.close(subjects, LOAD)
    return {str(size): _by_subject(measured, str(size)) for size in LOAD_SIZES}


def measure_turn(bench: Bench) -> dict[str, Any]:
    """Two appends and the tail of context, at three sizes of the session; Hansard also as a leased turn."""
    subjects = _grown(bench, TURN)

    def one_round(subject: Subject, number: int) -> dict[str, float]:
        return {
            f"{kind} {size}": _turn_ms(bench, subject, size, kind, number)
            for kind in TURN_KINDS.get(subject.script, ("plain",))
            for size in TURN_SIZES
        }

    measured = bench.rounds(subjects, bench.settings.rounds, TURN, one_round)
    bench.close(subjects, TURN)
    names = [f"{kind} {size}" for kind in ("plain", "page", "leased") for size in TURN_SIZES]
    return {name: _by_subject(measured, name) for name in names}


def _turn_ms(bench: Bench, subject: Subject, size: int, kind: str, number: int) -> float:
    """The median turn in a session of this size.

    Turns make a session grow, so a small one is made anew each time: by the last round it would not be small any more.
    """
    worker = bench.workers[subject.name][0]
    session = f"size-{size}"
    if size < max(TURN_SIZES):
        session = f"turn-{size}-{kind}-{number}"
        worker.call("fill", session=session, count=size, seed=size)
    count, tag = bench.settings.turn_repeats, f"turn-{kind}-{number}"
    return statistics.median(worker.call("turns", session=session, count=count, tail=TAIL_MESSAGES, tag=tag, kind=kind))


def measure_open(bench: Bench) -> dict[str, Any]:
    """Open a home with many messages, until one page is read; and the bytes that the home takes on disk."""
    names = [f"session-{number}" for number in range(bench.settings.open_sessions)]
    filled = dict.fromkeys(names, bench.settings.open_messages_each)
    subjects = _filled(bench, OPEN, bench.taking_part(OPEN), filled)
    text_bytes = bench.text_bytes.get(OPEN, 0)

    def one_round(subject: Subject, _number: int) -> dict[str, float]:
        home = bench.home(OPEN, subject.name)
        worker = bench.workers[subject.name][0]
        times = worker.call("reopen", home=home, session=names[0], repeats=3, tail=TAIL_MESSAGES)
        return {key: statistics.median(values) for key, values in times.items()}

    measured = bench.rounds(subjects, bench.settings.rounds, OPEN, one_round)
    bench.close(subjects, OPEN)
    return {
        "open": _by_subject(measured, "open_ms"),
        "open and read a page": _by_subject(measured, "page_ms"),
        "disk": {each.name: _disk(Path(bench.home(OPEN, each.name)), text_bytes) for each in subjects},
        "text_bytes": text_bytes,
    }


def _grown(bench: Bench, experiment: str) -> list[Subject]:
    """Sessions of every size, in homes that loads and turns share: a long one takes a while to fill."""
    return _filled(bench, "grown", bench.taking_part(experiment), {f"size-{size}": size for size in LOAD_SIZES})


def _filled(bench: Bench, folder: str, subjects: list[Subject], sizes: dict[str, int]) -> list[Subject]:
    """Open a home for each subject, and fill these sessions if it is new; the subjects that managed."""

    def fill(subject: Subject) -> bool:
        home = bench.home(folder, subject.name)
        is_new = not Path(home).exists()
        bench.open(subject, home)
        if is_new:
            worker = bench.workers[subject.name][0]
            filled = [
                worker.call("fill", session=session, count=count, seed=index)
                for index, (session, count) in enumerate(sizes.items())
            ]
            bench.text_bytes[folder] = sum(each["text_bytes"] for each in filled)
        return True

    return [each for each in subjects if bench.attempt(each, f"{folder}, filling", functools.partial(fill, each))]


def _by_subject(measured: dict[str, list[dict[str, float]]], key: str) -> dict[str, Any]:
    """Median milliseconds of one case, and those of each round for the paired ratios."""
    figures = {}
    for name, rounds in measured.items():
        times = [each[key] for each in rounds if key in each]
        if times:
            figures[name] = {"ms": statistics.median(times), "rounds_ms": times}
    return figures


def _disk(home: Path, text_bytes: int) -> dict[str, float]:
    """Bytes on disk for each byte of text, by what the file is; the store is closed."""
    files = [path for path in home.rglob("*") if path.is_file()]
    sizes = {"database": 0, "wal": 0, "other": 0}
    for path in files:
        kind = "wal" if path.name.endswith("-wal") else "database" if path.suffix == ".db" else "other"
        sizes[kind] += path.stat().st_size
    return {"total": sum(sizes.values()) / text_bytes, **{kind: size / text_bytes for kind, size in sizes.items()}}
