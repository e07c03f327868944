"""`hansard demo`: the record at work, until there is an agent to talk to.

What is printed is what a follower read back from the record; the reply is your own words, streamed one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

import click

from hansard.domain.entries import Chunk, Entry
from hansard.domain.messages import Message
from hansard.record.api import Record

if TYPE_CHECKING:
    from pathlib import Path

    from hansard.record.turn import Turn

WORD_SECONDS = 0.15
READ_BYTES = 65536

GREETING = """\
This is a demonstration of Hansard's record. There is no model yet: your
words come back one by one, each printed only after it was read back from
the record. Interrupt with Ctrl-C, kill the process, start again: what you
saw is still there. An empty line leaves.
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
        lines = Lines()
        while text := await lines.next():
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


class Lines:
    """Lines of standard input, read by a thread that nobody has to wait for when the person leaves."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        self._rest = b""

    async def next(self) -> str:
        """Ask for a line; the end of input is an empty one."""
        click.echo("> ", nl=False)
        sys.stdout.flush()
        loop = asyncio.get_running_loop()
        while b"\n" not in self._rest:
            future: asyncio.Future[bytes] = loop.create_future()
            threading.Thread(target=self._read, args=(loop, future), daemon=True).start()
            data = await future
            if not data:
                break
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _read(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[bytes]) -> None:
        data = os.read(sys.stdin.fileno(), READ_BYTES)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the person left
            loop.call_soon_threadsafe(give, future, data)


def give(future: asyncio.Future[bytes], data: bytes) -> None:
    """Hand over what was read, if somebody still waits."""
    if not future.done():
        future.set_result(data)


@click.command("demo")
@click.pass_obj
def command(options: dict[str, Path]) -> None:
    """Show the record at work: type, and read your words back from it."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(demo(options["home"]))
