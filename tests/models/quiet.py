"""One turn with each provider in a process that listens to itself: prints which places it connected to."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.models.helpers import ask, asking
from tests.models.providers.server import Provider

connected: set[int] = set()
looked_up: set[str] = set()


def listen(event: str, arguments: tuple[object, ...]) -> None:
    """Take note of connections and of questions for names."""
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        connected.add(arguments[1][1])
    elif event == "socket.getaddrinfo" and arguments[0] != "127.0.0.1":
        looked_up.add(str(arguments[0]))


async def talk() -> list[int]:
    """Have a turn with each provider, and return their ports."""
    ports = []
    for style in ("openai", "anthropic"):
        async with Provider(style) as provider, asking(provider) as model:
            assert (await ask(model)).text == "Hello, world."
            ports.append(provider.port)
    return sorted(ports)


def main() -> None:
    """Talk, and print what was noticed."""
    sys.addaudithook(listen)
    ports = asyncio.run(talk())
    trace = sys.modules["opentelemetry.trace"]
    found = {
        "ports": ports,
        "connected": sorted(connected),
        "looked_up": sorted(looked_up),
        "tracer": type(trace.get_tracer_provider()).__name__,
        "logfire": "logfire" in sys.modules,
    }
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
