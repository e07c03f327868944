"""The provider that turns are measured against: the loopback server of the tests, with a clock in every token.

    python bench/turn_server.py

It prints its port and lives until its standard input is closed. What is said last in a request says what to answer:
`tokens-200-rate-100` is 200 tokens, 100 a second, the first one at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from typing import Self, SupportsIndex

from turn_tokens import PLACEHOLDER, Wanted, now_us, stamp

from tests.models.providers import openai_style
from tests.models.providers.behaviour import Behaviour, Event, Exchange
from tests.models.providers.server import Connection, Provider, Reader

LIFE_SECONDS_MAX = 3600.0
CONNECTIONS_WAITING_MAX = 512
"""Those of a hundred turns that begin at once."""

_LEAD_EVENTS = 2
"""The event that names the role and the first token are sent at once."""


class TimedReader(Reader):
    """A reader that knows when the last bytes came."""

    def __init__(self) -> None:
        super().__init__()
        self.fed_us = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Note when."""
        self.fed_us = now_us()
        super().feed_data(data)


class TimedConnection(Connection):
    """A connection that keeps to the rate and writes the times into the tokens."""

    def __init__(self, provider: Provider, reader: TimedReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(provider, reader, writer)
        self._timed = reader
        self._arrived_us = 0
        self._wanted = Wanted(0, 1.0)
        self._begun_at = 0.0
        self._events = 0

    async def _request(self) -> Exchange | None:
        exchange = await super()._request()
        self._arrived_us = self._timed.fed_us
        return exchange

    async def _answer(self, exchange: Exchange, behaviour: Behaviour) -> None:
        if exchange.method == "POST":
            self._wanted = Wanted.of_words(openai_style.last_text(exchange.body))
        self._begun_at, self._events = time.monotonic(), 0
        await super()._answer(exchange, behaviour)

    async def _pause(self, seconds: float) -> None:
        """Wait until this event is due: by the schedule, so that a late one makes no later one late."""
        if seconds <= 0:
            return
        self._events += 1
        if _LEAD_EVENTS < self._events <= self._wanted.tokens + 1:
            due = self._begun_at + (self._events - _LEAD_EVENTS) * seconds
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _body(self, exchange: Exchange, behaviour: Behaviour, event: Event, data: bytes) -> None:
        timed = data.replace(PLACEHOLDER.encode(), stamp(self._arrived_us).encode())
        await super()._body(exchange, behaviour, event, timed)


class TimedProvider(Provider):
    """A provider that answers what it is asked for, and forgets what it was asked."""

    async def __aenter__(self) -> Self:
        """Listen, with room for many that come at once."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connected, "127.0.0.1", 0, backlog=CONNECTIONS_WAITING_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def _connected(self) -> asyncio.StreamReaderProtocol:
        reader = TimedReader()

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(TimedConnection(self, reader, writer).run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return asyncio.StreamReaderProtocol(reader, accept)

    async def take(self, exchange: Exchange) -> Behaviour:
        """Return the answer that was asked for; what the real API refuses is refused."""
        behaviour = await super().take(exchange)
        self.exchanges.clear()
        if behaviour.status != 200 or exchange.method != "POST":  # noqa: PLR2004
            return behaviour
        wanted = Wanted.of_words(openai_style.last_text(exchange.body))
        return Behaviour(pieces=(PLACEHOLDER,) * wanted.tokens, delay_seconds=1 / wanted.tokens_per_second)


async def main() -> None:
    """Serve until nobody needs it any more."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    standard_input = sys.stdin.fileno()
    loop.add_reader(standard_input, lambda: None if os.read(standard_input, 1) else stop.set())
    async with TimedProvider("openai") as provider:
        print(provider.port, flush=True)
        await asyncio.wait_for(stop.wait(), LIFE_SECONDS_MAX)
    loop.remove_reader(standard_input)


if __name__ == "__main__":
    asyncio.run(main())
