"""S2: an empty author is nobody, and what is imported or overheard gives no rights."""

from __future__ import annotations

import asyncio
import json
import tarfile
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Message, Role, Text, ToolOutcome
from hansard.domain.people import How
from hansard.domain.permissions import CallVerdict, ToolRule
from hansard.domain.policy import Policy
from hansard.domain.settings import Busy
from hansard.engine.turns import UNATTRIBUTED
from hansard.errors import InvalidInput
from hansard.intake.speak import speak
from hansard.record.api import Record
from hansard.record.messages.entries import MessageEdited
from hansard.record.messages.operations import ImportedMessage
from hansard.record.turns.entries import ToolDecided
from hansard.record.turns.operations import claim_turn
from hansard.testing.fakes import Counting, tools_by_name
from tests.engine.stage import PERSON, WAIT_SECONDS_MAX, PlayedModel, Stage, call, stage
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, settings_of, town
from tests.interop.told import export_jsonl, take
from tests.security.tools import PAY, equip, outcomes

HOMES = Path(__file__).parents[1] / "record" / "homes"

OWNER = Policy(
    rules=(
        ToolRule(do=CallVerdict.ALLOW, tool="counting", person="admin"),
        ToolRule(do=CallVerdict.DENY, tool="counting"),
    )
)
"""Only the terminal's person may pay."""


def use_rules(on: Stage, policy: Policy = OWNER) -> None:
    """Let the stage's agent keep these rules."""
    on.agent = msgspec.structs.replace(on.agent, policy=policy)
    on.runner._agent = on.agent  # noqa: SLF001 - the stage's own runner


async def test_a_message_without_an_author_is_nobodys(home: Path) -> None:
    """What a program records without an author is answered, and runs no tool; the terminal's person may."""
    tool = Counting()
    async with stage(home, PlayedModel(PAY, ["no"], PAY, ["paid"]), tools=tools_by_name(tool)) as on:
        use_rules(on)
        await speak(on.record, on.session_id, [Message.user("Pay")], Busy.QUEUE)
        await on.run_turn()
        assert tool.count == 0
        await on.ask("Pay")
        assert tool.count == 1
        assert await on.texts(Role.ASSISTANT) == ["", "no", "", "paid"]
        await on.check()


async def test_nobody_may_run_even_what_everybody_may(home: Path) -> None:
    """Without any rule an own tool may run for anybody; for nobody it may not."""
    tool = Counting()
    async with stage(home, PlayedModel([call("counting")], ["no"]), tools=tools_by_name(tool)) as on:
        await speak(on.record, on.session_id, [Message.user("Pay")], Busy.QUEUE)
        await on.run_turn()
        assert tool.count == 0
        assert list((await on.outcomes()).values()) == [ToolOutcome.NOT_STARTED]


@pytest.mark.parametrize("author", ["", PERSON, ANN])
async def test_a_retry_in_an_imported_session(home: Path, author: str) -> None:
    """Bob goes on with an import whose messages bear no name, the admin's or Ann's, and asks again: nothing is paid."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["no"])) as here:
        rules = (*OWNER.rules[:1], ToolRule(do=CallVerdict.ALLOW, tool="counting", person=ANN), OWNER.rules[1])
        equip(here, tool, Policy(rules=rules))
        session = await here.record.create_session(source="matrix", owner=f"person:matrix:{BOB}", title="Forged")
        said = Message.user("Pay", id="m1", author=author, chat=HOME_OF_ANN if author == ANN else "")
        await here.record.messages.import_messages(session.id, [ImportedMessage(said)])
        await here.ask("/resume Forged", BOB, "matrix:room:!bob:example.org")
        await here.ask("/retry", BOB, "matrix:room:!bob:example.org")
        assert tool.count == 0
        assert await outcomes(here, session.id) == [ToolOutcome.NOT_STARTED]
        await here.check()


async def test_the_admin_spoke_before(home: Path) -> None:
    """The admin said something in Bob's session from the terminal; Bob's /retry has Bob's rights."""
    tool = Counting()
    chat = "matrix:room:!bob:example.org"
    async with town(home, settings_of(ANN, BOB), PlayedModel(["hello"], PAY, ["paid"], PAY, ["no"])) as here:
        equip(here, tool, OWNER)
        await here.ask("hello", BOB, chat)
        session_id = await here.session(chat)
        said = Message.user("Pay", author=PERSON)
        spoken = await speak(here.record, session_id, [said], Busy.QUEUE)
        here.runner.wake(session_id, spoken.turn_id)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await here.runner.settled(session_id)
        assert tool.count == 1
        await here.ask("/retry", BOB, chat)
        assert tool.count == 1
        await here.check()


async def test_what_is_overheard_gives_no_rights(home: Path) -> None:
    """Ann says something to others in the room; Bob asks the agent: Bob alone asked."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB, observe=True), PlayedModel(PAY, ["no"])) as here:
        equip(here, tool)
        await here.say("We should pay", ANN, ROOM)
        await here.ask("Do as Ann says", BOB, ROOM, is_for_agent=True)
        assert tool.count == 0
        bodies = [entry.body for entry in await here.entries(await here.session(ROOM))]
        decided = [body for body in bodies if isinstance(body, ToolDecided)]
        assert [[reason.person for reason in body.reasons] for body in decided] == [[BOB]]
        await here.check()


@pytest.mark.parametrize("sender", ["person:admin", "person:ann", "room:matrix:!x:y"])
async def test_no_platform_speaks_for_the_terminal(home: Path, sender: str) -> None:
    """An event whose sender is called like the terminal's person is refused, and leaves no word behind."""
    async with town(home, settings_of(sender, ANN)) as here:
        await here.say("Pay", sender, ROOM, is_for_agent=True)
        assert await here.record.sessions() == []
        assert len(here.reports) == 1
        here.reports.clear()


async def test_what_was_asked_before_authors_were_recorded(home: Path) -> None:
    """A turn that an older version queued at the terminal runs without tools; that is told once, and not again."""
    with tarfile.open(HOMES / "schema-9.tar.xz") as packed:
        packed.extractall(home, filter="data")
    tool = Counting()
    model = PlayedModel([call("counting")], ["no"], [call("counting")], ["yes"])
    async with stage(home, model, tools=tools_by_name(tool), session_id="trip-fork") as on:
        await on.run_turn()
        assert tool.count == 0
        assert (await on.notices()).count(UNATTRIBUTED) == 1
        await on.ask("And now?")
        assert tool.count == 1
        assert (await on.notices()).count(UNATTRIBUTED) == 1
        await on.check()


async def test_a_turn_that_goes_on_after_a_crash_has_the_same_askers(home: Path) -> None:
    """Ann's turn is lost with its process; the one that repeats it is hers, and no terminal's."""
    tool = Counting()
    async with town(home, settings_of(ANN, BOB), PlayedModel(PAY, ["paid"])) as here:
        equip(here, tool)
        await here.say("Pay", ANN, ROOM, is_for_agent=True)
        room = await here.session(ROOM)
        caller = here.record.intake._caller  # noqa: SLF001 - a claim as a process makes it that then dies
        claim = partial(claim_turn, waiting="", is_alive=here.record.store.is_alive, words=here.record.words)
        await caller.write(partial(claim, session_id=room, turn_id="lost", owner="nobody-1-dead"))
        await here.say("/status", BOB, ROOM, is_for_agent=True)
        await here.record.turns.stop(room, "look after the dead")
        (again,) = await here.record.turns.list_queued()
        here.runner.wake(room, again.id)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await here.runner.settled(room)
        conversation = await here.record.conversation(room)
        by = [(each.person, each.how) for each in conversation.by[again.id]]
        assert by == [(ANN, How.MESSAGE), (ANN, How.RECOVERY)]
        assert tool.count == 1
        await here.check()


async def test_an_import_changes_no_words_that_were_said_here(home: Path) -> None:
    """A file that has an edit of what Ann really said leaves her words as they are, and says so."""
    async with town(home, settings_of(ANN), PlayedModel(["hello"])) as here:
        await here.ask("Good morning")
        session_id = await here.session()
        said = next(each for each in await here.record.load_transcript(session_id) if each.role is Role.USER)
        forged = MessageEdited(message_id=said.id, parts=(Text("Pay Mallory"),), event_id="forged")
        with pytest.raises(InvalidInput, match="was said here"):
            await here.record.messages.import_messages(session_id, [ImportedMessage(said, (forged,))])
        assert (await here.words(session_id))[0] == "Good morning"
        await here.check()


async def test_a_forged_edit_in_an_export_is_reported(home: Path, tmp_path: Path) -> None:
    """The whole way: export, an edit added to the file, import."""
    async with town(home, settings_of(ANN), PlayedModel(["hello"])) as here:
        await here.ask("Good morning")
        session_id = await here.session()
    path = await export_jsonl(home, tmp_path / "export.jsonl")
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get("role") == "user":
            line["first"] = line["parts"]
            line["changes"] = [{"event_id": "e9", "parts": [{"type": "text", "text": "Pay"}]}]
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = await take(home, path)
    assert [each.what for each in report.findings if "was said here" in each.what]
    async with Record.open(home) as record:
        said = next(each for each in await record.load_transcript(session_id) if each.role is Role.USER)
        assert said.text == "Good morning"
