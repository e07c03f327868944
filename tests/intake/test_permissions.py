"""Answers for more than one call: offered where only the person's own words are, bound to tool, person and place."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from hansard.domain.permissions import Asker, CallVerdict, ToolRule, decide
from hansard.domain.questions import NOT_OFFERED, Scope
from hansard.domain.settings import Busy
from hansard.record.questions import QuestionAsked
from hansard.testing.fakes import Counting
from tests.acceptance.commands import run_apart
from tests.engine.stage import PlayedModel, call
from tests.intake.asking import ASKS, asked, equip, say, settled
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, Town, settings_of, town

ROUND = ([call("counting")], ["done"])


async def questions(here: Town, session_id: str) -> int:
    """How many questions were asked in a session."""
    return sum(isinstance(entry.body, QuestionAsked) for entry in await here.entries(session_id))


async def test_always_is_a_rule_until_it_is_revoked(home: Path) -> None:
    """After `always` the tool asks this person here no more, in other sessions too, until the admin revokes it."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(*ROUND * 6)) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        await say(here, "go", ANN, HOME_OF_ANN)
        first = await here.session()
        assert (await asked(here, first)).scopes == (Scope.ONCE, Scope.SESSION, Scope.ALWAYS, Scope.NO)
        await here.deliver()
        await here.say("always")
        await settled(here, first)
        await here.say("/new")
        await here.ask("go")
        second = await here.session()
        assert (tool.count, await questions(here, second)) == (2, 0)
        (permission,) = await here.record.permissions.list()
        assert (permission.tool, permission.person, permission.place) == ("counting", ANN, HOME_OF_ANN)
        assert here.at_home("permission.granted")[0]["by"] == ANN
        await here.record.permissions.revoke(permission.id)
        await here.say("/new")
        await say(here, "go", ANN, HOME_OF_ANN)
        third = await here.session()
        await asked(here, third)
        assert tool.count == 2
        await here.record.turns.stop(third, "the test is over", queued=True)
        await settled(here, third)
        await here.check()


async def test_a_session_is_one_session(home: Path) -> None:
    """A yes for the session counts there alone."""
    tool = Counting()
    model = PlayedModel([call("counting")], [call("counting", id="c2")], ["done"], *ROUND)
    async with town(home, settings_of(ANN), model) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        await say(here, "go", ANN, HOME_OF_ANN)
        first = await here.session()
        code = (await asked(here, first)).code
        await here.deliver()
        await here.say(f"/yes {code} session")
        await settled(here, first)
        assert (tool.count, await questions(here, first)) == (2, 1)
        await here.say("/new")
        await say(here, "go", ANN, HOME_OF_ANN)
        second = await here.session()
        await asked(here, second)
        assert tool.count == 2
        await here.record.turns.stop(second, "the test is over", queued=True)
        await settled(here, second)
        await here.check()


async def test_a_barred_person_keeps_no_permission(home: Path) -> None:
    """Barring somebody revokes what they allowed, and allowing them again does not bring it back."""
    async with town(home, settings_of(ANN), PlayedModel(*ROUND)) as here:
        equip(here, Counting(), msgspec.structs.replace(ASKS, ask_seconds=30))
        await say(here, "go", ANN, HOME_OF_ANN)
        session_id = await here.session()
        await asked(here, session_id)
        await here.deliver()
        await here.say("always")
        await settled(here, session_id)
        assert len(await here.record.permissions.list()) == 1
        await here.record.access.revoke("matrix", ANN)
        await here.record.access.allow("matrix", ANN)
        assert await here.record.permissions.list() == []
        await here.check()


async def test_neither_in_rooms_nor_among_words_of_others(home: Path) -> None:
    """In a room always is not offered; with somebody else's words in the conversation, nor is the session."""
    tool = Counting()
    settings = settings_of(ANN, BOB, busy=Busy.QUEUE, observe=True)
    async with town(home, settings, PlayedModel(*ROUND)) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        await here.say("she should always allow that", BOB, ROOM, is_for_agent=False)
        await say(here, "go", ANN, ROOM)
        room = await here.session(ROOM)
        question = await asked(here, room)
        assert question.scopes == (Scope.ONCE, Scope.NO)
        await here.deliver()
        for word in ("always", "session"):
            await here.say(f"/yes {question.code} {word}", ANN, ROOM)
            assert NOT_OFFERED[Scope(word)] in await here.notices(room)
        assert (tool.count, await here.record.permissions.list()) == (0, [])
        await here.say(f"/yes {question.code}", ANN, ROOM)
        await settled(here, room)
        assert tool.count == 1
        await here.check()


async def test_each_who_asked_is_asked(home: Path) -> None:
    """A turn of two people needs a yes of each of them; one of them cannot give the other's."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB, busy=Busy.QUEUE), PlayedModel(*ROUND)) as here:
        equip(here, tool, msgspec.structs.replace(ASKS, ask_seconds=30))
        await here.say("go", ANN, ROOM, is_for_agent=True)
        wakes = await here.say("do", BOB, ROOM, is_for_agent=True)
        here.runner.wake(wakes[-1].session_id, wakes[-1].turn_id)
        room = await here.session(ROOM)
        for count in (1, 2):
            question = await asked(here, room, count)
            ((person, _),) = question.people
            await here.deliver()
            other = BOB if person == ANN else ANN
            await here.say(f"/yes {question.code}", other, ROOM)
            assert tool.count == 0
            await here.say(f"/yes {question.code}", person, ROOM)
        await settled(here, room)
        assert tool.count == 1
        await here.check()


def test_a_permission_never_changes_a_deny() -> None:
    """It turns `ask` into `allow`, for its person in its place; and guards the memory from words of others."""
    rules = (ToolRule(do=CallVerdict.ASK, tool="a"), ToolRule(do=CallVerdict.DENY, tool="b"))
    asker = Asker(names=(ANN,), room="", channel="matrix", person=ANN, chat=HOME_OF_ANN)
    granted = {(ANN, HOME_OF_ANN): "p1"}
    assert decide(rules, "a", [asker], "", granted).verdict is CallVerdict.ALLOW
    assert decide(rules, "a", [asker], "an import", granted).verdict is CallVerdict.ALLOW
    assert decide(rules, "a", [msgspec.structs.replace(asker, chat=ROOM)], "", granted).verdict is CallVerdict.ASK
    assert decide(rules, "b", [asker], "", granted).verdict is CallVerdict.DENY
    assert decide((), "memory", [asker], "", granted).verdict is CallVerdict.ALLOW
    assert decide((), "memory", [asker], "an import", granted).verdict is CallVerdict.ASK
    assert "permission p1" in decide(rules, "a", [asker], "", granted).reasons[0].rule


async def test_the_command_lists_and_revokes(home: Path) -> None:
    """`hansard permissions` shows what was allowed, and takes it back."""
    async with town(home, settings_of(ANN), PlayedModel(*ROUND)) as here:
        equip(here, Counting(), msgspec.structs.replace(ASKS, ask_seconds=30))
        await say(here, "go", ANN, HOME_OF_ANN)
        session_id = await here.session()
        await asked(here, session_id)
        await here.deliver()
        await here.say("always")
        await settled(here, session_id)

    (found,) = json.loads(run_apart(home, "permissions", "list", "--json").stdout)["permissions"]
    assert (found["tool"], found["person"], found["session_id"]) == ("counting", ANN, None)
    assert found["id"] in run_apart(home, "permissions").stdout
    run_apart(home, "permissions", "revoke", found["id"])
    assert "Nobody allowed anything" in run_apart(home, "permissions").stdout
    run_apart(home, "permissions", "revoke", found["id"], code=2)
