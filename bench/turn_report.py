"""The aims of a turn, and the page: made from the results alone, so that a stored JSON gives the same page again."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from harness.aims import Aim
from turn_history import ENGINE, SIZES, WORDS
from turn_start import BARE_PROMPT, CLICK, COLUMNS, HELP, PASS, PROMPT, PROMPT_KEY
from turn_streams import CROWD, NEW, STREAM_TOKENS_PER_SECOND, TURNS

Results = dict[str, Any]
_MISSING = "–"

TITLES = {
    "raw": "raw stream (httpx2, lines, JSON)",
    "sdk": "openai library",
    "pydantic-ai": "pydantic-ai, direct stream",
    "adapter": "Hansard's model adapter, no record",
    NEW: "Hansard, first turn of a session",
    "hansard": "Hansard",
    WORDS: "Hansard: speak until the words are recorded",
    ENGINE: "Hansard: then, until the model is asked",
}


def judge_all(results: Results) -> list[dict[str, Any]]:
    """Every aim of the issue, then what it names without a number."""
    return [aim.judge(results) for aim in AIMS] + [
        {"title": title, "limit": _MISSING, "figure": measure(results), "unit": unit, "verdict": "no limit was set"}
        for title, unit, measure in FIGURES
    ]


def _first_added(results: Results, name: str) -> float | None:
    figures = results.get("first", {}).get("readers", {}).get(name)
    return None if figures is None else float(figures["added_ms"])


def _over_raw(results: Results, name: str = "hansard", floor: str = "raw") -> float | None:
    """The share of a core over another's, in percent: the median of each round's difference."""
    stream = results.get("stream", {})
    if name not in stream or floor not in stream:
        return None
    pairs = zip(stream[name]["cpus"], stream[floor]["cpus"], strict=True)
    return 100 * float(statistics.median(ours - theirs for ours, theirs in pairs))


def _crowd_wall(results: Results) -> float | None:
    """Our time over the raw stream's, in the same round."""
    crowd = results.get("crowd", {})
    if "hansard" not in crowd:
        return None
    pairs = zip(crowd["hansard"]["walls"], crowd["raw"]["walls"], strict=True)
    return float(statistics.median(ours / raw for ours, raw in pairs))


def _growth(results: Results, name: str) -> float | None:
    figures = results.get("history", {}).get("readers", {}).get(name)
    return None if figures is None else figures["growth"]


def _start(results: Results, *names: str) -> float | None:
    """The slowest of these; nothing when one of them could not be measured."""
    commands = results.get("start", {}).get("commands", {})
    return max(commands[name]["ms"] for name in names) if all(name in commands for name in names) else None


AIMS = (
    Aim(
        title="first token, added to the raw stream (median)",
        limit=15,
        at_least=False,
        unit=" ms",
        measure=lambda all_: _first_added(all_, "hansard"),
    ),
    Aim(
        title=f"processor at {STREAM_TOKENS_PER_SECOND} tokens/s, over the raw stream's",
        limit=5,
        at_least=False,
        unit=" % of a core",
        measure=_over_raw,
    ),
    Aim(title="`hansard --help`", limit=150, at_least=False, unit=" ms", measure=lambda all_: _start(all_, HELP)),
    Aim(
        title="`hansard` to its prompt, with a key set and without",
        limit=500,
        at_least=False,
        unit=" ms",
        measure=lambda all_: _start(all_, PROMPT, PROMPT_KEY),
    ),
)
FIGURES = (
    (
        f"processor at {STREAM_TOKENS_PER_SECOND} tokens/s, over pydantic-ai's: engine and record",
        " % of a core",
        lambda all_: _over_raw(all_, floor="pydantic-ai"),
    ),
    (
        "the same, pydantic-ai over the raw stream's",
        " % of a core",
        lambda all_: _over_raw(all_, name="pydantic-ai"),
    ),
    (f"{TURNS} turns at once, time to the raw stream's", "×", _crowd_wall),
    (
        "request of 10,000 messages, to one of 100: Hansard's part",
        "×",
        lambda all_: _growth(all_, ENGINE),
    ),
    (
        "the same, speak until the server has it",
        "×",
        lambda all_: _growth(all_, "hansard"),
    ),
)


def write_report(run: dict[str, Any]) -> str:
    """The whole page."""
    results = run["results"]
    parts = [_introduction(run), _aims(run["aims"])]
    for name, write in (
        ("first", _first),
        ("stream", _stream),
        ("crowd", _crowd),
        ("history", _history),
        ("start", _starts),
    ):
        if name in results:
            parts.append(write(results[name]))
    return "\n\n".join(parts) + "\n"


def _introduction(run: dict[str, Any]) -> str:
    machine = run["machine"]
    libraries = ", ".join(f"{name} {number}" for name, number in run["libraries"].items())
    return f"""# A turn

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["system"]},
{machine["file_system"]}, Python {machine["python"]}, commit {run["commit"]}, in {run["seconds"]:.0f} s. Other work on
the machine and its host took {machine["busy_elsewhere"]:.0%} of the processors meanwhile: the more, the less any figure
but a difference or a ratio within one round means.
{libraries}.
Again: `python bench/turn.py --report docs/proof/performance.md` (`--quick` for a minute or two's worth).

The provider is the tests' loopback server, in a process of its own; each token carries the time at which it was sent.
Readers stand one above the other, in one process, and take turns within a round: the raw stream, OpenAI's library,
pydantic-ai, Hansard's model adapter, Hansard. Hansard's token is seen when a follower of the record has read it back,
after it was committed and fsynced: what the terminal shows. A figure is the median of the rounds."""


def _aims(aims: list[dict[str, Any]]) -> str:
    rows = [[aim["title"], aim["limit"], _figure(aim["figure"], aim["unit"]), aim["verdict"]] for aim in aims]
    return "## Aims\n\n" + _table(["aim", "limit", "measured", ""], rows)


def _first(first: Results) -> str:
    rows = []
    for name, figures in first["readers"].items():
        keys = ("added_p25_ms", "added_ms", "added_p95_ms")
        added = [_MISSING if name == "raw" else _figure(figures[key]) for key in keys]
        rows.append([TITLES[name], _figure(figures["ms"]), _figure(figures["p95_ms"]), *added])
    header = ["reader", "first token, ms", "p95", "added to the raw stream: p25", "p50", "p95"]
    stages = [[name, _figure(ms)] for name, ms in first["stages"].items()]
    return f"""## The first token

From asking (Hansard: from `speak`) to the first token in hand; connections are warm, the server answers at once.
*Added* is the difference to the raw stream within the round.

{_table(header, rows)}

Where Hansard's time goes, stage by stage:

{_table(["stage", "ms"], stages)}"""


def _stream(stream: Results) -> str:
    rows = []
    for name, figures in stream.items():
        shares = [
            f"{100 * figures['cpu']:.1f} %",
            _figure(figures["cpu_us_a_token"]),
            f"{100 * figures['idle_cpu']:.1f} %",
        ]
        delays = [_figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
        rows.append([TITLES[name], *shares, *delays, str(figures["missing"])])
    header = ["reader", "processor", "µs a token", "idle", "p50 ms", "p99", "worst", "missing"]
    threads = sorted(stream.get("hansard", {}).get("threads_us", {}).items(), key=lambda each: -each[1])
    return f"""## One answer at {STREAM_TOKENS_PER_SECOND} tokens a second

Processor time of the whole process, all threads, over the time that the answer takes; only this reader is open.
*Idle*: the same in the second after it (Hansard: the record open, one follower). Delays are from the server's sending
to the token in hand.

{_table(header, rows)}

Hansard's threads (the main one runs the loop: the libraries, the engine and the follower):

{_table(["thread", "µs a token"], [[name, _figure(us)] for name, us in threads if us >= 1])}"""


def _crowd(crowd: Results) -> str:
    rows = []
    for name, figures in crowd.items():
        delays = [_figure(figures[key]) for key in ("p50_ms", "p99_ms", "worst_ms")]
        rows.append(
            [
                TITLES[name],
                _figure(figures["wall"], "×"),
                _figure(figures["waited"], "×"),
                f"{100 * figures['cpu']:.0f} %",
                _figure(figures["cpu_us_a_token"]),
                _figure(figures["first_ms"]),
                *delays,
                _figure(figures["server_late_ms"]),
                str(figures["missing"]),
            ]
        )
    header = ["reader", "time, to ideal", "of it without a core", "processor", "µs a token", "first token ms"]
    header += ["delay p50 ms", "p99", "worst", "server late", "missing"]
    return f"""## {TURNS} turns at once

{TURNS} sessions in one process, each with an answer of {CROWD.tokens} tokens at {CROWD.tokens_per_second} a second:
{TURNS * CROWD.tokens_per_second:,} tokens a second. Ideal is {CROWD.seconds:.2f} s, the answer's own length.
*Without a core*: how long the loop could have run and others had the machine. *Server late*: how much longer the server
took for its slowest answer; it shares the machine.

{_table(header, rows)}"""


def _history(history: Results) -> str:
    rows = []
    for name, figures in history["readers"].items():
        times = [_figure(figures["ms"][str(size)]) for size in SIZES]
        rows.append([TITLES[name], *times, _figure(figures["growth"], "×")])
    cold = [_figure(history["cold_ms"][str(size)]) for size in SIZES]
    header = ["reader", *(f"{size:,} messages, ms" for size in SIZES), "ratio"]
    return f"""## A long past

From asking to the whole request at the server, which carries the whole past: every message of 200 characters, every
time. Hansard's fold of the session is kept in the process and grows by what came since; the first turn after a start
folds all of it once ({cold[0]} ms and {cold[1]} ms, not in the table).

{_table(header, rows)}"""


def _starts(start: Results) -> str:
    rows = []
    for name in (PASS, CLICK, HELP, BARE_PROMPT, PROMPT, PROMPT_KEY):
        figures = start["commands"].get(name, {})
        note = start["problems"].get(name, "")
        keys = ("ms", "p95_ms", "best_ms", "processor_ms")
        rows.append([f"`{name}`", *(_figure(figures.get(key)) for key in keys), note])
    return f"""## Starting

From exec to exit, or to the prompt visible in a terminal of {COLUMNS} columns; the page cache is warm and modules are
compiled.
With a key set, the model libraries are imported in the background from the start. Processor time is what it took of a
core by then, all threads: what a busy machine changes least.

{_table(["command", "ms", "p95", "best", "processor ms", ""], rows)}"""


def _figure(value: float | None, unit: str = "") -> str:
    """Three significant digits: more would be noise."""
    if value is None:
        return _MISSING
    return f"{value:,.0f}{unit}" if abs(value) >= 100 else f"{value:.3g}{unit}"  # noqa: PLR2004


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
