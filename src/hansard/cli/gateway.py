"""`hansard gateway`: run the channels that are configured; `hansard gateway status`: how the one that runs does."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hansard.app.config import load_config
from hansard.app.gateway import Gateway, Timing, open_channels, prefer_promptness
from hansard.app.health import ask_health
from hansard.app.logs import error_fields, log, log_as_json
from hansard.app.wiring import open_app
from hansard.cli.process import SIGNAL_EXIT_BASE
from hansard.cli.terminal.sanitize import safe_line

if TYPE_CHECKING:
    from hansard.app.health import Health

EXIT_DONE, EXIT_DEGRADED, EXIT_NOT_RUNNING = 0, 1, 2
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger("hansard.gateway")


def report(session_id: str, error: BaseException) -> None:
    """Log what went wrong in a turn beyond its own failure, which is in the record."""
    log(logger, logging.WARNING, "a turn had trouble", session=session_id, **error_fields(error))


async def serve(home: Path, model: str | None) -> int:
    """Run until a signal says otherwise: the first one drains, the second one ends at once."""
    given = {"model": model} if model else {}
    settings = load_config(home, os.environ, given).settings
    channels = open_channels(home, settings, os.environ)
    stop, received = asyncio.Event(), list[int]()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def end(number: int) -> None:
        received.append(number)
        stop.set()
        if len(received) > 1 and task is not None:
            task.cancel()

    async with open_app(home, settings, os.environ, report) as app:
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, end, number)
        app.models.warm()
        timing = Timing(drain_seconds=settings.gateway.drain_seconds)
        try:
            await Gateway(app, channels, timing).run(stop)
        except asyncio.CancelledError:
            if not received:
                raise
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
    return SIGNAL_EXIT_BASE + received[0] if received else EXIT_DONE


@click.group("gateway", invoke_without_command=True)
@click.option("-m", "--model", metavar="MODEL", help="openai:NAME, anthropic:NAME, demo, scripted:FILE.")
@click.pass_context
def command(context: click.Context, model: str | None) -> None:
    """Run the channels that are configured, until a signal ends it.

    SIGTERM and Ctrl-C let running answers finish within `gateway.drain_seconds`; a second one ends at once. Logs are
    JSON, one object a line, on standard error; they hold no words of any conversation.

    \b
    Examples:
      hansard gateway
      hansard gateway status
      hansard gateway status --json
    """  # noqa: D301 - click's mark for lines that stay as they are
    if context.invoked_subcommand is None:
        log_as_json()
        prefer_promptness()
        sys.exit(asyncio.run(serve(context.obj["home"], model)))


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.pass_obj
def status(options: dict[str, Path], *, as_json: bool) -> None:
    """Say whether a gateway runs for this home, and how it does.

    Exit code 0: all is well. 1: it runs, and something is wrong. 2: none runs.
    """
    health = asyncio.run(ask_health(options["home"]))
    if as_json:
        click.echo(msgspec.json.encode(health).decode() if health is not None else '{"status":"not running"}')
    elif health is None:
        click.echo(f"no gateway runs for {options['home']}")
    else:
        show(health)
    if health is None:
        sys.exit(EXIT_NOT_RUNNING)
    sys.exit(EXIT_DONE if health.status == "ok" else EXIT_DEGRADED)


def show(health: Health) -> None:
    """Tell it to a person."""
    click.echo(f"{health.status}: process {health.pid}, since {health.started_at}")
    if health.record:
        click.echo(f"  record: {safe_line(health.record)}")
    for channel in health.channels:
        states = ", ".join(f"{count} {state}" for state, count in sorted(channel.deliveries.items()))
        click.echo("  " + safe_line(f"{channel.name} {channel.account}: {channel.trouble or 'connected'}"))
        if channel.waiting or states:
            lag = f", the oldest for {channel.lag_seconds:.0f} s" if channel.waiting else ""
            click.echo(f"    {channel.waiting} messages wait to be shown{lag}{'; ' + states if states else ''}")
