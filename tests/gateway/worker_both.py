"""A gateway on two platforms, to be run as a process of its own."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from hansard.app.wiring import open_app
from hansard.gateway.process import Gateway
from tests.gateway.phones import both_allowed, channels_on
from tests.gateway.socket_platform import SocketPlatform
from tests.gateway.stage import TIMING


async def serve(home: Path, ports: tuple[int, int], script: Path) -> None:
    """Serve until SIGTERM, or until killed."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_app(home, both_allowed(script), {}, lambda _, __: None) as app:
        await Gateway(app, channels_on(*map(SocketPlatform, ports)), TIMING).run(stop)


def run(home: Path, ports: tuple[int, int], script: Path) -> None:
    """Be such a gateway."""
    asyncio.run(serve(home, ports, script))
