"""`hansard deliveries`: what was not shown, and what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hansard.cli.existing import reading, with_record
from hansard.cli.printing import stdout_json
from hansard.cli.terminal.text import safe_line
from hansard.domain.deliveries import Delivery, DeliveryState
from hansard.errors import Ambiguous, NotFound, WrongState
from hansard.record.api import Record

EXIT_DONE, EXIT_NOTHING = 0, 1
LISTED_MAX = 10_000
STATES = [str(state) for state in DeliveryState]


async def listed(record: Record, state: str | None, channel: str | None) -> list[Delivery]:
    """Return deliveries of a state; without one, all that are not sent."""
    states = [state] if state is not None else [each for each in STATES if each != DeliveryState.SENT]
    pages = [await record.deliveries.list(state=each, channel=channel, limit=LISTED_MAX) for each in states]
    return [delivery for page in pages for delivery in page]


async def find(record: Record, text: str) -> Delivery:
    """Return the delivery that an id, or a unique beginning of one, names; only what is not sent can be named."""
    found = [each for each in await listed(record, None, None) if each.id.startswith(text)]
    exact = [each for each in found if each.id == text] or found
    if not exact:
        raise NotFound(f"no delivery that is not sent has the id {text[:80]!r}", "`hansard deliveries` lists them.")
    if len(exact) > 1:
        raise Ambiguous(f"{text!r} is the beginning of several ids", [each.id for each in exact])
    return exact[0]


async def retry(record: Record, named: str) -> list[Delivery]:
    """Let a delivery that failed be tried again, and with it the rest of its message."""
    delivery = await find(record, named)
    if delivery.state is DeliveryState.FAILED:
        delivery = await record.deliveries.move(
            delivery.session_id, delivery.id, DeliveryState.PENDING, reason="a person asked for another try"
        )
    await record.deliveries.finish_message(delivery.session_id, delivery.message_id, delivery.target, "retried")
    return [delivery]


async def drop(record: Record, named: str) -> list[Delivery]:
    """Let nobody try any longer: neither this delivery nor the rest of its message in that chat."""
    delivery = await find(record, named)
    if delivery.state is DeliveryState.SENDING:
        raise WrongState(f"delivery {delivery.id} is on its way just now")
    reason = "a person dropped it"
    await record.deliveries.finish_message(delivery.session_id, delivery.message_id, delivery.target, "dropped", reason)
    if delivery.state in {DeliveryState.PENDING, DeliveryState.UNKNOWN}:
        delivery = await record.deliveries.move(delivery.session_id, delivery.id, DeliveryState.FAILED, reason=reason)
    return [delivery]


def show(deliveries: list[Delivery], *, as_json: bool) -> None:
    if as_json:
        stdout_json(deliveries)
        return
    for each in deliveries:
        attempts = f"{each.attempts} attempts" if each.attempts != 1 else "1 attempt"
        click.echo(safe_line(f"{each.id}  {each.state:8} {each.operation} to {each.target}, {attempts}"))
        file = f", file {each.file}" if each.file else ""
        click.echo("    " + safe_line(f"session {each.session_id}, message {each.message_id}{file}"))
        if each.reason:
            click.echo("    " + safe_line(each.reason))


@click.group("deliveries", invoke_without_command=True)
@click.option("--state", type=click.Choice(STATES), help="Only these; without it, all that are not sent.")
@click.option("--channel", metavar="NAME", help="Only of this channel, such as matrix.")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@click.pass_context
def command(context: click.Context, state: str | None, channel: str | None, *, as_json: bool) -> None:
    """List what was not shown in a chat, and why; try it again, or drop it.

    Exit code 0: done, or nothing is left to be shown. 1: there is something. 2: it could not run.

    \b
    Examples:
      hansard deliveries
      hansard deliveries --state failed --json
      hansard deliveries retry d-3f2a
      hansard deliveries drop d-3f2a
    """  # noqa: D301 - click's mark for lines that stay as they are
    if context.invoked_subcommand is not None:
        return
    found = with_record(context.obj["home"], lambda record: listed(record, state, channel), reading)
    show(found, as_json=as_json)
    if not found and not as_json:
        click.echo("everything was shown")
    sys.exit(EXIT_NOTHING if found and state is None else EXIT_DONE)


@command.command("retry")
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@click.pass_obj
def retry_command(options: dict[str, Path], id: str, *, as_json: bool) -> None:
    """Try a delivery that failed once more; the gateway does so as soon as it runs."""
    show(with_record(options["home"], lambda record: retry(record, id)), as_json=as_json)


@command.command("drop")
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON list on standard output.")
@click.pass_obj
def drop_command(options: dict[str, Path], id: str, *, as_json: bool) -> None:
    """Drop a delivery, and what is left of its message in that chat. The words stay in the record."""
    show(with_record(options["home"], lambda record: drop(record, id)), as_json=as_json)
