"""S3: a yes counts only for the call that was shown, after it was shown, and from a person who means it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import ToolOutcome
from hansard.domain.questions import (
    NO_SUCH_QUESTION,
    NOT_DELIVERED,
    SAID_BEFORE,
    TOO_MANY_GUESSES,
    hash_call,
)
from hansard.domain.settings import Busy
from hansard.record.questions import GUESSES_PER_HOUR_MAX, QuestionAnswered, QuestionAsked, is_said_before
from hansard.testing.fakes import Counting, tools_by_name
from tests.engine.asking import ask_of, drawn, say
from tests.engine.stage import PlayedModel, call, stage
from tests.intake.asking import ASKS, asked, equip, settled
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, settings_of, town


async def test_an_ok_to_somebody_else_in_the_room(home: Path) -> None:
    """Ann's ok to Bob, in the room where a question of hers waits, runs nothing; nor does one before the question."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("pay the bill", ANN, ROOM, is_for_agent=True):
            here.runner.wake(wake.session_id, wake.turn_id)
        room = await here.session(ROOM)
        await asked(here, room)
        await here.say("ok", ANN, ROOM, is_for_agent=False)
        await here.deliver()
        await here.say("shall we have lunch?", BOB, ROOM, is_for_agent=False)
        await here.say("ok", ANN, ROOM, is_for_agent=False)
        assert not [entry for entry in await here.entries(room) if isinstance(entry.body, QuestionAnswered)]
        await here.record.turns.stop(room, "the test is over", queued=True)
        await settled(here, room)
        assert tool.count == 0


@pytest.mark.parametrize("words", ["yes", "/yes"])
async def test_a_yes_that_comes_late(home: Path, words: str) -> None:
    """A yes that was said before the question was shown, and is received after it, runs nothing; one said then does."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("pay the bill"):
            here.runner.wake(wake.session_id, wake.turn_id)
        session = await here.session()
        await asked(here, session)
        early = here.event(words, ANN, HOME_OF_ANN)
        here.clock.advance(10)
        await here.deliver()
        await here.take(early)
        assert not [entry for entry in await here.entries(session) if isinstance(entry.body, QuestionAnswered)]
        assert SAID_BEFORE in await here.notices(session)
        await here.say(words)
        await settled(here, session)
        assert tool.count == 1
        await here.check()


async def test_a_yes_before_the_question_is_delivered(home: Path) -> None:
    """In a chat, whoever knows the code before the question was shown runs nothing by it; afterwards it counts."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("pay the bill"):
            here.runner.wake(wake.session_id, wake.turn_id)
        session = await here.session()
        code = (await asked(here, session)).code
        for words in ("/yes", f"/yes {code}"):
            await here.say(words)
        assert not [entry for entry in await here.entries(session) if isinstance(entry.body, QuestionAnswered)]
        assert (await here.notices(session)).count(NOT_DELIVERED) == 2
        await here.deliver()
        await here.say(f"/yes {code}")
        await settled(here, session)
        assert tool.count == 1
        await here.check()


@pytest.mark.parametrize(
    ("said_at", "shown_at", "before"),
    [
        (0, 5_000_000, False),
        (4_000_000, 5_000_000, True),
        (5_000_000, 5_900_000, False),
        (4_998_000, 5_000_000, True),
        (4_999_000, 4_999_500, False),
        (6_000_000, 5_000_000, False),
    ],
    ids=["unknown", "a second earlier", "in that second", "two milliseconds earlier", "in that millisecond", "later"],
)
def test_said_before_shown(said_at: int, shown_at: int, before: bool) -> None:  # noqa: FBT001
    """A platform's time is as exact as its unit."""
    assert is_said_before(said_at, shown_at) is before


async def test_a_yes_typed_before_the_question_is_drawn(home: Path) -> None:
    """At the terminal, too: what was typed before the question was on the screen is said to the model."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        await on.until_body(QuestionAsked)
        await say(on, "yes", busy=Busy.INTERRUPT)
        await on.settled()
        assert tool.count == 0
        assert await on.outcomes() == {"c1": ToolOutcome.NOT_STARTED}
        await on.check()


async def test_two_calls_with_one_id_are_two_questions(home: Path) -> None:
    """A model that calls twice under one id gets no second run out of one yes."""
    tool = Counting()
    calls = [call("counting", '{"n":1}', id="same"), call("counting", '{"n":2}', id="same")]
    async with stage(home, PlayedModel(calls, ["done"]), tools=tools_by_name(tool)) as on:
        ask_of(on)
        await say(on, "go")
        first = await drawn(on)
        await say(on, "yes")
        second = await drawn(on, 2)
        assert {first.call_hash, second.call_hash} == {hash_call("counting", f'{{"n":{n}}}') for n in (1, 2)}
        await say(on, "no, once is enough")
        await on.settled()
        assert [each["n"] for each in tool.calls] == [1]
        assert "once is enough" in (await on.results())[-1].text
        await on.check()


async def test_guesses_are_counted(home: Path) -> None:
    """Wrong codes are recorded, and after some of them the right one is not looked at either."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        for wake in await here.say("go", ANN, ROOM, is_for_agent=True):
            here.runner.wake(wake.session_id, wake.turn_id)
        room = await here.session(ROOM)
        code = (await asked(here, room)).code
        await here.deliver()
        for number in range(GUESSES_PER_HOUR_MAX):
            await here.say(f"/yes z{number:03}", ANN, ROOM)
        assert (await here.notices(room)).count(NO_SUCH_QUESTION) == GUESSES_PER_HOUR_MAX
        assert len(here.at_home("question.guessed")) == GUESSES_PER_HOUR_MAX
        await here.say(f"/yes {code}", ANN, ROOM)
        assert TOO_MANY_GUESSES in await here.notices(room)
        assert tool.count == 0
        here.clock.advance(3700)
        await here.say(f"/yes {code}", ANN, ROOM)
        await settled(here, room)
        assert tool.count == 1
        await here.check()
