"""Turns that end before their answer does: at a limit, without a model, by a bug. Each says so; the next one runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from hansard.domain.budgets import Usage
from hansard.domain.messages import Role, Status, ToolOutcome
from hansard.domain.requests import FailureKind, Request, UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy, TurnLimits
from hansard.errors import ModelMissing
from hansard.ports.model import Model
from hansard.testing.fakes import Counting, tools_by_name
from tests.clock import leap
from tests.engine.stage import QUICK, Gate, PlayedModel, call, failure, stage
from tests.engine.validator import assert_begins, assert_valid


async def test_a_turn_ends_after_so_many_steps(home: Path) -> None:
    """A model that calls tools for ever: the calls of the last step are not started, and the person is told."""
    counting = Counting()
    model = PlayedModel(*([call("counting", id=f"c{step}")] for step in range(5)))
    async with stage(home, model, tools=tools_by_name(counting), limits=TurnLimits(steps_max=3)) as on:
        await on.run("go")
        assert (len(model.requests), counting.count) == (3, 2)
        assert list((await on.outcomes()).values()) == [ToolOutcome.OK, ToolOutcome.OK, ToolOutcome.NOT_STARTED]
        assert await on.notices() == [
            "This turn reached its limit (3 steps) and was ended. Say “go on” to let it continue."
        ]
        assert await on.ends() == [(TurnState.FAILED, "limit: 3 steps")]
        await on.check()


async def test_a_turn_ends_after_so_many_tokens(home: Path) -> None:
    """Tokens in and out of all its requests are counted; an answer that calls no tool is not cut short."""
    counting = Counting()
    usage = Usage(input_tokens=70, output_tokens=30)
    model = PlayedModel([usage, call("counting", id="c1")], [usage, call("counting", id="c2")], [usage, "Done."])
    async with stage(home, model, tools=tools_by_name(counting), limits=TurnLimits(turn_tokens_max=200)) as on:
        await on.run("go")
        assert (len(model.requests), counting.count) == (2, 1)
        assert await on.ends() == [(TurnState.FAILED, "limit: 200 tokens")]
        await on.run("go on")
        assert (await on.texts(Role.ASSISTANT))[-1] == "Done."
        assert await on.states() == [TurnState.FAILED, TurnState.COMPLETED]
        await on.check()


@pytest.mark.loss("A6", "A14")
async def test_a_turn_ends_after_so_long(home: Path) -> None:
    """A model that hangs in its answer: what it said stays, the turn fails in time and says so, the next one runs."""
    gate = Gate()
    model = PlayedModel(["So ", gate], ["Now."])
    async with stage(home, model, limits=TurnLimits(turn_seconds_max=60)) as on:
        running = asyncio.create_task(on.run("hi"))
        await gate.reached()
        await on.until_text("So ")
        leap(60)
        await running
        (said,) = await on.transcript(Role.ASSISTANT)
        assert (said.status, said.text) == (Status.INTERRUPTED, "So ")
        assert await on.notices() == ["This turn took longer than 60 s and was ended."]
        assert await on.ends() == [(TurnState.FAILED, "limit: 60 s")]
        await on.run("and?")
        assert "your reply above was interrupted (limit: 60 s)" in str(model.requests[1].messages[-1])


async def test_the_limit_on_tokens_of_an_answer_reaches_the_model(home: Path) -> None:
    """It is part of the request."""
    model = PlayedModel(["ok"])
    async with stage(home, model, limits=TurnLimits(output_tokens_max=77)) as on:
        await on.run("hi")
        assert model.requests[0].output_tokens_max == 77


class Missing:
    """A search for models that finds none, and then one."""

    def __init__(self, model: Model) -> None:
        """Nobody has looked yet."""
        self.looks = 0
        self._model = model

    async def __call__(self) -> Sequence[Model]:
        """Find nothing at first."""
        self.looks += 1
        if self.looks == 1:
            raise ModelMissing("there is no model to talk to")
        return [self._model]


@pytest.mark.loss("A2", "A14")
async def test_without_any_model_the_person_is_told_what_to_do(home: Path) -> None:
    """The turn fails with the hint; the message is recorded; once there is a model, the next turn runs."""
    async with stage(home, found=Missing(PlayedModel(["At last."]))) as on:
        await on.run("hi")
        assert await on.texts() == ["hi"]
        (notice,) = await on.notices()
        assert "there is no model to talk to. Set OPENAI_API_KEY" in notice
        assert await on.states() == [TurnState.FAILED]
        await on.run("now?")
        assert await on.texts(Role.ASSISTANT) == ["At last."]


async def test_no_model_in_the_list_is_a_failure_too(home: Path) -> None:
    """An empty list of models: the turn fails and says so."""
    async with stage(home) as on:
        await on.run("hi")
        assert await on.states() == [TurnState.FAILED]
        assert "no model is configured" in (await on.notices())[0]


@pytest.mark.parametrize("said", [[], ["Half a "]], ids=["before a word", "after a word"])
@pytest.mark.loss("A6", "A14")
async def test_a_bug_in_an_adapter_ends_the_turn_and_no_more(home: Path, said: list[str]) -> None:
    """An adapter that raises: what it said stays, the turn fails, the person is told, and the next turn runs."""
    model = PlayedModel([*said, ZeroDivisionError("a bug")], ["Fine."])
    async with stage(home, model) as on:
        await on.ask("hi")
        assert await on.texts(Role.ASSISTANT) == said
        (notice,) = await on.notices()
        assert "ZeroDivisionError: a bug" in notice
        assert "recorded" in notice
        assert await on.ends() == [(TurnState.FAILED, "ZeroDivisionError: a bug")]
        assert [type(error) for error in on.reports] == [ZeroDivisionError]
        on.reports.clear()
        await on.ask("again")
        assert (await on.texts(Role.ASSISTANT))[-1] == "Fine."
        await on.check()


@pytest.mark.loss("F5", "A14")
async def test_what_waits_behind_a_bug_is_answered(home: Path) -> None:
    """A message that was queued while the failing turn ran is answered, without anybody speaking again."""
    gate = Gate()
    model = PlayedModel([gate, ZeroDivisionError("a bug")], ["Fine."])
    async with stage(home, model) as on:
        await on.speak("first")
        await gate.reached()
        await on.speak("second", Busy.QUEUE)
        gate.open()
        await on.settled()
        on.reports.clear()
        assert await on.states() == [TurnState.FAILED, TurnState.COMPLETED]
        assert await on.texts(Role.ASSISTANT) == ["Fine."]


class FoundLate(Missing):
    """A search that finds nothing once the test lets it end, and then a model."""

    def __init__(self, model: Model, gate: Gate) -> None:
        """Wait at this gate."""
        super().__init__(model)
        self._gate = gate

    async def __call__(self) -> Sequence[Model]:
        """Look for as long as the test wants."""
        if not self.looks:
            await self._gate.stand()
        return await super().__call__()


@pytest.mark.loss("F5", "A14")
async def test_what_waits_behind_a_missing_model_is_answered(home: Path) -> None:
    """The same when there was no model: the queued turn runs, finds one, and the model is told both messages."""
    gate, model = Gate(), PlayedModel(["At last."])
    async with stage(home, found=FoundLate(model, gate)) as on:
        await on.speak("first")
        await gate.reached()
        await on.speak("second", Busy.QUEUE)
        gate.open()
        await on.settled()
        assert await on.texts(Role.ASSISTANT) == ["At last."]
        assert "first" in words(model.requests[0])
        assert "second" in words(model.requests[0])


def words(request: Request) -> str:
    """Everything that people said in a request."""
    return "\n".join(said.text for said in request.messages if isinstance(said, UserSaid))


@pytest.mark.loss("C13")
async def test_a_refused_turn_does_not_brick_the_session(home: Path) -> None:
    """A provider that refuses one request: the next turn's request is valid, begins with the refused one, and runs."""
    model = PlayedModel([failure(FailureKind.REFUSED)], ["Better."])
    async with stage(home, model, limits=QUICK) as on:
        await on.run("first")
        await on.run("second")
        assert_begins(model.requests[0].messages, model.requests[1].messages)
        assert_valid(model.requests[1].messages)
        assert "failed before you replied" in str(model.requests[1].messages[-1])
        assert await on.texts(Role.ASSISTANT) == ["Better."]
