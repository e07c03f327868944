"""`ask` in chats: the question goes where it was asked, and only the person who asked answers it there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Role
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.domain.questions import NO_SUCH_QUESTION, WHICH_IN_ROOM
from hansard.domain.settings import Busy
from hansard.ports.channel import EventKind
from hansard.testing.fakes import Counting
from tests.engine.stage import PlayedModel, call
from tests.intake.asking import ASKS, asked, equip, say, settled
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, ROOM, settings_of, town


@pytest.mark.parametrize("busy", list(Busy))
@pytest.mark.parametrize(("words", "runs"), [("/yes {}", 1), ("/no {}", 0), ("@hansard: /yes {}", 1)])
async def test_a_yes_in_a_room(home: Path, words: str, runs: int, busy: Busy) -> None:
    """Ann asks in a room; Bob's yes there, hers elsewhere and a stranger's count for nothing; hers there does."""
    tool = Counting()
    settings = settings_of(ANN, BOB, busy=busy)
    async with town(home, settings, PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool)
        await say(here, "go", ANN, ROOM)
        room = await here.session(ROOM)
        code = (await asked(here, room)).code
        waiting = [each for each in await here.record.deliveries.list_waiting("matrix") if each.session_id == room]
        assert {each.chat for each in waiting} == {ROOM}
        await here.deliver()
        await say(here, f"/yes {code}", BOB, ROOM)
        await say(here, f"/yes {code}", ANN, HOME_OF_ANN)
        await say(here, "yes", EVE, ROOM)
        assert tool.count == 0
        assert NO_SUCH_QUESTION in await here.notices(room)
        await say(here, words.format(code), ANN, ROOM)
        await settled(here, room)
        assert tool.count == runs
        assert (await here.words(room, Role.ASSISTANT))[-1] == "done"
        await here.check()


@pytest.mark.parametrize("words", ["yes", "ok", "@hansard: Yes", "no"])
async def test_plain_words_in_a_room_answer_nothing(home: Path, words: str) -> None:
    """Whoever says ok to somebody else in the room approves nothing; who says it to the agent is told how to."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool)
        await say(here, "go", ANN, ROOM)
        room = await here.session(ROOM)
        code = (await asked(here, room)).code
        await here.deliver()
        is_named = words.startswith("@")
        assert await here.say(words, ANN, ROOM, is_for_agent=is_named) == []
        assert (WHICH_IN_ROOM in await here.notices(room)) == is_named
        assert tool.count == 0
        await here.say(f"/no {code} use the other one", ANN, ROOM, is_for_agent=False)
        await settled(here, room)
        assert tool.count == 0
        assert "use the other one" in str(here.model.requests[-1].messages)
        await here.check()


async def test_an_edited_no_becomes_no_yes(home: Path) -> None:
    """Changing on the platform what was said answers nothing."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=0.5))
        await say(here, "hmm, what?", ANN, ROOM)
        room = await here.session(ROOM)
        await asked(here, room)
        await here.deliver()
        event = here.event("let me think", ANN, ROOM, is_for_agent=True)
        await here.take(event)
        await here.take(here.event("yes", ANN, ROOM, kind=EventKind.EDIT, about=event.id, is_for_agent=True))
        await settled(here, room)
        assert tool.count == 0
        await here.check()


async def test_rules_for_people_and_rooms_hold_in_chats(home: Path) -> None:
    """Bob may not have run what Ann may, in the same room; nor may she in another place than the rule names."""
    tool = Counting()
    policy = Policy(
        rules=(
            ToolRule(do=CallVerdict.ALLOW, tool="counting", person=ANN, room="!room:*"),
            ToolRule(do=CallVerdict.DENY, tool="counting"),
        )
    )
    model = PlayedModel(
        [call("counting", id="a")], ["done"], [call("counting", id="b")], ["no"], [call("counting")], ["x"]
    )
    async with town(home, settings_of(ANN, BOB), model) as here:
        equip(here, tool, policy)
        for sender, chat, count in ((ANN, ROOM, 1), (BOB, ROOM, 1), (ANN, HOME_OF_ANN, 1)):
            await say(here, "go", sender, chat)
            await settled(here, await here.session(chat))
            assert tool.count == count
        await here.check()
