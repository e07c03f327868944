"""A provider as a program of its own: `python -m tests.models.providers.serve --style openai --script FILE`.

It prints its port and lives until its standard input is closed, a signal comes, or `--seconds` have passed: longer than
the client that it serves, and never for ever. The script is a JSON list of behaviours. Each request for an answer is
written to `--log FILE`, one JSON object a line, when it comes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from tests.models.providers.behaviour import Behaviour, Exchange
from tests.models.providers.server import Provider

LIFE_SECONDS_MAX = 600.0


class LoggingProvider(Provider):
    """A provider that writes down what it is asked."""

    def __init__(self, style: str, behaviours: list[Behaviour], log: Path | None) -> None:
        super().__init__(style, behaviours)
        self._log = log

    async def take(self, exchange: Exchange) -> Behaviour:
        """Keep a request, on disk too."""
        behaviour = await super().take(exchange)
        if self._log is not None:
            line = msgspec.json.encode({"path": exchange.path, "error": exchange.error, "body": exchange.body})
            with self._log.open("ab") as file:
                file.write(line + b"\n")
        return behaviour


async def serve(style: str, script: Path | None, log: Path | None, seconds: float) -> None:
    """Serve until told to stop."""
    behaviours = [] if script is None else msgspec.json.decode(script.read_bytes(), type=list[Behaviour])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 1) else stop.set())
    async with LoggingProvider(style, behaviours, log) as provider:
        print(provider.port, flush=True)  # noqa: T201
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            pass
    loop.remove_reader(sys.stdin.fileno())


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.providers.serve")
    parser.add_argument("--style", choices=["openai", "anthropic"], required=True)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seconds", type=float, default=LIFE_SECONDS_MAX)
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.style, arguments.script, arguments.log, arguments.seconds))


if __name__ == "__main__":
    main()
