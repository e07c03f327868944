"""A gateway as a process of its own, by the configuration of its home: python -m tests.gateway.care_worker HOME PORT.

SIGHUP has the configuration read again, SIGTERM drains; exit code 3 when the record was migrated.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from hansard.app.wiring import open_app
from hansard.errors import RecordMigrated
from hansard.gateway.logs import log_as_json
from hansard.gateway.process import ConfigReload, Gateway, load_gateway_config
from hansard.testing import RecordingChannel
from tests.gateway.socket_platform import SocketPlatform
from tests.gateway.stage import AGENT, TIMING

EXIT_MIGRATED = 3


async def main(home: Path, port: int) -> int:
    """Serve until SIGTERM, or until killed, or until a newer Hansard comes."""
    log_as_json()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reloading = ConfigReload(
        read=lambda: load_gateway_config(home, {}, {}),
        openers=lambda _settings: {"matrix": lambda: RecordingChannel(SocketPlatform(port), AGENT)},
    )
    terms = reloading.read()
    async with open_app(home, terms.settings, {}, lambda _, __: None) as app:
        channels = [opened() for opened in reloading.openers(terms.settings).values()]
        gateway = Gateway(app, channels, TIMING, loaded=terms, reloading=reloading)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGHUP, gateway.renew)
        try:
            await gateway.run(stop)
        except RecordMigrated:
            return EXIT_MIGRATED
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]))))
