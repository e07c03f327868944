"""A process that asks a server which never ends, and tells how it went and how much memory that took.

python -m tests.security.reading PORT KIND …
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from pathlib import Path

from hansard.domain.requests import Failed, Request, UserSaid
from hansard.domain.settings.agent import McpServer
from hansard.models.pydantic import open_provider, preload
from hansard.tools.mcp import McpServers, ServerTrouble
from tests.models.helpers import CLOCK

ROOT = Path(__file__).parents[2]
VARIABLE = "TOKEN_OF_TESTS"
KEY = "sk-only-for-this-host"


async def ask_model(port: int, kind: str, style: str = "openai") -> str:
    """Return what a person is told who asks a model there."""
    address = f"http://127.0.0.1:{port}/{kind}"
    model = open_provider(f"{style}:m", key=KEY, base_url=address, stall_seconds=60)
    request = Request(system="", tools=(CLOCK,), messages=(UserSaid("hello"),))
    told = ""
    async for event in model.stream(request):
        told = event.failure.text if isinstance(event, Failed) else told
    await model.close()
    return told


async def ask_server(port: int, kind: str) -> str:
    """Return why the tools of a server there are missing."""
    troubles: list[ServerTrouble] = []
    settings = McpServer(url=f"http://127.0.0.1:{port}/{kind}", token_variable=VARIABLE, start_seconds_max=60)
    servers = McpServers({"t": settings}, {VARIABLE: KEY}, {}, tell=troubles.append)
    (told,) = await servers.prepare()
    await servers.close()
    return f"{told} {troubles[0].why}"


def peak_kib() -> int:
    """Return the most memory that this process had. Linux counts the peak of whoever started it into `ru_maxrss`."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    own = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return own[0] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def main(port: int, kinds: list[str]) -> None:
    """Ask for each kind, and print it."""
    preload("openai:")
    before = peak_kib()
    told = {}
    for kind in kinds:
        way, _, path = kind.partition(":")
        told[kind] = await (ask_server(port, path) if way == "mcp" else ask_model(port, path))
    print(json.dumps({"told": told, "grown_kib": peak_kib() - before}))  # noqa: T201


def read_in_process(port: int, *kinds: str) -> tuple[dict[str, str], int]:
    """Ask in a process of its own; return what was told, and by how many KiB it grew."""
    words = [sys.executable, "-m", "tests.security.reading", str(port), *kinds]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["told"], answer["grown_kib"]


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
