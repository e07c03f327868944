"""Processes of the tests: workers on a record, strangers that lock its database, and strace as the weather."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import pytest

ROOT = Path(__file__).parents[2]
WORKER = [sys.executable, "-m", "tests.record.helpers_worker"]
PATIENCE_SECONDS = 30.0

STRANGER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(10_000)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""
"""A program that knows nothing of Hansard's lock and holds SQLite's, until its standard input ends."""


class WorkerError(Exception):
    """The worker answered with an error."""

    def __init__(self, answer: dict[str, str]) -> None:
        """Keep what it said."""
        super().__init__(f"{answer['error']}: {answer['message']}")
        self.name = answer["error"]
        self.holder = answer["holder"]


class Worker:
    """A process that serves `helpers_worker`; killed at the end if it still runs."""

    def __init__(
        self,
        home: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        crash: str = "",
        prefix: list[str] | None = None,
        opened: bool = True,
    ) -> None:
        """Start it; `prefix` is a program that runs it, such as strace."""
        command = [*(prefix or []), *WORKER, str(home), str(patience_seconds), crash]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self.owner = ""
        if opened:
            self.owner = self.ask("open")

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid

    def send(self, do: str, **order: object) -> None:
        """Ask for something without waiting for the answer. Of a process that is dead, `receive` tells it."""
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError):
            stdin.write(json.dumps({"do": do, **order}) + "\n")
            stdin.flush()

    def receive(self) -> Any:  # noqa: ANN401 - whatever the command gives
        """Wait for the next answer; an error is raised."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(self.stderr())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer)
        return answer["ok"]

    def ask(self, do: str, **order: object) -> Any:  # noqa: ANN401
        """Ask and wait."""
        self.send(do, **order)
        return self.receive()

    async def ask_soon(self, do: str, **order: object) -> Any:  # noqa: ANN401
        """Ask and let this process's loop go on meanwhile."""
        return await asyncio.to_thread(self.ask, do, **order)

    def stderr(self) -> str:
        """What it logged, once it is dead."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def kill(self) -> None:
        """Kill it, as the kernel does when memory is short."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def finish(self) -> int:
        """Let it leave by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=120)

    def __enter__(self) -> Self:
        """Nothing to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process and no pipe behind."""
        try:
            if self.process.stdin is not None and not self.process.stdin.closed and self.process.poll() is None:
                self.process.stdin.close()
                self.process.wait(timeout=120)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    try:
                        pipe.close()
                    except BrokenPipeError:
                        continue


def traced(home: Path, calls: Path, trace: str) -> Worker:
    """Start a worker whose system calls are written down."""
    prefix = ["strace", "-f", "-y", "-qq", "-s", "40", "-e", f"trace={trace}", "-o", str(calls)]
    return Worker(home, prefix=prefix)


class Stranger(NamedTuple):
    """A program that holds SQLite's write lock, and the function that makes it let go."""

    pid: int
    let_go: Callable[[], None]


@contextmanager
def stranger(database: Path) -> Iterator[Stranger]:
    """Let another program hold SQLite's write lock, until it is told to let go or the block is left."""
    command = [sys.executable, "-c", STRANGER, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def let_go() -> None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()

        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield Stranger(process.pid, let_go)
        finally:
            process.kill()


def ask_again(worker: Worker, do: str, **order: str) -> None:
    """Ask until it is done: a slow machine may need longer than the worker's patience, and an id counts once."""
    deadline = time.monotonic() + 60
    while True:
        try:
            worker.ask(do, **order)
        except WorkerError as error:
            if error.name not in {"RecordUnavailable", "OutcomeUnknown"} or time.monotonic() > deadline:
                raise
        else:
            return


@contextmanager
def rebuild(
    home: Path, patience_seconds: float, crash: str = "", pause_seconds: float = 0
) -> Iterator[subprocess.Popen[str]]:
    """Let another process open a home; kill it at the end if it still runs."""
    command = [
        sys.executable,
        "-m",
        "tests.record.rebuild_worker",
        str(home),
        str(patience_seconds),
        crash,
        str(pause_seconds),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "opening\n"
            yield process
        finally:
            process.kill()


def need_strace() -> None:
    """Skip with the reason where system calls cannot be traced."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"strace may not trace here: {tried.stderr.decode().strip()[:200]}")


@contextmanager
def weather(pid: int, *options: str, output: Path | None = None) -> Iterator[None]:
    """Let system calls of a running process fail, until the block is left."""
    sink = ["-o", str(output)] if output else ["-o", os.devnull]
    command = ["strace", "-f", "-y", "-p", str(pid), *options, *sink]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        try:
            assert tracer.stderr is not None
            said = tracer.stderr.readline()
            if "attached" not in said:
                pytest.skip(f"strace may not attach here: {said.strip()}")
            yield
        finally:
            end_tracer(tracer)


def end_tracer(tracer: subprocess.Popen[str]) -> None:
    """Ask strace to let go; one that waits for a thread that was killed is killed too, which also lets go."""
    tracer.terminate()
    try:
        tracer.wait(timeout=5)
    except subprocess.TimeoutExpired:
        tracer.kill()


def failing(call: str, path: Path, error: str = "EIO", when: str = "") -> list[str]:
    """Return strace's options that let a call on one path fail."""
    return ["-e", f"trace={call}", "-P", str(path), "-e", f"inject={call}:error={error}{when}"]


def need_mounts() -> None:
    """Skip with the reason where nothing can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of a given size, and unmount it whatever happens."""
    need_mounts()
    folder.mkdir(parents=True, exist_ok=True)
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"tmpfs cannot be mounted here: {tried.stderr.decode().strip()[:200]}")
    try:
        yield folder
    finally:
        unmount(folder)


def remount(folder: Path, mode: str) -> None:
    """Make a mount read-only or writable again."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True, capture_output=True)


def unmount(folder: Path) -> None:
    """Unmount, lazily when something still sits there."""
    for attempt in range(20):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.02 * attempt)
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def fill_disk(folder: Path, leave_bytes: int = 0) -> Path:
    """Fill the disk but for some bytes; return the file to remove."""
    ballast = folder / "ballast"
    with ballast.open("wb") as file:
        for _ in range(100):
            free = os.statvfs(folder)
            size = free.f_bavail * free.f_frsize - leave_bytes
            try:
                os.posix_fallocate(file.fileno(), 0, max(size, 1))
            except OSError as error:  # somebody took a part of it meanwhile
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return ballast
    raise AssertionError("the disk could not be filled")


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Let one file not be written, not even by root or through an open file (EPERM)."""
    tried = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False, text=True)
    if tried.returncode:
        pytest.skip(f"chattr +i does not work here: {tried.stderr.strip()[:200]}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
