"""The program on pipes: what it wrote is what reached our end of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Self

from tests.acceptance.shown.nursery import HAS_NURSERY, ROOT, Forked, nursery

COMMAND = (sys.executable, "-m", "hansard.cli.main")
WAIT_SECONDS_MAX = 120.0
"""Longer than anything here takes on a machine with other work to do; a wait that reaches it is a failure."""

LOOK_SECONDS = 0.005
"""How often to look at what tells nobody when it changes."""

READ_BYTES = 65536


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the variables of a machine on which nothing is set up: no keys, no addresses, no settings."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "TMPDIR": str(folder)}
    if sys.dont_write_bytecode:
        # Compiling the model libraries anew for every process takes longer than everything else together.
        variables["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "bytecode")
    return variables | more


async def until(condition: Callable[[], bool], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> None:
    """Wait for something that tells nobody when it changes."""
    async with bounded(lambda: what, seconds_max):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(LOOK_SECONDS)


@contextlib.asynccontextmanager
async def bounded(what: Callable[[], str], seconds_max: float = WAIT_SECONDS_MAX) -> AsyncIterator[None]:
    """Let nothing wait longer than a while, and say what never came."""
    try:
        async with asyncio.timeout(seconds_max):
            yield
    except TimeoutError:
        message = f"not within {seconds_max:g} s: {what()}"
        raise AssertionError(message) from None


class Program:
    """One process with its three pipes."""

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        """Begin to read."""
        self._process = process
        self._changed = asyncio.Condition()
        self._open = 2
        self.output = bytearray()
        self.errors = bytearray()
        assert process.stdout is not None
        assert process.stderr is not None
        self._reading = asyncio.gather(self._read(process.stdout, self.output), self._read(process.stderr, self.errors))

    @classmethod
    async def start(
        cls, *arguments: object, variables: dict[str, str], stdin: int = asyncio.subprocess.DEVNULL
    ) -> Self:
        """Start `hansard arguments…`."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *map(str, arguments),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=variables,
            cwd=ROOT,
        )
        return cls(process)

    @classmethod
    async def fork(cls, *arguments: object, variables: dict[str, str], has_input: bool = False) -> Self:
        """Start `hansard arguments…` where its libraries are imported already."""
        return cls(await nursery().start_on_pipes(arguments, variables, has_input=has_input))

    async def __aenter__(self) -> Self:
        """Use it."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Leave nothing running."""
        self.send(signal.SIGKILL)
        await self._reading
        await self._process.wait()

    async def _read(self, stream: asyncio.StreamReader, into: bytearray) -> None:
        while data := await stream.read(READ_BYTES):
            into += data
            async with self._changed:
                self._changed.notify_all()
        async with self._changed:
            self._open -= 1
            self._changed.notify_all()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def stderr(self) -> str:
        """What it told beside the answer."""
        return self.errors.decode(errors="replace")

    async def write(self, data: bytes) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    async def close_input(self) -> None:
        """End its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.wait_closed()

    async def prints(self, size_bytes: int) -> bool:
        """Wait until so many bytes came; False when it ended without."""
        async with bounded(lambda: f"{size_bytes} bytes, only {bytes(self.output)!r} {self.stderr}"), self._changed:
            await self._changed.wait_for(lambda: len(self.output) >= size_bytes or not self._open)
        return len(self.output) >= size_bytes

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended. Not by the process object, which may reap it before its watcher does."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def ended(self) -> int:
        """Wait for its end and for the last of its bytes; return its exit code, negative for a signal."""
        async with bounded(lambda: f"its end; {bytes(self.output)!r} {self.stderr}"):
            await asyncio.shield(self._reading)
            return await self._process.wait()


async def run(*arguments: object, variables: dict[str, str], stdin: bytes | None = None) -> tuple[int, bytes, str]:
    """Run `hansard arguments…` to its end; return the exit code, what it wrote, and what it told beside that."""
    if HAS_NURSERY:
        started = await Program.fork(*arguments, variables=variables, has_input=stdin is not None)
    else:
        pipe = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
        started = await Program.start(*arguments, variables=variables, stdin=pipe)
    async with started as program:
        if stdin is not None:
            with contextlib.suppress(ConnectionError):
                await program.write(stdin)
            await program.close_input()
        code = await program.ended()
    assert "Traceback" not in program.stderr, program.stderr
    return code, bytes(program.output), program.stderr


def run_forked(
    *arguments: object, variables: Mapping[str, str], stdin: str = "", seconds_max: float = WAIT_SECONDS_MAX
) -> subprocess.CompletedProcess[str]:
    """Run `hansard arguments…` to its end, where its libraries are imported already, if there is a nursery."""
    if HAS_NURSERY:
        return nursery().run(arguments, variables, stdin.encode(), seconds_max)
    command = [*COMMAND, *map(str, arguments)]
    given = {"env": {**variables}, "cwd": ROOT, "input": stdin, "timeout": seconds_max}
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)  # type: ignore[call-overload,no-any-return]
