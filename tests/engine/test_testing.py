"""The tools and models of `hansard.testing` are what their ports ask for, and do what their names say."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from hansard.domain.requests import Delta, Finished, Request, UserSaid
from hansard.models.scripted import ScriptedModel
from hansard.ports.model import Model
from hansard.ports.tool import Tool
from hansard.testing.fakes import (
    Counting,
    Echo,
    Failing,
    LargeOutput,
    RecordingModel,
    Slow,
    tools_by_name,
)


def test_every_tool_has_a_name_and_a_schema_of_its_own() -> None:
    """They can stand side by side, and a provider accepts what they say of themselves."""
    tools: list[Tool] = [Echo(), Slow(), Failing(), LargeOutput(), Counting(), Echo("echo2")]
    by_name = tools_by_name(*tools)
    assert list(by_name) == ["echo", "slow", "failing", "large", "counting", "echo2"]
    for tool in by_name.values():
        assert msgspec.json.decode(tool.spec.parameters, type=dict[str, object])["type"] == "object"
        assert tool.spec.description
        assert isinstance(tool.repeatable, bool)


async def test_echo_gives_back_what_it_was_told() -> None:
    """The text; without one, all arguments in a fixed order."""
    assert await Echo().run({"text": "hello"}) == "hello"
    assert await Echo().run({"b": 1, "a": [2]}) == '{"a":[2],"b":1}'
    assert await Echo().run({"text": 5}) == '{"text":5}'


async def test_slow_waits_for_its_time_or_its_release() -> None:
    """It tells that it has begun, ends when it may, and does not count a run that was cancelled."""
    timed = Slow(seconds=0.01, output="done")
    assert await timed.run({}) == "done"
    held = Slow()
    run = asyncio.create_task(held.run({}))
    await asyncio.wait_for(held.begun.wait(), 120)
    run.cancel()
    await asyncio.wait({run}, timeout=120)
    assert (run.cancelled(), held.finished) == (True, 0)
    held.release.set()
    assert await held.run({}) == "waited"
    assert held.finished == 1


async def test_failing_raises_what_it_was_given() -> None:
    """By default something that can be looked for."""
    with pytest.raises(RuntimeError, match="out of order"):
        await Failing().run({})
    with pytest.raises(KeyError):
        await Failing(error=KeyError("x")).run({})


async def test_large_and_counting() -> None:
    """So many lines, each of its own; so many runs, each with its arguments."""
    large = LargeOutput(lines=3)
    assert await large.run({}) == large.output == "line 1 of 3\nline 2 of 3\nline 3 of 3"
    counting = Counting()
    assert [await counting.run({"n": number}) for number in range(3)] == ["1", "2", "3"]
    assert (counting.count, counting.calls) == (3, [{"n": 0}, {"n": 1}, {"n": 2}])


async def test_a_recording_model_is_the_other_model(tmp_path: Path) -> None:
    """Name, tools and answer are those of the other; what it was asked is kept."""
    script = tmp_path / "script.toml"
    script.write_text('uses_tools = false\n[[answers]]\ntext = "You said: {last}"\npieces = "whole"\n')
    model = RecordingModel(ScriptedModel(script))
    port: Model = model
    request = Request(system="s", messages=(UserSaid("hi"),))
    events = [event async for event in port.stream(request)]
    assert events[0] == Delta("You said: hi")
    assert isinstance(events[-1], Finished)
    assert (model.requests, model.name, model.uses_tools) == ([request], f"scripted:{script}", False)
    await port.close()
