"""Opening everything for a talk: settings, the record, the models; a long wait is told."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from hansard.app.config import load_config
from hansard.app.home_files import check_modes
from hansard.app.wiring import App, open_app
from hansard.cli.existing import check_place
from hansard.cli.printing import Meter
from hansard.cli.terminal.text import safe_line
from hansard.engine.turns import ASKS_AGAIN
from hansard.journal.causes import explain_delay
from hansard.tasks import cancel_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from hansard.cli.process import Options
    from hansard.journal.locks import Progress

TELL_SECONDS = 1.5
"""A wait longer than this is told: a screen on which nothing happens looks broken."""

ASKS_AGAIN_LATER = "`hansard -c`, and there /retry, asks again"
"""After `-p`: a shell has no commands of a conversation."""

LOOK_SECONDS = 0.5
"""How often to look whether the record can be written."""


def tell_waiting(home: Path) -> None:
    """Say on standard error why opening takes long."""
    click.echo(f"hansard: waiting for the record: {explain_delay(home / 'locks')}.", err=True)


def report_to_stderr(session_id: str, error: BaseException) -> None:
    """Say what went wrong beyond a turn's own failure, which is in the record."""
    del session_id
    click.echo(safe_line(f"hansard: {error}"), err=True)


async def watch_trouble(app: App) -> None:
    """Say on standard error when the record cannot be written, and when it can again: each once."""
    told = ""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        trouble = app.record.trouble
        if bool(trouble) != bool(told):
            text = f"waiting for the record: {trouble}" if trouble else "the record is in order again"
            click.echo(f"hansard: {text}.", err=True)
        told = trouble


@asynccontextmanager
async def opened(
    options: Options, report: Callable[[str, BaseException], None] = report_to_stderr, *, tells_trouble: bool = True
) -> AsyncIterator[App]:
    """Open what a talk needs, and begin to get the model ready."""
    check_place(options.home)
    check_modes(options.home)
    settings = load_config(options.home, os.environ, options.settings).settings
    telling = asyncio.get_running_loop().call_later(TELL_SECONDS, tell_waiting, options.home)
    meter = Meter()

    def show(progress: Progress) -> None:
        telling.cancel()
        meter.show(progress.describe())

    is_named, asks_again = options.model is not None, ASKS_AGAIN if options.prompt is None else ASKS_AGAIN_LATER
    try:
        async with open_app(
            options.home, settings, os.environ, report, is_named=is_named, asks_again=asks_again, progress=show
        ) as app:
            telling.cancel()
            meter.clear()
            app.models.warm()
            watching = asyncio.create_task(watch_trouble(app)) if tells_trouble else None
            try:
                yield app
            finally:
                if watching is not None:
                    await cancel_all(watching)
    finally:
        telling.cancel()
