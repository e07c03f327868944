"""A gateway as a process of its own, on the platform of a test: python -m tests.gateway.worker HOME PORT SCRIPT."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from hansard.app.wiring import open_app
from hansard.domain.settings import TurnLimits
from hansard.gateway.logs import log_as_json
from hansard.gateway.process import Gateway
from hansard.testing import RecordingChannel
from tests.gateway.socket_platform import SocketPlatform
from tests.gateway.stage import AGENT, TIMING, make_settings


async def main(home: Path, port: int, script: Path) -> None:
    """Serve until SIGTERM, or until killed."""
    log_as_json()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    # Whoever speaks where somebody else spoke before begins a session: here that is most of what is said.
    settings = msgspec.structs.replace(make_settings(script), limits=TurnLimits(person_sessions_hour_max=10_000))
    async with open_app(home, settings, {}, lambda _, __: None) as app:
        channel = RecordingChannel(SocketPlatform(port), AGENT)
        await Gateway(app, [channel], TIMING).run(stop)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
