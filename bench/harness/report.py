"""The report: markdown made from the results alone, so that a stored JSON gives the same page again."""

from collections.abc import Sequence
from typing import Any

from harness.aims import growth, rate_ratio, time_ratio
from harness.histories import LOAD_SIZES, TURN_SIZES
from harness.streaming import CHUNKS_PER_SECOND, REPLIES
from harness.subjects import TITLES

Results = dict[str, Any]
_MISSING = "–"


def write_report(run: dict[str, Any]) -> str:
    """The whole page."""
    results = run["results"]
    parts = [_introduction(run), write_aims(run["aims"]), write_subjects(run["facts"])]
    if "appends" in results:
        parts.append(_appends(results))
    if "streaming" in results:
        parts.append(_streaming(results["streaming"]))
    if "load" in results:
        parts.append(_load(results["load"]))
    if "turn" in results:
        parts.append(_turn(results["turn"]))
    if "open" in results:
        parts.append(_open(results["open"], run))
    return "\n\n".join([*parts, *write_problems(run["problems"])]) + "\n"


def write_problems(problems: list[str]) -> list[str]:
    """What could not be measured; nothing when there is nothing to say."""
    return ["## Not measured\n\n" + "\n".join(f"- {' '.join(each.split())}" for each in problems)] if problems else []


def _introduction(run: dict[str, Any]) -> str:
    machine = run["machine"]
    return f"""# The record

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["system"]},
{machine["file_system"]}, Python {machine["python"]}, commit {run["commit"]}, in {run["seconds"]:.0f} s. Other work on
the machine and its host took {machine["busy_elsewhere"]:.0%} of the processors meanwhile: the more, the less any figure
but a ratio means.
Again: `make bench`, or `python bench/record.py --report docs/proof/performance.md` (`--quick` for two minutes' worth).

Subjects take turns within one run (ours, floors, peers, ours, …), {run["settings"]["rounds"]} rounds. A figure
is the median of the rounds and a ratio the median of each round's ratio; percentiles and worst waits are over all
rounds. Messages have 200 bytes of text. `bench/README.md` says what is compared and what is not."""


def write_aims(aims: list[dict[str, Any]]) -> str:
    """The limits, and whether they were kept."""
    rows = [[aim["title"], aim["limit"], figure(aim["figure"], aim["unit"]), aim["verdict"]] for aim in aims]
    return "## Aims\n\n" + table(["aim", "limit", "measured", ""], rows)


def write_subjects(facts: dict[str, dict[str, Any]]) -> str:
    """What each subject says of itself, read back where that is possible."""
    synchronous = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    rows = [
        [
            TITLES[name],
            fact["version"],
            fact["sqlite"],
            fact["journal_mode"],
            synchronous.get(fact["synchronous"], str(fact["synchronous"])),
        ]
        for name, fact in facts.items()
        if name in TITLES
    ]
    header = ["subject", "version", "SQLite", "journal", "synchronous (read back)"]
    return "## What was measured\n\n" + table(header, rows)


def _appends(results: Results) -> str:
    rows = []
    for case, subjects in results["appends"].items():
        for name, figures in subjects.items():
            ratio = None if name == "hansard" else rate_ratio(results, case, name)
            waits = [figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
            failures = str(figures["failures"] or "")
            rows.append([case, TITLES[name], f"{figures['rate']:,.0f}", figure(ratio, "×"), *waits, failures])
    header = ["case", "subject", "messages/s", "Hansard is", "wait p50 ms", "p99", "worst", "failed"]
    return f"""## Appends

One user message at a time for each task, awaited until it is durable by that library's defaults. Floors know no
tasks: theirs is one loop in every case with one process; a wait of the batched floor is that of its whole transaction.
llm writes two messages at a time, and the threads of LangGraph and llm begin anew after 100. *Failed*: appends that the
library refused, most often because the database was locked.

{table(header, rows)}"""


def _streaming(streaming: Results) -> str:
    rows = []
    for name, figures in streaming.items():
        if "p99_ms" not in figures:
            rows.append([TITLES[name], "nothing was seen", *[_MISSING] * 7])
            continue
        ages = [figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
        shares = [f"{figures[key]:.0%}" for key in ("writer_cpu", "follower_cpu")]
        rate = f"{figures['chunks_per_second']:,.0f}"
        rows.append([TITLES[name], rate, *ages, figure(figures["lag_ms"]), *shares, str(figures["missing"])])
    header = ["subject", "chunks/s", "p50 ms", "p99", "worst", "late by", "CPU, writer", "CPU, follower", "missing"]
    return f"""## Streaming

{REPLIES} replies at once, {CHUNKS_PER_SECOND} chunks of 24 bytes a second each; the age of each chunk when a
follower in another process sees it, by CLOCK_MONOTONIC. *Late by*: how far the writing tasks fell behind their schedule
at worst. CPU is of one core. The floor commits what gathered in 5 ms and looks every 5 ms. The peers store no chunks.

{table(header, rows)}"""


def _load(load: Results) -> str:
    rows = []
    for size in LOAD_SIZES:
        for name, figures in load[str(size)].items():
            ratio = None if name == "hansard" else time_ratio(load, str(size), name)
            rows.append([f"{size:,}", TITLES[name], figure(figures["ms"]), figure(ratio, "×")])
    return f"""## Load of a session

The whole session into values, home open and page cache warm. Hansard: `load_transcript` into `Message` values.
Raw rows: `SELECT seq, id, at, body` of one session in order by apsw, each body (role, parts, time) decoded to plain
dictionaries by `json.loads`, or by `msgspec.json.decode`. SQLiteSession: `get_items()`. Hermes:
`get_messages_as_conversation()` without its repair pass. LangGraph: `get_tuple()`. ADK: `get_session()`. llm:
`thread_messages()`.

{table(["messages", "subject", "ms", "Hansard takes"], rows)}"""


def _turn(turn: Results) -> str:
    rows = []
    kinds = {"plain": "", "page": ", if it read only a page", "leased": ", leased turn with a streamed reply"}
    for kind, suffix in kinds.items():
        for name in turn[f"{kind} {TURN_SIZES[0]}"]:
            times = [figure(turn[f"{kind} {size}"].get(name, {}).get("ms")) for size in TURN_SIZES]
            rows.append([TITLES[name] + suffix, *times, figure(growth(turn, kind, name), "×")])
    header = ["subject", *(f"{size:,} messages, ms" for size in TURN_SIZES), "10,000 to 100"]
    return f"""## One turn as a session grows

Two durable appends and the last 20 messages as context. Hermes' own gateway reads no tail: it
loads the whole conversation for every turn; a page is what its `get_messages(limit, offset)` could give.

{table(header, rows)}"""


def _open(opened: Results, run: dict[str, Any]) -> str:
    settings = run["settings"]
    rows = []
    for name, disk in opened["disk"].items():
        times = [opened[key].get(name, {}).get("ms") for key in ("open", "open and read a page")]
        ratio = None if name == "hansard" else time_ratio(opened, "open and read a page", name)
        sizes = [f"{disk[key]:.2f}" for key in ("total", "database", "wal", "other")]
        rows.append([TITLES[name], *(figure(time) for time in times), figure(ratio, "×"), *sizes])
    header = [
        "subject",
        "open ms",
        "open and read 20",
        "Hansard takes",
        "bytes a byte",
        "database",
        "WAL",
        "logs, other",
    ]
    messages = settings["open_sessions"] * settings["open_messages_each"]
    return f"""## Opening a large home, and its size

{messages:,} messages in {settings["open_sessions"]} sessions, closed cleanly, opened again in a process that
has everything imported. Bytes on disk for each byte of text, after closing; Hansard's include both legs, Hermes' its
two full-text indexes.

{table(header, rows)}"""


def figure(value: float | None, unit: str = "") -> str:
    """Three significant digits: more would be noise."""
    if value is None:
        return _MISSING
    return f"{value:,.0f}{unit}" if value >= 100 else f"{value:.3g}{unit}"  # noqa: PLR2004


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
