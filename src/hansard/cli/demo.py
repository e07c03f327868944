"""`hansard demo`: the record at work, until there is an agent to talk to.

What is printed is what a follower read back from the record; the reply is your own words, streamed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

import click

from hansard.domain.entries import Chunk, Entry
from hansard.domain.messages import Message
from hansard.record.api import Record

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.record.turn import Turn

WORD_SECONDS = 0.15

GREETING = """\
This is a demonstration of Hansard's record. There is no model yet: your words come back, one by one,
and each is printed only after it was read back from the record. Interrupt with Ctrl-C, kill the process,
start again: what you saw is still there. An empty line leaves.
"""


def show(item: Entry | Chunk) -> None:
    """Print what a follower was given."""
    if isinstance(item, Chunk):
        click.echo(item.text, nl=False)
    elif item.kind == "message.opened":
        click.echo("record> ", nl=False)
    elif item.kind == "message.sealed":
        interrupted = getattr(item.body, "status", "") == "interrupted"
        click.echo("  [interrupted; what you saw is recorded]" if interrupted else "")
    elif item.text:
        click.echo(f"you>    {item.text}")


async def follow(record: Record, session_id: str, after: str) -> None:
    """Print the session as it grows."""
    async for item in record.follow(session_id, after):
        show(item)


async def answer(turn: Turn, text: str) -> None:
    """Say the words back, slowly."""
    async with turn.reply() as reply:
        for word in text.split():
            await reply.write(f"{word} ")
            await asyncio.sleep(WORD_SECONDS)


async def speak(record: Record, session_id: str, text: str) -> None:
    """Record one message and answer it."""
    await record.append(session_id, Message.user(text))
    async with record.turn(session_id) as turn:
        await answer(turn, text)


async def demo(home: Path) -> None:
    """Continue the newest demonstration, or begin one."""
    click.echo(GREETING)
    async with Record.open(home) as record:
        found = await record.sessions(source="demo", state="open", limit=1)
        session = found[0] if found else await record.create_session(source="demo", title="Demonstration")
        click.echo(f"session {session.id}, {session.messages} messages so far")
        follower = asyncio.create_task(follow(record, session.id, "0"))
        await asyncio.sleep(0.1)
        while text := (await asyncio.to_thread(read_line)).strip():
            task = asyncio.create_task(speak(record, session.id, text))
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        follower.cancel()
        report = await record.verify()
        click.echo(f"{report.entries} entries verified: {'everything agrees' if report.ok else report.findings}")


def read_line() -> str:
    """Ask for a line; the end of input is an empty one."""
    click.echo("> ", nl=False)
    sys.stdout.flush()
    return sys.stdin.readline()


@click.command("demo")
@click.pass_obj
def command(options: dict[str, Path]) -> None:
    """Show the record at work: type, and read your words back from it."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(demo(options["home"]))
