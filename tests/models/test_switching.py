"""One session, four protocols, each after each: calls, reasoning and pictures come along as far as they can."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise, permutations
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import File, Message, Text
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.intake.speak import speak
from hansard.models.pydantic import open_provider
from hansard.ports.model import Model
from hansard.testing.fakes import Echo, tools_by_name
from tests.engine.stage import Stage, stage
from tests.models.helpers import KEY, STALL_SECONDS, THINKS, sent_signature
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import STYLES, Provider

MODELS = {
    "openai": "gpt-5",
    "openai-responses": "gpt-5",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-3.5-flash",
}
WAY = (0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0)
"""Each of four after each other one."""

DONE = Behaviour(pieces=("Done.",))
PICTURE = b"\x89PNG and more"


class Cast:
    """A provider for each protocol, and a model in front of it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        """Nobody is there yet."""
        self._stack = stack
        self.providers: dict[str, Provider] = {}
        self.models: dict[str, Model] = {}

    async def add(self, style: str, behaviours: list[Behaviour]) -> None:
        """Let a provider listen."""
        provider = Provider(style, behaviours)
        provider.model = MODELS[style]
        self.providers[style] = await self._stack.enter_async_context(provider)
        name = f"{style}:{MODELS[style]}"
        model = open_provider(name, key=KEY, base_url=provider.base_url, stall_seconds=STALL_SECONDS)
        self._stack.push_async_callback(model.close)
        self.models[name] = model

    async def choose(self, name: str) -> Model:
        """Find the model of a name."""
        return self.models[name]


@asynccontextmanager
async def playing(home: Path, behaviours: list[Behaviour]) -> AsyncIterator[tuple[Stage, Cast]]:
    """A session that can ask all of them."""
    async with AsyncExitStack() as stack:
        parts = Cast(stack)
        for style in STYLES:
            await parts.add(style, behaviours)
        ready = await stack.enter_async_context(stage(home, *parts.models.values(), tools=tools_by_name(Echo())))
        on = Stage(msgspec.structs.replace(ready.agent, choose=parts.choose), ready.session_id)
        stack.push_async_callback(on.runner.close)
        yield on, parts


async def show(on: Stage, style: str, number: int) -> None:
    """Choose a model, show it a picture and wait for its answer."""
    await on.record.sessions.set_setting(on.session_id, "model", f"{style}:{MODELS[style]}")
    blob = await on.record.blobs.put(PICTURE + bytes([number]))
    picture = File(blob=blob, media_type="image/png", size_bytes=len(PICTURE) + 1, name=f"p{number}.png")
    said = Message.user([Text(f"question {number}"), picture])
    spoken = await speak(on.record, on.session_id, [said], Busy.QUEUE)
    on.runner.wake(on.session_id, spoken.turn_id)
    await on.settled()


@pytest.mark.loss("C7", "C5", "N3", "N4")
async def test_each_after_each(home: Path) -> None:
    """All words, calls, results and pictures are sent to each; reasoning only to the model that made it."""
    styles = sorted(STYLES)
    assert {(a, b) for a, b in pairwise(WAY) if a != b} == set(permutations(range(4), 2))
    async with playing(home, [THINKS, DONE] * len(WAY)) as (on, parts):
        thought: set[str] = set()
        for number, place in enumerate(WAY):
            style = styles[place]
            provider = parts.providers[style]
            asked = len(provider.answers)
            await show(on, style, number)
            assert (await on.states())[-1] is TurnState.COMPLETED, await on.notices()
            assert [each.error for each in provider.answers[asked:]] == ["", ""]
            first, second = (json.dumps(each.body) for each in provider.answers[asked:])
            for earlier in range(number + 1):
                assert f"question {earlier}" in first
                assert base64.b64encode(PICTURE + bytes([earlier])).decode() in first
            assert first.count("Let me see.") == number
            assert second.count("Let me see.") == number + 1
            assert first.count("Done.") == number
            for other in set(styles) - {"openai"}:
                assert sent_signature(other, first) is (other == style and style in thought)
                assert sent_signature(other, second) is (other == style)
            thought.add(style)
        assert not any("could not read" in notice for notice in await on.notices())
        await on.check()


WORDS = "messages.1.content.0: tool_use ids must be unique"


@pytest.mark.loss("C13")
@pytest.mark.parametrize("style", sorted(STYLES))
async def test_a_refused_history_in_every_protocol(home: Path, style: str) -> None:
    """A 400 about the conversation is answered by words alone, told, and remembered; the next turn is asked once."""
    async with playing(home, [THINKS, DONE]) as (on, parts):
        other = next(each for each in sorted(STYLES) if each != style)
        await show(on, other, 0)
        provider = parts.providers[style]
        provider.behaviours = [Behaviour(status=400, message=WORDS), DONE]
        await show(on, style, 1)
        assert (await on.states())[-1] is TurnState.COMPLETED
        assert [each.status for each in provider.answers] == [400, 200]
        assert any("in words alone" in notice and WORDS in notice for notice in await on.notices())
        second = json.dumps(provider.answers[-1].body)
        assert "question 0" in second
        assert "the tool echo was called with" in second
        await show(on, style, 2)
        assert [each.status for each in provider.answers] == [400, 200, 200]
        await on.check()


@pytest.mark.parametrize("style", sorted(STYLES))
@pytest.mark.parametrize(
    ("words", "asked"), [("Your credit balance is too low", 1), ("as nobody can tell what is wrong", 2)]
)
async def test_a_refusal_of_something_else(home: Path, style: str, words: str, asked: int) -> None:
    """It is reported with its own words, asked once more at most, and the session goes on with another model."""
    async with playing(home, [DONE]) as (on, parts):
        other = next(each for each in sorted(STYLES) if each != style)
        await show(on, other, 0)
        provider = parts.providers[style]
        provider.behaviours = [Behaviour(status=400, message=words)]
        await show(on, style, 1)
        assert len(provider.answers) == asked
        assert (await on.states())[-1] is TurnState.FAILED
        assert "The model could not answer" in (await on.notices())[-1]
        assert words in (await on.notices())[-1]
        await show(on, other, 2)
        assert (await on.states())[-1] is TurnState.COMPLETED
        body = json.dumps(parts.providers[other].answers[-1].body)
        assert all(f"question {number}" in body for number in range(3))
        await on.check()
