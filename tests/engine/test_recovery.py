"""Turns that a crash ended: gone on with, after a question, or left alone; nothing unrepeatable is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Message, Role, ToolOutcome, ToolResult
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.domain.settings.agent import AutoResume
from hansard.engine import prompts
from hansard.engine.recovery import GOES_ON, queue_lost
from hansard.engine.runner import Runner
from hansard.engine.turns import Agent
from hansard.intake.speak import speak
from hansard.record.api import Record
from hansard.record.questions import QuestionAsked
from hansard.testing.fakes import Counting, Echo, tools_by_name
from tests.engine.stage import PERSON, QUICK, PlayedModel, fixed
from tests.tools.lost import lose_turn

ON = Policy(auto_resume=AutoResume.ON)
WAIT_SECONDS = 120.0


class Next:
    """The process after the one that died."""

    def __init__(self, record: Record, model: PlayedModel, tool: Counting, policy: Policy) -> None:
        """Nothing is taken up yet."""
        self.record = record
        self.model = model
        self.agent = Agent(
            record=record, models=fixed([model]), tools=tools_by_name(tool, Echo()), limits=QUICK, policy=policy
        )
        self.runner = Runner(self.agent, lambda _session_id, error: pytest.fail(str(error)))

    async def start(self) -> int:
        """Take up what was lost, as a program does at its start."""
        queued = await queue_lost(self.agent)
        for turn in queued:
            self.runner.wake(turn.session_id, turn.id)
        return len(queued)

    async def idle(self) -> None:
        """Wait until nothing is left to run."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.runner.idle()

    async def states(self) -> list[TurnState]:
        """How the turns of the session ended."""
        return [turn.state for turn in await self.record.turns.list("s1")]


@asynccontextmanager
async def after(home: Path, model: PlayedModel, policy: Policy, tool: Counting | None = None) -> AsyncIterator[Next]:
    """Open the record that a dead process left."""
    async with Record.open(home) as record:
        process = Next(record, model, tool or Counting(), policy)
        try:
            yield process
        finally:
            await process.runner.close()
        assert (await record.verify()).ok


async def test_off_leaves_it_alone(home: Path) -> None:
    """By default a lost turn stays lost."""
    lose_turn(home, words="Half an ans")
    async with after(home, PlayedModel(["never"]), Policy()) as process:
        assert await process.start() == 0
        assert await process.states() == [TurnState.LOST]


@pytest.mark.loss("A6")
async def test_on_goes_on(home: Path) -> None:
    """What was said stays, model and people are told what happened, and the answer goes on in a new message."""
    lose_turn(home, words="Half an ans")
    model = PlayedModel(["wer."])
    async with after(home, model, ON) as process:
        assert await process.start() == 1
        await process.idle()
        assert await process.states() == [TurnState.LOST, TurnState.COMPLETED]
        transcript = await process.record.load_transcript("s1")
        assert [each.text for each in transcript if each.role == Role.ASSISTANT] == ["Half an ans", "wer."]
        assert [each.text for each in transcript if each.role == Role.NOTICE] == [GOES_ON]
        assert prompts.RESUMED in str(model.requests[0].messages[-1])
        assert await process.start() == 0  # once


async def test_a_turn_without_a_word_goes_on_too(home: Path) -> None:
    """A crash before the first word is gone on with like any other."""
    lose_turn(home)
    async with after(home, PlayedModel(["Here."]), ON) as process:
        await process.start()
        await process.idle()
        transcript = await process.record.load_transcript("s1")
        assert [each.text for each in transcript if each.role == Role.ASSISTANT] == ["Here."]


async def test_only_what_may_be_repeated_is_run_again(home: Path) -> None:
    """Of the calls that the crash left, a repeatable one is run; of the other it is said that nobody knows."""
    lose_turn(home, words="I look.", calls=(("echo", '{"text":"hi"}', "a"), ("counting", "{}", "b")))
    tool = Counting()
    model = PlayedModel(["done"])
    async with after(home, model, ON, tool) as process:
        await process.start()
        await process.idle()
        transcript = await process.record.load_transcript("s1")
        results = [part for each in transcript for part in each.parts if isinstance(part, ToolResult)]
        assert {(result.call_id, result.outcome) for result in results} == {
            ("a", ToolOutcome.OK),
            ("b", ToolOutcome.UNKNOWN),
        }
        assert tool.count == 0
        assert "hi" in str(model.requests[0].messages)


async def test_a_turn_whose_only_call_may_not_be_repeated_goes_on(home: Path) -> None:
    """Nothing is left to be run: the model is told that nobody knows, and the answer goes on."""
    lose_turn(home, words="I pay.", calls=(("counting", "{}", "b"),))
    tool = Counting()
    async with after(home, PlayedModel(["done"]), ON, tool) as process:
        await process.start()
        await process.idle()
        assert await process.states() == [TurnState.LOST, TurnState.COMPLETED]
        assert tool.count == 0


@pytest.mark.loss("C4")
async def test_a_call_that_waited_for_its_yes_asks_again(home: Path) -> None:
    """Paused is not begun: after the restart the question is asked again, and its yes runs the call exactly once."""
    lose_turn(home, words="May I?", calls=(("counting", "{}", "b"),), asked="b")
    tool = Counting()
    policy = msgspec.structs.replace(ON, rules=(ToolRule(do=CallVerdict.ASK, tool="counting"),))
    async with after(home, PlayedModel(["done"]), policy, tool) as process:
        await process.start()
        await until_asked(process.record, 2)
        spoken = await speak(process.record, "s1", [Message.user("yes", author=PERSON)], Busy.INTERRUPT, answers=True)
        process.runner.wake("s1", spoken.turn_id)
        await process.idle()
        assert tool.count == 1


async def until_asked(record: Record, count: int) -> None:
    """Wait until so many questions were asked in the session, and draw the last one as a terminal does."""
    seen = 0
    async with asyncio.timeout(WAIT_SECONDS):
        async for item in record.follow("s1", 0, chunks=False):
            body = getattr(item, "body", None)
            seen += isinstance(body, QuestionAsked)
            if seen == count and isinstance(body, QuestionAsked):
                await record.questions.note_shown("s1", body.message_id)
                return


@pytest.mark.parametrize(("words", "answers"), [("yes", ["Half an ans", "wer."]), ("no", ["Half an ans"])])
async def test_ask_waits_for_a_yes(home: Path, words: str, answers: list[str]) -> None:
    """People are asked, and a no leaves everything as it is."""
    lose_turn(home, words="Half an ans")
    async with after(home, PlayedModel(["wer."]), Policy(auto_resume=AutoResume.ASK)) as process:
        await process.start()
        await until_asked(process.record, 1)
        spoken = await speak(process.record, "s1", [Message.user(words, author=PERSON)], Busy.INTERRUPT, answers=True)
        process.runner.wake("s1", spoken.turn_id)
        await process.idle()
        transcript = await process.record.load_transcript("s1")
        said = [each.text for each in transcript if each.role == Role.ASSISTANT]
        assert said[: len(answers)] == answers


async def test_a_turn_that_takes_its_process_down_is_not_repeated_for_ever(home: Path) -> None:
    """One that is lost while it goes on with a lost one is left alone."""
    lose_turn(home, words="Half an ans")
    async with Record.open(home) as record:
        await queue_lost(Agent(record=record, models=fixed([]), tools={}, limits=QUICK, policy=ON))
    lose_turn(home, words="again", claim_only=True)
    async with after(home, PlayedModel(["never"]), ON) as process:
        assert await process.states() == [TurnState.LOST, TurnState.LOST]
        assert await process.start() == 0
