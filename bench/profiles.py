"""Show where the time of one append, one streamed chunk and one chat message goes: in a commit before, and here.

    python bench/profiles.py [COMMIT] [--quick] [--rounds 3] [--only NAME]... [--json FILE] [--report FILE]

    append   one task appends, each message after the one before it is durable
    chunk    200 replies grow at once, 50 chunks a second each; the process that writes and the one that follows
    message  a gateway with both channels answers 20 people, who speak again as soon as they are answered

Each process runs under bench/profiled.py, which notes stacks; bench/profile_parts.py says to which part of the work a
stack belongs. The commit and this tree take turns. The report goes to standard output. See bench/README.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments import BENCH
from harness import streaming
from harness.client import Worker
from harness.report import table
from harness.run import make_parser, run_benchmark, tree_of
from harness.subjects import HANSARD
from profile_parts import CHAT_PARTS, ELSE, RECORD_PARTS, Part, find_part

BEFORE = "9be9da0"
PROFILED = BENCH / "profiled.py"
SETTLING_SECONDS = 0.3
"""Left out at the beginning and at the end of what is recorded."""

TALKING_SECONDS = 3.0
"""After which everybody talks, once the gateway has its home."""

WINDOW_SECONDS_MAX = 30.0
CHATS = 20


def read_stacks(path: Path) -> Iterator[list[str]]:
    """Yield each stack that faulthandler wrote; comprehensions are within their function anyway."""
    for stack in path.read_text(errors="replace").split("Stack (most recent call first):\n")[1:]:
        frames = re.findall(r'^  File "(.+)", line \d+ in ([^<].*)$', stack, re.MULTILINE)
        yield [f"{file}:{function}" for file, function in frames]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Microseconds of each part, for one append, chunk or message."""

    processor: Counter[str]
    writer: Counter[str]
    stacks: int

    def __add__(self, other: Costs) -> Costs:
        """Both together: two processes, or two rounds."""
        processor, writer = self.processor + other.processor, self.writer + other.writer
        return Costs(processor=processor, writer=writer, stacks=self.stacks + other.stacks)


class Recording:
    """The folder in which a process under bench/profiled.py writes."""

    def __init__(self, folder: Path) -> None:
        """Make it."""
        self.folder = folder
        folder.mkdir(parents=True)

    def start(self, tree: Path, name: str, homes: Path) -> Worker:
        """Start the worker of a tree, with everything imported."""
        script = tree / "bench" / "workers" / HANSARD.script
        options = (str(self.folder), str(script))
        subject = dataclasses.replace(HANSARD, name=name, tree=tree, script=str(PROFILED), options=options)
        worker = Worker(subject, 0, homes)
        worker.call("hello")
        return worker

    @contextmanager
    def during(self, process: subprocess.Popen[Any], after_seconds: float, seconds: float) -> Iterator[None]:
        """Record for so long, beginning after so long."""
        moments = (after_seconds, after_seconds + seconds)
        timers = [threading.Timer(each, process.send_signal, [signal.SIGUSR1]) for each in moments]
        for timer in timers:
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.join()
            deadline = time.monotonic() + WINDOW_SECONDS_MAX
            while not (self.folder / "window").exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)

    def costs(self, parts: tuple[Part, ...], rate: float, *, is_writer: bool = False) -> Costs:
        """Divide what the process used among the parts, given how many were done in a second."""
        window = json.loads((self.folder / "window").read_text())
        processor_us = window["processor_seconds"] / window["seconds"] / rate * 1e6
        counts = Counter(find_part(stack, parts) for stack in read_stacks(self.folder / "processor"))
        writer = Counter(find_part(stack, parts) for stack in read_stacks(self.folder / "writer") if is_writer)
        return Costs(processor=scaled(counts, processor_us), writer=scaled(writer, 1e6 / rate), stacks=counts.total())


def scaled(counts: Counter[str], total: float) -> Counter[str]:
    """The same shares of another total."""
    return Counter({title: count / counts.total() * total for title, count in counts.items()})


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is measured."""

    rounds: int
    append_seconds: float
    stream_seconds: float
    talk_seconds: float


FULL = Extent(rounds=3, append_seconds=15, stream_seconds=15, talk_seconds=40)
QUICK = Extent(rounds=1, append_seconds=3, stream_seconds=3, talk_seconds=10)


def profile_append(tree: Path, homes: Path, extent: Extent) -> Costs:
    """One task, one session."""
    recording = Recording(homes / "stacks")
    worker = recording.start(tree, "appends", homes)
    try:
        worker.call("open", home=str(homes / "home"))
        worker.call("create", sessions=["session"])
        seconds = extent.append_seconds + 2 * SETTLING_SECONDS
        with recording.during(worker.process, SETTLING_SECONDS, extent.append_seconds):
            told = worker.call(
                "appends", sessions=["session"], tasks=1, seconds=seconds, start_at_ns=time.monotonic_ns(), tag="only"
            )
    finally:
        worker.end()
    rate = told["messages"] / (told["ended_ns"] - told["started_ns"]) * 1e9
    return recording.costs(RECORD_PARTS, rate, is_writer=True)


def profile_chunk(tree: Path, homes: Path, extent: Extent) -> Costs:
    """Many replies, and the process that follows them."""
    recordings = [Recording(homes / name) for name in ("writes", "follows")]
    crew: list[Worker] = []
    try:
        crew += [each.start(tree, each.folder.name, homes) for each in recordings]
        for worker in crew:
            worker.call("open", home=str(homes / "home"))
        sessions = [f"reply-{number}" for number in range(streaming.REPLIES)]
        crew[0].call("create", sessions=sessions)  # else the head start would begin some time after the recording
        after = streaming.HEAD_START_SECONDS + SETTLING_SECONDS
        writes, follows = (
            recording.during(worker.process, after, extent.stream_seconds)
            for recording, worker in zip(recordings, crew, strict=True)
        )
        with writes, follows:
            written = streaming.stream_once(crew[0], crew[1], sessions, extent.stream_seconds + 2 * SETTLING_SECONDS)[
                "written"
            ]
    finally:
        for worker in crew:
            worker.end()
    rate = written["chunks"] / written["seconds"]
    return recordings[0].costs(RECORD_PARTS, rate, is_writer=True) + recordings[1].costs(RECORD_PARTS, rate)


def profile_message(tree: Path, homes: Path, extent: Extent) -> Costs:
    """`both` of bench/gateway.py; the people and their platforms are a process that is not recorded."""
    recording = Recording(homes / "stacks")
    size = {"chats": CHATS, "seconds": extent.talk_seconds, "pause_seconds": 0, "calls_per_second_max": 0}
    given = json.dumps({"folder": str(homes), "size": size})
    process = subprocess.Popen(
        [sys.executable, str(PROFILED), str(recording.folder), str(tree / "bench" / "gateway_both.py"), given],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(tree / "src")])},
    )
    while process.poll() is None and not (homes / "home" / "state.db").exists():
        time.sleep(0.05)
    with recording.during(process, TALKING_SECONDS, extent.talk_seconds - TALKING_SECONDS - 1):
        told = json.loads(process.communicate()[0])
    return recording.costs(CHAT_PARTS, told["messages_per_second"])


@dataclass(frozen=True, kw_only=True)
class Table:
    """One of the three."""

    profile: Callable[[Path, Path, Extent], Costs]
    parts: tuple[Part, ...]
    title: str
    text: str


TABLES = {
    "append": Table(
        profile=profile_append,
        parts=RECORD_PARTS,
        title="One append",
        text="One task, one session. Alone, every append passes the writer's thread once, so that the wall time of\n"
        "this thread is that of an append: *handing over* is then the caller's turn.",
    ),
    "chunk": Table(
        profile=profile_chunk,
        parts=RECORD_PARTS,
        title="One chunk of a streamed reply",
        text=f"{streaming.REPLIES} replies at once, {streaming.CHUNKS_PER_SECOND} chunks a second each. Processor: the "
        "process that writes and the one\nthat follows. Many chunks share a commit.",
    ),
    "message": Table(
        profile=profile_message,
        parts=CHAT_PARTS,
        title="One chat message in the gateway",
        text=f"{CHATS} chats, half of them on the loopback Bot API; an answer is 18 words, shown by a post and edits.",
    ),
}


def main() -> None:
    """Measure and report."""
    parser = make_parser("Show where the time goes, in a commit before and here.", quick="two minutes, one round")
    parser.add_argument("commit", nargs="?", default=BEFORE, help=f"the commit before; {BEFORE}")
    parser.add_argument("--only", action="append", choices=TABLES, help="only this table; may be repeated")
    parser.add_argument("--rounds", type=int, help="how often each of the two takes its turn")
    arguments = parser.parse_args()
    extent = QUICK if arguments.quick else FULL
    extent = dataclasses.replace(extent, rounds=arguments.rounds or extent.rounds)
    chosen = [name for name in TABLES if name in (arguments.only or TABLES)]

    def measure(homes: Path) -> dict[str, Any]:
        results: dict[str, dict[str, Any]] = {}
        with tree_of(arguments.commit, homes / "tree") as tree:
            for name in chosen:
                results[name] = take_turns(name, {"before": tree, "now": BENCH.parent}, homes / name, extent)
        return {"before": arguments.commit, "settings": dataclasses.asdict(extent), "results": results}

    run_benchmark("profile", arguments, measure, write_report)


def take_turns(name: str, trees: dict[str, Path], homes: Path, extent: Extent) -> dict[str, Any]:
    """The mean of all rounds, of each tree."""
    found = {which: Costs(processor=Counter(), writer=Counter(), stacks=0) for which in trees}
    for number in range(extent.rounds):
        for which, tree in trees.items():
            print(f"bench: {name}, round {number + 1}, {which}", file=sys.stderr, flush=True)
            found[which] += TABLES[name].profile(tree, homes / f"{which}-{number}", extent)
    return {
        which: {
            "processor": {title: us / extent.rounds for title, us in costs.processor.items()},
            "writer": {title: us / extent.rounds for title, us in costs.writer.items()},
            "stacks": costs.stacks,
        }
        for which, costs in found.items()
    }


def write_report(run: dict[str, Any]) -> str:
    """The whole page, from the results alone."""
    machine = run["machine"]
    sections = [
        f"""# Where the time goes

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["file_system"]}, Python
{machine["python"]}, commit {run["commit"]}, before: {run["before"]}; {run["settings"]["rounds"]} rounds in turn. Other
work on the machine and its host took {machine["busy_elsewhere"]:.0%} of the processors meanwhile.
Again: `python bench/profiles.py --report docs/proof/performance.md`.

Processor time is of the whole process; wall time is of the writer's thread, which is what commits. Rows are disjoint
and add up. `bench/README.md` says how they are found, and how far to trust them."""
    ]
    for name, result in run["results"].items():
        known = TABLES[name]
        sections.append(f"## {known.title}\n\n{known.text}\n\n{_table(result, known.parts)}")
    return "\n\n".join(sections) + "\n"


def _table(result: dict[str, Any], parts: tuple[Part, ...]) -> str:
    columns = [(which, kind) for kind in ("processor", "writer") for which in ("before", "now") if result[which][kind]]
    totals = [sum(result[which][kind].values()) for which, kind in columns]
    header = ["part"]
    for which, kind in columns:
        header += [f"{which}: processor", "µs"] if kind == "processor" else [f"{which}: wall of the writer", "µs"]
    rows = []
    for title in [*(part.title for part in parts), ELSE]:
        us = [result[which][kind].get(title, 0.0) for which, kind in columns]
        if any(us):
            cells = [[f"{one / total:.1%}", f"{one:,.1f}"] for one, total in zip(us, totals, strict=True)]
            rows.append([title, *(cell for pair in cells for cell in pair)])
    rows.append(["all", *(cell for total in totals for cell in ("100%", f"{total:,.1f}"))])
    return table(header, rows) + f"\n\nFrom {result['before']['stacks']:,} and {result['now']['stacks']:,} stacks."


if __name__ == "__main__":
    main()
