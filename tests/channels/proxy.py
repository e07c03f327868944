"""A TCP proxy on loopback that can lose answers and cut connections."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes on to a server, until it is told to lose them."""

    def __init__(self, target_port: int, *, port: int = 0) -> None:
        self._target = target_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose_answer_to = b""
        """Requests that begin with this reach the server, and their answer is lost with the connection."""
        self.lost = 0
        self.limited = 0
        """Answers that refused a request because there were too many."""
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
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """End every connection there is."""
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
            await asyncio.gather(self._pass(reader, back, state), self._back(there, writer, state))
        writer.close()
        self._writers.discard(writer)
        self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool]) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if self.lose_answer_to and data.startswith(self.lose_answer_to):
                    state["lose"] = True
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
                self.limited += data.startswith(b"HTTP/1.1 429 ")
                writer.write(data)
                await writer.drain()
        writer.close()
