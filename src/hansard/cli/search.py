"""`hansard search`: what was said, anywhere."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from hansard.cli.existing import reading
from hansard.cli.printing import WholeNumber, examples, heading, stdout_json, takes_json
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, run
from hansard.cli.sessions import resolve, since_when
from hansard.cli.terminal.text import safe, safe_line
from hansard.domain.limits import CONTEXT_MESSAGES_MAX, HITS_MAX
from hansard.domain.messages import Message, Role
from hansard.domain.search import excerpt, fields_of, highlights
from hansard.domain.sessions import Session
from hansard.domain.text import shorten
from hansard.record.api import Record
from hansard.record.search.asking import Hit

EXIT_FOUND, EXIT_NOTHING = EXIT_DONE, EXIT_FAILED
EXCERPT_CHARACTERS = 160
"""How much of a message is shown around what was found."""

NEIGHBOUR_CHARACTERS = 100
DATE_CHARACTERS = len("2026-11-15")


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, and the sessions that it is in; or else how much it would find everywhere."""

    query: str
    hits: list[Hit]
    sessions: dict[str, Session]
    hidden: int


async def find(record: Record, query: str, session_name: str | None, filters: dict[str, Any]) -> SearchResult:
    if session_name is not None:
        filters["session_id"] = (await resolve(record, session_name)).id
    hits = await record.search(query, **filters)
    hidden = 0 if hits else len(await record.search(query, limit=HITS_MAX, tools=True, everything=True))
    sessions = {each: await record.sessions.read(each) for each in dict.fromkeys(hit.session_id for hit in hits)}
    return SearchResult(query=query, hits=hits, sessions=sessions, hidden=hidden)


def show(found: SearchResult) -> None:
    """Print hits for people: a line for each session, then a line for each message."""
    shown = ""
    for hit in found.hits:
        if hit.session_id != shown:
            shown = hit.session_id
            click.echo(f"{shown}  {safe_line(found.sessions[shown].title or '')}".rstrip())
        for message in hit.before:
            click.echo(neighbour(hit, message))
        pieces = excerpt(found.query, hit.message, EXCERPT_CHARACTERS)
        text = "".join(heading(safe(each.text)) if each.found else safe(each.text) for each in pieces)
        marks = "".join(f" ({mark})" for mark in marks_of(hit.message, undone=hit.undone))
        when = f"{hit.message.at.astimezone():%Y-%m-%d %H:%M}"
        click.echo(f"  {when}  #{hit.seq} {hit.message.role}{marks}: {text.strip()}")
        for message in hit.after:
            click.echo(neighbour(hit, message))


def neighbour(hit: Hit, message: Message) -> str:
    text = safe_line(" ".join(each for each in fields_of(message.parts) if each))
    marks = "".join(f" ({mark})" for mark in marks_of(message, undone=message.id in hit.undone_ids))
    return f"      {message.role}{marks}: {shorten(text, NEIGHBOUR_CHARACTERS)}"


def marks_of(message: Message, *, undone: bool) -> list[str]:
    marks = (
        ("undone", undone),
        ("deleted", message.is_retracted),
        ("edited", message.is_edited),
        (str(message.status), message.status != "complete"),
    )
    return [mark for mark, is_so in marks if is_so]


def json_of(found: SearchResult) -> dict[str, object]:
    """Return hits for scripts: times as people and programs both read them, marks in characters of the text."""
    hits = [
        {
            "session_id": hit.session_id,
            "title": found.sessions[hit.session_id].title,
            "seq": hit.seq,
            **message_fields(hit.message, undone=hit.undone),
            "highlights": highlights(found.query, fields_of(hit.message.parts).said),
            "score": hit.score,
            "before": [message_fields(each, undone=each.id in hit.undone_ids) for each in hit.before],
            "after": [message_fields(each, undone=each.id in hit.undone_ids) for each in hit.after],
        }
        for hit in found.hits
    ]
    return {"query": found.query, "hits": hits, "hidden": found.hidden}


def message_fields(message: Message, *, undone: bool) -> dict[str, Any]:
    said, tools = fields_of(message.parts)
    return {
        "id": message.id,
        "role": message.role,
        "author": message.author,
        "status": message.status,
        "at": message.at.isoformat(),
        "undone": undone,
        "edited": message.is_edited,
        "deleted": message.is_retracted,
        "text": said,
        "tools": tools,
    }


def until_when(text: str, now: datetime) -> datetime:
    """Return the moment that a person means by an end: of a day, its last."""
    moment = since_when(text, now)
    is_day = len(text.strip()) == DATE_CHARACTERS
    return moment + timedelta(days=1, microseconds=-1) if is_day else moment


async def print_found(home: Path, query: str, given: dict[str, Any]) -> int:
    grouped, as_json, session_name = (given.pop(name) for name in ("grouped", "as_json", "session_name"))
    now = datetime.now(UTC)
    for name, read in (("since", since_when), ("until", until_when)):
        given[name] = None if given[name] is None else read(given[name], now)
    filters = {name: value for name, value in given.items() if value is not None}
    async with reading(home) as record:
        found = await find(record, query, session_name, filters)
    if grouped:
        order = list(found.sessions)
        found = msgspec.structs.replace(found, hits=sorted(found.hits, key=lambda hit: order.index(hit.session_id)))
    if as_json:
        stdout_json(json_of(found))
    else:
        show(found)
    if not found.hits:
        elsewhere = f" Everywhere, with --tools and --all: {found.hidden}." if found.hidden else ""
        click.echo(f"Nothing was found.{elsewhere}", err=True)
    return EXIT_FOUND if found.hits else EXIT_NOTHING


@click.command(
    "search",
    epilog=examples(
        "hansard search ferry timetable",
        "hansard search '\"the last ferry\" OR bus NOT strike' --since 30d",
        "hansard search /etc/hosts --tools --context 2",
        "hansard search 東京 --session 'Trip to Tokyo'",
        "hansard search 'refund*' --source matrix --by-session --json | jq .hits",
    ),
)
@click.argument("query", nargs=-1, required=True)
@click.option("--role", type=click.Choice([str(role) for role in Role]), help="Who said it.")
@click.option("--owner", metavar="OWNER", help="In sessions of one person or room: person:admin.")
@click.option("--source", metavar="SOURCE", help="In sessions from one place: cli, matrix, telegram.")
@click.option("--session", "session_name", metavar="SESSION", help="In one session, by its id or title.")
@click.option("--title", metavar="TEXT", help="In sessions whose title has this in it.")
@click.option("--since", metavar="WHEN", help="Said since a date, or an age: 90m, 12h, 7d.")
@click.option("--until", metavar="WHEN", help="Said until a date, that day included, or an age.")
@click.option("--tool", metavar="NAME", help="Only calls of this tool, and their results.")
@click.option("--tools", is_flag=True, help="Look into tool calls and their results, too.")
@click.option("--all", "everything", is_flag=True, help="What was undone or deleted, too; it is marked.")
@click.option("--context", type=WholeNumber(0, CONTEXT_MESSAGES_MAX), default=0, help="Neighbours on each side.")
@click.option("--limit", type=WholeNumber(1, HITS_MAX), default=20, show_default=True, help="How many.")
@click.option("--by-session", "grouped", is_flag=True, help="Keep what is of one session together.")
@takes_json
def command(options: dict[str, Any], /, query: tuple[str, ...], **given: Any) -> None:  # noqa: ANN401 - click's values
    """Find what was said, the best and latest first.

    Words, "phrases" (quote them for the shell as well), begin*, AND, OR, NOT; names of code and paths as they are; any
    two characters of Chinese, Japanese, Korean, Thai. Nothing in a query is an error.

    Exit code 0: found. 1: nothing was found. 2: it could not run.
    """
    sys.exit(run(lambda: print_found(options["home"], " ".join(query), given)))
