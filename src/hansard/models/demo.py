"""The demo model: SmolLM2-135M-Instruct on this machine, for a first conversation without a key or an account.

It is small: it writes English, knows little, and uses no tools. Its server is started on loopback when it is first
asked, and ended when the model is closed; the server's own module sees to it that it never outlives this process.

It reads at most a few pages. From a longer conversation the request that is sent to it leaves out the oldest messages,
and the middle of messages that are too long by themselves; the record, of course, keeps all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import IO, Final, NamedTuple

import msgspec

from hansard.domain.requests import (
    AssistantSaid,
    Failed,
    Failure,
    FailureKind,
    ModelEvent,
    ModelRules,
    Request,
    Said,
    ToolsSaid,
    UserSaid,
)
from hansard.models.demo_files import DemoFiles, find_demo
from hansard.models.demo_server import CONTEXT_TOKENS, HOST, MODEL_ALIAS
from hansard.models.pydantic import open_provider
from hansard.ports.model import Model

START_SECONDS_MAX: Final = 30.0
"""A server is ready in about a second; a loaded machine or a cold disk is given more."""

EXIT_SECONDS_MAX: Final = 0.5
"""A process whose sockets closed has ended by then."""

STALL_SECONDS: Final = 120.0
"""The server is silent while it reads the question: 15 s for the longest on one slow core, more on a busy one."""

LOG_BYTES_MAX: Final = 1024 * 1024
"""The server's log holds errors only; beyond this it begins anew."""

OUTPUT_TOKENS: Final = 512
"""The answer's limit when the request sets none: so small a model seldom knows when to stop."""

OUTPUT_TOKENS_MAX: Final = 1024
"""The answer's limit whatever the request sets."""

SYSTEM_TOKENS_MAX: Final = 400
"""What is sent of the instructions."""

HISTORY_TOKENS_MAX: Final = 1500
"""What is sent of the conversation. Less than fits: one slow core reads about 100 tokens a second."""

MESSAGE_TOKENS_MAX: Final = 900
"""What is sent of one message. The newest always fits into the history, also after a step of trimming."""

TRIM_TOKENS: Final = 500
"""The oldest messages go in steps of this size: most times the server has read the beginning of a request before."""

MARK_TOKENS: Final = 10
"""What the chat's own marks take around one message."""

LEFT_OUT: Final = "\n[… left out: too long for the demo model …]\n"

assert SYSTEM_TOKENS_MAX + HISTORY_TOKENS_MAX + OUTPUT_TOKENS_MAX + 2 * MARK_TOKENS < CONTEXT_TOKENS
assert MESSAGE_TOKENS_MAX + MARK_TOKENS <= HISTORY_TOKENS_MAX - TRIM_TOKENS

WORDY: Final = re.compile(rb"[A-Za-z ]+")
"""What is read several bytes to a token; of anything else, a byte may be a token."""

NOT_INSTALLED: Final = Failure(
    kind=FailureKind.MISSING, text="The demo model is not installed: hansard models install-demo"
)
CLOSED: Final = Failure(kind=FailureKind.UNAVAILABLE, text="The demo model was closed.")


SYSTEM: Final = "You are a helpful assistant."
"""What it is told in place of the session's instructions: anything longer confuses a model of this size."""


class DemoServer(NamedTuple):
    """A server that answers, and the way to ask it."""

    process: subprocess.Popen[bytes]
    model: Model


class DemoModel:
    """The model `demo`. It looks for its files when it is asked, so that it may be installed meanwhile.

    Turns at once share one server and are answered in turn. A server that died is started anew, once a request.
    """

    name = "demo"
    uses_tools = False
    """It is too small for them."""
    rules = ModelRules()
    """Words alone. What does not fit is left out here, by its own tokens."""

    def __init__(self, folder: Path, *, stall_seconds: float = STALL_SECONDS) -> None:
        self._folder = folder
        self._stall_seconds = stall_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._starting: asyncio.Task[DemoServer | Failure] | None = None
        self._closed = False

    @property
    def server_pid(self) -> int | None:
        """The process that serves it; None before it was started and after it was closed."""
        return None if self._process is None else self._process.pid

    async def warm(self) -> None:
        """Start the server, so that the first answer comes sooner. What goes wrong is told when it is asked."""
        await self._server()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Ask once, and give the answer as it comes.

        Before the first piece two failures are mended here, once each: a server that died is started anew, and a
        request that was refused, because the estimate of its size was wrong, is cut so that it fits for certain.
        """
        request = msgspec.structs.replace(request, system=SYSTEM)
        count = estimate_tokens
        may_restart = True
        while True:
            server = await self._server()
            if isinstance(server, Failure):
                yield Failed(failure=server)
                return
            failed: Failed | None = None
            has_begun = False
            async with contextlib.aclosing(server.model.stream(fit(request, count))) as events:
                async for event in events:
                    if isinstance(event, Failed) and not has_begun:
                        failed = event
                        break
                    has_begun = True
                    yield event
            if failed is None:
                return
            if failed.failure.kind is FailureKind.REFUSED and count is estimate_tokens:
                count = count_bytes
            elif may_restart and await has_ended(server.process):
                may_restart = False
            else:
                yield failed
                return

    async def close(self) -> None:
        """End the server and wait until it is gone. A start that is under way ends with it."""
        self._closed = True
        starting, self._starting = self._starting, None
        await self._clear_away(starting)

    async def _server(self) -> DemoServer | Failure:
        """Return the running server, or start one. Concurrent callers wait for the same start."""
        if self._closed:
            return CLOSED
        starting = self._starting
        if starting is None or (starting.done() and not is_alive(starting)):
            starting = self._starting = asyncio.create_task(self._start(starting))
        return await asyncio.shield(starting)

    async def _clear_away(self, starting: asyncio.Task[DemoServer | Failure] | None) -> None:
        """End the server, and let go of the connections to it when its start gave any."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(end, process)
        if starting is not None:
            await asyncio.wait([starting])
            if not starting.cancelled() and isinstance(server := starting.result(), DemoServer):
                await server.model.close()

    async def _start(self, before: asyncio.Task[DemoServer | Failure] | None) -> DemoServer | Failure:
        """Clear away the server before, start one, and wait until it says its port."""
        await self._clear_away(before)
        if self._closed:
            return CLOSED
        key = secrets.token_hex(16)
        try:
            if (files := find_demo(self._folder)) is None:
                return NOT_INSTALLED
            process = launch(files, self._folder, key)
        except OSError as error:
            return Failure(kind=FailureKind.UNAVAILABLE, text=f"The demo model could not be started: {error}")
        self._process = process
        port = await announced_port(process)
        if port is None:
            return CLOSED if self._closed else await self._start_failure(process)
        model = open_provider(
            f"openai:{MODEL_ALIAS}", key=key, base_url=f"http://{HOST}:{port}/v1", stall_seconds=self._stall_seconds
        )
        return DemoServer(process, model)

    async def _start_failure(self, process: subprocess.Popen[bytes]) -> Failure:
        is_ended = await has_ended(process)
        how = f"it ended with {process.returncode}" if is_ended else f"not ready within {START_SECONDS_MAX:.0f} seconds"
        process.kill()
        log = self._folder / "server.log"
        where = f"; see {log}" if log.exists() else ""
        return Failure(kind=FailureKind.UNAVAILABLE, text=f"The demo model did not start: {how}{where}.")


def is_alive(started: asyncio.Task[DemoServer | Failure]) -> bool:
    return (
        not started.cancelled() and isinstance(server := started.result(), DemoServer) and server.process.poll() is None
    )


def launch(files: DemoFiles, folder: Path, key: str) -> subprocess.Popen[bytes]:
    """Start the server in a session of its own: a Ctrl-C in the terminal is not meant for it.

    It must be called in a thread that lives on, such as the event loop's: on Linux the server dies with that thread.
    """
    command = [sys.executable, "-P", "-m", "hansard.models.demo_server", "--model", str(files.model)]
    if files.library is not None:
        command += ["--library", str(files.library)]
    with contextlib.ExitStack() as stack:
        log: IO[bytes] | int = subprocess.DEVNULL
        with contextlib.suppress(OSError):  # a folder that is not ours to write: then without a log
            log = stack.enter_context((folder / "server.log").open("ab"))
            if log.tell() > LOG_BYTES_MAX:
                log.truncate(0)
        process = subprocess.Popen(  # noqa: S603  # this Python, a module of ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it ended already, which the wait for its port will tell
        process.stdin.write(f"{key}\n".encode())
        process.stdin.flush()
    return process


async def announced_port(process: subprocess.Popen[bytes]) -> int | None:
    """Wait for the line that names the port. None when the server ended, or took too long."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            line = await asyncio.to_thread(process.stdout.readline)
        return int(json.loads(line)["port"])
    except (TimeoutError, ValueError, LookupError, TypeError):
        return None
    except asyncio.CancelledError:
        process.kill()  # which ends the thread's wait, too
        raise


async def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended, or is just about to: its sockets close a moment before."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        await asyncio.to_thread(process.wait, EXIT_SECONDS_MAX)
    return process.poll() is not None


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process by its pid, collect it so that no zombie stays, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def fit(request: Request, count: Callable[[str], int]) -> Request:
    """Return what of a request the demo model can read: the instructions and the newest messages, without tools.

    The newest message always stays. The beginning moves in steps, and messages are cut alike wherever they stand, so
    that most requests begin as the one before did: reading is what takes the time.
    """
    messages = [plain(said, count) for said in request.messages]
    sizes = [count(said.text) + MARK_TOKENS for said in messages]
    excess = sum(sizes) - HISTORY_TOKENS_MAX
    first = 0
    if excess > 0:
        left_out = -(-excess // TRIM_TOKENS) * TRIM_TOKENS
        while left_out > 0 and first < len(messages) - 1:
            left_out -= sizes[first]
            first += 1
    while first < len(messages) - 1 and not isinstance(messages[first], UserSaid):
        first += 1
    return Request(
        system=shorten(request.system, SYSTEM_TOKENS_MAX, count),
        messages=tuple(messages[first:]),
        output_tokens_max=min(request.output_tokens_max or OUTPUT_TOKENS, OUTPUT_TOKENS_MAX),
    )


def plain(said: Said, count: Callable[[str], int]) -> UserSaid | AssistantSaid:
    """Return a message in words alone, short enough. Calls and results of tools are told, for they were another's."""
    if isinstance(said, ToolsSaid):
        text = "\n".join(f"[result: {result.text or result.outcome}]" for result in said.results)
        return UserSaid(shorten(text, MESSAGE_TOKENS_MAX, count))
    if isinstance(said, AssistantSaid):
        calls = "\n".join(f"[called {call.name}]" for call in said.calls)
        return AssistantSaid(shorten(f"{said.text}\n{calls}" if calls else said.text, MESSAGE_TOKENS_MAX, count))
    return UserSaid(shorten(said.text, MESSAGE_TOKENS_MAX, count))


def shorten(text: str, tokens_max: int, count: Callable[[str], int]) -> str:
    """Return a text that is short enough: its beginning and its end, and between them a mark that says so."""
    tokens = count(text)
    if tokens <= tokens_max:
        return text
    characters = len(text) * tokens_max // tokens // 2
    while True:
        shorter = f"{text[:characters]}{LEFT_OUT}{text[len(text) - characters :]}"
        if characters == 0 or count(shorter) <= tokens_max:
            return shorter
        characters = characters * 3 // 4


def estimate_tokens(text: str) -> int:
    """Estimate a text's size: two and a half letters a token, which is few even for Latin, and a byte of all else."""
    data = text.encode(errors="replace")
    others = len(WORDY.sub(b"", data))
    return (len(data) - others) * 2 // 5 + others + 1


def count_bytes(text: str) -> int:
    """Return a bound of a text's size that no text exceeds: a token is at least one byte."""
    return len(text.encode(errors="replace"))
