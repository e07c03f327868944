"""`hansard audit`: a room's own timeline beside the record."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

import click
import msgspec

from hansard.app.channels import channel_openers
from hansard.app.config import load_config
from hansard.cli.existing import check_record, reading
from hansard.cli.printing import stdout_json, takes_json
from hansard.cli.process import run
from hansard.cli.terminal.text import safe_line
from hansard.delivery.audit import Audit, Hearing, audit_chat
from hansard.domain.access import Action, may
from hansard.domain.chats import parse_key, read_chat
from hansard.domain.people import People
from hansard.domain.settings import Settings
from hansard.domain.settings.channels import Answers
from hansard.errors import ChannelDown, InvalidInput
from hansard.ports.channel import Timeline
from hansard.record.api import Record

EXIT_CLEAN, EXIT_DIFFERENCES, EXIT_UNCOMPARED = 0, 1, 3
NO_PAST = (
    "{channel} tells nothing of the past, so a chat there cannot be compared with the record from here. "
    "`hansard deliveries` lists what was not shown; the record itself has all that was sent: `hansard export`"
)


def chat_named(text: str) -> str:
    """Return the chat that a person means: `matrix:!room:server`, `!room:server`, or the chat itself."""
    try:
        key = read_chat(text)
    except InvalidInput as error:
        how = "write matrix:!ROOM, with the room's id as clients show it in its settings"
        raise InvalidInput(f"{text[:80]!r} names no room: {how}") from error
    if key.person:
        raise InvalidInput(f"{key} names a person's conversation; a room's timeline is everybody's")
    return str(key)


def hearing_of(record: Record, settings: Settings, channel: str, chat: str) -> Hearing:
    """Return whose words the record must have, as the settings and the record say now."""
    people, options = People(settings, channel), settings.channels.section(channel)

    async def may_talk(sender: str) -> bool:
        known = await record.access.find(channel, sender)
        return may(Action.TALK, people.standing(sender, chat), known.state)

    return Hearing(may_talk=may_talk, hears_all=options.observe or options.answer is Answers.EVERYTHING)


def verdict_of(report: Audit) -> str:
    if report.differences:
        return f"{len(report.differences)} differences"
    if report.is_unknown:
        return "nothing could be compared: the record knows no event of this room"
    return "no difference in what could be compared" if report.uncompared else "all of it is in the record"


async def audit(home: Path, chat: str) -> Audit:
    settings = load_config(home, os.environ, {}).settings
    name = parse_key(chat).channel
    opened = channel_openers(home, settings, os.environ).get(name)
    if opened is None:
        raise InvalidInput(f"{name} is not configured here")
    channel = opened()
    if not channel.capabilities.timeline:
        await channel.close()
        raise InvalidInput(NO_PAST.format(channel=channel.name))
    try:
        async with reading(home) as record:
            hearing = hearing_of(record, settings, name, chat)
            return await audit_chat(record, cast("Timeline", channel), channel.name, channel.account, chat, hearing)
    except ChannelDown as error:
        error.hint = "Nothing was compared. Repair what the message names, and run the command again."
        raise
    finally:
        await channel.close()


@click.command("audit")
@click.argument("chat", metavar="matrix:ROOM")
@takes_json
def command(options: dict[str, Path], chat: str, *, as_json: bool) -> None:
    """Compare what a room shows with what the record holds.

    It reads the room's timeline from the homeserver, with the account of the gateway, which may run meanwhile. Exit
    code 0: everything that the room shows is in the record. 1: there are differences. 2: it could not run. 3: nothing
    differs in what could be compared, but some events cannot be decrypted here, or the record knows nothing of the
    room.

    \b
    Examples:
      hansard audit 'matrix:!abc:example.org'
      hansard audit --json 'matrix:room:!abc:example.org'
    """  # noqa: D301 - click's mark for lines that stay as they are
    named = chat_named(chat)
    check_record(options["home"])
    report = run(lambda: audit(options["home"], named))
    if as_json:
        stdout_json({"ok": report.ok and report.is_whole, **msgspec.structs.asdict(report)})
    else:
        for each in report.differences:
            who = f" by {each.sender}" if each.sender else ""
            click.echo(safe_line(f"{each.what}: {each.event_id}{who}: {each.detail}"))
        click.echo(
            f"{report.events} events, {report.by_agent} by the agent, {report.by_people} by people "
            f"({report.not_for_agent} not to the agent, {report.before} from before): {verdict_of(report)}"
        )
        if report.uncompared:
            click.echo(
                f"{report.uncompared} events cannot be decrypted here: nobody can say whether their words are recorded"
            )
    sys.exit(EXIT_DIFFERENCES if not report.ok else EXIT_CLEAN if report.is_whole else EXIT_UNCOMPARED)
