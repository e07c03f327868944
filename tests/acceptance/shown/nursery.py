"""Programs without the wait for their libraries: `python -m tests.acceptance.shown.nursery SOCKET`.

To import its libraries takes a program longer than all else that a short run does; a provider's take two seconds of a
core. The nursery imports them once and forks: each program is a process of its own, with its own pipes or terminal,
variables and exit code, in which the command's `main` runs from its beginning. Nothing is opened and no thread runs
before the fork. The providers' libraries are imported when the first program names a model of theirs.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, Popen
from typing import NoReturn

from hansard.cli import load
from hansard.cli.main import main
from hansard.cli.process import COMMANDS, PARTS, TALKS
from hansard.models.clients import STYLES
from hansard.models.pydantic import preload

REQUEST_BYTES_MAX = 1 << 20
ROOT = Path(__file__).resolve().parents[3]
HAS_NURSERY = sys.platform == "linux" and not os.environ.get("HANSARD_PROVE")
"""The nursery needs sockets that keep messages apart. A proof starts every program as people do."""


# The side of the nursery.


def tend(requests: socket.socket) -> None:
    """Fork a program for each request, until nobody asks any more."""
    with importing():
        for name in (*TALKS.values(), *PARTS.values(), *(module for module, _ in COMMANDS.values())):
            load(name)
    signal.signal(signal.SIGCHLD, bury)
    requests.sendall(b"!")
    while True:
        said, [(_, _, sent)], *_ = ask_with_files(requests)
        if not said:
            return
        files, request = array.array("i", sent), json.loads(said)
        if any(word.partition(":")[0] in STYLES for word in request["arguments"]):
            import_providers()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            requests.close()
            keep(request, *files)
        for file in files:
            os.close(file)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Look for no garbage during an import, and never again among what it made: it stays."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@cache
def import_providers() -> None:
    """Import what any model of a provider needs."""
    with importing():
        preload()


def bury(_number: int, _frame: object) -> None:
    """Wait for keepers that ended, so that their processor time is known. What they tell goes through their pipe."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def ask_with_files(requests: socket.socket) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
    """Return the next request with its files; an empty one at the end."""
    said, ancillary, flags, address = requests.recvmsg(REQUEST_BYTES_MAX, socket.CMSG_SPACE(4 * 4))
    return said, ancillary or [(0, 0, b"")], flags, address


def keep(request: dict[str, object], stdin: int, stdout: int, stderr: int, told: int) -> NoReturn:
    """Start a program and tell its pid, then how it ended: minus the signal, or the exit code."""
    pid = os.fork()
    if pid == 0:
        os.close(told)
        become(request, stdin, stdout, stderr)
    os.write(told, b"%d\n" % pid)
    for file in (stdin, stdout, stderr):
        os.close(file)
    _, status = os.waitpid(pid, 0)
    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def become(request: dict[str, object], *files: int) -> NoReturn:
    """Be the program: as a new interpreter would find itself with these files, variables and arguments."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in {*files} - {0, 1, 2}:
        os.close(file)
    if request["is_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(request["variables"])  # type: ignore[call-overload]  # a table of texts
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        made = stream(number, getattr(sys, name))
        vars(sys).update({name: made, f"__{name}__": made})
    arguments = [str(each) for each in request["arguments"]]  # type: ignore[attr-defined]  # a list of texts
    sys.argv = ["hansard", *arguments]
    try:
        main()
    except SystemExit as ended:
        leave(ended.code)
        raise
    leave(0)
    sys.exit(0)


def leave(code: object) -> None:
    """End as the interpreter does, but leave its memory to the system: to give back so much takes longer than all else.

    Does nothing where the interpreter has something to say at its end.
    """
    if not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads, as the end of main does
    atexit._run_exitfuncs()  # noqa: SLF001
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((code or 0) & 0xFF)


def stream(number: int, before: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a standard stream on the file that is there now, made as the interpreter makes it."""
    raw = open(number, "rb" if number == 0 else "wb", buffering=-1, closefd=False)  # noqa: SIM115 - a descriptor
    lines = os.isatty(number) or number == 2
    return io.TextIOWrapper(raw, encoding=before.encoding, errors=before.errors, line_buffering=lines)


# The side of the tests.


class Pen:
    """A program's standard input, with the verbs of a stream."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._waiting = b""

    def write(self, data: bytes) -> None:
        """Have something to write."""
        self._waiting += data

    async def drain(self) -> None:
        """Write it. A program that has ended already, or does not read, is no error: its exit code is looked at."""
        data, self._waiting = self._waiting, b""
        with contextlib.suppress(BrokenPipeError):
            await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """End it."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    async def wait_closed(self) -> None:
        """It is."""


class Forked:
    """A program that came out of the nursery, with the verbs of a subprocess."""

    def __init__(self, pid: int, told: asyncio.StreamReader, pipe: asyncio.BaseTransport) -> None:
        self.pid = pid
        self.stdin: Pen | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._ending = asyncio.create_task(self._end(told, pipe))

    async def _end(self, told: asyncio.StreamReader, pipe: asyncio.BaseTransport) -> int:
        self.returncode = int(await told.readline())
        pipe.close()
        if self.stdin is not None:
            self.stdin.close()
        return self.returncode

    async def wait(self) -> int:
        """Wait for its end; return the exit code, negative for a signal."""
        return await asyncio.shield(self._ending)


class Nursery:
    """The process that programs are forked from."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = Popen(
                [sys.executable, "-m", "tests.acceptance.shown.nursery", str(theirs.fileno())],
                stdin=DEVNULL,
                pass_fds=[theirs.fileno()],
                # Whoever presses Ctrl-C means the tests; the nursery ends when nobody asks it any more.
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                cwd=ROOT,
            )
        assert self._requests.recv(1) == b"!", "the nursery did not open"

    def _ask(
        self,
        arguments: Sequence[object],
        variables: Mapping[str, str],
        files: tuple[int, int, int],
        *,
        is_terminal: bool,
    ) -> int:
        """Ask for `hansard arguments…` on these files; return the pipe that tells its pid and its end."""
        heard, told = os.pipe()
        request = {"arguments": [*map(str, arguments)], "variables": {**variables}, "is_terminal": is_terminal}
        try:
            sent = array.array("i", [*files, told])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)]
            self._requests.sendmsg([json.dumps(request).encode()], ancillary)
        finally:
            os.close(told)
        return heard

    def run(
        self, arguments: Sequence[object], variables: Mapping[str, str], stdin: bytes, seconds_max: float
    ) -> CompletedProcess[str]:
        """Run `hansard arguments…` on three pipes of its own to its end, as `subprocess.run` does."""
        (given, pen), (output, stdout), (errors, stderr) = os.pipe(), os.pipe(), os.pipe()
        try:
            heard = self._ask(arguments, variables, (given, stdout, stderr), is_terminal=False)
        finally:
            for file in (given, stdout, stderr):
                os.close(file)
        with ThreadPoolExecutor(4) as threads:
            pid = read_line(heard)
            ending, *texts = [threads.submit(read_all, file) for file in (heard, output, errors)]
            threads.submit(write_all, pen, stdin)
            try:
                code = int(ending.result(seconds_max))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise
            return CompletedProcess(
                [*map(str, arguments)], code, *(text.result(seconds_max).decode() for text in texts)
            )

    async def start(
        self,
        arguments: Sequence[object],
        variables: Mapping[str, str],
        files: tuple[int, int, int],
        *,
        is_terminal: bool,
    ) -> Forked:
        """Start `hansard arguments…` on these files."""
        lines, pipe = await reader(self._ask(arguments, variables, files, is_terminal=is_terminal))
        return Forked(int(await lines.readline()), lines, pipe)

    async def start_on_pipes(
        self, arguments: Sequence[object], variables: Mapping[str, str], *, has_input: bool
    ) -> Forked:
        """Start `hansard arguments…` on three pipes of its own; without input it reads nothing."""
        (output, stdout), (errors, stderr) = os.pipe(), os.pipe()
        stdin, pen = os.pipe() if has_input else (os.open(os.devnull, os.O_RDONLY), -1)
        try:
            program = await self.start(arguments, variables, (stdin, stdout, stderr), is_terminal=False)
        finally:
            for file in (stdin, stdout, stderr):
                os.close(file)
        (program.stdout, _), (program.stderr, _) = await reader(output), await reader(errors)
        program.stdin = Pen(pen) if has_input else None
        return program

    def close(self) -> None:
        """Let it end; programs that it started go on."""
        self._requests.close()
        with self._process:
            pass


def read_line(file: int) -> int:
    """Return the number that the next line of a pipe is, and leave what comes after it there."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(file, 1) or b"0\n"
    return int(line)


def read_all(file: int) -> bytes:
    """Return what comes out of a pipe until its end."""
    with os.fdopen(file, "rb") as pipe:
        return pipe.read()


def write_all(file: int, data: bytes) -> None:
    """Write into a pipe, as much as its reader wants, and close it."""
    with contextlib.suppress(BrokenPipeError), os.fdopen(file, "wb") as pipe:
        pipe.write(data)


async def reader(file: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    """Return a stream of what comes out of a pipe, which closes at the end of it or by hand."""
    stream = asyncio.StreamReader()
    pipe = os.fdopen(file, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    return stream, transport


@cache
def nursery() -> Nursery:
    """The nursery of this process, opened when it is first asked for."""
    atexit.register(close_nursery)
    return Nursery()


def close_nursery() -> None:
    """Close it, if it was opened."""
    if nursery.cache_info().currsize:
        nursery().close()


if __name__ == "__main__":
    with contextlib.closing(socket.socket(fileno=int(sys.argv[1]))) as opened:
        tend(opened)
