"""A person in two chats of one session: what is said in one is shown in the other, once, and to nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.domain.messages import Message, Role
from hansard.domain.settings import Settings
from hansard.intake.speak import speak
from hansard.record.api import Record
from hansard.record.deliveries import MessageDelivered
from hansard.testing.platform import Fault, FaultKind
from tests.gateway.phones import BOBS_PHONE, BOT, PHONE, Both, both_allowed, both_served
from tests.gateway.stage import AGENT, ANN, BOB, entries_of, write_script

ON_MATRIX, ON_TELEGRAM = f"person:matrix:{ANN}", f"person:telegram:{PHONE}"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A model that repeats what is said."""
    return both_allowed(write_script(tmp_path / "script", "You said: {last}"))


async def carried(record: Record, both: Both) -> str:
    """Ann begins on her telephone, is one person on both, and goes on in her room; return the session."""
    both.say(both.phone, "begun on the phone")
    await both.reads(both.phone, "You said: begun on the phone")
    await record.people.link(ON_MATRIX, ON_TELEGRAM)
    route = await record.routes.read(both.phone)
    assert route is not None
    both.say(both.room, f"/resume {route.session_id}")
    await both.reads(both.room, "Resumed")
    await both.settled(record)
    return route.session_id


async def dropped(record: Record, session_id: str, chat: str) -> list[str]:
    """Return why messages of a session were not shown in a chat after all."""
    bodies = [entry.body for entry in await entries_of(record, session_id)]
    found = [body for body in bodies if isinstance(body, MessageDelivered) and body.chat == chat]
    return [body.reason for body in found if body.outcome == "dropped"]


@pytest.mark.loss("E7", "J2")
async def test_each_chat_sees_what_is_said_in_the_other(home: Path, settings: Settings) -> None:
    """The answer goes where the question was asked, and is shown in the other chat with the question, each once."""
    both = Both()
    async with both_served(home, settings, both) as record:
        session_id = await carried(record, both)
        before = len(both.texts(both.phone))
        both.say(both.room, "one\ntwo")
        await both.settled(record)
        assert both.texts(both.room)[-1] == "You said: one\ntwo"
        assert both.texts(both.phone)[before:] == ["You said on Matrix:\n> one\n> two", "You said: one\ntwo"]
        both.say(both.phone, "three")
        await both.settled(record)
        assert both.texts(both.phone)[-1] == "You said: three"
        assert both.texts(both.room)[-2:] == ["You said on Telegram:\n> three", "You said: three"]
        said = [each.text for each in await record.load_transcript(session_id) if each.role is Role.USER]
        assert said == ["begun on the phone", "one\ntwo", "three"]


@pytest.mark.parametrize("is_linked", [True, False])
async def test_chats_see_what_is_said_in_the_terminal(home: Path, settings: Settings, *, is_linked: bool) -> None:
    """What the same person says at the terminal in that session is shown in both chats, with its answer.

    An admin who is somebody else may speak in the session, too: that is not shown as if its person had said it.
    """
    both = Both()
    async with both_served(home, settings, both) as record:
        session_id = await carried(record, both)
        if is_linked:
            await record.people.link("person:admin", ON_MATRIX)
        before = {chat: both.texts(chat) for chat in (both.room, both.phone)}
        spoken = await speak(record, session_id, [Message.user("typed")], settings.busy)
        async with record.turn(session_id, waiting=spoken.turn_id) as turn, turn.reply() as reply:
            await reply.write("from the terminal")
        await both.settled(record)
        shown = ["You said in the terminal:\n> typed", "from the terminal"] if is_linked else []
        for chat, texts in before.items():
            assert both.texts(chat) == texts + shown


@pytest.mark.loss("E5", "E6", "F11")
async def test_a_follower_is_shown_everything_once_in_any_weather(home: Path, settings: Settings) -> None:
    """Cuts before and after the effect, a platform that is down for a while: each post is in the other chat once."""
    both = Both()
    async with both_served(home, settings, both) as record:
        await carried(record, both)
        both.phones.is_down = True
        both.say(both.room, "while it is down")
        await both.reads(both.room, "You said: while it is down")
        both.phones.faults.extend(
            [Fault(FaultKind.CUT_AFTER), Fault(FaultKind.CUT_BEFORE), Fault(FaultKind.BUSY, 0.01)]
        )
        both.phones.is_down = False
        await both.reads(both.phone, "You said: while it is down")
        await both.settled(record)
        for text in ("> while it is down", "You said: while it is down"):
            assert sum(text in each for each in both.texts(both.phone)) == 1


@pytest.mark.loss("J2", "J7")
@pytest.mark.parametrize("why", ["parted", "went on elsewhere", "barred", "others came", "nobody's"])
async def test_a_chat_that_follows_no_longer_is_shown_nothing(home: Path, settings: Settings, why: str) -> None:
    """Unlinked, in another session, barred, not alone, or of nobody known: from then on nothing more is shown there.

    What was meant for the chat while its platform was down is not shown afterwards, either.
    """
    both = Both()
    async with both_served(home, settings, both) as record:
        session_id = await carried(record, both)
        both.matrix.is_down = True
        both.say(both.phone, "a secret")
        await both.reads(both.phone, "You said: a secret")
        if why == "parted":
            await record.people.unlink(ON_MATRIX)
        elif why == "went on elsewhere":
            other = await record.create_session(source="matrix", owner=ON_MATRIX)
            await record.routes.move(both.room, other.id)
        elif why == "barred":
            await record.access.revoke("matrix", ANN)
        elif why == "others came":
            both.matrix.room(both.room).members.add(BOB)
        else:
            await record.routes.move(both.room, session_id)  # nobody knows whose chat it is
        both.matrix.is_down = False
        await both.settled(record)
        both.say(both.phone, "another secret")
        await both.settled(record)
        assert "secret" not in " ".join(both.texts(both.room))
        found = await dropped(record, session_id, both.room)
        assert set(found) == {"the chat follows this session no longer"}
        meant = why == "others came"  # the record alone cannot know that they are shown nothing
        assert len(found) == (4 if meant else 2)
        last = "a secret" if why == "barred" else "another secret"  # who is barred is barred everywhere
        assert both.texts(both.phone)[-1] == f"You said: {last}"


@pytest.mark.loss("J2")
async def test_nobody_else_is_shown_anything(home: Path, settings: Settings) -> None:
    """Bob, and a room in which both are, see nothing of what Ann carries from chat to chat."""
    both = Both()
    bobs = both.phones.create_room(BOBS_PHONE, BOT)
    shared = both.matrix.create_room(ANN, BOB, AGENT)
    async with both_served(home, settings, both) as record:
        both.say(bobs, "Bob's own", BOBS_PHONE)
        both.matrix.say(shared, ANN, "to all", to=AGENT)
        await carried(record, both)
        both.say(both.room, "a secret")
        both.matrix.say(shared, ANN, "/resume 1", to=AGENT)
        await both.settled(record)
        assert both.texts(bobs) == ["You said: Bob's own"]
        assert "secret" not in " ".join(both.texts(shared))
        assert both.texts(shared)[0] == f"You said: {ANN} says:\n> to all"


@pytest.mark.loss("H9", "F5")
async def test_leaving_a_session_leaves_it_to_the_other_chat(home: Path, tmp_path: Path) -> None:
    """/new in one chat neither stops the answer that runs for the other nor ends the session that it is in."""
    settings = both_allowed(write_script(tmp_path / "slow", "word " * 30, delay_seconds=0.02))
    both = Both()
    async with both_served(home, settings, both) as record:
        both.say(both.phone, "begun")
        await both.settled(record)
        await record.people.link(ON_MATRIX, ON_TELEGRAM)
        route = await record.routes.read(both.phone)
        assert route is not None
        both.say(both.room, f"/resume {route.session_id}")
        await both.reads(both.room, "Resumed")
        both.say(both.phone, "go on")
        await both.reads(both.room, "> go on")
        both.say(both.room, "/new")
        await both.reads(both.room, "A new session")
        await both.settled(record)
        assert both.texts(both.phone)[-1] == ("word " * 30)
        assert (await record.sessions.read(route.session_id)).state == "open"
        ends = [turn.state for turn in await record.turns.list(route.session_id)]
        assert ends == ["completed", "completed"]


async def test_a_long_word_is_a_reminder_elsewhere(home: Path, settings: Settings) -> None:
    """Of a very long text the other chat is shown the beginning; the record has all of it, once."""
    both = Both()
    async with both_served(home, settings, both) as record:
        session_id = await carried(record, both)
        long = "a line of many\n" * 200
        both.say(both.room, long)
        await both.settled(record)
        (shown,) = [text for text in both.texts(both.phone) if text.startswith("You said on Matrix")]
        assert len(shown) < 700
        assert shown.endswith("…")
        said = [each.text for each in await record.load_transcript(session_id) if each.role is Role.USER]
        assert said[-1] == long


async def test_what_was_said_elsewhere_is_introduced_in_own_words(home: Path, settings: Settings) -> None:
    """The wording of notices.toml counts in every chat, whichever process records what was said."""
    home.mkdir(mode=0o700)
    (home / "notices.toml").write_text('said_elsewhere = "Heard on {where}:"\n')
    both = Both()
    async with both_served(home, settings, both) as record:
        await carried(record, both)
        both.say(both.phone, "one")
        both.say(both.room, "two")
        await both.settled(record)
        assert "Heard on Telegram:\n> one" in both.texts(both.room)
        assert "Heard on Matrix:\n> two" in both.texts(both.phone)


async def test_many_messages_at_once_are_shown_in_order(home: Path, settings: Settings) -> None:
    """Said quickly, from both sides: each chat is shown every message of the other, and every answer, once."""
    both = Both()
    async with both_served(home, settings, both) as record:
        session_id = await carried(record, both)
        for number in range(5):
            both.say(both.room, f"room {number}")
            both.say(both.phone, f"phone {number}")
            await asyncio.sleep(0.01)
        await both.settled(record)
        for chat, other in ((both.room, "phone"), (both.phone, "room")):
            quotes = [text for text in both.texts(chat) if text.startswith("You said on")]
            assert [quote.partition("> ")[2] for quote in quotes] == [f"{other} {number}" for number in range(5)]
        answers = [each.text for each in await record.load_transcript(session_id) if each.role is Role.ASSISTANT]
        for chat in (both.room, both.phone):
            shown = [text for text in both.texts(chat) if text.startswith("You said: ")]
            assert shown == answers[-len(shown) :]
