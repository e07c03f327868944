"""`hansard explain`: why a turn's tools were run or not, and in advance whether a tool would be."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from hansard.app.config import load_config
from hansard.cli.existing import has_record, reading
from hansard.cli.people import owner_of
from hansard.cli.printing import examples
from hansard.cli.process import run
from hansard.cli.terminal.text import safe
from hansard.domain.access import Grant, Rank
from hansard.domain.chats import (
    PERSON_PREFIX,
    SessionKey,
    identity_of,
    key_in_chat,
    parse_owner,
    person_owner,
    read_chat,
)
from hansard.domain.people import People, owners_of, read_identity, terminal_owner
from hansard.domain.permissions import Decision
from hansard.domain.policy import JudgedCall, KnownAsker, Policy, policy_of
from hansard.domain.sessions import Session
from hansard.domain.settings import Settings
from hansard.domain.settings.channels import RoomSharing
from hansard.errors import InvalidInput
from hansard.intake.commands.turns import explain_turn, last_turn, read_facts
from hansard.record.api import Record


@click.command(
    "explain",
    epilog=examples(
        "hansard explain 2f61c09e                   a turn, by the beginning of its id",
        "hansard explain 20261115-201233-k3v9qd     the last turn of a session",
        "hansard explain --person ann --tool mcp__bank__pay --place matrix:!den:example.org",
        "hansard explain --person telegram:12345 --tool mcp__bank__pay --place telegram:-100500",
        "hansard explain --person admin --tool memory --place terminal",
    ),
)
@click.argument("turn", required=False)
@click.option("--person", metavar="P", help="A name of [people], @ann:example.org, telegram:12345, or terminal.")
@click.option("--tool", metavar="T", help="The tool's name, such as mcp__bank__pay.")
@click.option("--place", metavar="K", help="matrix:!den:example.org, telegram:-100500, or terminal.")
@click.pass_obj
def command(options: dict[str, Any], turn: str | None, person: str | None, tool: str | None, place: str | None) -> None:
    """Say why a turn's tools were run or not, as it was decided then; or whether a tool would be run, by the settings.

    TURN is a turn's id, or the beginning of one, or a session: its last turn is meant.
    """
    asked = (person, tool, place)
    if turn is not None and asked == (None, None, None):
        click.echo(safe(run(lambda: explain_past(options["home"], turn))))
    elif turn is None and person and tool and place:
        click.echo(safe(run(lambda: explain_ahead(options["home"], person, tool, place))))
    else:
        raise click.UsageError("name a turn, or --person, --tool and --place together")


async def explain_past(home: Path, name: str) -> str:
    async with reading(home) as record:
        turn = await record.turns.find(name)
        if turn is None:
            turn = await last_turn(record, (await record.resolve(name)).id)
        return explain_turn(await read_facts(record, turn))


TERMINAL: Final = ("terminal", "cli")
ADMIN: Final = ("terminal", "admin")
"""Who has the terminal, whatever [people] calls them."""

UNTRUSTED: Final = "text that none of those who ask wrote"
MEMORY: Final = "memory"
PERSON_FORMS: Final = "write a name of [people], @name:server of Matrix, telegram:NUMBER, CHANNEL:NAME, or terminal"
PLACE_FORMS: Final = "write matrix:!ROOM, telegram:NUMBER, a chat such as telegram:chat:-100500, or terminal"


class PlaceAhead(NamedTuple):
    """Where something would be asked: at the terminal when there is no key. `record` is None when there is none yet."""

    settings: Settings
    record: Record | None
    key: SessionKey | None

    @property
    def chat(self) -> str:
        """As the turns of this place name it; empty at the terminal."""
        return "" if self.key is None else str(self.key)


async def explain_ahead(home: Path, person: str, tool: str, place: str) -> str:
    """Return what would be decided now, by the settings and the record."""
    settings = load_config(home, os.environ, {}).settings
    key = read_place(settings, place)
    async with AsyncExitStack() as stack:
        record = await stack.enter_async_context(reading(home)) if has_record(home) else None
        ahead = PlaceAhead(settings, record, key)
        is_direct = await is_direct_chat(ahead)
        kind = "the terminal" if key is None else "a direct chat" if is_direct else "a room"
        lines = [f"{ahead.chat or place} is {kind}."]
        for author in await find_authors(ahead, person):
            lines += await explain_author(ahead, author, tool, is_direct=is_direct)
    return "\n".join(lines)


def read_place(settings: Settings, place: str) -> SessionKey | None:
    """Return the chat that somebody names; None for the terminal."""
    if place in TERMINAL:
        return None
    try:
        key = read_chat(place)
    except InvalidInput:
        key = None
    if key is None or key.person or key.channel not in settings.channels.sections():
        raise InvalidInput(f"{place[:80]!r} is no chat of a channel that there is: {PLACE_FORMS}")
    return key


async def find_authors(ahead: PlaceAhead, person: str) -> tuple[str, ...]:
    """Return what turns in this place would call somebody: accounts there, or the terminal's person."""
    settings, key = ahead.settings, ahead.key
    account = read_account(settings, person)
    owners = await find_owners(ahead, person)
    if key is None:
        if terminal_owner(settings.people) not in owners:
            raise InvalidInput(f"{person} does not have the terminal: [people.NAME] terminal = true says who has it")
        return (terminal_owner(settings.people),)
    known = [each[1] for each in map(identity_of, owners) if each is not None and each[0] == key.channel]
    found = (account[1],) if account is not None and account[0] == key.channel else tuple(dict.fromkeys(known))
    if not found:
        raise InvalidInput(f"{person} has no account on {key.channel} that [people] or a link names")
    if not is_private(key):
        return found
    if key.place not in found:
        raise InvalidInput(f"{key} is the direct chat of telegram:{key.place}: nobody else speaks there")
    return (key.place,)


def read_account(settings: Settings, person: str) -> tuple[str, str] | None:
    """Return the channel and the account that somebody names; None when it is a name of [people], or the terminal."""
    name = person.removeprefix(PERSON_PREFIX)
    if name in settings.people or name in ADMIN:
        return None
    try:
        channel, identity = read_identity(name)
    except InvalidInput:
        channel, identity = "", ""
    if channel not in settings.channels.sections():
        raise InvalidInput(f"{person[:80]!r} is nobody whom the settings know, and no account: {PERSON_FORMS}")
    return channel, identity


async def find_owners(ahead: PlaceAhead, person: str) -> tuple[str, ...]:
    """Return all that one person is, by [people] and by the links of the record."""
    people, name = ahead.settings.people, person.removeprefix(PERSON_PREFIX)
    is_admin = name in ADMIN and name not in people
    owner = terminal_owner(people) if is_admin else owner_of(ahead.settings, name)
    short = owner.removeprefix(PERSON_PREFIX)
    own = (owner, *(owners_of(short, people[short]) if short in people else ()))
    linked = () if ahead.record is None else await ahead.record.people.circle(owner)
    return (*own, *linked)


def is_private(key: SessionKey) -> bool:
    """Return whether a chat is one person's by its number: Telegram's private chats have that of the person."""
    return key.channel == "telegram" and not key.place.startswith("-")


async def is_direct_chat(ahead: PlaceAhead) -> bool:
    """Return whether a chat is with one person. One that the record has not seen is taken for a room."""
    if ahead.key is None or is_private(ahead.key):
        return ahead.key is not None
    for key in (ahead.key, msgspec.structs.replace(ahead.key, part="")):
        found = await find_session(ahead, str(key))
        if found is not None:
            return parse_owner(found.owner) is None
    return False


async def find_session(ahead: PlaceAhead, key: str) -> Session | None:
    if ahead.record is None:
        return None
    route = await ahead.record.routes.read(key)
    return None if route is None else await ahead.record.sessions.read(route.session_id)


async def explain_author(ahead: PlaceAhead, author: str, tool: str, *, is_direct: bool) -> list[str]:
    """Return what would be decided for one account, or for the terminal's person, and why."""
    policy, known = policy_of(ahead.settings), KnownAsker(author, ahead.chat)
    owner, session_id = author, ""
    lines = []
    if ahead.key is not None:
        channel, people = ahead.key.channel, People(ahead.settings, ahead.key.channel)
        is_apart = not is_direct and ahead.settings.channels.section(channel).rooms is not RoomSharing.SHARED
        session_key = key_in_chat(ahead.chat, author if is_apart else "")
        session = await find_session(ahead, session_key)
        owner = session.owner if session else people.owner(author, session_key, is_direct=is_direct)
        session_id = session.id if session else ""
        if ahead.record is not None:
            known = known._replace(grant=(await ahead.record.access.find(channel, author)).state)
        lines.append(tell_rank(policy, owner, known))
    granted = {}
    if ahead.record is not None:
        places = [(author, ahead.chat)]
        granted = await ahead.record.permissions.granted(tool, session_id, places)
    call = JudgedCall(tool=tool, owner=owner, people=(known,), changes_memory=tool == MEMORY)
    calm = policy.judge_call(call, granted)
    mixed = policy.judge_call(msgspec.structs.replace(call, source=UNTRUSTED), granted)
    lines += tell(tool, calm)
    if mixed.verdict is not calm.verdict:
        lines += tell(f"{tool} while the request holds untrusted text", mixed)
    listing = policy.judge_call(msgspec.structs.replace(call, changes_memory=False), granted)
    return lines if listing.verdict is calm.verdict else [*lines, *tell(f"{tool}, only to list", listing)]


def tell(what: str, decision: Decision) -> list[str]:
    return [f"{what}: {decision.verdict}", *(f"  {reason}" for reason in decision.reasons)]


def tell_rank(policy: Policy, owner: str, known: KnownAsker) -> str:
    """Return what somebody is in a chat, and whether that lets them talk."""
    rank = policy.standpoint(owner, *known).rank
    channel = known.chat.partition(":")[0]
    name = policy.names.get((channel, known.person), "")
    who = person_owner(channel, known.person).removeprefix(PERSON_PREFIX) + (f" ({name} of [people])" if name else "")
    if rank is Rank.BARRED:
        return f"{who} is barred: no turn begins for them."
    silent = ", who may not talk there: no turn begins" if rank is Rank.STRANGER else ""
    allowed = ", by `hansard pair`" if known.grant is Grant.ALLOWED else ""
    return f"{who} is {'an' if rank is Rank.ADMIN else 'a'} {rank} there{allowed}{silent}."
