"""`hansard pair`: who asked to talk to the agent in chats, who may, and who may no longer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from hansard.app.config import load_config
from hansard.app.home_files import load_wording
from hansard.cli.existing import check_record, reading, with_record
from hansard.cli.printing import examples, stdout_json, takes_json
from hansard.cli.terminal.text import safe_line
from hansard.domain.access import Access, Grant, read_code, written_code
from hansard.domain.chats import PERSON_PREFIX
from hansard.domain.people import ACCOUNT_FORMS, OR_NAME, read_identity
from hansard.domain.settings import Person
from hansard.errors import InvalidInput, NotFound

EXIT_REFUSED = 1


@click.group(
    "pair",
    invoke_without_command=True,
    epilog=examples(
        "hansard pair                            list everybody, the latest first",
        "hansard pair approve k3v9-qd7m          allow whoever was shown this code",
        "hansard pair allow @ann:example.org     allow a person by name",
        "hansard pair revoke @ann:example.org    bar a person, whatever config.toml says",
    ),
)
@takes_json
def command(options: dict[str, Any], *, as_json: bool) -> None:
    """Show who asked to talk to the agent, who may, and who may no longer.

    A person who may not talk is shown a code, once, in the chat, or as the reason why their invitation is declined;
    approve it, and they may. Names on the list `channels.matrix.allow` of config.toml need no code, and are not shown
    here.

    Exit code 0: done. 1: no such code waits. 2: it could not run.
    """
    show(with_record(options["home"], lambda record: record.access.list(), reading), as_json=as_json)


@command.command("list")
@takes_json
def list_all(options: dict[str, Any], *, as_json: bool) -> None:
    """List everybody, the latest change first, the same as `hansard pair`."""
    show(with_record(options["home"], lambda record: record.access.list(), reading), as_json=as_json)


@command.command("approve", epilog=examples("hansard pair approve k3v9-qd7m"))
@click.argument("code")
@takes_json
def approve(options: dict[str, Any], code: str, *, as_json: bool) -> None:
    """Allow the person who was shown CODE, and tell them so.

    A code counts once, for that person only, until its time is over. Too many wrong ones in an hour, and none counts
    until the hour is over.

    Exit code 0: the person may talk. 1: no such code waits. 2: it could not run.
    """
    home = options["home"]
    settings = load_config(home, os.environ, {}).settings
    words, pairing = load_wording(home), settings.pairing
    check_record(home)
    if not read_code(code):
        raise InvalidInput("a code is of letters and digits, such as k3v9-qd7m")
    try:
        found = with_record(home, lambda record: record.access.approve(code, welcome=words.welcome, pairing=pairing))
    except NotFound as error:
        click.echo(f"hansard: {error}.", err=True)
        sys.exit(EXIT_REFUSED)
    show([found], as_json=as_json)
    if not found.chat and not as_json:
        click.echo("Their invitation was declined: they have to invite the agent again.")


@command.command("allow", epilog=examples("hansard pair allow @ann:example.org"))
@click.argument("identity")
@takes_json
def allow(options: dict[str, Any], identity: str, *, as_json: bool) -> None:
    """Allow IDENTITY, a person by their name or number on the platform; also one who was barred.

    Exit code 0: the person may talk. 2: it could not run.
    """
    channel, name = read_identity(identity)
    show([with_record(options["home"], lambda record: record.access.allow(channel, name))], as_json=as_json)


@command.command("revoke", epilog=examples("hansard pair revoke @ann:example.org"))
@click.argument("identity")
@takes_json
def revoke(options: dict[str, Any], identity: str, *, as_json: bool) -> None:
    """Bar the person IDENTITY from now on, on every account, whatever config.toml says.

    IDENTITY is @name:server of Matrix, a number of Telegram, CHANNEL:NAME, or a name of [people]. All accounts of that
    name, and all that are linked by /link, are barred with it. What the person asked for and waits is not answered any
    more. What they said stays in the record. `hansard pair allow` lets one account in again.

    Exit code 0: the person may talk no longer. 2: it could not run.
    """
    home = options["home"]
    people = load_config(home, os.environ, {}).settings.people
    identity = identity.removeprefix(PERSON_PREFIX)
    name = next((name for name, person in people.items() if identity == name or named(person, identity)), "")
    first = () if identity in people else (read_identity(identity, f"{ACCOUNT_FORMS}{OR_NAME}"),)
    accounts = tuple(dict.fromkeys((*first, *(people[name].places() if name else ()))))
    if not accounts:
        raise InvalidInput(f"[people.{name}] has no account on any channel")
    show(with_record(home, lambda record: record.access.revoke(*accounts[0], also=accounts[1:])), as_json=as_json)


def named(person: Person, identity: str) -> bool:
    try:
        return read_identity(identity) in person.places()
    except InvalidInput:
        return False


def show(found: Sequence[Access], *, as_json: bool) -> None:
    now = round(datetime.now(UTC).timestamp() * 1_000_000)
    if as_json:
        stdout_json({"people": [fields_of(access, now) for access in found]})
        return
    if not found:
        click.echo("Nobody has asked yet.")
    for access in found:
        click.echo(line_of(access, now))


def state_of(access: Access, now: int) -> str:
    return "expired" if access.state is Grant.ASKED and not access.is_waiting(now) else str(access.state)


def fields_of(access: Access, now: int) -> dict[str, object]:
    return {
        "channel": access.channel,
        "identity": access.identity,
        "state": state_of(access, now),
        "code": written_code(access.code) if access.is_waiting(now) else None,
        "expires_at": moment(access.expires_at) if access.is_waiting(now) else None,
        "chat": access.chat or None,
        "changed_at": moment(access.changed_at),
        "by": access.by or None,
    }


def line_of(access: Access, now: int) -> str:
    state = state_of(access, now)
    waits = f"  code {written_code(access.code)} until {moment(access.expires_at)}" if access.is_waiting(now) else ""
    return f"{state:8} {safe_line(access.identity):30} since {moment(access.changed_at)}{waits}"


def moment(microseconds: int) -> str:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC).isoformat(timespec="seconds")
