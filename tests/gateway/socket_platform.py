"""The platform of a test, behind a loopback socket: a gateway in another process is served, and may be killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from hansard import errors
from hansard.errors import ChannelBusy, ChannelDown, HansardError, PostUnknown
from hansard.ports.channel import Batch, Post, RemoteFile, TimelineEvent
from hansard.testing import Platform

LINE_BYTES_MAX = 8 * 1024 * 1024


class Call(msgspec.Struct, frozen=True):
    """One call: a method of the platform, and what it is given."""

    method: str
    arguments: dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """What a call gave, or the error that it raised."""

    result: Any = None
    error: str = ""
    text: str = ""
    seconds: float = 0.0


async def perform(platform: Platform, call: Call) -> Any:  # noqa: ANN401 - what a method returns
    """Make a call on the platform."""
    given = call.arguments
    if call.method == "post":
        return await platform.post(given["account"], msgspec.convert(given["post"], Post))
    if call.method == "poll":
        return await platform.poll(given["account"], given["cursor"])
    if call.method == "history":
        return await platform.history(given["chat"])
    if call.method == "is_direct":
        return await platform.is_direct(given["chat"])
    if call.method == "typing":
        return await platform.typing(given["account"], given["chat"], on=given["on"])
    return await platform.answer(given["account"], given["chat"], accept=given["accept"], reason=given["reason"])


async def serve_call(platform: Platform, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one call; a caller that is gone is not waited for, and what it asked for has happened or has not."""
    try:
        call = msgspec.json.decode(await reader.readline(), type=Call)
        work = asyncio.ensure_future(perform(platform, call))
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not work.done():
            work.cancel()
            return
        try:
            answer = Answer(work.result())
        except HansardError as error:
            answer = Answer(None, type(error).__name__, str(error), getattr(error, "seconds", 0.0))
        writer.write(msgspec.json.encode(answer) + b"\n")
        await writer.drain()
    except (OSError, msgspec.MsgspecError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def served_platform(platform: Platform) -> AsyncIterator[int]:
    """Serve a platform on a free port; give the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):
            await serve_call(platform, reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=LINE_BYTES_MAX)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class SocketPlatform:
    """The other end: what a recording channel asks a platform, over the socket."""

    def __init__(self, port: int) -> None:
        """Ask at this port."""
        self._port = port

    async def _call(self, method: str, **arguments: Any) -> Any:  # noqa: ANN401 - what a method returns
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=LINE_BYTES_MAX)
        except OSError as error:
            raise ChannelDown(str(error)) from error
        try:
            writer.write(msgspec.json.encode(Call(method, arguments)) + b"\n")
            await writer.drain()
            line = await reader.readline()
        except OSError as error:
            raise PostUnknown(str(error)) from error
        finally:
            writer.close()
        if not line:
            message = "the connection was closed"
            raise PostUnknown(message) if method == "post" else ChannelDown(message)
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error == "ChannelBusy":
            raise ChannelBusy(answer.text, answer.seconds)
        if answer.error:
            raise getattr(errors, answer.error)(answer.text)
        return answer.result

    async def post(self, account: str, post: Post) -> str:
        """Show a post."""
        return str(await self._call("post", account=account, post=post))

    async def poll(self, account: str, cursor: str) -> Batch:
        """Return what happened after a cursor."""
        return msgspec.convert(await self._call("poll", account=account, cursor=cursor), Batch)

    async def typing(self, account: str, chat: str, *, on: bool) -> None:
        """Show that the account writes."""
        await self._call("typing", account=account, chat=chat, on=on)

    async def answer(self, account: str, chat: str, *, accept: bool, reason: str = "") -> None:
        """Answer an invitation."""
        await self._call("answer", account=account, chat=chat, accept=accept, reason=reason)

    async def history(self, chat: str) -> list[TimelineEvent]:
        """Return a room's timeline, the latest first."""
        return msgspec.convert(await self._call("history", chat=chat), list[TimelineEvent])

    async def is_direct(self, chat: str) -> bool:
        """Return whether only one person is in a chat besides the agent."""
        return bool(await self._call("is_direct", chat=chat))

    async def fetch(self, file: RemoteFile, bytes_max: int) -> bytes:
        """No test of this kind sends files."""
        raise NotImplementedError((file, bytes_max))
