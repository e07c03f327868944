"""What comes in is committed so: which entries, in which journals, in which order, in how many commits.

A commit is written as the entries that it adds to each journal. `1`, `2` are the sessions in the order in which they
appear, `home` is the home journal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.arrivals import Cursor, Intake
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.messages import Message
from hansard.domain.settings import Busy
from hansard.intake.speak import speak
from hansard.interop.hermes import import_hermes
from hansard.ports.channel import EventKind
from hansard.record.api import Record
from tests.engine.stage import Gate, PlayedModel
from tests.intake.places import AT_HOME, HOME_OF_ANN, places
from tests.intake.scene import person
from tests.intake.town import BOB, ROOM, settings_of, town
from tests.interop.hermes_homes import log, says

Commit = dict[str, list[str]]

INTAKE = Intake(channel="matrix", account="@hansard:example.org", event_id="$e1")
CURSOR = Cursor(channel="matrix", account="@hansard:example.org", value="c1")


class Commits:
    """The commits of a home since this was made, as its logs have them."""

    def __init__(self, home: Path) -> None:
        """Everything before does not count."""
        self._home = home
        self._names: dict[str, str] = {}
        self._known = max((tx for tx, _, _ in self._lines()), default=0)

    def _lines(self) -> list[tuple[int, str, dict[str, Any]]]:
        lines: list[tuple[int, str, dict[str, Any]]] = []
        for path in [*sorted((self._home / "sessions").rglob("*.jsonl")), self._home / "home.jsonl"]:
            journal = HOME_JOURNAL if path.name == "home.jsonl" else path.stem
            for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
                line = json.loads(text)
                lines.append((line["tx"], journal, line))
        return sorted(lines, key=lambda each: (each[0], each[1] == HOME_JOURNAL, each[2]["at"], each[2]["seq"]))

    def name(self, session_id: str) -> None:
        """Give a session that exists the next number."""
        self._names[session_id] = str(len(self._names) + 1)

    def since(self) -> list[Commit]:
        """Return what each commit added to each journal."""
        commits: dict[int, Commit] = {}
        for tx, journal, line in self._lines():
            if tx > self._known:
                name = "home" if journal == HOME_JOURNAL else self._names.setdefault(journal, str(len(self._names) + 1))
                commits.setdefault(tx, {}).setdefault(name, []).append(line["kind"])
        return list(commits.values())

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """Return the bodies of a kind."""
        return [line["body"] for tx, _, line in self._lines() if tx > self._known and line["kind"] == kind]


# The terminal.


async def test_words_at_the_terminal(home: Path) -> None:
    """The message and its turn are one commit."""
    async with person(home) as ann:
        commits = Commits(home)
        await speak(ann.record, ann.session_id, [Message.user("hello", author=AT_HOME)], Busy.INTERRUPT)
        assert commits.since() == [{"1": ["message.added", "turn.queued"]}]


async def test_words_that_interrupt_at_the_terminal(home: Path) -> None:
    """What they mean for the turn that runs is in the same commit."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate, "never"], ["ok"])) as ann:
        await ann.type("count")
        await gate.reached()
        commits = Commits(home)
        await speak(ann.record, ann.session_id, [Message.user("stop", author=AT_HOME)], Busy.INTERRUPT)
        assert commits.since()[0] == {"1": ["message.added", "turn.stopping", "turn.queued"]}
        await ann.on.settled()


async def test_words_into_an_ended_session_at_the_terminal(home: Path) -> None:
    """The session is opened again, then the person is told so, and then come their words: one commit."""
    async with person(home) as ann:
        await ann.record.end_session(ann.session_id, "over")
        commits = Commits(home)
        await speak(ann.record, ann.session_id, [Message.user("hello", author=AT_HOME)], Busy.INTERRUPT)
        assert commits.since() == [{"1": ["session.reopened", "message.added", "message.added", "turn.queued"]}]


async def test_new_at_the_terminal(home: Path) -> None:
    """The command, the new session, the end of the old one and the reply are one commit."""
    async with person(home) as ann:
        commits = Commits(home)
        commits.name(ann.session_id)
        await ann.type("/new Trip")
        assert commits.since() == [{"1": ["message.added", "session.ended"], "2": ["session.created", "message.added"]}]
        (created,) = commits.bodies("session.created")
        assert (created["title"], created["link"], created.get("reason", "")) == ("Trip", "reset", "")
        asked, told = commits.bodies("message.added")
        assert (asked["role"], asked["author"], asked["parts"][0]["text"]) == ("notice", AT_HOME, "/new Trip")
        assert told["parts"][0]["text"].startswith("A new session: ")


async def test_new_at_the_terminal_while_an_answer_runs_and_another_waits(home: Path) -> None:
    """What runs is asked to stop and what waits is ended, before the session is."""
    gate = Gate()
    async with person(home, PlayedModel(["One ", gate, "never"])) as ann:
        await ann.type("count")
        await gate.reached()
        await ann.type("/queue and this")
        old = ann.session_id
        commits = Commits(home)
        commits.name(old)
        await ann.type("/new")
        assert commits.since()[0] == {
            "1": ["message.added", "turn.stopping", "turn.ended", "session.ended"],
            "2": ["session.created", "message.added"],
        }
        await ann.on.runner.settled(old)


async def test_new_at_the_terminal_in_an_ended_session(home: Path) -> None:
    """It is opened again for the command, and ended by it."""
    async with person(home) as ann:
        await ann.record.end_session(ann.session_id, "over")
        commits = Commits(home)
        commits.name(ann.session_id)
        await ann.type("/new")
        assert commits.since() == [
            {"1": ["session.reopened", "message.added", "session.ended"], "2": ["session.created", "message.added"]}
        ]


async def test_new_at_the_terminal_where_a_chat_follows(home: Path) -> None:
    """The session goes on in that chat, so it is not ended."""
    async with places(home) as here:
        await here.type("/status")
        code = await here.code("")
        await here.command(f"/link {code}", HOME_OF_ANN)
        await here.command(f"/resume {here.terminal}", HOME_OF_ANN)
        commits = Commits(home)
        commits.name(here.terminal)
        await here.type("/new")
        assert commits.since() == [{"1": ["message.added"], "2": ["session.created", "message.added"]}]


async def test_new_at_the_terminal_with_a_title_that_cannot_be(home: Path) -> None:
    """The command and the refusal stay in the session."""
    async with person(home) as ann:
        commits = Commits(home)
        await ann.type("/new " + "x" * 201)
        assert commits.since() == [{"1": ["message.added"]}, {"1": ["message.added"]}]


# Chats.


async def test_a_first_message_in_a_chat(home: Path) -> None:
    """It begins a session, to which the chat leads."""
    async with town(home) as here:
        commits = Commits(home)
        await here.say("hello")
        assert commits.since() == [
            {
                "1": ["session.created", "message.added", "turn.queued"],
                "home": ["quota.used", "route.moved", "intake.accepted", "cursor.moved"],
            }
        ]


async def test_a_message_in_a_chat(home: Path) -> None:
    """The message, its turn, the receipt and the cursor are one commit."""
    async with town(home) as here:
        await here.ask("hello")
        commits = Commits(home)
        await here.say("and more")
        assert commits.since() == [{"1": ["message.added", "turn.queued"], "home": ["intake.accepted", "cursor.moved"]}]


async def test_a_message_of_a_chat_in_an_ended_session(home: Path) -> None:
    """It is opened again, and the chat is told so."""
    async with town(home) as here:
        await here.ask("hello")
        await here.record.end_session(await here.session(), "over")
        commits = Commits(home)
        await here.say("again")
        assert commits.since() == [
            {
                "1": ["session.reopened", "message.added", "message.added", "turn.queued"],
                "home": ["intake.accepted", "cursor.moved"],
            }
        ]


async def test_a_message_that_is_overheard(home: Path) -> None:
    """It is recorded, and nothing is asked for."""
    async with town(home, settings_of(observe=True)) as here:
        await here.say("hello", chat=ROOM, is_for_agent=True)
        commits = Commits(home)
        await here.say("are you there, Ann?", sender=BOB, chat=ROOM)
        assert commits.since() == [{"1": ["message.added"], "home": ["intake.accepted", "cursor.moved"]}]


async def test_new_in_a_chat(home: Path) -> None:
    """Everything is one commit."""
    async with town(home) as here:
        await here.ask("hello")
        commits = Commits(home)
        commits.name(await here.session())
        await here.say("/new Trip")
        assert commits.since() == [
            {
                "1": ["message.added", "session.ended"],
                "2": ["session.created", "message.added"],
                "home": ["quota.used", "route.moved", "intake.accepted", "cursor.moved"],
            }
        ]
        (created,) = commits.bodies("session.created")
        assert (created["title"], created["link"], created["reason"]) == ("Trip", "reset", "new")


async def test_a_command_in_a_chat(home: Path) -> None:
    """The command, what it does, and then its reply with the cursor."""
    async with town(home) as here:
        await here.ask("hello")
        commits = Commits(home)
        await here.say("/title Trip")
        assert commits.since() == [
            {"1": ["message.added"], "home": ["intake.accepted"]},
            {"1": ["session.titled"]},
            {"1": ["message.added"], "home": ["intake.accepted", "cursor.moved"]},
        ]


async def test_an_event_that_is_held(home: Path) -> None:
    """It is kept in the home journal, and the chat is told once that something cannot be read."""
    async with town(home) as here:
        await here.ask("hello")
        commits = Commits(home)
        for number in range(2):
            await here.take(here.event(id=f"$held{number}", kind=EventKind.UNREADABLE, raw="{}"), cursor=f"h{number}")
        assert commits.since() == [
            {"1": ["message.added"], "home": ["intake.held", "cursor.moved"]},
            {"home": ["intake.held", "cursor.moved"]},
        ]


async def test_a_repeat_of_an_event(home: Path) -> None:
    """Only a cursor that is new is recorded."""
    async with town(home) as here:
        event = here.event("hello")
        await here.take(event, cursor="c1")
        commits = Commits(home)
        await here.take(event, cursor="c1")
        assert commits.since() == []
        await here.take(event, cursor="c2")
        assert commits.since() == [{"home": ["cursor.moved"]}]


async def test_an_edit_and_a_deletion(home: Path) -> None:
    """Each is one commit, with its receipt."""
    async with town(home) as here:
        event = here.event("teh")
        await here.take(event)
        commits = Commits(home)
        await here.take(here.event("the", kind=EventKind.EDIT, about=event.id), cursor="c1")
        await here.take(here.event(kind=EventKind.DELETION, about=event.id), cursor="c2")
        assert commits.since() == [
            {"1": ["message.edited"], "home": ["intake.accepted", "cursor.moved"]},
            {"1": ["message.retracted"], "home": ["intake.accepted", "cursor.moved"]},
        ]


async def test_a_message_of_a_stranger(home: Path) -> None:
    """Nothing of it is recorded but that they ask to talk."""
    async with town(home) as here:
        commits = Commits(home)
        await here.say("hello", sender="@mallory:example.org")
        assert commits.since() == [{"home": ["access.asked", "message.added", "cursor.moved"]}]


# Accept.


@pytest.mark.parametrize("queue_turn", [False, True])
async def test_accept(home: Path, queue_turn: bool) -> None:  # noqa: FBT001
    """The messages, the turns of their sessions, the receipt and the cursor are one commit."""
    async with Record.open(home) as record:
        one, two = [(await record.create_session(source="test")).id for _ in range(2)]
        commits = Commits(home)
        commits.name(one)
        said = [(one, Message.user("a")), (two, Message.user("b")), (one, Message.user("c"))]
        accepted = await record.accept(said, INTAKE, CURSOR, queue_turn)
        turn = ["turn.queued"] if queue_turn else []
        assert commits.since() == [
            {
                "1": ["message.added", "message.added", *turn],
                "2": ["message.added", *turn],
                "home": ["intake.accepted", "cursor.moved"],
            }
        ]
        assert [(entry.session_id, entry.text) for entry in accepted.entries] == [(one, "a"), (two, "b"), (one, "c")]
        assert [each.session_id for each in accepted.turns] == ([one, two] if queue_turn else [])
        again = await record.accept([(one, Message.user("other"))], INTAKE, CURSOR, queue_turn)
        assert (again.duplicate, again.entries, again.turns) == (True, accepted.entries, accepted.turns)
        assert len(commits.since()) == 1


async def test_accept_of_nothing_but_a_cursor(home: Path) -> None:
    """It is moved once."""
    async with Record.open(home) as record:
        commits = Commits(home)
        for _ in range(2):
            await record.accept([], None, CURSOR)
        assert commits.since() == [{"home": ["cursor.moved"]}]


async def test_a_hermes_import(home: Path, tmp_path: Path) -> None:
    """A message with its platform's id is one commit with the receipt; no turn is asked for."""
    source = tmp_path / "hermes"
    log(source, "s1", [says("user", "hello", message_id="1001")])
    async with Record.open(home) as record:
        commits = Commits(home)
        await import_hermes(record, source)
        assert {"1": ["message.added"], "home": ["intake.accepted"]} in commits.since()
