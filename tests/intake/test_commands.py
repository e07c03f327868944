"""Slash commands in one session: each does what its help says, and both it and its reply are in the record (L1)."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from hansard.domain.budgets import Usage
from hansard.domain.messages import Status
from hansard.domain.requests import FailureKind, UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.intake.commands.registry import COMMANDS, MEANT, help_text, names, suggestion, summaries
from hansard.intake.speak import parse
from hansard.record.messages.entries import MessagesUndone
from hansard.testing.fakes import Slow, tools_by_name
from tests.engine.stage import WAIT_SECONDS_MAX, Answer, Gate, PlayedModel, answer_last, call, failure, stage
from tests.intake.scene import Person, person


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/stop", "stop", ""),
        ("  /Stop \n", "stop", ""),
        ("/title A new name ", "title", "A new name"),
        ("/queue two\nlines", "queue", "two\nlines"),
        ("/nonsense", "nonsense", ""),
    ],
)
def test_a_command_is_a_slash_and_letters(text: str, name: str, argument: str) -> None:
    """Blanks around it and capitals do not matter; all that follows is one argument."""
    assert parse(text) == (name, argument)


@pytest.mark.parametrize(
    "text", ["hello", "/", "//stop", "/ stop", "/etc/hosts is what?", "/2", "/a-b", "say /stop", "", "\u2044stop"]
)
def test_everything_else_is_for_the_model(text: str) -> None:
    """Paths, sums and words with a slash in them are said, not run."""
    assert parse(text) is None


def test_help_has_every_command() -> None:
    """The one help text lists each command once with what may follow it, and names() is the same list."""
    lines = help_text().splitlines()
    assert sorted(line.split()[0] for line in lines) == [f"/{name}" for name in names()]
    for name, command in COMMANDS.items():
        (line,) = [line for line in lines if line.split()[0] == f"/{name}"]
        assert command.arguments in line
        assert line.endswith(command.summary)


def test_completion_knows_every_command() -> None:
    """What is offered while somebody types is the registry, with what each does."""
    assert sorted(summaries()) == [f"/{name}" for name in names()]
    assert summaries()["/stop"] == COMMANDS["stop"].summary
    assert all(summaries().values())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("undp", "undo"), ("stpo", "stop"), ("resum", "resume"), ("hlep", "help"), ("session", "sessions")),
        *(("ne", "new"), ("clear", "new"), ("reset", "new"), ("find", "search"), ("history", "sessions")),
    ],
)
def test_a_mistyped_command_suggests_the_nearest(typed: str, meant: str) -> None:
    """A slip of the fingers is recognised."""
    assert suggestion(typed) == f"There is no command /{typed}. Did you mean /{meant}?"


def test_a_command_that_is_like_none_points_to_the_list() -> None:
    """Nothing is guessed where nothing is near."""
    assert suggestion("xyzzy") == "There is no command /xyzzy. /help lists them."
    assert suggestion("cheer") == "There is no command /cheer. /help lists them."


def test_what_other_programs_call_it_leads_to_a_command() -> None:
    """Each name that is translated stands for a command that exists, and is none itself."""
    assert set(MEANT.values()) <= set(names())
    assert not set(MEANT) & set(names())


@pytest.mark.parametrize("text", ["/help", "/nonsense", "/status", "/usage", "/sessions", "/queue", "/busy", "/title"])
async def test_a_command_and_its_reply_are_notices_in_the_record(home: Path, text: str) -> None:
    """The command with who gave it, then the reply, in this order; the model is told neither."""
    model = PlayedModel(["ok"])
    async with person(home, model, owner="person:ann") as ann:
        reply = await ann.type(text)
        asked, answered = await ann.last_notices(2)
        assert (asked.text, asked.author) == (text, "person:ann")
        assert (answered.text, answered.author) == (reply, "")
        assert reply
        await ann.ask("hi")
        assert model.requests[0].messages == (UserSaid("hi"),)


async def test_a_mistyped_command_is_not_said_to_the_model(home: Path) -> None:
    """It is a notice with a suggestion; no turn is queued."""
    async with person(home, PlayedModel(["never"])) as ann:
        assert await ann.type("/stpo") == "There is no command /stpo. Did you mean /stop?"
        assert await ann.words() == []
        assert await ann.record.turns.list_queued() == []


async def test_a_command_in_an_ended_session_opens_it_again(home: Path) -> None:
    """Neither the command nor its reply is lost because the session had ended."""
    async with person(home) as ann:
        await ann.record.end_session(ann.session_id, "over")
        await ann.type("/status")
        asked, _ = await ann.last_notices(2)
        assert asked.text == "/status"
        assert (await ann.record.sessions.read(ann.session_id)).state == "open"


# /title, /status, /usage, /busy


async def test_title(home: Path) -> None:
    """It is given, shown, changed; one that cannot be is refused in words, and changes nothing."""
    async with person(home) as ann:
        assert await ann.type("/title") == "This session has no title."
        assert await ann.type("/title Trip to Ghent") == "Title: Trip to Ghent"
        assert await ann.type("/title") == "Title: Trip to Ghent"
        for refused in ("/title " + "x" * 201, "/title two\nlines"):
            reply = await ann.type(refused)
            assert "title" in reply
            assert re.search(r"Nothing was (written|changed)", reply)
        assert (await ann.record.sessions.read(ann.session_id)).title == "Trip to Ghent"


async def test_status_tells_where_things_stand(home: Path) -> None:
    """Session, title, what runs and waits, model, mode and the state of the record."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate])) as ann:
        await ann.type("/title Trip")
        assert "idle" in await ann.type("/status")
        ann.busy(Busy.QUEUE)
        await ann.type("first")
        await gate.reached()
        await ann.type("second")
        status = await ann.type("/status")
        for fact in (ann.session_id, "“Trip”", "1 waiting", "an answer runs", "played", "queue", "in order", str(home)):
            assert fact in status


async def test_usage_is_recorded_for_each_request_and_summed(home: Path) -> None:
    """Requests of a tool loop, failed attempts that took something, and models are counted; the sum is shown."""
    one = Usage(input_tokens=100, output_tokens=10, cache_read_tokens=80, cost_micros=1_500)
    first = PlayedModel([one, call("absent")], [one, "Done."], [failure(FailureKind.REFUSED)], name="first")
    second = PlayedModel([Usage(input_tokens=7, output_tokens=3), "Me."], name="second")
    async with person(home, first, second) as ann:
        assert await ann.type("/usage") == "Nothing was used yet."
        await ann.ask("a")
        assert await ann.type("/usage") == "first: 200 tokens in (160 from cache), 20 out, $0.0030"
        await ann.ask("b")
        assert (await ann.type("/usage")).splitlines() == [
            "first: 200 tokens in (160 from cache), 20 out, $0.0030",
            "second: 7 tokens in, 3 out, cost not known",
            "together: 207 tokens in (160 from cache), 23 out, $0.0030",
        ]
        conversation = await ann.on.conversation()
        assert conversation.requests == 3
        used = [entry for entry in await ann.on.entries() if entry.kind == "turn.used"]
        turns = {turn.id for turn in await ann.record.turns.list(ann.session_id)}
        assert {getattr(entry.body, "turn_id", "") for entry in used} == turns


async def test_usage_of_an_answer_that_was_cut_counts(home: Path) -> None:
    """What a provider says to have used before it failed is recorded, once for each request."""
    used = Usage(input_tokens=5, output_tokens=1)
    model = PlayedModel([used, "Half", failure(FailureKind.CUT)], [used, failure()], [used, " done."])
    async with person(home, model) as ann:
        await ann.ask("hi")
        assert (await ann.on.conversation()).usage == {"played": Usage(input_tokens=15, output_tokens=3)}


async def test_busy_is_a_setting_of_the_session(home: Path) -> None:
    """The configuration says it first; /busy changes it here, in the record; a word that is no mode changes nothing."""
    async with person(home) as ann:
        ann.busy(Busy.STEER)
        assert await ann.type("/busy") == "A message that comes while an answer runs: steer."
        assert await ann.type("/busy queue") == "A message that comes while an answer runs: queue."
        assert await ann.type("/busy nonsense") == "'nonsense' is none of interrupt, queue, steer."
        assert await ann.type("/busy") == "A message that comes while an answer runs: queue."
        first = ann.session_id
        await ann.type("/new")
        assert await ann.type("/busy") == "A message that comes while an answer runs: steer."
        assert (await ann.record.conversation(first)).settings == {"busy": "queue"}


# /stop, /queue, /steer


async def test_stop_says_whether_anything_ran(home: Path) -> None:
    """With nothing to stop it says so; else the answer ends with its words kept."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate])) as ann:
        assert await ann.type("/stop") == "Nothing runs."
        await ann.type("count")
        await gate.reached()
        assert await ann.ask("/stop") == "Stopped."
        assert await ann.words() == ["count", "One "]
        assert await ann.on.ends() == [(TurnState.INTERRUPTED, "stopped by the person")]


async def test_queue_waits_whatever_the_mode_is(home: Path) -> None:
    """/queue TEXT lets the answer finish; alone it lists what waits; without a running answer it just asks."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate, "two."], [answer_last])) as ann:
        assert await ann.type("/queue") == "Nothing waits."
        await ann.type("count")
        await gate.reached()
        assert await ann.type("/queue then this\nand that") == "Queued."
        assert await ann.type("/queue") == "Waiting to be answered:\n- then this and that"
        gate.open()
        await ann.on.settled()
        assert await ann.words() == ["count", "One two.", "then this\nand that", "<then this\nand that>"]
        assert await ann.ask("/queue hello") == ""
        assert (await ann.words())[-1] == "<hello>"


async def test_steer_reaches_the_running_turn(home: Path) -> None:
    """/steer TEXT is told with the next results; alone it says what is missing."""
    slow = Slow()
    model = PlayedModel([call("slow")], [answer_last])
    async with stage(home, model, tools=tools_by_name(slow)) as on:
        ann = Person(on)
        assert "/steer TEXT" in await ann.type("/steer")
        await ann.type("work")
        await asyncio.wait_for(slow.begun.wait(), WAIT_SECONDS_MAX)
        assert await ann.type("/steer faster") == "The model is told at its next step."
        slow.release.set()
        await on.settled()
        assert model.requests[1].messages[-1] == UserSaid("faster")
        assert await on.states() == [TurnState.COMPLETED] * 2


# /undo, /retry


@pytest.mark.loss("D19")
async def test_undo_takes_back_exchanges(home: Path) -> None:
    """One, or n, or all there are; they leave transcript and context, and stay in the record."""
    model = PlayedModel([answer_last])
    async with person(home, model) as ann:
        assert await ann.type("/undo") == "There is nothing to undo."
        for text in ("a", "b", "c", "d"):
            await ann.ask(text)
        assert await ann.type("/undo") == "Undone: 2 messages, from “d” on. They stay in the record."
        assert await ann.words() == ["a", "<a>", "b", "<b>", "c", "<c>"]
        await ann.type("/undo 2")
        assert await ann.words() == ["a", "<a>"]
        await ann.ask("e")
        assert [said.text for said in model.requests[-1].messages if isinstance(said, UserSaid)] == ["a", "e"]
        await ann.type("/undo 99")
        assert await ann.words() == []
        undone = [entry.body for entry in await ann.on.entries() if isinstance(entry.body, MessagesUndone)]
        assert [len(body.message_ids) for body in undone] == [2, 4, 4]
        raw = [entry.text for entry in await ann.on.entries() if entry.kind == "message.added" and entry.text]
        assert [text for text in raw if len(text) == 1] == ["a", "b", "c", "d", "e"]
        await ann.on.check()


@pytest.mark.parametrize("argument", ["all", "-1", "1.5", "9" * 5000])
async def test_undo_of_something_that_is_no_count_takes_nothing_back(home: Path, argument: str) -> None:
    """What was meant is not guessed: the person is told, and nothing leaves the conversation."""
    async with person(home, PlayedModel([answer_last])) as ann:
        await ann.ask("a")
        reply = await ann.type(f"/undo {argument}")
        assert await ann.words() == ["a", "<a>"], reply
        assert reply


@pytest.mark.loss("A5", "D19")
async def test_undo_of_an_answer_that_runs_ends_it_first(home: Path) -> None:
    """The turn is stopped, what it said is recorded, and then question and answer are taken back."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate], [answer_last])) as ann:
        await ann.type("count")
        await gate.reached()
        assert (await ann.type("/undo")).startswith("Undone: 2 messages")
        await ann.on.settled()
        assert await ann.words() == []
        assert await ann.on.states() == [TurnState.INTERRUPTED]
        await ann.ask("again")
        assert await ann.words() == ["again", "<again>"]


async def test_undo_takes_back_what_waits(home: Path) -> None:
    """A message that was queued is an exchange of its own: it is taken back, and not answered."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate], ["never"])) as ann:
        await ann.type("count")
        await gate.reached()
        await ann.type("/queue more")
        assert (await ann.type("/undo")).startswith("Undone: 1 message")
        await ann.on.settled()
        assert await ann.words() == ["count", "One "]


@pytest.mark.loss("A6", "D19")
async def test_an_answer_that_was_continued_is_one_answer(home: Path) -> None:
    """The provider cut it and it went on in a new message: /retry and /undo take back both pieces."""
    answers: list[Answer] = [["One ", failure(FailureKind.CUT)], ["two."]]
    model = PlayedModel(*answers, *answers, [answer_last])
    async with person(home, model) as ann:
        await ann.ask("before")
        assert await ann.words() == ["before", "One ", "two."]
        await ann.ask("/retry")
        assert await ann.words() == ["before", "One ", "two."]
        assert model.requests[2] == model.requests[0]
        await ann.type("/undo")
        assert await ann.words() == []
        await ann.ask("after")
        assert model.requests[-1].messages == (UserSaid("after"),)
        await ann.on.check()


@pytest.mark.loss("D19")
async def test_retry_asks_the_same_again(home: Path) -> None:
    """The last answer is taken back, tools and all, and the same request is made."""
    model = PlayedModel([call("absent")], ["First."], ["Second."])
    async with person(home, model) as ann:
        assert await ann.type("/retry") == "There is nothing to ask again."
        await ann.ask("a")
        assert await ann.ask("/retry") == "Asking again."
        assert await ann.words() == ["a", "Second."]
        assert model.requests[2] == model.requests[0]
        assert await ann.on.states() == [TurnState.COMPLETED] * 2


async def test_retry_after_a_failure(home: Path) -> None:
    """Nothing was said: the same question is asked again, without being said again."""
    model = PlayedModel([failure(FailureKind.REFUSED)], [answer_last])
    async with person(home, model) as ann:
        await ann.ask("a")
        await ann.ask("/retry")
        assert await ann.words() == ["a", "<a>"]
        assert model.requests[1] == model.requests[0]


async def test_retry_of_an_answer_that_runs(home: Path) -> None:
    """It is stopped, its words are recorded and taken back, and the question is asked again."""
    gate = Gate()
    model = PlayedModel(["One ", gate], [answer_last])
    async with person(home, model) as ann:
        await ann.type("a")
        await gate.reached()
        await ann.ask("/retry")
        assert await ann.words() == ["a", "<a>"]
        sealed = [entry for entry in await ann.on.entries() if entry.kind == "message.sealed"]
        assert [getattr(entry.body, "status", None) for entry in sealed] == [Status.INTERRUPTED, Status.COMPLETE]


@pytest.mark.loss("A13")
async def test_undo_at_once_with_the_beginning_of_a_turn(home: Path) -> None:
    """Given at the moment in which the turn is claimed, at many moments: the command is carried out, the turn ends."""
    for pause_seconds in (0, 0.001, 0.002, 0.004, 0.008):
        async with person(home, PlayedModel(["One ", "two."])) as ann:
            await ann.type("a")
            await asyncio.sleep(pause_seconds)
            await ann.type("/undo")
            await ann.on.settled()
            assert await ann.words() == []
            await ann.on.check()
