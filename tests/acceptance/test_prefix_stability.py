"""Requests are prefix-stable (design, section 5), compared on the HTTP bodies that a provider received."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.messages import Message
from hansard.domain.settings import Busy, TurnLimits
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.speak import speak
from hansard.models.pydantic import open_provider
from hansard.ports.model import Model
from hansard.record.api import Record
from hansard.record.messages.entries import Chunk
from hansard.testing.fakes import Echo, Failing, LargeOutput, tools_by_name
from tests.counts import times
from tests.models.providers.behaviour import Behaviour, Call
from tests.models.providers.server import Provider

TURNS = times(test=12, long=30, prove=30)
WAIT_SECONDS_MAX = 120.0


def bare(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A value without cache markers."""
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items() if key != "cache_control"}
    return [bare(item) for item in value] if isinstance(value, list) else value


def marked(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Where the cache markers are: the keys on the way to each."""
    if isinstance(value, dict):
        if "cache_control" in value:
            yield ""
        for key, item in value.items():
            yield from (f"{key}.{path}" for path in marked(item))
    elif isinstance(value, list):
        for item in value:
            yield from marked(item)


def elements(body: dict[str, Any], key: str) -> list[Any]:
    """The elements of a part of a request."""
    value = bare(body.get(key, []))
    return value if isinstance(value, list) else [value]


class Scene:
    """A conversation with a loopback provider, in which everything happens that may happen to a turn."""

    def __init__(self, record: Record, provider: Provider, runner: Runner, session_id: str) -> None:
        """One session."""
        self.record = record
        self.provider = provider
        self.runner = runner
        self.session_id = session_id

    async def say(self, text: str, *behaviours: Behaviour, busy: Busy = Busy.QUEUE) -> None:
        """Speak; the provider's next answers are these."""
        self.provider.behaviours[len(self.provider.answers) :] = behaviours
        await speak(self.record, self.session_id, [Message.user(text)], busy)
        self.runner.wake(self.session_id)

    async def seen(self, word: str) -> None:
        """Wait until a word of an answer can be read back."""
        async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(self.record.follow(self.session_id)) as items:
            async for item in items:
                if isinstance(item, Chunk) and word in item.text:
                    return

    async def settled(self) -> None:
        """Wait until nothing runs."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.runner.settled(self.session_id)


async def plain(scene: Scene, text: str) -> None:
    """An answer without anything else."""
    await scene.say(text, Behaviour(pieces=("An answer to ", "{last}")))


async def with_tools(scene: Scene, text: str) -> None:
    """Two steps of tools, one of which fails and one of which says too much, then an answer."""
    number = len(scene.provider.answers)
    first = (Call(id=f"a{number}", name="echo", arguments='{"text": "one"}'), Call(id=f"b{number}", name="failing"))
    second = (Call(id=f"c{number}", name="large", arguments="{}"), Call(id=f"d{number}", name="missing"))
    await scene.say(
        text,
        Behaviour(pieces=("Let me look.",), calls=first),
        Behaviour(pieces=(), calls=second),
        Behaviour(pieces=("There: ", "it is.")),
    )


async def interrupted(scene: Scene, text: str) -> None:
    """An answer that is stopped in its middle."""
    number = len(scene.provider.answers)
    await scene.say(text, Behaviour(pieces=(f"Never{number} ", "finished ", "words ", "."), stall_after_events=5))
    await scene.seen(f"Never{number}")
    await scene.record.turns.stop(scene.session_id, "stopped")


async def unanswered(scene: Scene, text: str) -> None:
    """A turn that fails before its first word."""
    await scene.say(text, Behaviour(status=400, message="your credit balance is too low"))


async def cut(scene: Scene, text: str) -> None:
    """An answer that the provider cuts, and that is continued."""
    await scene.say(
        text,
        Behaviour(pieces=("Half an answer, ", "or ", "nearly ", "all"), cut_after_events=5),
        Behaviour(pieces=("the rest.",)),
    )


async def rapid(scene: Scene, text: str) -> None:
    """Three messages during one answer, answered together after it."""
    number = len(scene.provider.answers)
    slow = Behaviour(pieces=(f"Slowly{number} ", *["said "] * 20), delay_seconds=0.02)
    await scene.say(text, slow, Behaviour(pieces=("All three.",)))
    await scene.seen(f"Slowly{number}")
    for number in range(3):
        await speak(scene.record, scene.session_id, [Message.user(f"{text}, rapidly {number}")], Busy.QUEUE)


KINDS = (plain, with_tools, interrupted, unanswered, cut, rapid)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("style", ["openai", "anthropic"])
@pytest.mark.loss("D4", "D5")
async def test_each_request_begins_with_the_one_before(home: Path, style: str) -> None:
    """Over turns of every kind, `system`, `tools` and `messages` of a request begin those of the next."""
    async with Provider(style) as provider, Record.open(home) as record:
        model = open_provider(f"{style}:test-model", key="k" * 20, base_url=provider.base_url, stall_seconds=30)

        async def models() -> list[Model]:
            return [model]

        tools = tools_by_name(Echo(), Failing(), LargeOutput("large"))
        agent = Agent(
            record=record,
            models=models,
            tools=tools,
            limits=TurnLimits(tool_output_bytes_max=2048),
            instructions="Be kind.",
        )
        reported: list[BaseException] = []
        runner = Runner(agent, lambda _session_id, error: reported.append(error))
        session = await record.create_session(source="cli")
        scene = Scene(record, provider, runner, session.id)
        for number in range(TURNS):
            await KINDS[number % len(KINDS)](scene, f"Question {number}")
            await scene.settled()
        await runner.close()
        await model.close()
        refused = [exchange.error for exchange in provider.answers if exchange.error]
        bodies = [exchange.body for exchange in provider.answers]
    assert reported == []
    assert [error for error in refused if "not like this" not in error] == []
    assert len(bodies) > TURNS
    for earlier, later in pairwise(bodies):
        for part in ("system", "tools", "messages"):
            before, after = elements(earlier, part), elements(later, part)
            assert after[: len(before)] == before
    everything = str(bodies[-1]["messages"])
    assert all(f"Question {number}" in everything for number in range(TURNS))
    assert "interrupted (stopped)" in everything
    assert "Half an answer" in everything


async def test_anthropic_cache_markers_are_set(home: Path) -> None:
    """A request to Anthropic marks system, tools and the end of the messages for its cache."""
    async with Provider("anthropic") as provider, Record.open(home) as record:
        model = open_provider("anthropic:test-model", key="k" * 20, base_url=provider.base_url, stall_seconds=30)

        async def models() -> list[Model]:
            return [model]

        agent = Agent(record=record, models=models, tools=tools_by_name(Echo()), limits=TurnLimits())
        runner = Runner(agent, lambda _session_id, _error: None)
        session = await record.create_session(source="cli")
        scene = Scene(record, provider, runner, session.id)
        for number in range(2):
            await plain(scene, f"Question {number}")
            await scene.settled()
        await model.close()
        body = provider.answers[-1].body
    assert list(marked(body["system"]))
    assert list(marked(body["tools"]))
    assert list(marked(body["messages"][-1]))
