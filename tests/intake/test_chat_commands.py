"""Commands in chats: the one registry, for the chat's owner, with replies in the chat, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, IntakeRules, Origin
from hansard.domain.chats import message_id_of
from hansard.domain.messages import Message, Role
from hansard.domain.notices import ENGLISH
from hansard.domain.people import terminal_owner
from hansard.domain.requests import UserSaid
from hansard.domain.sessions import SessionState
from hansard.domain.settings import LeftSessions
from hansard.intake.commands.registry import COMMANDS, REPEATABLE
from hansard.ports.channel import Batch
from tests.intake.town import AGENT, ANN, BOB, HOME_OF_ANN, ROOM, Person, Town, settings_of, town

OTHER_ROOM = "matrix:room:!other:example.org"


async def replies(here: Town, session_id: str) -> list[str]:
    """What was told in a session, all of it to be shown in a chat."""
    told = [message for message in await here.messages(session_id, Role.NOTICE) if not message.author]
    assert all(message.chat for message in told)
    return [message.text for message in told]


async def test_a_command_and_its_reply_are_in_the_record(home: Path) -> None:
    """The command as a notice with who gave it where; its reply to be shown there; the model is told neither."""
    async with town(home) as here:
        await here.ask("one")
        event = here.event("/title Trip")
        await here.take(event)
        asked = (await here.messages("", Role.NOTICE))[0]
        assert (asked.text, asked.author, asked.chat, asked.event_id) == ("/title Trip", ANN, HOME_OF_ANN, event.id)
        assert await replies(here, await here.session()) == ["Title: Trip"]
        await here.ask("two")
        assert "Trip" not in repr(here.model.requests)
        await here.check()


@pytest.mark.parametrize("text", ["hansard: /status", "@hansard /status", f"{AGENT}: /status", "Hansard, /status"])
async def test_a_command_may_follow_the_agents_name(home: Path, text: str) -> None:
    """In a room the agent is named first; what follows is the command all the same."""
    async with town(home) as here:
        await here.say(text, ANN, ROOM, is_for_agent=True)
        (reply,) = await replies(here, await here.session(ROOM))
        assert reply.startswith("Session ")
        assert str(home) not in reply


async def test_two_slashes_are_words(home: Path) -> None:
    """As in the terminal: what begins with two slashes is said with one."""
    async with town(home) as here:
        assert len(await here.say("//new")) == 1
        assert await here.words() == ["/new"]


async def test_resume_moves_the_route(home: Path) -> None:
    """The chat goes on in the old session, with its history before the model; the one that is left ends."""
    async with town(home) as here:
        await here.ask("about cats")
        old = await here.session()
        await here.ask("/new")
        left = await here.session()
        await here.ask("about dogs")
        await here.say(f"/resume {old}")
        assert await here.session() == old
        await here.ask("and now?")
        assert here.model.requests[-1].messages[0] == UserSaid("about cats")
        assert (await here.record.sessions.read(left)).state == SessionState.ENDED
        assert "Resumed" in (await replies(here, old))[-1]
        await here.check()


@pytest.mark.loss("J6")
async def test_search_sees_what_the_chat_owns(home: Path) -> None:
    """In a room, /search finds what was said in that room; in a direct chat, what that person said in theirs."""
    async with town(home) as here:
        await here.ask("secret harbour of Ann")
        for room, word in ((ROOM, "here"), (OTHER_ROOM, "there")):
            await here.say(f"harbour {word}", ANN, room, is_direct=False, is_for_agent=True)
            await here.say("/search harbour", ANN, room, is_direct=False, is_for_agent=True)
        await here.say("/search harbour")
        found = [(await replies(here, await here.session(chat)))[-1] for chat in (ROOM, OTHER_ROOM, HOME_OF_ANN)]
        for reply, word in zip(found, ("harbour here", "harbour there", "secret harbour"), strict=True):
            assert word in reply
            assert reply.count("user: ") == 1
        await here.check()


async def test_resume_may_keep_what_is_left(home: Path) -> None:
    """With `left_sessions = "keep"` the session that is left stays open."""
    async with town(home, settings_of(left_sessions=LeftSessions.KEEP)) as here:
        await here.ask("one")
        old = await here.session()
        await here.ask("/new")
        left = await here.session()
        await here.ask("two")
        await here.say(f"/resume {old}")
        assert (await here.record.sessions.read(left)).state == SessionState.OPEN


async def test_a_number_means_what_was_listed(home: Path) -> None:
    """/sessions, then /resume 2: the second line of that list, although the order has changed since."""
    async with town(home) as here:
        for text in ("one", "/new", "two", "/new", "three"):
            await here.ask(text)
        listed = [session.id for session in await here.record.sessions(owner=f"person:matrix:{ANN}")]
        await here.say("/sessions")
        await here.record.set_title(listed[2], "Now the latest")
        await here.say("/resume 2")
        assert await here.session() == listed[1]


@pytest.mark.loss("J6")
@pytest.mark.parametrize("room", [ROOM, f"{ROOM}:thread:$t"])
async def test_a_room_sees_only_its_own_sessions(home: Path, room: str) -> None:
    """Lists, ids, titles and numbers: in a room nothing of a person or of another room is found, not by its author."""
    async with town(home) as here:
        await here.ask("private words")
        await here.say("/title Private")
        await here.ask("other words", ANN, OTHER_ROOM, is_direct=False, is_for_agent=True)
        await here.say("/title Other", ANN, OTHER_ROOM, is_direct=False, is_for_agent=True)
        await here.ask("room words", ANN, room, is_for_agent=True)
        here_id = await here.session(room)
        foreign = [await here.session(), await here.session(OTHER_ROOM)]
        for text in ("/sessions", "/resume", "/resume Private", "/resume Other", "/resume 2"):
            await here.say(text, ANN, room, is_for_agent=True)
        for session_id in foreign:
            await here.say(f"/resume {session_id}", ANN, room, is_for_agent=True)
        assert await here.session(room) == here_id
        told = "\n".join(await replies(here, here_id))
        assert "private words" not in told
        assert "other words" not in told
        assert told.count(here_id) == 2
        assert "no session has the id or title 'Private'" in told
        for session_id in foreign:
            assert (await here.record.sessions.read(session_id)).state == SessionState.OPEN
        await here.check()


@pytest.mark.loss("J6")
async def test_a_person_sees_only_their_own_sessions(home: Path) -> None:
    """Bob asks for Ann's by id, title and number; there are none for him."""
    bobs = "matrix:room:!bob:example.org"
    async with town(home) as here:
        await here.ask("Ann's words")
        await here.say("/title Diary")
        await here.ask("Bob's words", BOB, bobs)
        mine = await here.session(bobs)
        for text in ("/sessions", f"/resume {await here.session()}", "/resume Diary", "/resume 2"):
            await here.say(text, BOB, bobs)
        assert await here.session(bobs) == mine
        assert "Ann's" not in "\n".join(await replies(here, mine))


@pytest.mark.loss("J6")
async def test_a_session_never_goes_on_among_other_people(home: Path) -> None:
    """A direct chat that others join, or that is another person's now, begins anew and knows nothing of before."""
    async with town(home) as here:
        await here.ask("for your ears only")
        private = await here.session()
        await here.ask("hello all", BOB, HOME_OF_ANN, is_direct=False, is_for_agent=True)
        shared = await here.session()
        assert (await here.record.sessions.read(shared)).owner == "room:matrix:!ann:example.org"
        assert "for your ears only" not in repr(here.model.requests[-1])
        await here.say(f"/resume {private}", ANN, HOME_OF_ANN, is_direct=False, is_for_agent=True)
        assert await here.session() == shared
        await here.ask("only Bob is left", BOB, HOME_OF_ANN)
        assert (await here.record.sessions.read(await here.session())).owner == f"person:matrix:{BOB}"
        assert len({private, shared, await here.session()}) == 3
        assert private not in (await replies(here, shared))[0]
        await here.check()


@pytest.mark.loss("J6")
async def test_a_list_is_forgotten_when_others_come(home: Path) -> None:
    """Ann saw her sessions listed; Bob, who joins the chat, cannot take one up by its number."""
    async with town(home) as here:
        for text in ("one", "/new", "two", "/sessions"):
            await here.ask(text)
        private = [session.id for session in await here.record.sessions()]
        for number in (1, 2):
            await here.say(f"/resume {number}", BOB, HOME_OF_ANN, is_direct=False, is_for_agent=True)
        assert await here.session() not in private
        assert (await here.record.sessions.read(private[1])).state == SessionState.ENDED
        await here.check()


async def test_new_in_an_ended_session(home: Path) -> None:
    """The command is recorded where it was given, and the new session follows that one; no reopening is told."""
    async with town(home) as here:
        await here.ask("one")
        old = await here.session()
        await here.record.end_session(old, "by hand")
        await here.say("/new")
        assert (await here.record.sessions.read(old)).state == SessionState.ENDED
        assert await replies(here, old) == []
        assert len(await replies(here, await here.session())) == 1
        await here.check()


async def test_a_linked_person_has_one_history(home: Path) -> None:
    """Matrix and terminal of [people.ann] have one owner: each finds what was said at the other."""
    people = {"ann": Person(matrix=(ANN, "@ann2:example.org"), terminal=True)}
    async with town(home, settings_of("ann", people=people)) as here:
        owner = terminal_owner(people)
        assert owner == "person:ann"
        typed = await here.record.create_session(source="cli", owner=owner, title="Typed")
        await here.ask("from Matrix")
        await here.ask("from the other name", "@ann2:example.org", "matrix:room:!ann2:example.org")
        assert {session.source for session in await here.record.sessions(owner=owner)} == {"cli", "matrix"}
        assert await here.count_sessions() == 3
        await here.say("/resume Typed")
        assert await here.session() == typed.id
        await here.check()


async def test_linking_somebody_does_not_change_their_chat(home: Path) -> None:
    """Ann talked before [people.ann] was written: after the restart she is in the same session."""
    async with town(home) as here:
        await here.ask("one")
        old = await here.session()
        here.new_intake(settings_of("ann", people={"ann": Person(matrix=(ANN,))}))
        await here.ask("two")
        await here.say("/status")
        assert await here.session() == old
        await here.check()


async def test_retry_is_shown_where_it_was_asked(home: Path) -> None:
    """The turn of /retry belongs to the chat, although nobody said anything new there."""
    async with town(home) as here:
        await here.ask("one")
        (wake,) = await here.say("/retry")
        waiting = await here.record.turns.list_queued("matrix")
        assert [(turn.session_id, turn.id) for turn in waiting] == [(wake.session_id, wake.turn_id)]


async def test_queue_and_steer_say_who_and_where(home: Path) -> None:
    """Words after /queue and /steer are the person's, in the chat."""
    async with town(home) as here:
        await here.say("/queue later")
        await here.say("/steer now")
        said = await here.messages("", Role.USER)
        assert [(message.text, message.author, message.chat) for message in said] == [
            ("later", ANN, HOME_OF_ANN),
            ("now", ANN, HOME_OF_ANN),
        ]


@pytest.mark.loss("F15")
@pytest.mark.parametrize("text", ["/undo", "/fork Copy", "/retry", "/title A", "/status", "/new", "/resume"])
async def test_a_command_that_comes_again_is_run_once(home: Path, text: str) -> None:
    """The same event, from a restarted intake too: nothing else happens, and there is one reply."""
    async with town(home) as here:
        for word in ("one", "two", "three"):
            await here.ask(word)
        event = here.event(text)
        await here.take(event)
        session_id, count = await here.session(), await here.count_sessions()
        entries, words = len(await here.entries(session_id)), await here.words()
        here.new_intake(here.settings)
        await here.take(event)
        assert (await here.session(), await here.count_sessions()) == (session_id, count)
        assert (len(await here.entries(session_id)), await here.words()) == (entries, words)
        await here.check()


@pytest.mark.loss("F15")
@pytest.mark.parametrize("text", ["/undo", "/fork", "/title Trip", "/sessions"])
async def test_a_command_that_was_begun_and_cut(home: Path, text: str) -> None:
    """A crash before the reply: what can be repeated is; of the rest people are told that nobody knows."""
    name = text.removeprefix("/").partition(" ")[0]
    async with town(home) as here:
        await here.ask("one")
        event = here.event(text)
        origin = Origin(
            channel="matrix",
            account=AGENT,
            event_id=event.id,
            key=HOME_OF_ANN,
            chat=HOME_OF_ANN,
            owner=f"person:matrix:{ANN}",
            identity=ANN,
            standing=Standing.LISTED,
        )
        message = Message.make(Role.NOTICE, text, id=message_id_of("matrix", AGENT, event.id), author=ANN)
        begun = Arrival(origin=origin, said=(("", message),), kind=ArrivalKind.COMMAND)
        await here.record.intake.receive(begun, IntakeRules())
    async with town(home) as here:
        await here.take(event)
        (reply,) = await replies(here, await here.session())
        assert (reply == ENGLISH.interrupted) == (name not in REPEATABLE)
        assert await here.words() == ["one", "ok"]
        await here.check()


def test_what_may_be_repeated_exists() -> None:
    """The commands that are run again are commands."""
    assert set(COMMANDS) >= REPEATABLE


async def test_the_last_command_of_a_batch_moves_the_cursor_with_its_reply(home: Path) -> None:
    """Until the reply is there the cursor is not: a crash in between brings the command again."""
    async with town(home) as here:
        await here.intake.take_batch(Batch(cursor="c1", events=(here.event("one"), here.event("/status"))))
        lines = (home / "home.jsonl").read_text().splitlines()
        assert await here.cursor() == "c1"
        assert '"cursor.moved"' in lines[-1]
        assert ":reply" in lines[-2]


async def test_a_title_that_is_too_long(home: Path) -> None:
    """The answer is about titles: how long this one is, how long one may be, and that nothing changed."""
    async with town(home, settings_of(ANN)) as here:
        await here.say("/title Trip")
        await here.say(f"/title {'long ' * 100}")
        assert (await here.notices())[-1] == (
            "a title has 499 characters; the limit is 200. Give a shorter one. Nothing was changed."
        )
        (session,) = await here.record.sessions()
        assert session.title == "Trip"
