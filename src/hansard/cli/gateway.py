"""`hansard gateway`: run the channels that are configured; `hansard gateway status`: how the one that runs does."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import click

from hansard.app.channels import channel_openers
from hansard.app.secrecy import hide_environment
from hansard.app.wiring import open_app
from hansard.cli.printing import stdout_json, takes_json
from hansard.cli.process import SIGNAL_EXIT_BASE, run
from hansard.cli.terminal.text import safe_line
from hansard.errors import GatewaySilent, RecordMigrated
from hansard.gateway.channel import Timing
from hansard.gateway.health import Health, ask_health, silence_of
from hansard.gateway.logs import LogFile, error_fields, log, log_as_json
from hansard.gateway.process import ConfigReload, Gateway, load_gateway_config, prefer_promptness, read_again
from hansard.tools.mcp import ServerTrouble

EXIT_DONE, EXIT_DEGRADED, EXIT_NOT_RUNNING, EXIT_MIGRATED = 0, 1, 2, 3
EXIT_REFUSED = 1
RELOAD_SECONDS_MAX = 30.0
"""How long to wait for a gateway that closes a channel and opens it again."""

LOOK_SECONDS = 0.05
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger("hansard.gateway")


def report(session_id: str, error: BaseException) -> None:
    """Log what went wrong in a turn beyond its own failure, which is in the record."""
    if isinstance(error, ServerTrouble):
        log(logger, logging.WARNING, "a server of tools has trouble", server=error.server, why=error.why)
        return
    log(logger, logging.WARNING, "a turn had trouble", session=session_id, **error_fields(error))


async def serve(home: Path, model: str | None) -> int:
    """Run until a signal says otherwise: the first one drains, the second one ends at once. SIGHUP reads anew."""
    given = {"model": model} if model else {}
    reloading = ConfigReload(
        read=lambda: read_again(home, os.environ, given),
        openers=lambda settings: channel_openers(home, settings, os.environ),
    )
    loop = asyncio.get_running_loop()
    early: list[int] = []
    loop.add_signal_handler(signal.SIGHUP, early.append, signal.SIGHUP)
    loaded = load_gateway_config(home, os.environ, given)
    settings = loaded.settings
    channels = [opened() for opened in reloading.openers(settings).values()]
    stop, received = asyncio.Event(), list[int]()
    task, at_interrupt = asyncio.current_task(), signal.getsignal(signal.SIGINT)

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
        gateway = Gateway(app, channels, timing, loaded=loaded, reloading=reloading)
        loop.add_signal_handler(signal.SIGHUP, gateway.renew)
        if early:
            gateway.renew()
        try:
            await gateway.run(stop)
        except asyncio.CancelledError:
            if not received:
                raise
        except RecordMigrated as error:
            click.echo(f"hansard: {error}\n{error.hint}", err=True)
            return EXIT_MIGRATED
        finally:
            for number in (*STOP_SIGNALS, signal.SIGHUP):
                loop.remove_signal_handler(number)
            signal.signal(signal.SIGINT, at_interrupt)  # the loop has put Python's own in its place
    return SIGNAL_EXIT_BASE + received[0] if received else EXIT_DONE


@click.group("gateway", invoke_without_command=True)
@click.option("-m", "--model", metavar="MODEL", help="openai:NAME, anthropic:NAME, demo, scripted:FILE.")
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Log there: it begins anew at 10 MB, and the last five stay beside it. With -, standard error.",
)
@click.pass_context
def command(context: click.Context, model: str | None, log_file: Path | None) -> None:
    """Run the channels that are configured, until a signal ends it.

    SIGTERM and Ctrl-C let running answers finish within `gateway.drain_seconds`; a second one ends at once. SIGHUP
    has the configuration read again. Logs are JSON, one object a line, on standard error; they hold no words of any
    conversation.

    Exit code 3: a newer Hansard has upgraded the record; start that one.

    \b
    Examples:
      hansard gateway
      hansard gateway --log-file /var/log/hansard/gateway.log
      hansard gateway status --json
      hansard gateway reload
    """  # noqa: D301 - click's mark for lines that stay as they are
    if context.invoked_subcommand is None:
        if context.obj["is_own"]:
            hide_environment(context.obj["home"], may_start_programs=True)
        log_as_json(handler=LogFile(log_file) if log_file not in {None, Path("-")} else None)
        prefer_promptness()
        sys.exit(asyncio.run(serve(context.obj["home"], model)))


@command.command("status")
@takes_json
def status(options: dict[str, Path], *, as_json: bool) -> None:
    """Say whether a gateway runs for this home, and how it does.

    Exit code 0: all is well. 1: it runs, and something is wrong, or it does not answer. 2: none runs.
    """
    try:
        health = run(lambda: ask_health(options["home"]))
    except GatewaySilent as error:
        if as_json:
            stdout_json({"status": "stopped" if error.is_stopped else "silent", "pid": error.pid, "why": str(error)})
        else:
            click.echo(f"{error}\n{error.hint}")
        sys.exit(EXIT_DEGRADED)
    if health is None:
        if as_json:
            stdout_json({"status": "not running"})
        else:
            click.echo(f"no gateway runs for {options['home']}")
        sys.exit(EXIT_NOT_RUNNING)
    if as_json:
        stdout_json(health)
    else:
        show(health)
    sys.exit(EXIT_DONE if health.status == "ok" else EXIT_DEGRADED)


@command.command("reload")
@click.pass_obj
def reload(options: dict[str, Path]) -> None:
    """Have the gateway that runs take up what config.toml and notices.toml say now.

    Nothing that runs is interrupted, and no message is lost. A channel whose account or server changed is opened
    again, that one only.

    Exit code 0: it was taken up. 1: something is wrong with it, and nothing was changed, or the gateway does not
    answer. 2: no gateway runs.
    """
    try:
        health = run(lambda: have_renewed(options["home"]))
    except GatewaySilent as error:
        click.echo(f"{error}\n{error.hint}", err=True)
        sys.exit(EXIT_REFUSED)
    if health is None:
        click.echo(f"no gateway runs for {options['home']}", err=True)
        sys.exit(EXIT_NOT_RUNNING)
    if health.config.refused:
        click.echo("nothing was changed:\n" + "\n".join(map(safe_line, health.config.refused.split("\n"))), err=True)
        sys.exit(EXIT_REFUSED)
    click.echo(f"taken up by process {health.pid}")
    if health.config.fixed:
        click.echo(f"from the next start on: {', '.join(health.config.fixed)}")


async def have_renewed(home: Path) -> Health | None:
    """Have the gateway of a home read its configuration, and return how it does then; None when none runs."""
    before = await ask_health(home)
    if before is None:
        return None
    os.kill(before.pid, signal.SIGHUP)
    deadline = asyncio.get_running_loop().time() + RELOAD_SECONDS_MAX
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        after = await ask_health(home, left)
        if after is None or after.pid != before.pid:
            return None
        if after.config.readings > before.config.readings:
            return after
        await asyncio.sleep(LOOK_SECONDS)
    raise silence_of(before.pid, RELOAD_SECONDS_MAX)


def show(health: Health) -> None:
    click.echo(f"{health.status}: process {health.pid}, since {health.started_at}")
    if health.record:
        click.echo(f"  record: {safe_line(health.record)}")
    if health.turns.failing:
        turns = health.turns
        count = "the last turn" if turns.failing == 1 else f"the last {turns.failing} turns"
        said = f"{count} failed, since {turns.failing_since}: {turns.reason} ({turns.model})"
        click.echo(f"  model: {safe_line(said)}")
    if health.config.refused:
        click.echo("  configuration: the last one was refused, `hansard config check` says why")
    if health.config.readings:
        click.echo(f"  configuration taken up at {health.config.taken_up_at}")
    if health.config.fixed:
        click.echo(f"    from the next start on: {', '.join(health.config.fixed)}")
    for channel in health.channels:
        states = ", ".join(f"{count} {state}" for state, count in sorted(channel.deliveries.items()))
        click.echo("  " + safe_line(f"{channel.name} {channel.account}: {channel.trouble or 'connected'}"))
        if channel.note:
            click.echo(f"    {safe_line(channel.note)}")
        if channel.waiting or states:
            lag = f", the oldest for {channel.lag_seconds:.0f} s" if channel.waiting else ""
            click.echo(f"    {channel.waiting} messages wait to be shown{lag}{'; ' + states if states else ''}")
