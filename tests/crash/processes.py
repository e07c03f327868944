"""The crash ring's subprocesses: start them, hear their lines as they come, kill them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

ROOT = Path(__file__).parents[2]
LINE_BYTES_MAX = 16 * 1024 * 1024

Line = dict[str, Any]


class Program:
    """A subprocess that writes JSON lines. `lines` is what reached our end of its pipe."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        """Begin to listen."""
        self._process = process
        self._errors = errors
        self._heard = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())
        self.lines: list[Line] = []
        self.killed = False

    @classmethod
    async def start(cls, module: str, *arguments: object, errors: Path) -> Program:
        """Start `python -m module arguments…`; its standard error goes to a file."""
        with errors.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *map(str, arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                cwd=ROOT,
                limit=LINE_BYTES_MAX,
            )
        return cls(process, errors)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.endswith(b"\n"):
                self.lines.append(json.loads(line))
            self._heard.set()
        self._heard.set()

    @property
    def owner(self) -> str:
        """The name under which a writer holds its turns; empty before it has opened the record."""
        return next((str(line["owner"]) for line in self.lines if line.get("what") == "ready"), "")

    async def until(self, wanted: Callable[[Line], bool], *, after: int = 0) -> bool:
        """Wait until it writes a line that is wanted, beyond the first `after`; False when it ended without."""
        place = after
        while True:
            self._heard.clear()
            while place < len(self.lines):
                place += 1
                if wanted(self.lines[place - 1]):
                    return True
            if self._listening.done():
                return False
            await self._heard.wait()

    async def kill(self) -> None:
        """Kill it, with SIGKILL, unless it is dead already; everything that it wrote has been heard afterwards."""
        self._strike()
        await self.ended()

    def _strike(self) -> None:
        """Send SIGKILL. Not by the process object's `kill`, which may reap the child before its watcher does."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    async def bury(self) -> None:
        """Kill it, or find it dead already by its own hand; everything that it wrote has been heard afterwards."""
        self._strike()
        await self._listening
        await self._process.wait()
        self.killed = True

    async def ended(self) -> int:
        """Wait for its end and for the last of its lines; anything but a SIGKILL is a failure of the program."""
        await self._listening
        code = await self._process.wait()
        assert code == -signal.SIGKILL, f"it ended by itself ({code}): {self._errors.read_text()[-3000:]}"
        self.killed = True
        return code


@contextlib.asynccontextmanager
async def programs() -> AsyncIterator[list[Program]]:
    """A list whose programs are surely dead at the end, whatever happened."""
    started: list[Program] = []
    try:
        yield started
    finally:
        for program in started:
            if not program.killed:
                await program.bury()
