"""Commands that lead from one session to another: nothing is lost in the one, nothing of others is seen (L11)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hansard.domain.messages import Message, Status
from hansard.domain.requests import AssistantSaid, UserSaid
from hansard.domain.sessions import Link, TurnState
from hansard.domain.settings import Busy, LeftSessions
from hansard.intake.commands.scene import CommandReply
from hansard.record.api import Record
from tests.engine.stage import Gate, PlayedModel, answer_last
from tests.engine.worker import worker
from tests.intake.scene import Person, person


async def said_in(record: Record, *, title: str | None = None, text: str = "words", owner: str = "person:admin") -> str:
    """Make a session in which something was said."""
    session = await record.create_session(source="test", title=title, owner=owner)
    await record.append(session.id, Message.user(text))
    await record.append(session.id, Message.assistant(f"about {text}"))
    return session.id


# /new


async def test_new_begins_a_session_that_knows_where_it_comes_from(home: Path) -> None:
    """The old one has ended as `new` and keeps its words; the new one has the title, and the old one as its parent."""
    model = PlayedModel([answer_last])
    async with person(home, model) as ann:
        old = ann.session_id
        await ann.ask("a")
        reply = await ann.type("/new Another matter")
        assert ann.session_id != old
        assert ann.session_id in reply
        assert old in reply
        session = await ann.record.sessions.read(ann.session_id)
        assert session.title == "Another matter"
        assert session.parent is not None
        assert (session.parent.session_id, session.parent.link) == (old, Link.RESET)
        ended = await ann.record.sessions.read(old)
        assert (ended.state, ended.end_reason) == ("ended", "new")
        assert [notice.text for notice in await ann.last_notices(1)] == [reply]
        assert [notice.text for notice in await ann.last_notices(1, old)] == ["/new Another matter"]
        await ann.ask("b")
        assert await ann.words() == ["b", "<b>"]
        assert await ann.words(old) == ["a", "<a>"]
        assert model.requests[-1].messages == (UserSaid("b"),)


@pytest.mark.loss("A5", "H1", "J1", "H10")
async def test_new_while_an_answer_runs(home: Path) -> None:
    """What it said stays in the old session, interrupted; what is said next is answered in the new one."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate, "never"], [answer_last])) as ann:
        old = ann.session_id
        await ann.type("count")
        await gate.reached()
        await ann.type("/queue and this")
        await ann.type("/new")
        await ann.ask("hello")
        await ann.on.runner.settled(old)
        assert await ann.words() == ["hello", "<hello>"]
        assert await ann.words(old) == ["count", "One ", "and this"]
        (said,) = [message for message in await ann.record.load_transcript(old) if message.role == "assistant"]
        assert said.status == Status.INTERRUPTED
        assert [turn.state for turn in await ann.record.turns.list(old)] == [TurnState.INTERRUPTED] * 2
        assert {turn.reason for turn in await ann.record.turns.list(old)} == {"the session was left by /new"}
        await ann.on.check()


async def test_new_with_a_title_that_cannot_be_changes_nothing(home: Path) -> None:
    """It is refused in words: the answer that runs goes on, and so does the session."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate, "two."])) as ann:
        old = ann.session_id
        await ann.type("count")
        await gate.reached()
        assert "Nothing was changed" in await ann.type("/new " + "x" * 201)
        gate.open()
        await ann.on.settled()
        assert ann.session_id == old
        assert await ann.words() == ["count", "One two."]
        assert (await ann.record.sessions.read(old)).state == "open"


@pytest.mark.loss("H10")
async def test_every_session_that_was_left_is_listed(home: Path) -> None:
    """Ten times /new: eleven sessions, each with its words."""
    async with person(home, PlayedModel([answer_last])) as ann:
        for number in range(10):
            await ann.ask(f"words {number}")
            await ann.type("/new")
        listing = await ann.type("/sessions")
        assert len(listing.splitlines()) == 11
        for number in range(10):
            assert f"words {number}" in listing


# /sessions and /resume


async def test_sessions_are_listed_latest_first_with_what_they_are(home: Path) -> None:
    """A number, the id, the title or the first words, and whether it is this one, open or ended."""
    async with person(home) as ann:
        titled = await said_in(ann.record, title="Trip")
        long = await said_in(ann.record, text="many words " * 20)
        await ann.record.end_session(long, "over")
        await ann.record.append(ann.session_id, Message.user("here"))
        first, second, third = (await ann.type("/sessions")).splitlines()
        assert first.split()[:2] == ["1.", ann.session_id]
        assert "this one" in first
        assert second.split()[:2] == ["2.", long]
        assert "many words many" in second
        assert "…" in second
        assert "ended" in second
        assert third.split()[:3] == ["3.", titled, "Trip"]
        assert "open" in third


@pytest.mark.parametrize("by", ["number", "id", "prefix", "title", "title in other letters"])
@pytest.mark.loss("D4", "D5", "D13", "H1", "J1")
async def test_resume_goes_on_with_another_session(home: Path, by: str) -> None:
    """By number, id, beginning of an id, or title: the model is told what was said there, turn after turn."""
    model = PlayedModel([answer_last])
    async with person(home, model) as ann:
        await ann.ask("left behind")
        left, wanted = ann.session_id, await said_in(ann.record, title="Trip to Ghent", text="castle")
        await ann.record.end_session(wanted, "over")
        await said_in(ann.record, title="Trip to Bruges")
        listing = (await ann.type("/resume")).splitlines()
        (number,) = [line.split(".")[0].strip() for line in listing if wanted in line]
        name = {
            "number": number,
            "id": wanted,
            "prefix": wanted[:-1],
            "title": "Trip to Ghent",
            "title in other letters": "trip to ghent",
        }[by]
        reply = await ann.type(f"/resume {name}")
        assert ann.session_id == wanted
        assert reply.startswith(f"Resumed {wanted} “Trip to Ghent”: 2 messages.")
        assert (await ann.record.sessions.read(left)).end_reason == "resumed_other"
        for text in ("and", "so", "on"):
            await ann.ask(text)
            assert model.requests[-1].messages[:2] == (UserSaid("castle"), AssistantSaid("about castle"))
        assert await ann.words(left) == ["left behind", "<left behind>"]
        assert [notice.text for notice in await ann.last_notices(1)] == [reply]


async def test_resume_of_something_ambiguous_shows_the_candidates(home: Path) -> None:
    """Two sessions with one title: both are shown, and nothing changes."""
    async with person(home) as ann:
        here = ann.session_id
        twins = [await said_in(ann.record, title="Trip") for _ in range(2)]
        reply = await ann.type("/resume Trip")
        assert all(twin in reply for twin in twins)
        assert ann.session_id == here
        assert (await ann.record.sessions.read(here)).state == "open"
        beginning = twins[0][:4]
        assert "Several sessions match" in await ann.type(f"/resume {beginning}")


@pytest.mark.parametrize("name", ["nothing", "99", "0", "\u00b2", "9" * 5000, "%", "_"])
@pytest.mark.loss("D13", "D14")
async def test_resume_of_what_is_not_there_changes_nothing(home: Path, name: str) -> None:
    """It is said, no session is made, and the person stays where they are."""
    async with person(home) as ann:
        here = ann.session_id
        await said_in(ann.record, title="Trip")
        reply = await ann.type(f"/resume {name}")
        assert "no session" in reply
        assert ann.session_id == here
        assert len(await ann.record.sessions()) == 2


async def test_resume_of_this_session_changes_nothing(home: Path) -> None:
    """It is neither ended nor interrupted."""
    async with person(home) as ann:
        assert await ann.type(f"/resume {ann.session_id}") == "You are in that session already."
        assert (await ann.record.sessions.read(ann.session_id)).state == "open"


async def test_sessions_that_are_left_may_stay_open(home: Path) -> None:
    """By setting, the session left for another is not ended."""
    async with person(home) as ann:
        left, other = ann.session_id, await said_in(ann.record)
        ann.scene = msgspec.structs.replace(ann.scene, left_sessions=LeftSessions.KEEP)
        await ann.type(f"/resume {other}")
        assert (await ann.record.sessions.read(left)).state == "open"


@pytest.mark.loss("A5", "H1", "J1")
async def test_resume_while_an_answer_runs(home: Path) -> None:
    """It ends where it belongs; in the other session what waits there is run."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate], [answer_last])) as ann:
        left, other = ann.session_id, await said_in(ann.record, title="Trip")
        await ann.record.accept([(other, Message.user("waiting"))], queue_turn=True)
        await ann.type("count")
        await gate.reached()
        await ann.ask("/resume Trip")
        await ann.on.runner.settled(left)
        assert await ann.words(left) == ["count", "One "]
        assert (await ann.words())[-1] == "<waiting>"
        assert [turn.reason for turn in await ann.record.turns.list(left)] == ["the session was left for another"]


async def test_numbers_mean_what_was_listed(home: Path) -> None:
    """The list that a person saw counts, although others became more recent meanwhile."""
    async with person(home) as ann:
        older, newer = await said_in(ann.record, text="older"), await said_in(ann.record, text="newer")
        listing = (await ann.type("/sessions")).splitlines()
        (number,) = [line.split(".")[0].strip() for line in listing if newer in line]
        await ann.record.append(older, Message.user("active again"))
        await ann.type(f"/resume {number}")
        assert ann.session_id == newer


# /fork


async def test_fork_goes_on_in_a_copy(home: Path) -> None:
    """Both go their own way from here; the model is told the shared part in each."""
    model = PlayedModel([answer_last])
    async with person(home, model) as ann:
        await ann.ask("a")
        old = ann.session_id
        reply = await ann.type("/fork What if")
        assert ann.session_id in reply
        assert (await ann.record.sessions.read(ann.session_id)).title == "What if"
        await ann.ask("b")
        assert await ann.words() == ["a", "<a>", "b", "<b>"]
        assert await ann.words(old) == ["a", "<a>"]
        assert (await ann.record.sessions.read(old)).state == "open"
        assert model.requests[-1].messages[:2] == (UserSaid("a"), AssistantSaid("<a>"))
        await ann.on.check()


@pytest.mark.loss("A5", "J1")
async def test_fork_while_an_answer_runs(home: Path) -> None:
    """It goes on in the session that it is in; in the fork it reads as interrupted, and the next turn runs."""
    gate = Gate()
    model = PlayedModel(["One ", gate, "two."], [answer_last])
    async with person(home, model) as ann:
        old = ann.session_id
        await ann.type("count")
        await gate.reached()
        await ann.on.until_text("One ")
        await ann.type("/fork")
        await ann.ask("here")
        gate.open()
        await ann.on.runner.settled(old)
        assert await ann.words(old) == ["count", "One two."]
        assert (await ann.words())[:3] == ["count", "One ", "here"]
        assert [type(said) for said in model.requests[1].messages] == [UserSaid, AssistantSaid, UserSaid]
        assert [turn.state for turn in await ann.record.turns.list(old)] == [TurnState.COMPLETED]
        await ann.on.check()


async def test_undo_in_a_fork_reaches_what_it_shares_and_leaves_the_parent(home: Path) -> None:
    """What is taken back in the fork stays in the session that it came from."""
    async with person(home, PlayedModel([answer_last])) as ann:
        await ann.ask("a")
        await ann.ask("b")
        old = ann.session_id
        await ann.type("/fork")
        await ann.type("/undo 2")
        assert await ann.words() == []
        assert await ann.words(old) == ["a", "<a>", "b", "<b>"]


# Owners


@pytest.mark.loss("J6")
async def test_sessions_of_others_are_neither_listed_nor_resumed(home: Path) -> None:
    """By number, id, beginning or title: what belongs to another owner is not there, and its words are not shown."""
    async with person(home, owner="person:ann") as ann:
        own = await ann.record.create_session(source="test", owner="person:ann", title="Mine")
        here = own.id
        ann.follow(CommandReply(text="", session_id=here))
        secret = await said_in(ann.record, title="Secret plans", text="the vault", owner="person:bob")
        twin = await said_in(ann.record, title="Mine", text="the vault", owner="person:bob")
        for command in ("/sessions", "/resume"):
            shown = await ann.type(command)
            assert here in shown
            assert not any(text in shown for text in (secret, twin, "Secret", "vault"))
        for name in (secret, secret[:-1], "Secret plans", "secret plans", "2", "3", "1"):
            reply = await ann.type(f"/resume {name}")
            assert ann.session_id == here, name
            assert not any(text in reply.replace(name, "") for text in (secret, "Secret", "vault"))
        assert await ann.type("/resume Mine") == "You are in that session already."
        for session_id in (secret, twin):
            assert (await ann.record.sessions.read(session_id)).state == "open"
            assert len(await ann.record.load_transcript(session_id)) == 2


async def test_an_ambiguous_name_shows_only_ones_own(home: Path) -> None:
    """Two own sessions and one of another match: the two are shown."""
    async with person(home, owner="person:ann") as ann:
        own = [await said_in(ann.record, title="Trip", owner="person:ann") for _ in range(2)]
        other = await said_in(ann.record, title="Trip", owner="person:bob")
        reply = await ann.type("/resume Trip")
        assert all(session_id in reply for session_id in own)
        assert other not in reply


async def test_sessions_that_commands_make_belong_to_who_gave_them(home: Path) -> None:
    """/new makes a session of the same owner and source; /fork one of the parent's owner."""
    async with person(home, owner="person:ann") as ann:
        await ann.type("/new")
        made = await ann.record.sessions.read(ann.session_id)
        assert (made.owner, made.source) == ("person:ann", "test")
        await ann.type("/fork")
        assert (await ann.record.sessions.read(ann.session_id)).owner == "person:ann"


# Another process


@pytest.mark.loss("A13", "B6")
async def test_commands_do_not_wait_for_a_process_that_was_killed(home: Path) -> None:
    """The process that answered is dead: /undo and /retry end its turn as lost, and go on."""
    model = PlayedModel([answer_last])
    for command in ("/undo", "/retry"):
        async with person(home, model) as ann:
            async with worker(home, ann.session_id, "hangs") as other:
                await other.ask("speak", text="hello", busy=Busy.QUEUE)
                await ann.on.until_text("I begin ")
                await other.kill()
            await ann.ask(command)
            assert await ann.words() == ([] if command == "/undo" else ["hello", "<hello>"])
            assert (await ann.on.states())[0] is TurnState.LOST


@pytest.mark.loss("D15")
async def test_undo_stops_a_turn_of_another_process(home: Path) -> None:
    """It waits until the other process has ended its turn, and takes back what was said there."""
    async with person(home) as ann, worker(home, ann.session_id, "hangs") as other:
        await other.ask("speak", text="hello", busy=Busy.QUEUE)
        await ann.on.until_text("I begin ")
        assert (await ann.type("/undo")).startswith("Undone: 2 messages")
        assert await ann.words() == []
        assert await other.ask("settled") == []


async def test_several_people_in_one_session(home: Path) -> None:
    """Commands of two people in one session are recorded under their names."""
    async with person(home, PlayedModel([answer_last])) as ann:
        bob = Person(ann.on, "person:bob")
        await ann.type("/status")
        await bob.type("/status")
        authors = [notice.author for notice in await ann.last_notices(4)]
        assert authors == ["person:admin", "", "person:bob", ""]
