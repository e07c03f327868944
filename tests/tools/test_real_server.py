"""A server that others wrote and published, through both transports: installed on its own, or skipped."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hansard.domain.settings.agent import McpServer
from hansard.ports.tool import Tool, ToolOutput
from hansard.tools.mcp import McpServers
from tests.tools.servers import ROOT, START_SECONDS_MAX, environment, free_port

pytestmark = [pytest.mark.slow]

FOLDER = ROOT / ".mcp-time" / "bin"


@pytest.fixture(scope="module")
def installed() -> Path:
    """Where the programs are, installed on first use."""
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "mcp_time.py")], check=False, timeout=300)
    if done.returncode:
        pytest.skip("mcp-server-time could not be installed on this machine")
    return FOLDER


@contextmanager
def over_http(folder: Path) -> Iterator[McpServer]:
    """The same server behind a proxy that others wrote, too."""
    port = free_port()
    command: list[str | Path] = [
        folder / "mcp-proxy",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        folder / "mcp-server-time",
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp", start_seconds_max=START_SECONDS_MAX)
    finally:
        process.terminate()
        process.wait(120)


async def convert(settings: McpServer) -> None:
    """Ask for a time elsewhere, rightly and wrongly."""
    tools: dict[str, Tool] = {}
    servers = McpServers({"time": settings}, environment(), tools)
    try:
        assert await servers.prepare() == []
        assert set(tools) == {"mcp__time__get_current_time", "mcp__time__convert_time"}
        assert tools["mcp__time__get_current_time"].spec.parameters.startswith("{")
        asked: dict[str, object] = {
            "source_timezone": "Europe/Berlin",
            "time": "12:00",
            "target_timezone": "Asia/Tokyo",
        }
        async with asyncio.timeout(120):
            right = await tools["mcp__time__convert_time"].run(asked)
            wrong = await tools["mcp__time__get_current_time"].run({"timezone": "Nowhere/Atall"})
        assert isinstance(right, ToolOutput)
        assert isinstance(wrong, ToolOutput)
        assert not right.is_error
        assert "Asia/Tokyo" in right.text
        assert wrong.is_error
    finally:
        await servers.close()


async def test_over_standard_input(installed: Path) -> None:
    """The program is started here, told apart from ours, and its tools work."""
    await convert(McpServer(command=str(installed / "mcp-server-time"), start_seconds_max=START_SECONDS_MAX))


async def test_over_http(installed: Path) -> None:
    """The same tools work at an address."""
    with over_http(installed) as settings:
        await convert(settings)
