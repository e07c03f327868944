"""`hansard sessions`: what was talked about, and what can be done with it. Nothing here removes a word."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from hansard.cli import load
from hansard.cli.existing import existing, reading
from hansard.cli.printing import WholeNumber, counted, examples, faint, stdout_json, takes_json
from hansard.cli.process import EXIT_DONE, EXIT_FAILED, PARTS, run
from hansard.cli.terminal.text import cells, cut, safe_line
from hansard.domain.sessions import Session, SessionState
from hansard.domain.text import shorten
from hansard.errors import Ambiguous, InvalidInput
from hansard.record.api import Record
from hansard.record.conversation import last_exchange, last_undone

LISTED = 50
"""Sessions in a list, unless more are asked for: a few screens."""

OWNER_CHARACTERS = 24
SOURCE_CHARACTERS = 12

AGE = re.compile(r"(\d{1,20})([mhdw])\Z")
AGE_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

COLUMN_NAMES = ("id", "last active", "msgs", "state", "source", "owner", "about")
OFTEN_THE_SAME = frozenset({"source", "owner"})

SESSION = click.argument("name", metavar="SESSION")


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list."""

    owner: str | None
    source: str | None
    state: str | None
    since: datetime | None
    limit: int
    archived: bool | None


async def resolve(record: Record, name: str) -> Session:
    """Return the session that a person names; several that it may mean are listed."""
    try:
        return await record.resolve(name)
    except Ambiguous as error:
        words = await record.titles.first_words(error.candidates)
        for session_id in error.candidates:
            click.echo(describe(await record.sessions.read(session_id), words), err=True)
        raise


def since_when(text: str, now: datetime) -> datetime:
    """Return the moment that a person means: a date, a time, or so long ago."""
    age = AGE.match(text.strip())
    try:
        if age is not None:
            return now - timedelta(**{AGE_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text.strip()).astimezone()
    except OverflowError:
        raise InvalidInput(f"{text[:80]!r} is longer ago than dates go") from None
    except ValueError:
        raise InvalidInput(
            f"{text[:80]!r} is no date (2026-11-15, 2026-11-15T20:12) and no age (90m, 12h, 7d)"
        ) from None


async def find(record: Record, wanted: SessionQuery) -> tuple[list[Session], bool]:
    """Return the sessions that are wanted, and whether there are more. Clocks label: a time ends no search."""
    found: list[Session] = []
    before: str | None = None
    while True:
        page = await record.sessions(
            owner=wanted.owner,
            source=wanted.source,
            state=wanted.state,
            archived=wanted.archived,
            before=before,
            limit=None if wanted.since else wanted.limit + 1 - len(found),
        )
        found += [each for each in page if wanted.since is None or each.active_at >= wanted.since]
        if not page or len(found) > wanted.limit:
            return found[: wanted.limit], len(found) > wanted.limit
        before = page[-1].id


def columns(session: Session, first_words: dict[str, str]) -> tuple[str, ...]:
    """Return what a list says of a session; last, what it is called, or how it begins."""
    words = session.title or shorten(first_words.get(session.id, "")) or "(nothing said)"
    return (
        session.id,
        f"{session.active_at.astimezone():%Y-%m-%d %H:%M}",
        str(session.messages),
        "archived" if session.archived else str(session.state),
        safe_line(session.source)[:SOURCE_CHARACTERS],
        safe_line(session.owner)[:OWNER_CHARACTERS],
        safe_line(words),
    )


def describe(session: Session, first_words: dict[str, str]) -> str:
    session_id, active, messages, state, source, owner, words = columns(session, first_words)
    return f"{session_id}  {active}  {messages:>5}  {state:8}  {source:6}  {owner:14}  {words}"


def fields_of(session: Session) -> dict[str, Any]:
    """Return a session for scripts: times as people and programs both read them."""
    return {
        "id": session.id,
        "title": session.title,
        "source": session.source,
        "owner": session.owner,
        "state": session.state,
        "end_reason": session.end_reason,
        "archived": session.archived,
        "messages": session.messages,
        "parent": session.parent,
        "created_at": session.created_at.isoformat(),
        "active_at": session.active_at.isoformat(),
        "head_seq": session.head_seq,
    }


def tell(session: Session, text: str, *, as_json: bool, **more: object) -> None:
    if as_json:
        stdout_json(fields_of(session) | more)
    else:
        click.echo(safe_line(text))


def table(rows: list[tuple[str, ...]], width: int) -> list[str]:
    shown = [
        place
        for place, name in enumerate(COLUMN_NAMES)
        if name not in OFTEN_THE_SAME or len({row[place] for row in rows}) > 1
    ]
    lines = [[each[place] for place in shown] for each in (COLUMN_NAMES, *rows)]
    widths = [max(cells(line[place]) for line in lines) for place in range(len(shown))]
    return [cut("  ".join(map(padded, line, widths)).rstrip(), width) for line in lines]


def padded(text: str, width: int) -> str:
    """Return a cell as wide as its column; numbers stand at its right."""
    space = " " * (width - cells(text))
    return space + text if text.isdecimal() else text + space


async def show_list(home: Path, wanted: SessionQuery, *, as_json: bool) -> int:
    async with reading(home) as record:
        found, more = await find(record, wanted)
        if as_json:
            words = await record.titles.first_words([each.id for each in found])
            rows = [fields_of(each) | {"first_words": shorten(words.get(each.id, ""))} for each in found]
            stdout_json({"sessions": rows, "more": more})
            return EXIT_DONE
        words = await record.titles.first_words([each.id for each in found if not each.title])
        if sys.stdout.isatty() and found:
            rows_shown = [columns(each, words) for each in found]
            heading, *lines = table(rows_shown, shutil.get_terminal_size().columns)
            click.echo(faint(heading))
        else:
            lines = [describe(each, words) for each in found]
        for line in lines:
            click.echo(line)
    if not found:
        is_narrowed = any((wanted.owner, wanted.source, wanted.state, wanted.since))
        click.echo(f"There are no sessions {'that match' if is_narrowed else 'yet'}.", err=True)
    elif more:
        click.echo(f"There are more: --limit {wanted.limit * 10}", err=True)
    return EXIT_DONE


def list_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a list, in the order in which help shows them."""
    options = (
        click.option("--owner", metavar="OWNER", help="Of one person or room: person:admin."),
        click.option("--source", metavar="SOURCE", help="From one place: cli, matrix, telegram."),
        click.option("--state", type=click.Choice([str(state) for state in SessionState]), help="Open or ended."),
        click.option("--since", metavar="WHEN", help="Active since a date, or an age: 90m, 12h, 7d."),
        click.option("--limit", type=WholeNumber(), default=LISTED, show_default=True, help="How many."),
        click.option("--archived", is_flag=True, help="Those that were archived, instead of the others."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def list_sessions(home: Path, *, as_json: bool, since: str | None, archived: bool, **filters: Any) -> None:  # noqa: ANN401
    moment = None if since is None else since_when(since, datetime.now(UTC))
    wanted = SessionQuery(since=moment, archived=archived, **filters)
    sys.exit(run(lambda: show_list(home, wanted, as_json=as_json)))


@click.group(
    "sessions",
    invoke_without_command=True,
    epilog=examples(
        "hansard sessions",
        "hansard sessions --source matrix --since 7d",
        "hansard sessions show 20261115-20 --full",
        'hansard sessions fork "Trip to Rome" --at 120',
    ),
)
@list_options
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - click's values
    """List sessions, the latest activity first; show, title, end, fork or undo one.

    A SESSION is named by its id, a unique beginning of it, or its title.

    Exit code 0: done. 1: there was nothing to undo or restore. 2: it could not run; nothing was changed.
    """
    if ctx.invoked_subcommand is None:
        list_sessions(ctx.obj["home"], **given)


@command.command(
    "list",
    epilog=examples(
        "hansard sessions list --owner person:admin --limit 200", "hansard sessions list --archived --json"
    ),
)
@list_options
@click.pass_obj
def list_command(options: dict[str, Any], /, **given: Any) -> None:  # noqa: ANN401 - click's values
    """List sessions, the same as `hansard sessions`.

    A line has the id, the last activity, the messages, the state, the source, the owner and the title or first words.
    """
    list_sessions(options["home"], **given)


@command.command(
    "show",
    epilog=examples(
        'hansard sessions show "Trip to Rome"',
        "hansard sessions show 20261115-20 --full | less",
        "hansard sessions show 20261115-20 --raw | jq .kind",
    ),
)
@SESSION
@click.option("--full", is_flag=True, help="Tools, reasoning and deliveries whole; what was undone, marked.")
@click.option("--raw", is_flag=True, help="Every entry of the journal as one line of JSON.")
@takes_json
def show(options: dict[str, Any], *, name: str, full: bool, raw: bool, as_json: bool) -> None:
    """Show what was said in a session, and where it was delivered.

    Exit code 0: done. 1: the past of a fork is missing; its own words are shown. 2: it could not run.
    """
    if raw and (full or as_json):
        raise click.UsageError("--raw stands alone: it shows everything, as JSON.")

    async def main() -> int:
        async with reading(options["home"]) as record:
            session, shown = await resolve(record, name), load(PARTS["show"])
            if raw:
                await shown.show_raw(record, session)
            elif as_json:
                await shown.show_json(record, session, fields_of(session))
            else:
                await shown.show_for_people(record, session, full=full)
            return EXIT_DONE if await shown.is_whole(record, session) else EXIT_FAILED

    sys.exit(run(main))


def change(home: Path, name: str, act: Callable[[Record, Session], Awaitable[int]]) -> None:
    async def main() -> int:
        async with existing(home) as record:
            return await act(record, await resolve(record, name))

    sys.exit(run(main))


def change_state(
    options: dict[str, Any], name: str, text: str, act: Callable[[Record, str], Awaitable[Session]], *, as_json: bool
) -> None:
    """Change a session and print what it is now; `text` names its fields in braces."""

    async def act_and_tell(record: Record, session: Session) -> int:
        changed = await act(record, session.id)
        tell(changed, text.format(session=changed), as_json=as_json)
        return EXIT_DONE

    change(options["home"], name, act_and_tell)


@command.command("title", epilog=examples('hansard sessions title 20261115-20 "Trip to Rome"'))
@SESSION
@click.argument("title")
@takes_json
def title_command(options: dict[str, Any], *, name: str, title: str, as_json: bool) -> None:
    """Give a session a title."""
    text = "{session.id} is titled “{session.title}”."
    change_state(options, name, text, lambda record, known: record.set_title(known, title), as_json=as_json)


@command.command(
    "end", epilog=examples('hansard sessions end "Trip to Rome"', 'hansard sessions end 20261115-20 "we are back"')
)
@SESSION
@click.argument("reason", default="ended by the admin")
@takes_json
def end(options: dict[str, Any], *, name: str, reason: str, as_json: bool) -> None:
    """End a session: it takes no new words until it is reopened. The first reason stays."""
    text = "{session.id} has ended: {session.end_reason}"
    change_state(options, name, text, lambda record, known: record.end_session(known, reason), as_json=as_json)


@command.command("reopen", epilog=examples('hansard sessions reopen "Trip to Rome"'))
@SESSION
@takes_json
def reopen(options: dict[str, Any], *, name: str, as_json: bool) -> None:
    """Let an ended session take new words."""
    change_state(options, name, "{session.id} is open.", Record.reopen_session, as_json=as_json)


@command.command(
    "fork",
    epilog=examples(
        'hansard sessions fork "Trip to Rome" --title "Trip to Naples"', "hansard sessions fork 20261115-20 --at 120"
    ),
)
@SESSION
@click.option("--at", type=WholeNumber(), metavar="SEQ", help="Share entries up to this one; otherwise all.")
@click.option("--title", help="A title for the new session.")
@takes_json
def fork(options: dict[str, Any], *, name: str, at: int | None, title: str | None, as_json: bool) -> None:
    """Begin a session that shares another's past and goes its own way. Nothing is copied.

    `hansard sessions show SESSION --full` shows the numbers of entries.
    """

    async def act(record: Record, session: Session) -> int:
        child = await record.fork(session.id, at, title=title)
        shared = child.parent.at if child.parent else 0
        tell(child, f"{child.id} is a fork of {session.id}, at entry {shared}.", as_json=as_json)
        return EXIT_DONE

    change(options["home"], name, act)


@command.command(
    "undo",
    epilog=examples(
        'hansard sessions undo "Trip to Rome"',
        "hansard sessions undo 20261115-20 3",
        "hansard sessions undo 20261115-20 --restore",
    ),
)
@SESSION
@click.argument("count", metavar="[N]", type=WholeNumber(), default=1)
@click.option("--restore", is_flag=True, help="Let what the last N undos took be there again.")
@takes_json
def undo(options: dict[str, Any], *, name: str, count: int, restore: bool, as_json: bool) -> None:
    """Undo the last N turns: what people said, and all that came of it. It stays in the record.

    With --restore, the messages that were undone last come back to their old places.

    Exit code 1: there was nothing to undo, or to restore.
    """

    async def act(record: Record, session: Session) -> int:
        conversation = await record.conversation(session.id)
        if restore:
            verb, named, what = "restore", "restored", "restored"
            ids = last_undone(conversation, count)
            await record.messages.restore(session.id, ids)
        else:
            verb, named, what = "undo", "undone", "undone; they stay in the record"
            ids = [placed.message.id for placed in last_exchange(conversation, count)]
            await record.messages.undo(session.id, ids)
        text = f"{counted(len(ids), 'message')} of {session.id}: {what}." if ids else f"There is nothing to {verb}."
        tell(await record.sessions.read(session.id), text, as_json=as_json, **{named: ids})
        return EXIT_DONE if ids else EXIT_FAILED

    change(options["home"], name, act)


@command.command("archive", epilog=examples('hansard sessions archive "Trip to Rome"'))
@SESSION
@takes_json
def archive(options: dict[str, Any], *, name: str, as_json: bool) -> None:
    """Keep a session out of lists. It is still found by name, by search and by --archived."""
    text = "{session.id} is archived."
    change_state(options, name, text, lambda record, known: record.sessions.archive(known), as_json=as_json)


@command.command("unarchive", epilog=examples('hansard sessions unarchive "Trip to Rome"'))
@SESSION
@takes_json
def unarchive(options: dict[str, Any], *, name: str, as_json: bool) -> None:
    """Let a session that was archived appear in lists again."""
    text = "{session.id} is listed again."
    change_state(options, name, text, lambda record, known: record.sessions.unarchive(known), as_json=as_json)
