"""`hansard gateway` as a program, in a home without a platform."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hansard.gateway.health import ask_health

PROGRAM = [sys.executable, "-m", "hansard.cli.main"]
PASSWORD = "not a real password"  # noqa: S105


def environment(home: Path) -> dict[str, str]:
    """Return where the program finds its home, and a password for a server that is not there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSARD_")}
    return {**kept, "HANSARD_HOME": str(home), "HANSARD_MATRIX_PASSWORD": PASSWORD}


@asynccontextmanager
async def running(home: Path, *arguments: str) -> AsyncIterator[subprocess.Popen[str]]:
    """Run a gateway, and give it when it tells how it is."""
    command = [*PROGRAM, "gateway", *arguments]
    process = subprocess.Popen(command, env=environment(home), stderr=subprocess.PIPE, text=True)
    try:
        async with asyncio.timeout(120):
            while await ask_health(home) is None:
                assert process.poll() is None, "it did not start"
                await asyncio.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
