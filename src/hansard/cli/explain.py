"""`hansard explain`: why a turn's tools were run or not, and in advance whether a tool would be."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click

from hansard.app.config import load_config
from hansard.cli.existing import has_record, reading
from hansard.cli.printing import examples
from hansard.cli.terminal.sanitize import safe
from hansard.domain.access import Grant
from hansard.domain.chats import PERSON_PREFIX, parse_key, person_owner
from hansard.domain.permissions import decide
from hansard.domain.policy import policy_of
from hansard.errors import InvalidInput, NotFound
from hansard.intake.explaining import explain_turn, last_turn, read_facts

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.domain.settings import Settings
    from hansard.record.api import Record

TERMINAL = "terminal"
UNTRUSTED = "text that none of those who ask wrote"


@click.command(
    "explain",
    epilog=examples(
        "hansard explain 2f61c09e                   a turn, by the beginning of its id",
        "hansard explain 20261115-201233-k3v9qd     the last turn of a session",
        "hansard explain --person ann --tool mcp__bank__pay --place matrix:room:!den:example.org",
        "hansard explain --person admin --tool memory --place terminal",
    ),
)
@click.argument("turn", required=False)
@click.option("--person", metavar="P", help="A name of [people], or what the platform calls somebody.")
@click.option("--tool", metavar="T", help="The tool's name, such as mcp__bank__pay.")
@click.option("--place", metavar="K", help="A chat such as matrix:room:!den:example.org, or terminal.")
@click.pass_obj
def command(options: dict[str, Any], turn: str | None, person: str | None, tool: str | None, place: str | None) -> None:
    """Say why a turn's tools were run or not, as it was decided then; or whether a tool would be run, by the settings.

    TURN is a turn's id, or the beginning of one, or a session: its last turn is meant.
    """
    asked = (person, tool, place)
    if turn is not None and asked == (None, None, None):
        click.echo(safe(asyncio.run(explain_past(options["home"], turn))))
    elif turn is None and person and tool and place:
        click.echo(safe(asyncio.run(explain_ahead(options["home"], person, tool, place))))
    else:
        raise click.UsageError("name a turn, or --person, --tool and --place together")


async def explain_past(home: Path, name: str) -> str:
    """Return why a turn's tools were run or not."""
    async with reading(home) as record:
        turn = await record.books.ledger.find_turn(name)
        if turn is None:
            turn = await last_turn(record, (await record.resolve(name)).id)
        return explain_turn(await read_facts(record, turn))


async def explain_ahead(home: Path, person: str, tool: str, place: str) -> str:
    """Return what would be decided, by the settings and by whose session the place leads to."""
    settings = load_config(home, os.environ, {}).settings
    chat = "" if place == TERMINAL else place
    author = author_of(settings, person, chat)
    owner = parse_key(chat).room_owner if chat else author
    lines: list[str] = []
    granted: dict[tuple[str, str], str] = {}
    if has_record(home):
        async with reading(home) as record:
            granted = await record.books.permissions.granted(tool, "", [(author, chat)])
            if chat:
                owner = await owner_in(record, chat, author) or owner
                lines += await access_lines(record, parse_key(chat).channel, author)
    policy = policy_of(settings)
    asker = policy.asker(owner, author, chat)
    kind = "a room" if asker.room else "a direct chat" if chat else "the terminal"
    lines.append(f"{place} is {kind}.")
    calm = decide(policy.rules, tool, [asker], "", granted)
    mixed = decide(policy.rules, tool, [asker], UNTRUSTED, granted)
    lines += [f"{tool}: {calm.verdict}", *(f"  {reason}" for reason in calm.reasons)]
    if mixed.verdict is not calm.verdict:
        lines += [f"{tool} while the request holds untrusted text: {mixed.verdict}"]
        lines += [f"  {reason}" for reason in mixed.reasons]
    return "\n".join(lines)


def author_of(settings: Settings, person: str, chat: str) -> str:
    """Return what a person is called in a place: by the settings, or as they were named."""
    name = person.removeprefix(PERSON_PREFIX)
    if not chat:
        return f"{PERSON_PREFIX}{name}"
    channel = parse_key(chat).channel
    if name not in settings.people:
        return name
    known = [identity for where, identity in settings.people[name].places() if where == channel]
    if not known:
        raise InvalidInput(f"[people.{name}] has no account on {channel}")
    return known[0]


async def owner_in(record: Record, chat: str, author: str) -> str:
    """Return whose the session is that a chat leads to, for this person; empty when it leads to none."""
    for key in (chat, f"{chat}:person:{author}"):
        try:
            route = await record.route(key)
        except NotFound:
            route = None
        if route is not None:
            return (await record.session(route.session_id)).owner
    return ""


async def access_lines(record: Record, channel: str, identity: str) -> list[str]:
    """Return what the record says of somebody's access; nothing when it says nothing."""
    state = (await record.access.find(channel, identity)).state
    said = {Grant.ALLOWED: "was allowed to talk", Grant.REVOKED: "is barred"}
    return [f"{person_owner(channel, identity)} {said[state]}."] if state in said else []
