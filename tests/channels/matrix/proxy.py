"""A TCP proxy on loopback that can lose answers and cut connections."""

from __future__ import annotations

import asyncio
import contextlib
import re
from types import TracebackType
from typing import Self

LIMITED = b'{"errcode":"M_LIMIT_EXCEEDED","error":"Too Many Requests","retry_after_ms":200}'
TOO_MANY = (
    b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(LIMITED), LIMITED)
)
"""As Synapse answers."""


class Proxy:
    """Passes bytes on to a server, until it is told to lose them."""

    def __init__(self, target_port: int, *, port: int = 0) -> None:
        self._target = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose_answer_to = b""
        """Requests that begin with this reach the server, and their answer is lost with the connection."""
        self.drop = b""
        """Requests that begin with this do not reach the server, and their connection breaks."""
        self.refuse_next = b""
        """The next request that begins with this is answered here: there were too many."""
        self.hang = b""
        """Requests that begin with this are not passed on before `let` is set."""
        self.let = asyncio.Event()
        self.hung: list[bytes] = []
        """Those, with their bodies."""
        self.breaks_left: int | None = None
        """How many requests are dropped and answers lost until all is well again; None: for ever."""
        self.lost = 0
        self.port = port

    @property
    def url(self) -> str:
        """Where the proxy is."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Take no more connections, and end every one there is."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection there is."""
        self.let.set()
        for writer in list(self._writers):
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            pair = {writer, back}
            self._writers |= pair
            state = {"lose": False}
            await asyncio.gather(self._pass(reader, back, writer, state), self._back(there, writer, state))
        writer.close()
        self._writers.discard(writer)
        self._tasks.discard(task)

    def _count(self) -> None:
        if self.breaks_left is not None:
            self.breaks_left -= 1
            if self.breaks_left <= 0:
                self.drop = self.lose_answer_to = b""

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        state: dict[str, bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.hang and data.startswith(self.hang):
                    data += await read_rest(reader, data)
                    self.hung.append(data)
                    await self.let.wait()
                if self.refuse_next and data.startswith(self.refuse_next):
                    self.refuse_next = b""
                    client.write(TOO_MANY)
                    await client.drain()
                    break
                if self.drop and data.startswith(self.drop):
                    self._count()
                    break
                if self.lose_answer_to and data.startswith(self.lose_answer_to):
                    state["lose"] = True
                    self._count()
                writer.write(data)
                await writer.drain()
        writer.close()
        self._writers.discard(writer)

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if state["lose"]:
                    # The server has answered, so what was asked is done; nobody will hear of it.
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        writer.close()


async def read_rest(reader: asyncio.StreamReader, data: bytes) -> bytes:
    """Return what is missing of a request: its body may come later than its head."""
    head = data.partition(b"\r\n\r\n")[0]
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    missing = len(head) + 4 + int(length[1]) - len(data) if length else 0
    return await reader.readexactly(missing) if missing > 0 else b""
