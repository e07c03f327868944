"""What people say in chats: each event in one commit, once, in its order, and nothing of it lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansard.domain.messages import RETRACTED, Role
from hansard.domain.notices import ENGLISH
from hansard.domain.requests import UserSaid
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.domain.settings.channels import Answers, RoomSharing
from hansard.journal.entries import log_name
from hansard.journal.store import Wiring
from hansard.ports.channel import Batch, EventKind
from hansard.record.api import Record
from hansard.record.messages.entries import MessageEdited, MessageRetracted
from tests.engine.stage import Gate, PlayedModel
from tests.intake.town import ANN, BOB, HOME_OF_ANN, ROOM, Town, settings_of, town


async def test_an_event_is_one_commit(home: Path) -> None:
    """Session, route, message, turn, receipt and cursor stand in the logs as one unit of one transaction."""
    async with town(home) as here:
        (wake,) = await here.say("hello")
        names = ("home.jsonl", log_name(wake.session_id))
        lines = [json.loads(line) for name in names for line in (home / name).read_text().splitlines()]
        mine = [line for line in lines if line["kind"] != "database.created"]
        assert len({(line["tx"], json.dumps(line["unit"], sort_keys=True)) for line in mine}) == 1
        assert [line["kind"] for line in mine] == [
            "quota.used",
            "route.moved",
            "intake.accepted",
            "cursor.moved",
            "session.created",
            "message.added",
            "turn.queued",
        ]
        (turn,) = await here.record.turns.list(wake.session_id)
        assert (turn.id, turn.state) == (wake.turn_id, TurnState.QUEUED)
        await here.check()


async def test_a_message_carries_who_where_and_when(home: Path) -> None:
    """Author, chat, event and time are the platform's; the session is the person's, from this channel."""
    async with town(home) as here:
        event = here.event("hello", sent_at_ms=here.clock.now_microseconds() // 1000 - 5000)
        await here.take(event)
        (message,) = await here.messages()
        assert (message.author, message.chat, message.event_id) == (ANN, HOME_OF_ANN, event.id)
        assert message.at_microseconds == event.sent_at_ms * 1000
        session = await here.record.sessions.read(await here.session())
        assert (session.owner, session.source) == (f"person:matrix:{ANN}", "matrix")


@pytest.mark.loss("F11", "F12", "F15", "F10")
async def test_what_comes_again_is_taken_once(home: Path) -> None:
    """A batch again, in whichever cut, by a restarted intake too: one message, one turn, and the same wakes."""
    async with town(home) as here:
        events = [here.event(f"word {number}") for number in range(4)]
        first = await here.take(*events)
        again = await here.take(*events)
        assert again == first
        here.new_intake(here.settings)
        await here.take(*events[1:])
        await here.take(events[0])
        assert await here.words() == [f"word {number}" for number in range(4)]
        assert len(await here.record.turns.list(await here.session())) == 1
        await here.check()


@pytest.mark.loss("F15", "I2")
@pytest.mark.parametrize("taken", range(4))
async def test_a_crash_between_the_events_of_a_batch(home: Path, taken: int) -> None:
    """The cursor comes with the last event: whatever was taken before, the batch comes again and adds the rest."""
    async with town(home) as here:
        events = [here.event(f"word {number}") for number in range(4)]
        for event in events[:taken]:
            await here.intake.take_batch(Batch(cursor="", events=(event,)))
        assert await here.cursor() is None
    async with town(home) as here:
        await here.take(*events, cursor="c1")
        assert await here.words() == [f"word {number}" for number in range(4)]
        assert await here.cursor() == "c1"
        await here.check()


@pytest.mark.loss("H3", "H4")
async def test_a_chat_keeps_its_session(home: Path) -> None:
    """Restarts change nothing, not even when the database is lost and rebuilt from the logs."""
    async with town(home) as here:
        await here.say("one")
        session_id = await here.session()
    for _ in range(3):
        async with town(home) as here:
            await here.say("more", id=f"$more{len(await here.words())}")
            assert await here.session() == session_id
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with town(home) as here:
        await here.say("after", id="$after")
        assert await here.session() == session_id
        assert (await here.words())[-1] == "after"
        await here.check()


@pytest.mark.loss("J5")
async def test_a_room_is_one_session_and_names_who_speaks(home: Path) -> None:
    """Three senders, one session of the room; each row has its own author, and the model is told who."""
    carl = "@carl:example.org"
    async with town(home, settings_of(ANN, BOB, carl), PlayedModel(["ok"])) as here:
        for sender in (ANN, BOB, carl):
            await here.ask(f"I am {sender}", sender, ROOM, is_for_agent=True)
        session_id = await here.session(ROOM)
        said = await here.messages(session_id, Role.USER)
        assert [(message.author, message.text) for message in said] == [
            (sender, f"I am {sender}") for sender in (ANN, BOB, carl)
        ]
        assert (await here.record.sessions.read(session_id)).owner == "room:matrix:!room:example.org"
        told = [said.text for said in here.model.requests[-1].messages if isinstance(said, UserSaid)]
        assert told == [f"{sender} says:\n> I am {sender}" for sender in (ANN, BOB, carl)]


async def test_a_direct_chat_names_nobody_to_the_model(home: Path) -> None:
    """There is only one person there: the model reads the words alone."""
    async with town(home) as here:
        await here.ask("hello")
        assert here.model.requests[0].messages == (UserSaid("hello"),)


async def test_a_room_may_be_kept_per_person(home: Path) -> None:
    """Each person's words go to a session of their own, in threads too, and belong to that person in that room."""
    thread = f"{ROOM}:thread:$t1"
    async with town(home, settings_of(rooms=RoomSharing.PER_PERSON)) as here:
        for sender in (ANN, BOB):
            for chat in (ROOM, thread):
                await here.say(f"{sender} in {chat}", sender, chat, is_for_agent=True)
        ids = {await here.session(f"{chat}:person:{sender}") for sender in (ANN, BOB) for chat in (ROOM, thread)}
        assert len(ids) == 4
        owners = {(await here.record.sessions.read(session_id)).owner for session_id in ids}
        assert owners == {f"room:matrix:!room:example.org:person:{sender}" for sender in (ANN, BOB)}


async def test_a_thread_is_a_conversation_of_its_own(home: Path) -> None:
    """Room and thread lead to two sessions of one owner."""
    async with town(home) as here:
        await here.say("in the room", ANN, ROOM, is_for_agent=True)
        await here.say("in the thread", ANN, f"{ROOM}:thread:$t1", is_for_agent=True)
        assert await here.words(await here.session(ROOM)) == ["in the room"]
        assert await here.words(await here.session(f"{ROOM}:thread:$t1")) == ["in the thread"]


async def test_what_is_not_for_the_agent_is_not_recorded(home: Path) -> None:
    """A room's own talk leaves nothing but the cursor."""
    async with town(home) as here:
        assert await here.take(here.event("hello Bob", ANN, ROOM), cursor="c1") == []
        assert (await here.count_sessions(), await here.cursor()) == (0, "c1")
        assert "hello Bob" not in (home / "home.jsonl").read_text()


async def test_a_room_where_everything_is_answered(home: Path) -> None:
    """With `answer = "everything"` nobody needs to name the agent."""
    async with town(home, settings_of(answer=Answers.EVERYTHING)) as here:
        assert len(await here.say("hello", ANN, ROOM)) == 1


async def test_observed_words_are_recorded_as_such(home: Path) -> None:
    """They ask for no turn; the next one tells the model of them, marked, before what was said to it."""
    async with town(home, settings_of(observe=True)) as here:
        assert await here.say("did you see it?", ANN, ROOM) == []
        session_id = await here.session(ROOM)
        assert await here.record.turns.list(session_id) == []
        (observed,) = await here.messages(session_id)
        assert observed.is_observed
        await here.ask("what did Ann ask?", BOB, ROOM, is_for_agent=True)
        (said,) = here.model.requests[0].messages
        assert said == UserSaid(
            f"[Hansard: said among people, not to you.]\n{ANN} says:\n> did you see it?\n\n"
            f"{BOB} says:\n> what did Ann ask?"
        )
        await here.check()


@pytest.mark.loss("F1", "F5")
@pytest.mark.parametrize("busy", list(Busy))
async def test_messages_while_an_answer_runs(home: Path, busy: Busy) -> None:
    """All are recorded in order, whatever the mode; the running turn is interrupted, or goes on, or is steered."""
    gate = Gate()
    model = PlayedModel(["first", gate], ["second"])
    async with town(home, settings_of(busy=busy), model) as here:
        (wake,) = await here.say("one")
        here.runner.wake(wake.session_id, wake.turn_id)
        await gate.reached()
        for number in range(100):
            await here.say(f"more {number}")
        gate.open()
        here.runner.wake(wake.session_id)
        await here.runner.settled(wake.session_id)
        assert await here.words("", Role.USER) == ["one", *(f"more {number}" for number in range(100))]
        kinds = [entry.kind for entry in await here.entries(wake.session_id)]
        assert ("turn.stopping" in kinds) == (busy is Busy.INTERRUPT)
        assert ("turn.steered" in kinds) == (busy is Busy.STEER)
        await here.check()


async def test_busy_is_a_setting_of_the_session(home: Path) -> None:
    """/busy in a chat changes what messages do there, from the next one on."""
    gate = Gate()
    async with town(home, model=PlayedModel(["first", gate], ["second"])) as here:
        await here.say("/busy queue")
        (wake,) = await here.say("one")
        here.runner.wake(wake.session_id, wake.turn_id)
        await gate.reached()
        await here.say("two")
        gate.open()
        await here.runner.settled(wake.session_id)
        assert "turn.stopping" not in [entry.kind for entry in await here.entries(wake.session_id)]


@pytest.mark.loss("H2")
async def test_an_ended_session_is_opened_again(home: Path) -> None:
    """The chat still leads there; the person is told, and the message is taken."""
    async with town(home) as here:
        await here.ask("one")
        await here.record.end_session(await here.session(), "by hand")
        await here.ask("two")
        assert (await here.words())[-2:] == ["two", "ok"]
        assert await here.notices() == [ENGLISH.reopened]


# Age.


@pytest.mark.loss("F8")
async def test_what_is_too_old_is_recorded_and_told_once(home: Path) -> None:
    """Messages of before the limit ask for no turn; one notice tells it; the next answer has all of them in mind."""
    async with town(home, settings_of(answer_age_seconds_max=3600)) as here:
        old = here.clock.now_microseconds() // 1000 - 3601_000
        for number in range(3):
            assert await here.say(f"old {number}", sent_at_ms=old + number) == []
        assert await here.notices() == [ENGLISH.late]
        assert await here.record.turns.list(await here.session()) == []
        await here.ask("new")
        assert here.model.requests[0].messages == (UserSaid("old 0\n\nold 1\n\nold 2\n\nnew"),)
        await here.say("old again", sent_at_ms=old)
        assert await here.notices() == [ENGLISH.late, ENGLISH.late]
        await here.check()


async def test_a_clock_that_was_set_does_not_make_words_old(home: Path) -> None:
    """The wall clock jumps a year ahead while the gateway runs: what is said now is answered."""
    async with town(home) as here:
        sent_at_ms = here.clock.now_microseconds() // 1000 + 1000
        here.clock.jump(366 * 86_400)
        assert len(await here.say("hello", sent_at_ms=sent_at_ms)) == 1


async def test_an_old_command_is_not_run(home: Path) -> None:
    """/new of last week begins nothing now."""
    async with town(home) as here:
        await here.ask("one")
        session_id = await here.session()
        await here.say("/new", sent_at_ms=here.clock.now_microseconds() // 1000 - 7 * 86_400_000)
        assert await here.session() == session_id
        assert await here.notices() == [ENGLISH.late]


# Changes.


@pytest.mark.loss("F18")
async def test_an_edit_is_recorded_beside_the_first_words(home: Path) -> None:
    """The transcript and the model have the latest words and are told; the record keeps both; no turn is asked for."""
    async with town(home) as here:
        first = here.event("teh first")
        await here.take(first)
        for text in ("the first", "the very first"):
            edit = here.event(text, kind=EventKind.EDIT, about=first.id)
            assert await here.take(edit) == []
            assert await here.take(edit) == []
        (message,) = await here.messages()
        assert (message.text, message.is_edited, message.event_id) == ("the very first", True, first.id)
        bodies = [entry.body for entry in await here.entries(await here.session())]
        assert [body.parts[0] for body in bodies if isinstance(body, MessageEdited)] != []
        assert len([body for body in bodies if isinstance(body, MessageEdited)]) == 2
        assert len(await here.record.turns.list(await here.session())) == 1
        await here.ask("second")
        (said,) = here.model.requests[0].messages
        assert "the very first" in getattr(said, "text", "")
        assert "edited this message afterwards" in getattr(said, "text", "")
        await here.check()


async def test_nobody_edits_the_words_of_another(home: Path) -> None:
    """An edit counts when its sender is the author; platforms promise that, and it is looked at all the same."""
    async with town(home) as here:
        first = here.event("mine", ANN, ROOM, is_for_agent=True)
        await here.take(first)
        await here.take(here.event("yours", BOB, ROOM, kind=EventKind.EDIT, about=first.id, is_for_agent=True))
        assert await here.words(await here.session(ROOM)) == ["mine"]


@pytest.mark.loss("F18")
async def test_an_edit_of_what_is_not_known_is_new_and_no_command(home: Path) -> None:
    """A message that names the agent only after an edit is answered; an edit never runs a command."""
    async with town(home) as here:
        await here.say("what is it?", ANN, ROOM)
        edit = here.event("hansard: what is it?", ANN, ROOM, kind=EventKind.EDIT, about="$event1", is_for_agent=True)
        assert len(await here.take(edit)) == 1
        await here.take(here.event("not for you", ANN, ROOM, kind=EventKind.EDIT, about="$event1"), cursor="c1")
        assert await here.words(await here.session(ROOM)) == ["hansard: what is it?"]
        await here.take(here.event("/new", kind=EventKind.EDIT, about="$nobody knows"))
        assert await here.words() == ["/new"]


@pytest.mark.loss("F18")
async def test_a_deletion_leaves_a_sentence(home: Path) -> None:
    """The words leave transcript and context, and stay in the record; an edit of before does not bring them back."""
    async with town(home) as here:
        first = here.event("a secret")
        await here.take(first)
        await here.take(here.event("a better secret", kind=EventKind.EDIT, about=first.id))
        await here.take(here.event(kind=EventKind.DELETION, about=first.id, sender=BOB))
        await here.take(here.event("late edit", kind=EventKind.EDIT, about=first.id))
        (message,) = await here.messages()
        assert (message.text, message.is_retracted) == (RETRACTED, True)
        await here.ask("hello")
        assert "secret" not in repr(here.model.requests)
        bodies = [entry.body for entry in await here.entries(await here.session())]
        assert any(isinstance(body, MessageRetracted) for body in bodies)
        assert "a better secret" in repr(bodies)
        await here.check()


async def test_what_was_deleted_before_its_answer_is_not_answered(home: Path) -> None:
    """The turn that waited ends without a word to the model; with something else to answer, it is asked."""
    async with town(home) as here:
        first = here.event("never mind")
        (wake,) = await here.take(first)
        await here.take(here.event(kind=EventKind.DELETION, about=first.id))
        here.runner.wake(wake.session_id, wake.turn_id)
        await here.runner.settled(wake.session_id)
        assert here.model.requests == []
        await here.ask("but this")
        assert here.model.requests[0].messages[-1] == UserSaid("[Hansard: the turn above got no reply.]\n\nbut this")
        await here.check()


async def test_a_deletion_of_what_is_not_known_is_nothing(home: Path) -> None:
    """Only the cursor moves."""
    async with town(home) as here:
        await here.take(here.event(kind=EventKind.DELETION, about="$nobody"), cursor="c1")
        assert (await here.count_sessions(), await here.cursor()) == (0, "c1")


# What cannot be read yet.


@pytest.mark.loss("F19")
async def test_an_unreadable_event_is_kept_until_its_keys_come(home: Path) -> None:
    """It is held whole, over restarts and a lost database, told once, and taken once when it can be read."""
    async with town(home) as here:
        sealed = [here.event(kind=EventKind.UNREADABLE, raw=f'{{"n":{number}}}') for number in range(2)]
        await here.take(*sealed)
        await here.take(*sealed)
        assert here.told_at_home(HOME_OF_ANN) == [ENGLISH.unreadable]
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)
    async with town(home) as here:
        assert await here.intake.held() == ['{"n":0}', '{"n":1}']
        await here.take(here.event("now I can", id=sealed[0].id))
        assert await here.intake.held() == ['{"n":1}']
        await here.take(sealed[0])
        assert await here.intake.held() == ['{"n":1}']
        assert await here.words() == ["now I can"]
        await here.check()


async def test_what_a_chat_is_told_stands_in_its_session(home: Path) -> None:
    """That something cannot be read is told in the session of the chat; where that has ended, in the home journal."""
    async with town(home) as here:
        await here.take(here.event("hello"))
        sealed = here.event(kind=EventKind.UNREADABLE, raw="sealed")
        await here.take(sealed)
        (session,) = await here.record.sessions()
        notices = [each for each in await here.record.load_transcript(session.id) if each.role == Role.NOTICE]
        assert [(each.text, each.chat) for each in notices] == [(ENGLISH.unreadable, HOME_OF_ANN)]
        waiting = await here.record.deliveries.list_waiting("matrix")
        assert [each.message_id for each in waiting if each.chat == HOME_OF_ANN] == [notices[0].id]
        assert here.told_at_home(HOME_OF_ANN) == []
        await here.take(here.event("now I can", id=sealed.id))
        await here.record.end_session(session.id, "over")
        await here.take(here.event(kind=EventKind.UNREADABLE, raw="sealed again"))
        assert here.told_at_home(HOME_OF_ANN) == [ENGLISH.unreadable]
        await here.check()


async def test_an_event_that_turns_out_to_be_nobodys_business_is_let_go(home: Path) -> None:
    """Once readable, a room message that is not for the agent is neither recorded nor held any longer."""
    async with town(home) as here:
        sealed = here.event(chat=ROOM, kind=EventKind.UNREADABLE, raw="sealed")
        await here.take(sealed)
        assert await here.intake.held() == ["sealed"]
        await here.intake.take_batch(Batch(cursor="", events=(here.event("hello Bob", ANN, ROOM, id=sealed.id),)))
        assert await here.intake.held() == []
        assert await here.count_sessions() == 0
        await here.check()


# What goes wrong.


async def test_an_event_that_cannot_be_recorded_stops_no_other(home: Path) -> None:
    """Too large: the person is told in fixed words, once; the events around it are taken, and the cursor moves."""
    async with town(home) as here:
        events = (here.event("one"), here.event("x" * (9 * 1024 * 1024)), here.event("three"))
        await here.take(*events, cursor="c1")
        await here.take(*events, cursor="c1")
        assert await here.words() == ["one", "three"]
        assert await here.cursor() == "c1"
        (session,) = await here.record.sessions()
        said = await here.record.load_transcript(session.id)
        (told,) = [each.text for each in said if each.role == Role.NOTICE]
        assert told.startswith("Your message could not be recorded, so I did not take it: ")
        assert {event_id for event_id, _ in here.reports} == {events[1].id}
        assert (await here.record.verify()).ok


@pytest.mark.loss("J8")
async def test_a_chat_that_is_none_stops_no_other(home: Path) -> None:
    """An event of a place that cannot be named is reported, and the rest is taken."""
    async with town(home) as here:
        await here.take(here.event("hello", chat="matrix:room:@ann:example.org"), here.event("two"), cursor="c1")
        assert (await here.words(), await here.cursor(), len(here.reports)) == (["two"], "c1", 1)


async def test_the_cursor_rests_while_nothing_happens(home: Path) -> None:
    """Empty batches are noted once a minute: a quiet day writes little."""
    async with town(home) as here:
        for number in range(100):
            await here.intake.take_batch(Batch(cursor=f"c{number}"))
            here.clock.advance(10)
        assert len(here.at_home("cursor.moved")) == 17
        await here.check()


async def test_another_gateway_on_the_same_record_takes_nothing_twice(home: Path) -> None:
    """F13: two intakes of one account, each with its own memory: one message, one turn."""
    async with town(home) as here, Record.open(home, wiring=Wiring(clock=here.clock)) as record:
        other = Town(record, here.clock, here.settings, None)
        event = here.event("hello")
        await here.take(event)
        await other.take(event)
        assert await here.words() == ["hello"]
        assert len(await here.record.turns.list(await here.session())) == 1
