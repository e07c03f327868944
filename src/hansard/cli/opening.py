"""Opening everything for a talk: settings, the record, the models; a long wait is told."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import click

from hansard.app.config import load_config
from hansard.app.wiring import App, open_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hansard.cli.options import Options

TELL_SECONDS = 1.5
"""A wait longer than this is told: a screen on which nothing happens looks broken."""

WAITING = "hansard: waiting for the record, which another process holds. Nothing is lost; it goes on by itself."


def report_to_stderr(session_id: str, error: BaseException) -> None:
    """Say what went wrong beyond a turn's own failure, which is in the record."""
    del session_id
    click.echo(f"hansard: {error}", err=True)


@asynccontextmanager
async def opened(
    options: Options, report: Callable[[str, BaseException], None] = report_to_stderr
) -> AsyncIterator[App]:
    """Open what a talk needs, and begin to get the model ready."""
    settings = load_config(options.home, os.environ, options.settings).settings
    telling = asyncio.get_running_loop().call_later(TELL_SECONDS, lambda: click.echo(WAITING, err=True))
    try:
        async with open_app(options.home, settings, os.environ, report) as app:
            telling.cancel()
            app.models.warm()
            yield app
    finally:
        telling.cancel()
