"""Servers for the tests of MCP: the same tools over standard input and over HTTP."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hansard.domain.settings.agent import McpServer

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 120.0


def environment() -> dict[str, str]:
    """What a program needs to find this tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


def by_stdio(ran: Path) -> McpServer:
    """A server that is started for each connection; `ran` gets a line for each run of a tool."""
    arguments = ("-m", "tests.tools.mcp_server", "stdio", str(ran))
    return McpServer(command=sys.executable, args=arguments, env=("PYTHONPATH",), start_seconds_max=START_SECONDS_MAX)


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class HttpServer:
    """A server that others start, and that can be ended and started again on its port."""

    def __init__(self, ran: Path) -> None:
        """It does not run yet."""
        self.port = free_port()
        self._ran = ran
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> McpServer:
        """Where it is reached."""
        return McpServer(url=f"http://127.0.0.1:{self.port}/mcp", start_seconds_max=START_SECONDS_MAX)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "tests.tools.mcp_server", "http", str(self.port), str(self._ran)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not start")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(120)
            self._process = None


@contextmanager
def by_http(ran: Path) -> Iterator[HttpServer]:
    """A server over HTTP, for as long as a test needs it."""
    server = HttpServer(ran)
    server.start()
    try:
        yield server
    finally:
        server.stop()
