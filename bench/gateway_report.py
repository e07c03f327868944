"""The aims of the gateway, and the page: made from the results alone, so a stored JSON gives the same page again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.aims import Aim

Results = dict[str, Any]
MIB = 1024 * 1024

# "A slope of about nothing" has no number; a kibibyte a message is this benchmark's reading of it.
SLOPE_KIB_MAX = 1.0


def figure_of(name: str, find: Callable[[dict[str, Any]], float]) -> Callable[[Results], float | None]:
    """Return how a figure is read from results in which its measurement may be missing."""
    return lambda results: float(find(results[name])) if name in results else None


AIMS = (
    Aim(
        title="both channels, chats at once",
        limit=200,
        at_least=True,
        unit="",
        measure=figure_of("both", lambda both: both["chats"]),
    ),
    Aim(
        title="for how long",
        limit=120,
        at_least=True,
        unit=" s",
        measure=figure_of("both", lambda both: both["seconds"]),
    ),
    Aim(
        title="messages not answered",
        limit=0,
        at_least=False,
        unit="",
        measure=figure_of("both", lambda both: both["unanswered"]),
    ),
    Aim(
        title="p99 from event to first post",
        limit=1000,
        at_least=False,
        unit=" ms",
        measure=figure_of("both", lambda both: both["waits"]["both"]["first_p99_ms"]),
    ),
    Aim(
        title="growth of memory in the second half",
        limit=SLOPE_KIB_MAX,
        at_least=False,
        unit=" KiB a message",
        measure=figure_of("both", lambda both: both["memory_kib_per_message"]),
    ),
    Aim(
        title="the same people at Telegram's pace: p99 from event to first post",
        limit=1000,
        at_least=False,
        unit=" ms",
        measure=figure_of("paced", lambda paced: paced["waits"]["both"]["first_p99_ms"]),
    ),
    Aim(
        title="a day: messages not answered",
        limit=0,
        at_least=False,
        unit="",
        measure=figure_of("day", lambda day: day["said"] - day["answered"]),
    ),
    Aim(
        title="`rooms`: a message among many chats, to one among few",
        limit=1.2,
        at_least=False,
        unit="×",
        measure=figure_of("rooms", lambda rooms: rooms["cost_ratio"]),
    ),
)


def write_report(run: dict[str, Any]) -> str:
    """Return the page."""
    results = run["results"]
    sections = [head(run), aims(results)]
    if "both" in results:
        sections.append(crowd("Both channels in one gateway", results["both"], BOTH))
    if "paced" in results:
        sections.append(crowd("The same at the pace that Telegram takes", results["paced"], PACED))
    if "day" in results:
        sections.append(day(results["day"]))
    if "rooms" in results:
        sections.append(rooms(results["rooms"]))
    return "\n\n".join(sections) + "\n"


def head(run: dict[str, Any]) -> str:
    """Where and how it was measured."""
    machine = run["machine"]
    busy = ", ".join(f"{name} {each['busy_elsewhere']:.0%}" for name, each in run["results"].items())
    return f"""# The gateway

Measured {run["date"]} on {machine["cores"]} cores ({machine["processor"]}), {machine["system"]},
{machine["file_system"]}, Python {machine["python"]}, commit {run["commit"]}.
What others took of the processors meanwhile: {busy}.
Again: `python bench/gateway.py --report docs/proof/performance.md` (`--quick` for a minute or two's worth;
`--only both`, and so on). Each measurement is a process of its own, and so are the people and their platforms (not in
`rooms`): they are on the same cores, but neither their time nor their memory is in the gateway's figures."""


def aims(results: Results) -> str:
    """What was aimed at."""
    lines = ["## Aims", "", "| aim | limit | measured | |", "|---|---|---|---|"]
    for judged in (aim.judge(results) for aim in AIMS):
        figure = "–" if judged["figure"] is None else f"{judged['figure']:,.4g}{judged['unit']}"
        lines.append(f"| {judged['title']} | {judged['limit']} | {figure} | {judged['verdict']} |")
    reading = (
        f"The aim for memory is a slope of about nothing; {SLOPE_KIB_MAX:g} KiB is this benchmark's reading of that."
    )
    lines += ["", reading]
    return "\n".join(lines)


BOTH = """Half of the chats are direct rooms on a Matrix-like platform behind a socket, half are private chats on a
loopback Bot API, through the real Telegram channel. Everybody speaks again as soon as they have seen the whole
answer; so nothing waits but for Hansard, and the load is as much as it takes. An answer is 18 words, one each 50 ms,
shown by a post and by edits: at most one a second in a Matrix room, one each 1.2 seconds in a Telegram chat. The
model's first 50 ms are in the time to the first post. This Bot API takes as many calls as come; Telegram's own takes
about 30 posts and edits a second from one bot, which is the next section."""

PACED = """The same chats and answers, but the loopback Bot API answers whatever is above 30 posts and edits within
one second, over all chats, with 429 and a second to wait; and whoever was answered pauses before speaking again."""

WAITS = ("first_p50_ms", "first_p99_ms", "first_worst_ms", "whole_p50_ms", "whole_p99_ms")


def crowd(title: str, found: dict[str, Any], text: str) -> str:
    """Many chats that talk at once."""
    lines = [f"## {title}", "", text, ""]
    lines += ["| channel | messages | first post p50 ms | p99 | worst | whole answer p50 ms | p99 |", "|" + "---|" * 7]
    for name, each in found["waits"].items():
        numbers = [each[key] for key in WAITS]
        lines.append(f"| {name} | {each['messages']:,} | {' | '.join(f'{number:,.0f}' for number in numbers)} |")
    memory = " · ".join(f"{mib:.0f}" for mib in found["memory_mib"])
    calls = found["telegram_calls"]
    shown = calls.get("sendMessage", 0) + calls.get("editMessageText", 0)
    rows = {
        "chats, seconds, pause": f"{found['chats']}, {found['seconds']:g}, {found['pause_seconds']:g} s on average",
        "answered, not answered": f"{found['answered']:,}, {found['unanswered']:,}",
        "messages a second": f"{found['messages_per_second']:.1f}",
        "processor of the gateway": f"{found['processor_share']:.0%} of one core, "
        f"{found['processor_ms_per_message']:.1f} ms a message",
        "processor of people and platforms": f"{found['people_processor_share']:.0%} of one core",
        f"resident memory, MiB, each {found['memory_every_seconds']} s": memory,
        "its growth in the second half": f"{found['memory_kib_per_message']:.2f} KiB a message; at this pace "
        f"{found['memory_mib_per_hour']:.0f} MiB an hour",
        "commits": f"{found['commits']:,}, {found['commit_mean_ms']:.1f} ms each on average",
        "posts and edits on Telegram": f"{shown:,}; {found['telegram_busiest_second']} in the busiest second; "
        f"{found['telegram_refused']:,} answered with 429",
        "of them within a second of the last in their chat": f"{found['telegram_sooner_than_a_second']:,}",
        "warnings in the gateway's log": f"{found['troubles']:,}",
    }
    return "\n".join([*lines, "", *table(rows)])


DAY = """Half of the chats on each channel. The record's clock is moved through 24 hours, from one minute in which
somebody speaks to the next; it goes on when all who spoke are answered and that is recorded. Everybody talks one to
three times a day, one to three messages each time, by a seeded rhythm with a quiet night. A chat that was silent for
two hours, or that last spoke before four in the morning, begins a new session. The model answers at once and in one
piece, so that there are no edits to wait for."""


def day(found: dict[str, Any]) -> str:
    """A day in virtual time."""
    size = {name: f"{count / MIB:.1f} MiB" for name, count in found["bytes"].items()}
    a_message = found["bytes"]["all"] / max(found["said"], 1) / 1024
    rows = {
        "chats, messages said, answered": f"{found['chats']:,}, {found['said']:,}, {found['answered']:,}",
        "sessions, by the rules of resets": f"{found['sessions']:,}, {found['sessions_expected']:,}",
        "of them begun by a reset": f"{found['resets']:,}",
        "real time, and processor": f"{found['seconds']:.0f} s, {found['processor_seconds']:.0f} s "
        f"({found['processor_seconds'] * 1000 / max(found['said'], 1):.1f} ms a message)",
        "first post": f"p50 {found['first_p50_ms']:.0f} ms, p99 {found['first_p99_ms']:.0f} ms",
        "commits": f"{found['commits']:,}, {found['commit_mean_ms']:.1f} ms each on average",
        "entries": f"{found['entries']:,}",
        "on disk": f"database {size['database']}, logs {size['logs']}, search {size['search']}, "
        f"all {size['all']} ({a_message:.1f} KiB a message)",
        "resident memory, begin and end": f"{found['memory_mib'][0]:.0f} MiB, {found['memory_end_mib']:.0f} MiB",
        "each hour": " · ".join(f"{mib:.0f}" for mib in found["memory_mib"]),
        "its growth in the second half": f"{found['memory_kib_per_message']:.2f} KiB a message",
        "`hansard verify` afterwards": f"{'ok' if found['verify_ok'] else 'NOT ok'}, {found['verify_seconds']:.1f} s",
        "warnings in the gateway's log": f"{found['troubles']:,}",
    }
    return "\n".join(["## A day", "", DAY, "", *table(rows)])


def rooms(found: dict[str, Any]) -> str:
    """The recording channel alone."""
    costs = ", ".join(f"{cost:.2f} ms among {int(chats):,} chats" for chats, cost in found["cost_ms"].items())
    rows = {
        f"{found['rooms']} rooms within one second, first post": f"p50 {found['first_post_p50_ms']:.0f} ms, "
        f"p99 {found['first_post_p99_ms']:.0f} ms, of {found['messages']:,} messages",
        "growth of memory, that of the platform with it": f"{found['memory_slope_kib_per_message']:.1f} KiB a message",
        "processor time of a message": f"{costs}; ratio {found['cost_ratio']:.2f}",
    }
    text = "The recording channel with its platform in the gateway's own process, which is therefore in its memory."
    return "\n".join(["## One channel, in memory", "", text, "", *table(rows)])


def table(rows: dict[str, str]) -> list[str]:
    """Return a table of two columns."""
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
