"""Opening a record that must be there already: a command that asks never makes one.

A command that only reads looks at the record first, and reads it where it lies when it is whole. Otherwise it opens
the record as every command does, because that repairs what a crash left. Where that cannot be done at once, or is not
this user's business, the record is opened for reading only, and a line on standard error says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import click

from hansard.app.home_files import check_modes, find_unsafe
from hansard.cli.printing import Meter
from hansard.cli.process import run
from hansard.cli.terminal.text import safe_line
from hansard.domain.limits import PATIENCE_SECONDS
from hansard.errors import InvalidInput, RecordUnavailable
from hansard.journal.calls import uncancelled
from hansard.journal.causes import explain, framed
from hansard.record.api import Record

Result = TypeVar("Result")

LEGS = ("state.db", "home.jsonl", "sessions")
"""Any of them is enough: what is missing is rebuilt from the others."""

READING_PATIENCE_SECONDS: Final = 1.0
"""How long a command that only reads waits until the record can be written."""


def has_record(home: Path) -> bool:
    return any((home / name).exists() for name in LEGS)


def check_place(home: Path) -> None:
    """Refuse a home that is there and cannot be entered: a file, or a folder that this user may not use."""
    try:
        (home / LEGS[0]).lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        error.filename = str(home)
        raise framed(explain(error), f"the home {home} cannot be used") from error


def check_record(home: Path) -> None:
    check_place(home)
    if not has_record(home):
        raise InvalidInput(
            f"there is no record at {home}: nobody has talked there yet, or it is elsewhere",
            "Give the home of the record with --home or HANSARD_HOME. Nothing was created.",
        )


@asynccontextmanager
async def opened_record(home: Path, patience_seconds: float = PATIENCE_SECONDS) -> AsyncIterator[Record]:
    """Open a record, creating it, and show on standard error how far a migration or a rebuild is."""
    check_modes(home)
    async with AsyncExitStack() as stack:
        with Meter() as meter:
            opened = Record.open(
                home, patience_seconds=patience_seconds, progress=lambda done: meter.show(done.describe())
            )
            record = await stack.enter_async_context(opened)
        yield record


@asynccontextmanager
async def existing(home: Path) -> AsyncIterator[Record]:
    check_record(home)
    async with opened_record(home) as record:
        yield record


@asynccontextmanager
async def reading(home: Path, *, in_place: bool = True) -> AsyncIterator[Record]:
    """Open a record that is there, to read it. Without `in_place` it is opened for writing whenever that can be done.

    `verify` compares under the write lock, and a list of people first writes down what config.toml says.
    """
    check_record(home)
    async with AsyncExitStack() as stack:
        why = why_not_ours(home)
        record = None
        if in_place and not why:
            record = await stack.enter_async_context(Record.open_in_place(home))
        if record is None and not why:
            try:
                record = await stack.enter_async_context(opened_record(home, READING_PATIENCE_SECONDS))
            except RecordUnavailable as error:
                why = str(error)
        if record is None:
            opening = stack.enter_async_context(Record.open(home, read_only=True))
            # Ctrl-C waits for it: an opening that is left alone leaves its private copy in the temporary folder.
            record = await uncancelled(asyncio.ensure_future(opening))
            note = f" Note: {record.note}." if record.note else ""
            click.echo(safe_line(f"hansard: read-only: {why}.{note}"), err=True)
        yield record


def why_not_ours(home: Path) -> str:
    """Return why a command that only reads leaves a home untouched from the start; empty when it need not."""
    owner = home.stat().st_uid
    if owner != os.geteuid():
        return f"{home} belongs to another user (user id {owner})"
    return "; ".join(map(str, find_unsafe(home)))


def with_record(
    home: Path,
    call: Callable[[Record], Awaitable[Result]],
    opens: Callable[[Path], AbstractAsyncContextManager[Record]] = existing,
) -> Result:
    """Open a record, do one thing with it, and close it: all that most commands do."""

    async def main() -> Result:
        async with opens(home) as record:
            return await call(record)

    return run(main)
