"""What a terminal can do, and the screen of one that can only print lines: finished text out, lines in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

READ_BYTES: Final = 64 * 1024


def is_dumb(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal can only print lines, or there is none."""
    dumb = environment.get("TERM", "").lower() in ("dumb", "unknown", "")
    return dumb or not (sys.stdin.isatty() and sys.stdout.isatty())


def reflows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal breaks long lines anew when it gets narrower. Most do."""
    if "TMUX" in environment:
        return True
    return "XTERM_VERSION" not in environment and not environment.get("TERM", "").startswith(("linux", "screen"))


class PlainInput:
    """Lines of standard input, as they come. Reads the descriptor itself, so nothing waits in a thread at the end."""

    def __init__(self, line: Callable[[str], None], end: Callable[[], None]) -> None:
        """`line` hears each line, `end` that there are no more."""
        self._line = line
        self._end = end
        self._rest = b""
        self._descriptor = sys.stdin.fileno()

    def read(self) -> bool:
        """Take what is there; return whether more may come."""
        try:
            data = os.read(self._descriptor, READ_BYTES)
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            self._line(line.decode(errors="replace"))
        if not data:
            self._end()
        return bool(data)


async def run_plain(
    line: Callable[[str], None], interrupt: Callable[[], None], end: Callable[[], None], left: asyncio.Event
) -> None:
    """Read lines until somebody leaves. Ctrl-C is a signal here."""
    loop = asyncio.get_running_loop()
    lines = PlainInput(line, end)
    descriptor = sys.stdin.fileno()
    with suppress(ValueError, RuntimeError):  # not in the main thread: whoever is there has the signal
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        try:
            loop.add_reader(descriptor, lambda: lines.read() or loop.remove_reader(descriptor))
        except PermissionError:  # a file is always ready, and epoll refuses to say so
            while lines.read() and not left.is_set():  # noqa: ASYNC110 - others run in between; nothing is waited for
                await asyncio.sleep(0)
        await left.wait()
    finally:
        loop.remove_reader(descriptor)
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
