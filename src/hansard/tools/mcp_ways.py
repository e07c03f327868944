"""Ways to servers: a program that is started here, or an address; both with a bound on what is read at once.

The library reads whatever a server sends. A server of somebody else must not be able to fill this machine's memory, so
a message that is too large ends the connection, and of what a program writes to its standard error only the end is
kept.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, cast

from hansard.domain.http_answers import UNPACKED, AnswerRefused, check_answer
from hansard.domain.limits import MIB
from hansard.tasks import cancel_all
from hansard.tools import confined

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from hansard.domain.settings.agent import McpServer

MESSAGE_BYTES_MAX: Final = 32 * MIB
"""One message of a server: what is larger is not taken, however large the blob that it could be."""

STDERR_CHARACTERS: Final = 300
"""What is told of a program's last words when it did not start."""

END_SECONDS: Final = 2.0
"""For a program to end by itself, once its input is closed; and again when it is told to."""

PIPE_BYTES: Final = 65_536

PIPE_READS_MAX: Final = 16
"""Reads of a pipe whose writer has ended. A pipe holds 1 MiB at most; a process that got away may write on for ever."""


class MessageTooLarge(AnswerRefused):
    """A server sent more in one message than is taken."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {MESSAGE_BYTES_MAX // MIB} MiB")


@asynccontextmanager
async def program_streams(
    settings: McpServer, given: Mapping[str, str], errlog: TextIO, hidden: Sequence[str]
) -> AsyncIterator[Any]:
    """Start a program that cannot see the hidden paths, and give the streams to and from it.

    Leaving ends it, and whatever it started.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    environment = get_default_environment() | dict(given)
    process = await asyncio.create_subprocess_exec(
        *program_words(settings, environment, hidden),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errlog,
        limit=MESSAGE_BYTES_MAX,
        start_new_session=True,
    )
    coming, read = anyio.create_memory_object_stream[Any](0)
    write, going = anyio.create_memory_object_stream[Any](0)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(take_messages, process, coming)
            group.start_soon(give_messages, process, going)
            try:
                yield read, write
            finally:
                group.cancel_scope.cancel()
    finally:
        for stream in (coming, read, write, going):
            stream.close()
        with anyio.CancelScope(shield=True):
            await end_program(process)


def program_words(settings: McpServer, environment: Mapping[str, str], hidden: Sequence[str]) -> list[str]:
    """Return the words by which a program is started: where the system can confine it, by a program that does."""
    words = [str(settings.command), *settings.args]
    if sys.platform != "linux" or not settings.confined or not hidden:
        return words
    if shutil.which(words[0], path=environment.get("PATH")) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    return [sys.executable, "-I", "-S", confined.__file__, *hidden, "--", *words]


async def take_messages(process: asyncio.subprocess.Process, coming: MemoryObjectSendStream[Any]) -> None:
    """Read messages, one in each line, until the program ends. What is no message is told as such."""
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    output = cast("asyncio.StreamReader", process.stdout)
    async with coming:
        while True:
            try:
                line = await output.readuntil()
            except asyncio.IncompleteReadError:
                return
            except asyncio.LimitOverrunError:
                signal_group(process.pid, signal.SIGKILL)
                raise MessageTooLarge from None
            try:
                message: Any = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:
                message = error
            await coming.send(message)


async def give_messages(process: asyncio.subprocess.Process, going: MemoryObjectReceiveStream[Any]) -> None:
    """Write messages for as long as the program reads. When it reads no more, the reader notices that it has ended."""
    given = cast("asyncio.StreamWriter", process.stdin)
    async with going:
        async for each in going:
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                given.write(text.encode() + b"\n")
                await given.drain()
            except ConnectionError:
                return


async def end_program(process: asyncio.subprocess.Process) -> None:
    """Close its input, so that it can end; then tell it to, with all that it started; then end it."""
    cast("asyncio.StreamWriter", process.stdin).close()
    drained = asyncio.create_task(drain(cast("asyncio.StreamReader", process.stdout)))
    try:
        # It is waited for before each signal; the last one kills nobody who could not be killed before.
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
                    break
            signal_group(process.pid, number)
    finally:
        # Whatever the program started and left behind.
        signal_group(process.pid, signal.SIGKILL)
        await cancel_all(drained)
        cast("Any", process)._transport.close()  # noqa: SLF001 - a pipe that somebody else holds open stays so


async def drain(output: asyncio.StreamReader) -> None:
    """Read and forget: a program that cannot write does not end."""
    while await output.read(PIPE_BYTES):
        pass


def signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


@asynccontextmanager
async def address_streams(url: str, token: str) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers = {**UNPACKED, **({"Authorization": f"Bearer {token}"} if token else {})}
    async with create_mcp_http_client(headers=headers) as client:
        client.event_hooks = {"response": [bound]}
        opening = streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_BYTES_MAX)
        async with opening as streams:
            yield streams


async def bound(response: httpx2.Response) -> None:
    """Refuse what leads elsewhere or is packed, and let no more be read than one message may have. A response hook.

    A stream of events is as long as it likes: the library bounds each of them.
    """
    check_answer(str(response.request.url), response.status_code, response.headers)
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = bounded(cast("httpx2.AsyncByteStream", response.stream))


def bounded(stream: httpx2.AsyncByteStream) -> httpx2.AsyncByteStream:
    import httpx2

    class BoundedMcpStream(httpx2.AsyncByteStream):
        """The same bytes, counted."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for data in stream:
                size += len(data)
                if size > MESSAGE_BYTES_MAX:
                    raise MessageTooLarge
                yield data

        async def aclose(self) -> None:
            await stream.aclose()

    return BoundedMcpStream()


class LastWords:
    """The end of what a program writes to its standard error.

    The event loop reads it all the time, so that the program never waits for a reader. Once the program has ended,
    everything that it wrote is in the pipe or was read already: `read_rest` reads the rest, and waits for nothing.
    """

    def __enter__(self) -> Self:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._kept = b""
        self.file: TextIO = os.fdopen(writing, "w", encoding="utf-8")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._read_pipe)
        return self

    def _read_pipe(self) -> bool:
        """Read once what is in the pipe. Return whether there was anything."""
        try:
            data = os.read(self._reading, PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._reading)
        self._kept = (self._kept + data)[-STDERR_CHARACTERS:]
        return bool(data)

    def read_rest(self) -> str:
        """Return the end of what a program wrote so far; all of it, once the program has ended."""
        for _ in range(PIPE_READS_MAX):
            if not self._read_pipe():
                break
        words = " ".join(self._kept.decode(errors="replace").split())
        return "".join(sign for sign in words if sign.isprintable())

    def __exit__(self, *_error: object) -> None:
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        self.file.close()
