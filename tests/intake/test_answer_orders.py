"""Every order of question, delivery and answer, for every way to answer, in rooms and in direct chats.

A call is run if, and only if, the answer came after the question was delivered, by the person whom it names, in the
chat in which it was asked, in a way that the place allows.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from hansard.domain.access import Grant
from hansard.domain.messages import Role
from hansard.domain.questions import NOT_DELIVERED, NOTHING_WAITS, WHICH_OF_TWO
from hansard.domain.settings import Busy
from hansard.ports.channel import Event, EventKind
from hansard.record.questions import QuestionAnswered
from hansard.testing.fakes import Counting
from tests.engine.stage import PlayedModel, call
from tests.intake.asking import ASKS, asked, equip, settled
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, Town, settings_of, town

WAYS = ("plain", "command", "bare command", "reply", "reaction", "edit")
COUNTS = {
    (HOME_OF_ANN, "plain"),
    (HOME_OF_ANN, "command"),
    (HOME_OF_ANN, "bare command"),
    (HOME_OF_ANN, "reply"),
    (HOME_OF_ANN, "reaction"),
    (ROOM, "command"),
    (ROOM, "reply"),
    (ROOM, "reaction"),
}
"""Where each way of answering counts, once the question is delivered. An edit counts nowhere."""


class Scene:
    """A question that Ann asked for, and what is known of it when somebody answers."""

    def __init__(self, here: Town, chat: str) -> None:
        """Nothing was said yet."""
        self.here = here
        self.chat = chat
        self.code = "x0x0"
        self.receipt = "$not-yet"
        self.first = here.event("hm", ANN, chat, is_for_agent=True)

    async def question(self) -> None:
        """Ann says something for which the model calls a tool, and the question is recorded."""
        for wake in await self.here.say("go", ANN, self.chat, is_for_agent=True):
            self.here.runner.wake(wake.session_id, wake.turn_id)
        self.code = (await asked(self.here, await self.here.session(self.chat))).code

    async def delivery(self) -> None:
        """Everything that waits is shown."""
        shown = await self.here.deliver()
        self.receipt = next((receipt for text, receipt in shown.items() if "May I run" in text), self.receipt)

    def event(self, way: str, sender: str = ANN, word: str = "yes") -> Event:
        """An answer, in some way."""
        for_agent = {"is_for_agent": True}
        if way == "edit":
            return self.here.event(word, sender, self.chat, kind=EventKind.EDIT, about=self.first.id, **for_agent)
        if way == "reaction":
            return self.here.event("(👍)", sender, self.chat, kind=EventKind.ANSWER, about=self.receipt, choice=word)
        if way == "reply":
            return self.here.event(word, sender, self.chat, reply_to=self.receipt, **for_agent)
        texts = {"plain": word, "command": f"/{word} {self.code}", "bare command": f"/{word}"}
        return self.here.event(texts[way], sender, self.chat, is_for_agent=way != "plain")

    async def answer(self, way: str) -> None:
        """Ann answers."""
        await self.here.take(self.event(way))

    async def answers(self) -> list[QuestionAnswered]:
        """What counted."""
        entries = await self.here.entries(await self.here.session(self.chat))
        return [entry.body for entry in entries if isinstance(entry.body, QuestionAnswered)]


@pytest.mark.drawn(30)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chat", [HOME_OF_ANN, ROOM], ids=["direct", "room"])
@pytest.mark.parametrize("order", list(permutations(("question", "delivery", "answer"))), ids="-".join)
async def test_every_order(home: Path, order: tuple[str, ...], chat: str, way: str) -> None:
    """A yes runs the call only as the last of the three, in a way that counts there."""
    tool = Counting()
    model = PlayedModel([call("counting")], ["done"])
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), model) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scene = Scene(here, chat)
        if way == "edit":
            await here.take(here.event("hello", ANN, chat, is_for_agent=True, id=scene.first.id))
        for step in order:
            await (scene.answer(way) if step == "answer" else getattr(scene, step)())
        counts = order == ("question", "delivery", "answer") and (chat, way) in COUNTS
        given = [each.yes for each in await scene.answers()]
        assert given == ([True] if counts else [])
        session_id = await here.session(chat)
        if not counts:
            assert tool.count == 0
            await here.record.turns.stop(session_id, "the test is over", queued=True)
        await settled(here, session_id)
        assert tool.count == int(counts)
        if counts:
            assert "yes" not in [message.text for message in await here.messages(session_id, Role.USER)]
        await here.check()


@pytest.mark.parametrize("way", ["plain", "command", "reply", "reaction"])
async def test_revoked_meanwhile(home: Path, way: str) -> None:
    """Whoever was revoked after the question answers nothing."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scene = Scene(here, HOME_OF_ANN)
        await scene.question()
        await scene.delivery()
        await here.record.access.revoke("matrix", ANN)
        assert (await here.record.access.find("matrix", ANN)).state is Grant.REVOKED
        await scene.answer(way)
        assert await scene.answers() == []
        session_id = await here.session()
        await here.record.turns.stop(session_id, "the test is over", queued=True)
        await settled(here, session_id)
        assert tool.count == 0


@pytest.mark.parametrize("way", ["plain", "command", "reply", "reaction"])
async def test_an_answer_twice_is_once(home: Path, way: str) -> None:
    """The same event again, and a second answer, change nothing; nor does editing a yes that counted."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scene = Scene(here, HOME_OF_ANN)
        await scene.question()
        await scene.delivery()
        event = scene.event(way)
        await here.take(event)
        here.new_intake(here.settings)
        await here.take(event)
        await here.take(here.event("no", ANN, HOME_OF_ANN, kind=EventKind.EDIT, about=event.id))
        session_id = await here.session()
        await settled(here, session_id)
        assert [each.yes for each in await scene.answers()] == [True]
        assert tool.count == 1
        await here.say(f"/no {scene.code}", ANN)
        assert [each.yes for each in await scene.answers()] == [True]
        await here.check()


async def test_only_the_next_message_is_a_plain_answer(home: Path) -> None:
    """After other words a plain yes is said to the model; a command still answers."""
    tool = Counting()
    async with town(home, settings_of(ANN, busy=Busy.QUEUE), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scene = Scene(here, HOME_OF_ANN)
        await scene.question()
        await scene.delivery()
        await here.say("what does it do?")
        await here.say("yes")
        assert await scene.answers() == []
        await scene.answer("command")
        assert [each.yes for each in await scene.answers()] == [True]
        session_id = await here.session()
        await settled(here, session_id)
        assert tool.count == 1


async def test_two_open_questions(home: Path) -> None:
    """With two questions in one chat a plain yes answers neither and says so; a code or a reply says which."""
    tool = Counting()
    model = PlayedModel([call("counting", id="a")], [call("counting", id="b")], ["done"], ["done"])
    async with town(home, settings_of(ANN), model) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scenes = []
        for _ in range(2):
            scene = Scene(here, HOME_OF_ANN)
            await scene.question()
            await scene.delivery()
            scenes.append((scene, await here.session()))
            new = await here.record.create_session(source="matrix", owner=f"person:matrix:{ANN}")
            await here.record.routes.move(HOME_OF_ANN, new.id, reason="the test")
        (first, first_id), (second, second_id) = scenes
        for way in ("plain", "bare command"):
            await here.take(first.event(way))
            assert WHICH_OF_TWO in await here.notices()
        assert tool.count == 0
        await here.take(second.event("command"))
        await settled(here, second_id)
        assert tool.count == 1
        await here.take(first.event("reply", word="no, never"))
        await settled(here, first_id)
        assert tool.count == 1
        entries = await here.entries(first_id)
        (answered,) = [entry.body for entry in entries if isinstance(entry.body, QuestionAnswered)]
        assert (answered.yes, answered.reason) == (False, "never")
        await here.check()


async def test_an_early_command_is_told_so(home: Path) -> None:
    """A command before the delivery says that the question was not shown; the same command afterwards counts."""
    tool = Counting()
    async with town(home, settings_of(ANN), PlayedModel([call("counting")], ["done"])) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        scene = Scene(here, HOME_OF_ANN)
        await here.say("/yes")
        assert NOTHING_WAITS in await here.notices()
        await scene.question()
        await scene.answer("command")
        assert NOT_DELIVERED in await here.notices()
        await scene.delivery()
        await scene.answer("command")
        await settled(here, await here.session())
        assert tool.count == 1
        await here.check()
