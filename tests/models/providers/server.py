"""A provider on loopback: real wire formats on plain sockets, so that it can break in every way that a network can."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Self

from tests.models.providers import anthropic_style, google_style, openai_style, responses_style
from tests.models.providers.behaviour import Behaviour, Event, Exchange

STYLES: dict[str, ModuleType] = {
    "openai": openai_style,
    "anthropic": anthropic_style,
    "google": google_style,
    "openai-responses": responses_style,
}
ANSWER_PATHS = {
    "openai": "/chat/completions",
    "anthropic": "/messages",
    "google": ":streamGenerateContent",
    "openai-responses": "/responses",
}
CLOSE_SECONDS_MAX = 5.0


class Gone(Exception):
    """This connection is over, by our own hand or the client's."""


class Reader(asyncio.StreamReader):
    """A reader that says when the other side has left, also while nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        """The other side closed."""
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        """The connection broke."""
        super().set_exception(exc)
        self.ended.set()


class Provider:
    """A server that does with each request what the next behaviour says; the last one repeats.

    It refuses what the real API would refuse, whatever the behaviour, and keeps every request.
    """

    def __init__(
        self,
        style: str,
        behaviours: Sequence[Behaviour] = (),
        *,
        key: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.style = style
        self.behaviours = list(behaviours) or [Behaviour()]
        self.exchanges: list[Exchange] = []
        self.connections_count = 0
        self.model = "test-model"
        self.port = 0
        self._key = key
        self._tls = tls
        self._protocol = STYLES[style]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """Where a client of this style finds it."""
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}" + ("/v1" if self.style.startswith("openai") else "")

    @property
    def answers(self) -> list[Exchange]:
        """The requests for an answer, whatever became of them."""
        return [exchange for exchange in self.exchanges if exchange.method == "POST"]

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop, and leave nothing running."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS_MAX)

    async def asked(self, count: int) -> Exchange:
        """Wait until so many answers were asked for, and return the last of them."""
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.answers) >= count)
        return self.answers[count - 1]

    def _connected(self) -> asyncio.StreamReaderProtocol:
        reader = Reader()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections_count += 1
            task = asyncio.get_running_loop().create_task(Connection(self, reader, writer).run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return asyncio.StreamReaderProtocol(reader, accept)

    async def take(self, exchange: Exchange) -> Behaviour:
        """Keep a request and return what is to be done with it."""
        if exchange.method == "GET":
            self.exchanges.append(exchange)
            return Behaviour(framing="length", body=json.dumps(self._protocol.models(self.model)))
        async with self._asked:
            behaviour = self.behaviours[min(len(self.answers), len(self.behaviours) - 1)]
            self.exchanges.append(exchange)
            self._asked.notify_all()
        if self._key is not None and (presented := self._protocol.presented_key(exchange.headers)) != self._key:
            return Behaviour(status=401, message=f"Incorrect API key provided: {presented}")
        if ANSWER_PATHS[self.style] not in exchange.path:
            return Behaviour(status=404, message="no such path")
        exchange.error = self._protocol.wrong_with(exchange.body)
        return Behaviour(status=400, message=exchange.error) if exchange.error else behaviour

    def events(self, behaviour: Behaviour, exchange: Exchange) -> Iterator[Event]:
        """Return what is sent for a behaviour, faults in the stream included."""
        produced = self._protocol.events(behaviour, exchange.body, len(self.answers))
        for count, event in enumerate(produced):
            if count == behaviour.error_after_events:
                yield Event(self._protocol.error_event(behaviour))
                return
            if count == behaviour.garbage_after_events:
                yield Event(behaviour.garbage.encode("latin-1"))
            yield event

    def error(self, behaviour: Behaviour) -> bytes:
        """Return the body of an error in the style of the provider."""
        if behaviour.body is not None:
            return behaviour.body.encode()
        value: dict[str, Any] = self._protocol.error(behaviour.message, behaviour.status, behaviour.code)
        return json.dumps(value).encode()


class Connection:
    """One connection: requests one after the other."""

    def __init__(self, provider: Provider, reader: Reader, writer: asyncio.StreamWriter) -> None:
        self._provider = provider
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        """Serve until either side has enough."""
        try:
            while (exchange := await self._request()) is not None:
                behaviour = await self._provider.take(exchange)
                try:
                    await self._answer(exchange, behaviour)
                finally:
                    if self._reader.ended.is_set():
                        exchange.left.set()
                    exchange.over.set()
                if behaviour.hangs_up:
                    await self._reader.read(1)
                    break
        except (Gone, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()

    async def _request(self) -> Exchange | None:
        """Read one request; None when the client has no more."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        content = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Exchange(method, path, headers, json.loads(content) if content else {})

    async def _answer(self, exchange: Exchange, behaviour: Behaviour) -> None:
        exchange.status = behaviour.status
        await self._pause(behaviour.head_delay_seconds)
        if behaviour.status != 200 or behaviour.body is not None:
            await self._send_whole(exchange, behaviour)
            return
        framing = behaviour.framing
        stream = list(self._provider.events(behaviour, exchange))
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        headers |= {"chunked": {"transfer-encoding": "chunked"}, "close": {"connection": "close"}}.get(
            framing, {"content-length": str(sum(len(event.data) for event in stream))}
        )
        self._head(behaviour, headers)
        for count, event in enumerate(stream):
            if count == behaviour.stall_after_events:
                exchange.stalled.set()
                await self._reader.ended.wait()
                raise Gone
            if count == behaviour.cut_after_events:
                self._cut(behaviour)
            await self._pause(behaviour.delay_seconds)
            await self._body(exchange, behaviour, event, framed(event.data, framing))
        if len(stream) == behaviour.cut_after_events:
            self._cut(behaviour)
        if framing == "chunked":
            await self._body(exchange, behaviour, Event(b""), b"0\r\n\r\n")
        elif framing == "close":
            raise Gone

    async def _send_whole(self, exchange: Exchange, behaviour: Behaviour) -> None:
        """Send a body that is no stream."""
        data = self._provider.error(behaviour)
        self._head(behaviour, {"content-type": "application/json", "content-length": str(len(data))})
        await self._body(exchange, behaviour, Event(b""), data)

    def _head(self, behaviour: Behaviour, headers: dict[str, str]) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers | behaviour.headers).items())
        head = f"HTTP/1.1 {behaviour.status} Test\r\n{lines}\r\n".encode("latin-1")
        self._writer.write(head[: behaviour.cut_after_head_bytes])
        if behaviour.cut_after_head_bytes is not None:
            self._cut(behaviour)

    async def _body(self, exchange: Exchange, behaviour: Behaviour, event: Event, data: bytes) -> None:
        """Send one event, or as much of it as the behaviour allows."""
        if self._reader.ended.is_set():
            raise Gone
        if not exchange.sent_bytes:
            exchange.first_byte_seconds = asyncio.get_running_loop().time()
        allowed = len(data)
        if behaviour.cut_after_bytes is not None:
            allowed = min(allowed, behaviour.cut_after_bytes - exchange.sent_bytes)
        self._writer.write(data[:allowed])
        exchange.sent_bytes += allowed
        # A whole event has arrived when its last byte has: what frames it may be missing.
        if event.data and data.find(event.data) + len(event.data) <= allowed:
            exchange.sent_text += event.text
            exchange.events_count += 1
        if behaviour.cut_after_bytes is not None and exchange.sent_bytes >= behaviour.cut_after_bytes:
            self._cut(behaviour)
        await self._writer.drain()

    def _cut(self, behaviour: Behaviour) -> None:
        """End the connection here: politely, or with a reset that drops what is on its way."""
        if behaviour.cut == "rst":
            connection: socket.socket = self._writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        raise Gone

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the client leaves."""
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._reader.ended.wait()
        except TimeoutError:
            return
        raise Gone


def framed(data: bytes, framing: str) -> bytes:
    """Return a piece of a body as it is on the wire."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n" if framing == "chunked" else data
