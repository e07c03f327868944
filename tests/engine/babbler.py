"""A process that talks at random until it is killed: `python -m tests.engine.babbler HOME SESSION SEED`.

What it was acknowledged, what a model was asked and what a follower was shown goes to standard output, a line each, at
the moment that it happens. Whoever kills the process can hold all of that against the record.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from hansard.domain.budgets import Usage
from hansard.domain.messages import Message, ToolCall
from hansard.domain.requests import (
    Called,
    Delta,
    Failed,
    FailureKind,
    Finished,
    FinishReason,
    ModelEvent,
    ModelRules,
    Request,
)
from hansard.domain.settings import Busy, TurnLimits
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.errors import LeaseHeld
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import parse, speak
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk
from hansard.testing.fakes import Echo, Failing, Slow, tools_by_name
from tests.engine.stage import failure, fixed

LIMITS = TurnLimits(retry_seconds_max=0.005, attempts_max=2, steps_max=4)
COMMANDS = ("/stop", "/undo", "/undo 2", "/retry")
TOOLS = ("echo", "slow", "failing", "absent")
PAUSES = (0, 0, 0.001, 0.003, 0.01, 0.03)
MODES = (Busy.QUEUE, Busy.QUEUE, Busy.QUEUE, Busy.STEER, Busy.STEER, Busy.STEER, Busy.INTERRUPT)
BREATH_SECONDS = 0.35
"""After an interruption nothing is asked while somebody speaks: whoever never took a breath would get no answer."""


def tell(kind: str, **facts: object) -> None:
    """Say what happened, in one write."""
    os.write(1, json.dumps({"kind": kind, **facts}).encode() + b"\n")


def marks(request: Request) -> list[str]:
    """A short name of each message of a request: equal messages have equal names."""
    return [hashlib.sha256(repr(said).encode()).hexdigest()[:12] for said in request.messages]


class Babble:
    """A model that says anything, slowly or not, calls tools, fails and breaks off."""

    name = "babble"
    uses_tools = True
    rules = ModelRules()

    def __init__(self, chance: random.Random) -> None:
        """Choose by this."""
        self._chance = chance
        self._calls = 0

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Answer somehow."""
        tell("asked", marks=marks(request))
        chance = self._chance
        await asyncio.sleep(chance.choice(PAUSES))
        if chance.random() < 0.1:
            yield Failed(failure=failure(chance.choice([FailureKind.BUSY, FailureKind.REFUSED])))
            return
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(chance.choice(PAUSES))
            yield Delta(chance.choice(["so ", "\N{GRINNING FACE}", "and ", "\n\n", " "]))
        if chance.random() < 0.1:
            yield Failed(failure=failure(FailureKind.CUT))
            return
        calls = chance.choice([0, 0, 1, 3])
        for _ in range(calls):
            self._calls += 1
            yield Called(ToolCall(id=f"{os.getpid()}-{self._calls}", name=chance.choice(TOOLS)))
        reason = FinishReason.TOOLS if calls else FinishReason.STOP
        yield Finished(reason=reason, usage=Usage(input_tokens=1, output_tokens=1))

    async def close(self) -> None:
        """Nothing is held."""


async def watch(record: Record, session_id: str) -> None:
    """Be shown what is said, as a terminal is."""
    async with aclosing(record.follow(session_id)) as items:
        async for item in items:
            if isinstance(item, Chunk):
                tell("shown", message=item.message_id, offset=item.offset, text=item.text)


async def command(record: Record, runner: Runner, session_id: str, text: str) -> None:
    """Give a command; one that takes something back is told before and after."""
    parsed = parse(text)
    assert parsed is not None
    tell("undoing" if text != "/stop" else "stopping")
    try:
        outcome = await run_command(CommandScene(record=record, session_id=session_id), text, parsed)
    except LeaseHeld:
        return
    finally:
        tell("undone" if text != "/stop" else "stopped")
    if outcome.wake is not None:
        runner.wake(session_id, outcome.wake)


async def talk(record: Record, runner: Runner, session_id: str, chance: random.Random) -> None:
    """Speak and command without end."""
    number = 0
    while True:
        await asyncio.sleep(chance.choice(PAUSES))
        if chance.random() < 0.05:
            await command(record, runner, session_id, chance.choice(COMMANDS))
            await asyncio.sleep(BREATH_SECONDS * chance.randrange(2))
            continue
        number += 1
        said = Message.user(f"[{os.getpid()}.{number}]", id=f"{os.getpid()}.{number}")
        mode = chance.choice(MODES)
        spoken = await speak(record, session_id, [said], mode)
        tell("said", id=said.id, text=said.text)
        runner.wake(session_id, spoken.turn_id)
        if mode is Busy.INTERRUPT:
            await asyncio.sleep(BREATH_SECONDS * chance.randrange(2))


async def babble(home: Path, session_id: str, seed: int) -> None:
    """Talk until somebody kills this process."""
    chance = random.Random(seed)
    tools = tools_by_name(Echo(), Slow(seconds=0.01), Failing())
    async with Record.open(home) as record:
        await record.create_session(id=session_id, source="test")
        agent = Agent(record=record, models=fixed([Babble(chance)]), tools=tools, limits=LIMITS)
        runner = Runner(agent, lambda _id, error: tell("reported", error=repr(error)))
        watching = asyncio.create_task(watch(record, session_id))
        try:
            await talk(record, runner, session_id, chance)
        finally:
            watching.cancel()
            await runner.close()


if __name__ == "__main__":
    asyncio.run(babble(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
