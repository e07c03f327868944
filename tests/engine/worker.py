"""Another process that runs turns on the same record, told what to do line by line: `python -m tests.engine.worker`.

Each line of its standard input is a JSON object with the command in `do`; each is answered by one line on its standard
output once it is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hansard.domain.settings import Busy, TurnLimits
from hansard.engine.turns import Agent
from hansard.record.api import Record
from tests.engine.stage import WAIT_SECONDS_MAX, Gate, PlayedModel, Stage, answer_last, fixed

ROOT = Path(__file__).parents[2]

MODELS = {
    "answers": lambda: PlayedModel([answer_last]),
    "hangs": lambda: PlayedModel(["I begin ", Gate()]),
}
"""What the other process may talk to: a model that answers, one that never ends."""


class Worker:
    """The other process, seen from the test."""

    def __init__(self, process: Process) -> None:
        """It runs."""
        self._process = process

    async def ask(self, do: str, **order: object) -> Any:  # noqa: ANN401 - whatever the command gives
        """Let it do something, and wait until it has."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            line = await self._process.stdout.readline()
        assert line, "the other process is gone"
        return json.loads(line)

    async def kill(self) -> None:
        """Kill it, as the kernel does when memory is short."""
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()


@asynccontextmanager
async def worker(home: Path, session_id: str, model: str = "answers") -> AsyncIterator[Worker]:
    """Another process on a session; gone at the end, whatever happened."""
    command = [sys.executable, "-m", "tests.engine.worker", str(home), session_id, model]
    process = await create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    try:
        started = Worker(process)
        await started.ask("ready")
        yield started
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), WAIT_SECONDS_MAX)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def do(on: Stage, order: dict[str, Any]) -> object:
    """Do what one line asks for."""
    name = order["do"]
    if name == "speak":
        spoken = await on.speak(order["text"], Busy(order.get("busy", "queue")))
        return spoken.turn_id
    if name == "many":
        for text in order["texts"]:
            await on.speak(text, Busy(order.get("busy", "queue")))
            await asyncio.sleep(order["pause_seconds"])
    elif name == "wake":
        on.runner.wake(on.session_id)
    elif name == "settled":
        await on.settled()
    elif name == "stop":
        await on.stop(order["reason"])
    return [str(error) for error in on.reports]


async def serve(home: Path, session_id: str, model: str) -> None:
    """Answer every line until there is none."""
    loop = asyncio.get_running_loop()
    async with Record.open(home) as record:
        on = Stage(Agent(record=record, models=fixed([MODELS[model]()]), tools={}, limits=TurnLimits()), session_id)
        try:
            while line := await loop.run_in_executor(None, sys.stdin.readline):
                os.write(1, json.dumps(await do(on, json.loads(line))).encode() + b"\n")
        finally:
            await on.runner.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
