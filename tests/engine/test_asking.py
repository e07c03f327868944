"""Calls that need a yes: shown, answered in the same chat by those who asked, and otherwise not run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Role, ToolOutcome
from hansard.domain.questions import NOTHING_WAITS
from hansard.domain.requests import UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.commands.turns import read_command
from hansard.intake.speak import parse
from hansard.record.messages.entries import Entry
from hansard.record.questions import QuestionAnswered, QuestionAsked
from hansard.testing.fakes import Counting, Slow, tools_by_name
from tests.engine.asking import ASKS, ask_of, drawn, say
from tests.engine.stage import PlayedModel, call, stage

ROOM = "matrix:room:!den:x.org"


@pytest.mark.drawn(6)
@pytest.mark.parametrize("busy", list(Busy))
@pytest.mark.parametrize(("words", "runs"), [("Yes.", 1), ("ok", 1), ("no", 0), ("Nein!", 0)])
@pytest.mark.loss("C4")
async def test_an_ordinary_message_answers(home: Path, words: str, runs: int, busy: Busy) -> None:
    """A yes lets the call run once, a no does not, whatever messages do to turns; and the turn goes on."""
    tool = Counting()
    model = PlayedModel([call("counting", '{"what":"it"}')], ["done"])
    async with stage(home, model, tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await drawn(on)
        (question,) = await on.notices()
        assert "counting" in question
        assert '"what": "it"' in question
        assert tool.count == 0
        await say(on, words, busy=busy)
        await on.settled()
        assert tool.count == runs
        assert await on.texts(Role.ASSISTANT) == ["", "done"]
        (result,) = await on.results()
        assert result.outcome is (ToolOutcome.OK if runs else ToolOutcome.NOT_STARTED)
        assert len(model.requests) == 2
        assert len([said for said in model.requests[-1].messages if isinstance(said, UserSaid)]) == 1
        await on.check()


async def test_nobody_answers_in_time(home: Path) -> None:
    """Time that is over is a no: recorded, told, and the model goes on without the call."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on, msgspec.structs.replace(ASKS, ask_seconds=0.05))
        await on.ask("go")
        assert tool.count == 0
        body = (await on.until_body(QuestionAnswered)).body
        assert isinstance(body, QuestionAnswered)
        assert (body.yes, body.by) == (False, "")
        assert "Nobody answered in time" in (await on.notices())[-1]
        assert await on.states() == [TurnState.COMPLETED]
        await on.check()


async def test_where_nobody_can_be_asked_it_is_a_no(home: Path) -> None:
    """Without time to answer nothing is asked, and nothing is run."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on, msgspec.structs.replace(ASKS, ask_seconds=0))
        await on.ask("go")
        assert (tool.count, await on.notices()) == (0, [])


async def test_what_is_denied_is_neither_asked_nor_run(home: Path) -> None:
    """A rule that denies: the model is told so, nobody is bothered, nothing runs."""
    tool = Slow()
    async with stage(home, PlayedModel([call("slow")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await on.ask("go")
        assert not tool.begun.is_set()
        (result,) = await on.results()
        assert "not allowed" in result.text
        assert await on.notices() == []


@pytest.mark.parametrize(
    ("author", "chat"),
    [("@eve:x.org", ROOM), ("@ann:x.org", "matrix:room:!other:x.org"), ("@ann:x.org", ""), ("", "")],
)
async def test_what_is_asked_in_a_chat_is_answered_nowhere_else(home: Path, author: str, chat: str) -> None:
    """What somebody says in another chat, or types at the terminal, is no answer to a question of a chat."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on, msgspec.structs.replace(ASKS, ask_seconds=1))
        await say(on, "go", "@ann:x.org", ROOM)
        await drawn(on)
        await say(on, "yes", author, chat, Busy.QUEUE)
        told = await on.record.questions.answer(on.session_id, read_command("", yes=True), author=author)
        assert told == NOTHING_WAITS
        await on.settled()
        assert tool.count == 0
        await on.check()


@pytest.mark.parametrize(("command", "runs"), [("/yes", 1), ("/no", 0)])
async def test_commands_answer(home: Path, command: str, runs: int) -> None:
    """/yes and /no answer what waits; when nothing waits they say so."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await drawn(on)
        parsed = parse(command)
        assert parsed is not None
        scene = CommandScene(record=on.record, session_id=on.session_id)
        assert (await run_command(scene, command, parsed)).text == ("It is run." if runs else "It is not run.")
        await on.settled()
        assert tool.count == runs
        assert "Nothing waits" in (await run_command(scene, command, parsed)).text


async def test_one_question_at_a_time(home: Path) -> None:
    """Two calls are two questions, one after the other: each yes means the call that is shown."""
    tool = Counting()
    calls = [call("counting", '{"n":1}', id="a"), call("counting", '{"n":2}', id="b")]
    async with stage(home, PlayedModel(calls, ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await drawn(on)
        assert len(await on.notices()) == 1
        await say(on, "yes")
        await drawn(on, 2)
        await say(on, "no")
        await on.settled()
        assert [each["n"] for each in tool.calls] == [1]
        assert await on.outcomes() == {"a": ToolOutcome.OK, "b": ToolOutcome.NOT_STARTED}
        await on.check()


async def test_something_else_is_not_an_answer(home: Path) -> None:
    """Other words do what messages do: here they interrupt, and the call is never run."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["I see."]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await drawn(on)
        await say(on, "yes but what does it do?")
        await on.settled()
        assert tool.count == 0
        assert await on.states() == [TurnState.INTERRUPTED, TurnState.COMPLETED]
        assert await on.outcomes() == {"c1": ToolOutcome.NOT_STARTED}
        await on.check()


@pytest.mark.loss("C4")
async def test_a_yes_after_the_turn_is_gone_runs_nothing(home: Path) -> None:
    """A question ends with its turn: a late yes is said to the model, and to nobody else."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["What do you mean?"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await drawn(on)
        await on.stop()
        await on.settled()
        await say(on, "yes")
        await on.settled()
        assert tool.count == 0
        answers = [entry for entry in await on.entries() if isinstance(entry.body, QuestionAnswered)]
        assert answers == []
        await on.check()


async def test_answer_and_time_at_once_agree(home: Path) -> None:
    """Whichever is recorded first counts, for the call and for whoever reads the record."""
    for attempt in range(10):
        tool = Counting()
        model = PlayedModel([call("counting")], ["done"])
        async with stage(home / str(attempt), model, tools=tools_by_name(tool)) as on:
            ask_of(on, msgspec.structs.replace(ASKS, ask_seconds=0.03))
            await say(on, "go")
            await drawn(on)
            await asyncio.sleep(0.02 + attempt / 500)
            await say(on, "yes", busy=Busy.QUEUE)
            await on.settled()
            answers = [entry.body for entry in await on.entries() if isinstance(entry.body, QuestionAnswered)]
            assert [tool.count] == [int(body.yes) for body in answers if isinstance(body, QuestionAnswered)]


async def test_the_question_is_recorded_with_its_notice(home: Path) -> None:
    """What people are shown and what the turn waits for are one commit."""
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(Counting())) as on:
        ask_of(on)
        await say(on, "go")
        entry = await on.until_body(QuestionAsked)
        assert isinstance(entry, Entry)
        assert await on.together("question.asked") == ["message.added", "question.asked"]
        await on.stop()
        await on.settled()
