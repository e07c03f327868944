"""Fakes: a clock that moves only when told to, models that keep what they were asked, tools that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from hansard.domain.requests import ModelEvent, Request, ToolSpec
from hansard.ports.model import Model
from hansard.ports.tool import Tool

START_MICROSECONDS = 1_700_000_000_000_000


class FakeClock:
    """Wall time and monotonic time, each moved by hand; wall time may jump back, as real clocks do."""

    def __init__(self, now_microseconds: int = START_MICROSECONDS) -> None:
        self._now = now_microseconds
        self._monotonic = 0.0

    def now_microseconds(self) -> int:
        return self._now

    def monotonic_seconds(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forth or back, as an administrator or NTP does."""
        self._now += round(seconds * 1_000_000)


class RecordingModel:
    """Another model, with every request that it was given kept, attempts that failed included."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.uses_tools, self.rules = model.name, model.uses_tools, model.rules
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        async with aclosing(self._model.stream(request)) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._model.close()


TEXT_PARAMETERS = '{"type":"object","properties":{"text":{"type":"string"}}}'
"""The schema of a tool that is told a text; those that need none ignore it."""


def tools_by_name(*tools: Tool) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in tools}


class Echo:
    """Gives back what it was told: the text, or all its arguments as JSON when there is no text."""

    repeatable = True

    def __init__(self, name: str = "echo") -> None:
        self.spec = ToolSpec(name=name, description="Gives the text back.", parameters=TEXT_PARAMETERS)

    async def run(self, arguments: dict[str, object]) -> str:
        text = arguments.get("text")
        return text if isinstance(text, str) else msgspec.json.encode(arguments, order="sorted").decode()


class Slow:
    """Waits: for so many seconds, or without them until `release` is set. `begun` tells that somebody called it."""

    repeatable = False

    def __init__(self, name: str = "slow", *, seconds: float | None = None, output: str = "waited") -> None:
        self.spec = ToolSpec(name=name, description="Takes its time.", parameters=TEXT_PARAMETERS)
        self.begun = asyncio.Event()
        self.release = asyncio.Event()
        self.finished = 0
        """Runs that came to their end; one that was cancelled did not."""
        self._seconds = seconds
        self._output = output

    async def run(self, arguments: dict[str, object]) -> str:
        del arguments
        self.begun.set()
        if self._seconds is None:
            await self.release.wait()
        else:
            await asyncio.sleep(self._seconds)
        self.finished += 1
        return self._output


class Failing:
    """Raises, each time."""

    repeatable = True

    def __init__(self, name: str = "failing", *, error: BaseException | None = None) -> None:
        self.spec = ToolSpec(name=name, description="Never works.", parameters=TEXT_PARAMETERS)
        self._error = error or RuntimeError("the tool is out of order")

    async def run(self, arguments: dict[str, object]) -> str:
        del arguments
        raise self._error


class LargeOutput:
    """Gives as much as it is made for: numbered lines, so that a missing one can be told."""

    repeatable = True

    def __init__(self, name: str = "large", *, lines: int = 10_000) -> None:
        self.spec = ToolSpec(name=name, description="Gives a lot.", parameters=TEXT_PARAMETERS)
        self.output = "\n".join(f"line {number} of {lines}" for number in range(1, lines + 1))

    async def run(self, arguments: dict[str, object]) -> str:
        del arguments
        return self.output


class Counting:
    """Counts its runs: what must not happen twice is seen here when it does."""

    repeatable = False

    def __init__(self, name: str = "counting") -> None:
        self.spec = ToolSpec(name=name, description="Counts.", parameters=TEXT_PARAMETERS)
        self.calls: list[dict[str, object]] = []

    @property
    def count(self) -> int:
        return len(self.calls)

    async def run(self, arguments: dict[str, object]) -> str:
        self.calls.append(arguments)
        return str(self.count)
