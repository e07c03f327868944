"""What a terminal can do; the screen of one that can only print lines; and the lines of standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from hansard.domain.limits import ENTRY_BYTES_MAX
from hansard.errors import InvalidInput
from hansard.tasks import wait_for_first

READ_BYTES: Final = 64 * 1024


def is_dumb() -> bool:
    """Whether the terminal can only print lines, or there is none."""
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown", "")
    return dumb or not (sys.stdin.isatty() and sys.stdout.isatty())


def reflows() -> bool:
    """Whether the terminal breaks long lines anew when it gets narrower. Most do."""
    if "TMUX" in os.environ:
        return True
    return "XTERM_VERSION" not in os.environ and not os.environ.get("TERM", "").startswith(("linux", "screen"))


async def input_lines() -> AsyncIterator[str]:
    """Give the lines of standard input, as they come; one that is longer than an entry comes in pieces."""
    rest = b""
    while data := await read_input():
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > ENTRY_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        for line in lines:
            yield line.decode(errors="replace").rstrip("\r")
    if rest:
        yield rest.decode(errors="replace").rstrip("\r")


async def read_input() -> bytes:
    """Read the descriptor of standard input in a daemon thread: nobody has to wait for it at the end.

    (Python's own buffered input is locked by whoever reads it, and aborts a process that leaves meanwhile.)
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[bytes] = loop.create_future()

    def give(data: bytes, why_not: str) -> None:
        if found.done():
            return
        if why_not:
            found.set_exception(InvalidInput(f"standard input cannot be read: {why_not}"))
        else:
            found.set_result(data)

    def read() -> None:
        data, why_not = b"", ""
        try:
            data = os.read(sys.stdin.fileno(), READ_BYTES)
        except OSError as error:
            why_not = error.strerror or type(error).__name__
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(give, data, why_not)

    threading.Thread(target=read, daemon=True).start()
    return await found


async def run_plain(line: Callable[[str], None], interrupt: Callable[[], None], left: asyncio.Event) -> None:
    """Hear lines until somebody leaves, or there are no more. Ctrl-C is a signal here."""

    async def hear() -> None:
        with suppress(InvalidInput):  # a terminal that went away has no more lines
            async for text in input_lines():
                line(text)

    loop = asyncio.get_running_loop()
    with suppress(ValueError, RuntimeError):  # not in the main thread: whoever is there has the signal
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await wait_for_first(asyncio.create_task(hear()), asyncio.create_task(left.wait()))
    finally:
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
