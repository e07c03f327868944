"""The program in a terminal: what a person would have seen, and the keys that a person presses."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable
from typing import Self

from tests.acceptance.shown.nursery import ROOT, Forked, nursery
from tests.acceptance.shown.paper import Paper
from tests.acceptance.shown.program import COMMAND, READ_BYTES, bounded

COLUMNS, ROWS = 120, 30
TERM = "xterm-256color"
MARKER = "›"  # noqa: RUF001 - as the program prints it
STATUS = ("record: in order", "RECORD: ")
ANSWERING = "answering"
CONTROL_C, CONTROL_D = b"\x03", b"\x04"

BECOME = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes a terminal the controlling one of a process, as a shell's window does, and becomes the program."""


def open_window() -> tuple[int, int]:
    """Return both ends of a new terminal: what a person looks at, and what a program writes to."""
    window, terminal = pty.openpty()
    fcntl.ioctl(window, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.set_blocking(window, False)
    return window, terminal


class Terminal:
    """One process in a window of its own. It has the same verbs as one on pipes."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, window: int) -> None:
        """Begin to look."""
        self._process = process
        self._window = window
        self._changed = asyncio.Event()
        self._closed = False
        self.raw = bytearray()
        self.lines: set[str] = set()
        self.paper = Paper(COLUMNS, ROWS, self._look)
        asyncio.get_running_loop().add_reader(window, self._read)

    @classmethod
    async def start(cls, *arguments: object, variables: dict[str, str]) -> Self:
        """Start `hansard arguments…` in a window."""
        window, terminal = open_window()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                BECOME,
                *COMMAND,
                *map(str, arguments),
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                env={"TERM": TERM, **variables},
                cwd=ROOT,
            )
        finally:
            os.close(terminal)
        return cls(process, window)

    @classmethod
    async def fork(cls, *arguments: object, variables: dict[str, str]) -> Self:
        """Start `hansard arguments…` in a window, where its libraries are imported already."""
        window, terminal = open_window()
        files = (terminal, terminal, terminal)
        try:
            process = await nursery().start(arguments, {"TERM": TERM, **variables}, files, is_terminal=True)
        finally:
            os.close(terminal)
        return cls(process, window)

    async def __aenter__(self) -> Self:
        """Use it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Leave nothing running, and close the window."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._close()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def stderr(self) -> str:
        """What it told; here that is on the screen with all else."""
        return self.text

    @property
    def text(self) -> str:
        """Everything that stands in the window and above it."""
        return "\n".join([*self.paper.history, *self.paper.screen])

    @property
    def status(self) -> str:
        """The status line; empty when there is none."""
        return next((line for line in reversed(self.paper.screen) if is_status(line)), "")

    async def type(self, text: str) -> None:
        """Type a line and send it."""
        await self.shows(lambda: bool(self.status), "a prompt")
        self.press(text.encode() + b"\r")

    def press(self, keys: bytes) -> None:
        """Press keys."""
        if not self._closed:
            assert os.write(self._window, keys) == len(keys)

    def send(self, number: signal.Signals) -> None:
        """Send a signal; to hang up is to close the window."""
        if number == signal.SIGHUP:
            self._close()
        elif self.running:
            os.kill(self._process.pid, number)

    async def shows(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait until something can be seen; False when it ended without."""
        ending = asyncio.create_task(self._process.wait())
        try:
            async with bounded(lambda: f"{what}; on the screen:\n{self.text}"):
                while not condition():
                    if ending.done():
                        self._read()
                        return condition()
                    self._changed.clear()
                    changing = asyncio.create_task(self._changed.wait())
                    await asyncio.wait({ending, changing}, return_when=asyncio.FIRST_COMPLETED)
                    changing.cancel()
            return True
        finally:
            ending.cancel()

    async def settled(self) -> bool:
        """Wait until no answer runs; False when it ended."""
        return await self.shows(lambda: bool(self.status) and ANSWERING not in self.status, "the end of the answer")

    async def ended(self) -> int:
        """Wait for its end; return its exit code, negative for a signal."""
        async with bounded(lambda: f"its end; on the screen:\n{self.text}"):
            code = await self._process.wait()
        self._read()
        self._close()
        self._look()
        return code

    def _read(self) -> None:
        """Take what came. The end of the last process of a terminal is an error of reading."""
        if self._closed:
            return
        try:
            while data := os.read(self._window, READ_BYTES):
                self.raw += data
                self.paper.feed(data)
                self._changed.set()
        except BlockingIOError:
            return
        except OSError:
            pass
        self._look()
        self._close()

    def _look(self) -> None:
        """Remember every line that can be seen; the input and the status line are not the program's words."""
        rows = self.paper.screen
        below = next((index for index in range(len(rows) - 1, -1, -1) if is_status(rows[index])), None)
        if below is not None:
            marked = [index for index in range(below) if rows[index].startswith(MARKER)]
            rows = rows[: marked[-1] if marked else below]
        self.lines.update(rows)
        self.lines.update(self.paper.history[-ROWS:])

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._window)
            os.close(self._window)
            self._changed.set()


def is_status(line: str) -> bool:
    """Whether a row is the status line: it always says how the record is."""
    return " · " in line and any(state in line for state in STATUS)
