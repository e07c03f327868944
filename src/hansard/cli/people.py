"""`hansard people`: who is one person in several places, by config.toml or by codes; pinned Matrix identities."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from hansard.app.config import load_config
from hansard.channels.matrix.keeping import Confirmation, Keeping, Pin
from hansard.cli.existing import check_record, existing, reading, with_record
from hansard.cli.printing import examples, stdout_json, takes_json
from hansard.cli.terminal.text import safe_line
from hansard.domain.chats import PERSON_PREFIX, person_owner
from hansard.domain.people import (
    ACCOUNT_FORMS,
    ADMIN,
    OR_NAME,
    Circle,
    People,
    called,
    is_person,
    read_identity,
    terminal_owner,
)
from hansard.domain.settings import Settings
from hansard.errors import InvalidInput
from hansard.record.api import Record

TERMINAL = "terminal"
MATRIX = "matrix"
EXIT_REFUSED = 1
NONE = "none"
FORMS = f"{ACCOUNT_FORMS}{OR_NAME}, or {TERMINAL}"


def with_people(
    home: Path, call: Callable[[Record, Settings], Awaitable[str]] | None = None
) -> tuple[str, list[Circle]]:
    """Apply [people] of config.toml to the record, run `call`, and return its message and all circles.

    Without `call`, only read.
    """
    settings = load_config(home, os.environ, {}).settings
    check_record(home)

    async def run(record: Record) -> tuple[str, list[Circle]]:
        if not record.is_read_only:
            await record.people.declare(settings.people)
        elif settings.people:
            click.echo("hansard: what config.toml says under [people] may be newer than this list.", err=True)
        return await call(record, settings) if call else "", await record.people.list()

    return with_record(home, run, existing if call else partial(reading, in_place=False))


def owner_of(settings: Settings, who: str) -> str:
    """Return the owner that an admin names: `terminal`, a name of config.toml, or what a platform calls a person."""
    if who == TERMINAL:
        return terminal_owner(settings.people)
    if who in settings.people:
        return person_owner("", "", who)
    if is_person(who):
        return owner_of(settings, who.removeprefix(PERSON_PREFIX)) if ":" in who.removeprefix(PERSON_PREFIX) else who
    channel, identity = read_identity(who, FORMS)
    return person_owner(channel, identity, People(settings, channel).name(identity))


def check_known(settings: Settings, owner: str) -> str:
    """Return an owner who is somebody; refuse a name that is not in [people]."""
    name = owner.removeprefix(PERSON_PREFIX)
    if ":" not in name and owner != ADMIN and name not in settings.people:
        raise InvalidInput(f"{name[:80]!r} is nobody: write {FORMS}")
    return owner


@click.group(
    "people",
    invoke_without_command=True,
    epilog=examples(
        "hansard people                                   list everybody who is in several places",
        "hansard people link @ann:example.org 12345       make two accounts one person",
        "hansard people link terminal 12345               the same with the terminal",
        "hansard people unlink 12345                      part an account from all others",
        "hansard people identities                        list pinned Matrix identities, and those that changed",
        "hansard people confirm @ann:example.org          say that a changed identity is theirs",
    ),
)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show who is one person in several places: by [people] in config.toml, or because they said /link.

    Whoever is one person sees, in each place, what was said in all of them. A line has the name in config.toml, or
    `linked`, and all that this person is called.

    Exit code 0: done. 2: it could not run.
    """
    show(*with_people(options["home"]), as_json=as_json)


@command.command("list")
@takes_json
def list_all(options: dict[str, Any], *, as_json: bool) -> None:
    """List everybody who is in several places, the same as `hansard people`."""
    show(*with_people(options["home"]), as_json=as_json)


@command.command(
    "link", epilog=examples("hansard people link @ann:example.org 12345", "hansard people link terminal ann")
)
@click.argument("one")
@click.argument("other")
@takes_json
def link(options: dict[str, Any], one: str, other: str, *, as_json: bool) -> None:
    """Make ONE and OTHER one person, with all whom each is linked to already.

    Each is @name:server of Matrix, a number of Telegram, CHANNEL:NAME, a name of [people], or `terminal`. Both see
    everything that either said from then on. No session changes.

    Exit code 0: they are one person. 2: it could not run.
    """

    async def run(record: Record, settings: Settings) -> str:
        first, second = (check_known(settings, owner_of(settings, who)) for who in (one, other))
        if first == second:
            raise InvalidInput(f"{one} and {other} are the same")
        news = await record.people.link(first, second)
        return f"{called(first)} and {called(second)} are one person{' from now on' if news else ' already'}."

    show(*with_people(options["home"], run), as_json=as_json)


@command.command("unlink", epilog=examples("hansard people unlink 12345"))
@click.argument("who")
@takes_json
def unlink(options: dict[str, Any], who: str, *, as_json: bool) -> None:
    """Part WHO from all whom they were linked to, who stay one person among themselves.

    Each sees what was begun in their own place again. No session changes, and what config.toml says stays: to change
    that, change [people].

    Exit code 0: they are parted. 2: it could not run.
    """

    async def run(record: Record, settings: Settings) -> str:
        owner = owner_of(settings, who)
        parted = await record.people.unlink(owner)
        left = ", ".join(called(each) for each in parted.left)
        said = f"{called(owner)} is no longer one person with {left}." if left else f"{called(owner)} was not linked."
        still = ", ".join(called(each) for each in parted.still)
        return f"{said} config.toml makes them one person with {still}." if still else said

    show(*with_people(options["home"], run), as_json=as_json)


def show(said: str, circles: list[Circle], *, as_json: bool) -> None:
    if as_json:
        fields = [{"name": circle.name or None, "owners": list(circle.owners)} for circle in circles]
        stdout_json({"said": said or None, "people": fields})
        return
    if said:
        click.echo(safe_line(said))
        return
    if not circles:
        click.echo("Nobody is in several places.")
    for circle in circles:
        names = ", ".join(called(owner) for owner in circle.owners if owner != person_owner("", "", circle.name or "-"))
        click.echo(f"{circle.name or 'linked':12} {safe_line(names)}")


# The Matrix identities that this home has pinned.


@command.command("identities", epilog=examples("hansard people identities"))
@takes_json
def identities(options: dict[str, Any], *, as_json: bool) -> None:
    """List the Matrix identities (cross-signing master keys) that were pinned when they were first seen.

    One that changed is marked: that person's devices get no keys, and nothing that they write is acted on, until you
    confirm it. Ask the person, by another way than Matrix, whether the new key is theirs.

    Exit code 0: done. 2: it could not run.
    """
    keeping = Keeping(options["home"])
    pins = sorted(keeping.pins().items())
    fields = [identity_fields(keeping, user_id, pin) for user_id, pin in pins]
    if as_json:
        stdout_json({"identities": fields})
        return
    if not fields:
        click.echo("No identity is pinned.")
    for each in fields:
        click.echo(safe_line(identity_line(each)))


@command.command(
    "confirm",
    epilog=examples("hansard people confirm @ann:example.org", "hansard people confirm @ann:example.org KEY"),
)
@click.argument("identity")
@click.argument("key", required=False, default="")
@takes_json
def confirm(options: dict[str, Any], identity: str, key: str, *, as_json: bool) -> None:
    """Say that the changed Matrix identity of IDENTITY is theirs. With KEY: only if it is this one.

    It is recorded, and a gateway that runs goes by it at once. A person whose identity was removed is confirmed the
    same way: their devices then count as those of people who have none.

    Exit code 0: the new identity counts. 1: nothing is to be confirmed. 2: it could not run.
    """
    home = options["home"]
    channel, user_id = read_identity(identity)
    if channel != MATRIX:
        raise InvalidInput(f"{identity} is not of Matrix, where people have identities")
    check_record(home)
    keeping = Keeping(home)
    pin = keeping.pins().get(user_id)
    why = why_not(user_id, pin, key)
    if why or pin is None:
        click.echo(safe_line(f"hansard: {why}."), err=True)
        sys.exit(EXIT_REFUSED)
    # It is recorded before it counts.
    with_record(home, lambda record: record.people.confirm_identity(MATRIX, user_id, pin.seen))
    keeping.keep_confirmation(Confirmation(user_id=user_id, master=pin.seen))
    if as_json:
        stdout_json(identity_fields(keeping, user_id, pin))
        return
    click.echo(safe_line(f"The identity {pin.seen or NONE} of {user_id} counts from now on."))


def why_not(user_id: str, pin: Pin | None, key: str) -> str:
    """Return why there is nothing to confirm; empty when there is."""
    if pin is None:
        return f"no identity of {user_id} is pinned"
    if not pin.is_changed:
        return f"the identity of {user_id} has not changed"
    if key and key != pin.seen:
        return f"the identity of {user_id} is {pin.seen or NONE} now, and not {key}"
    return ""


def identity_fields(keeping: Keeping, user_id: str, pin: Pin) -> dict[str, Any]:
    confirmation = keeping.confirmation(user_id) if pin.is_changed else None
    return {
        "identity": user_id,
        "key": pin.master,
        "since": written_time(pin.since_seconds),
        "changed_to": (pin.seen or NONE) if pin.is_changed else None,
        "changed_at": written_time(pin.seen_seconds) if pin.is_changed else None,
        "confirmed": confirmation is not None and confirmation.master == pin.seen,
    }


def identity_line(fields: dict[str, Any]) -> str:
    start = f"{fields['identity']}  {fields['key']}  since {fields['since']}"
    if fields["changed_to"] is None:
        return start
    end = "confirmed" if fields["confirmed"] else f"not confirmed: hansard people confirm {fields['identity']}"
    return f"{start}  CHANGED {fields['changed_at']} to {fields['changed_to']}, {end}"


def written_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
