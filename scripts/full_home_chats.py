"""What happens in chats, for `full_home.py`: people, files, deliveries, resets, invitations."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from hansard import Message, NotFound
from hansard.domain.access import Standing
from hansard.domain.arrivals import Arrival, ArrivalKind, Awaited, Cursor, Intake, Origin
from hansard.domain.budgets import Quota, Usage
from hansard.domain.deliveries import Operation
from hansard.domain.messages import File, Role, Text, TextForm, ToolCall
from hansard.domain.questions import Given, Scope
from hansard.domain.settings import Busy, Resets
from hansard.record.invitations import InvitationAnswered
from hansard.record.messages.entries import FileTranscribed

if TYPE_CHECKING:
    from hansard.domain.messages import Part

from full_home_stage import (
    ADMIN,
    AGENT,
    ANN,
    BOB,
    BOT,
    DAY,
    DIRECT,
    EVE,
    LONG_WORDS,
    MALLORY,
    PHONE,
    ROOM,
    RULES,
    Story,
    picture,
    question_about,
)


async def change_minds(story: Story) -> None:
    """Say something in a chat and edit it, twice; delete it; edit what was undone; quote and forward."""
    arrivals = []
    for text in ("I meen this", "Delete me", "Edit and delete me", "Undo me"):
        arrival = story.arrival(text, chat=DIRECT)
        received = await story.hear(arrival)
        arrivals.append(arrival)
    session = received.session_id
    first, second, third, fourth = arrivals
    await story.edit(first, "I mean this")
    await story.answer(session, "minds-r1", "I see.")
    await story.record.fork(session, id="minds-fork")
    await story.edit(first, "I meant that")
    await story.retract(second)
    await story.edit(third, "Edited, then deleted")
    await story.retract(third)
    await story.record.messages.undo(session, [fourth.said[0][1].id, "minds-r1"])
    await story.edit(fourth, "Undone, then edited")
    await story.record.messages.restore(session, ["minds-r1"])
    parts: list[Part] = [
        Text("You said: I see.", form=TextForm.QUOTED),
        Text("See what?"),
        Text("<b>See what?</b>", form=TextForm.FORMATTED),
        Text("The news of Bob", form=TextForm.FORWARDED),
    ]
    await story.hear(story.arrival(parts, chat=DIRECT))
    await story.answer(session, "minds-r2", "The garden.")


async def talk_in_a_room(story: Story) -> None:
    """Let people talk to the agent and to one another; hold what cannot be read; pass over what is nothing."""
    record = story.record
    received = await story.hear(story.arrival("Hello, agent"))
    session = received.session_id
    await story.answer(session, "room-r1", "Hello, Ann. ", LONG_WORDS)
    await story.hear(story.arrival("Did you see that?", identity=BOB, kind=ArrivalKind.OBSERVED))
    await story.hear(story.arrival("Is this me?", identity=BOB, kind=ArrivalKind.UNVERIFIED))
    await story.hear(story.arrival("An old question", kind=ArrivalKind.LATE))
    await story.hear(story.arrival("Just so you know", kind=ArrivalKind.KEPT, standing=Standing.ROOM, identity=EVE))
    await story.hear(story.arrival("What do you think?", identity=BOB))
    async with record.turn(session) as turn:
        await story.hear(story.arrival("Be quick", busy=Busy.STEER))
        await story.say(turn, "room-r2", "I think so.")
        await story.hear(story.arrival("Stop that", identity=BOB, busy=Busy.INTERRUPT))
        turn.interrupt("a new message came")
    await story.answer(session, "room-r3", "Stopped.")
    for number, tells in ((1, True), (2, False)):
        sealed = Origin(
            channel="matrix",
            account=AGENT,
            event_id=f"$sealed-{number}",
            chat=ROOM,
            identity=BOB,
            standing=Standing.LISTED,
        )
        await record.intake.hold_event(sealed, f'{{"sealed":{number}}}', tells=tells)
    readable = story.arrival("Readable after all", identity=BOB, kind=ArrivalKind.KEPT)
    was_sealed = msgspec.structs.replace(readable.origin, event_id="$sealed-1")
    await story.hear(msgspec.structs.replace(readable, origin=was_sealed))
    passed = Origin(channel="matrix", account=AGENT, chat=ROOM, event_id="$pass-1")
    await record.intake.pass_event(passed, "Stickers are not read.")
    passed = msgspec.structs.replace(passed, event_id="$pass-2", cursor="s-pass")
    await record.intake.pass_event(passed, "Told at home.", at_home=True)
    await ask_in_a_room(story, session)


async def ask_in_a_room(story: Story, session: str) -> None:
    """Ask in a chat whether a call may be run; a reaction answers."""
    await story.hear(story.arrival("Echo this"))
    async with story.record.turn(session) as turn:
        call = ToolCall(id="room_call", name="echo", arguments='{"text":"this"}')
        await story.say(turn, "room-r4", "May I?", calls=(call,))
        people = ((ANN, ROOM), (BOB, ROOM))
        await turn.ask(Message.notice("May echo run?", id="room-n1"), question_about(call, "r2d2", people))
        guess = Given(scope=Scope.ONCE, code="xx11", is_plain=False)
        await story.hear(story.arrival("yes xx11", identity=BOB, kind=ArrivalKind.ANSWER, answer=guess))
        await story.show(session, "room-n1", ROOM, receipt="$question")
        given = Given(scope=Scope.ALWAYS, about="$question", is_plain=False)
        await story.hear(story.arrival("👍", kind=ArrivalKind.ANSWER, answer=given))
        await turn.append(Message.tool("room_call", "this", id="room-r4.0"))
        await story.say(turn, "room-r5", "this")


async def bring_files(story: Story) -> None:
    """Bring files: one is fetched, one cannot be, one is too many, one still waits; write voice notes down."""
    record = story.record

    def with_file(name: str, media_type: str) -> Arrival:
        awaited = Awaited(
            file="1", reference=f"mxc://example.org/{name}", name=name, media_type=media_type, size_bytes=90
        )
        parts: list[Part] = [Text(f"Look at {name}"), File(blob="", name=name, media_type=media_type, fetch="1")]
        return story.arrival(parts, files=(awaited,))

    for name, media_type in (("red.png", "image/png"), ("gone.pdf", "application/pdf"), ("voice.ogg", "audio/ogg")):
        received = await story.hear(with_file(name, media_type))
    due = {each.name: each for each in await record.fetches.list_due("matrix", AGENT, person_max=9, limit=9)}
    red = await record.blobs.put(picture(250))
    voice = await record.blobs.put(b"OggS a voice")
    await record.fetches.keep(due["red.png"], red, len(picture(250)))
    await record.fetches.keep(due["voice.ogg"], voice, 12)
    await record.fetches.give_up(due["gone.pdf"], "404", "gone.pdf could not be fetched.")
    await story.hear(with_file("late.txt", "text/plain"))
    await story.hear(with_file("many.txt", "text/plain"), RULES._replace(quota=Quota(files=1)))
    async with record.turn(received.session_id) as turn:
        heard = FileTranscribed(message_id=due["voice.ogg"].message_id, blob=voice, text="Buy \0 milk", model="whisper")
        turn.transcribe(heard, Usage(input_tokens=3, cost_micros=1))
        unheard = FileTranscribed(message_id=due["red.png"].message_id, blob=red, failure="no words in it")
        turn.transcribe(unheard, Usage())
        await story.say(turn, "files-r1", "Milk it is.")
    answer = Message.make(
        Role.ASSISTANT, [Text("Here it is"), File(blob=red, name="red.png")], id="files-r2", chat=ROOM
    )
    await record.append(received.session_id, answer)


async def deliver(story: Story) -> None:
    """Let deliveries come to every state, and messages to every outcome."""
    record, session = story.record, await story.session_of(ROOM)
    text = (await record.messages.read(session, "room-r1")).text
    middle = len(text.encode()) // 2
    first = story.delivery(session, "room-r1", ROOM, 1, middle)
    await record.deliveries.begin(first)
    await record.deliveries.move(session, first.id, "unknown", reason="no answer")
    await record.deliveries.begin(msgspec.structs.replace(first, mark="(maybe again)"))
    await record.deliveries.move(session, first.id, "sent", receipt="$post-1")
    edit = msgspec.structs.replace(
        story.delivery(session, "room-r1", ROOM, 2, middle + 10), operation=Operation.EDIT, start_bytes=0
    )
    await record.deliveries.begin(edit)
    await record.deliveries.move(session, edit.id, "pending", reason="too fast")
    longer = msgspec.structs.replace(edit, attempts=1, end_bytes=len(text.encode()))
    await record.deliveries.begin(longer)
    await record.deliveries.move(session, edit.id, "sent", receipt="$post-2")
    await record.deliveries.finish_message(session, "room-r1", ROOM, "shown")
    failed = story.delivery(session, "room-r2", ROOM, 1, 5)
    await record.deliveries.create(failed)
    await record.deliveries.move(session, failed.id, "failed", reason="refused")
    await record.deliveries.finish_message(session, "room-r2", ROOM, "dropped", "by a person")
    await record.deliveries.finish_message(session, "room-r2", ROOM, "retried")
    await record.deliveries.create(story.delivery(session, "room-r3", ROOM, 1, 8))
    unknown = story.delivery(session, "room-r5", ROOM, 1, 4)
    await record.deliveries.begin(unknown)
    await record.deliveries.move(session, unknown.id, "unknown", reason="no answer")
    file = msgspec.structs.replace(story.delivery(session, "files-r2", ROOM, 1, 0), file=1)
    await record.deliveries.begin(file)
    await record.deliveries.move(session, file.id, "sent", receipt="$file")
    await record.deliveries.finish_message(session, "room-n1", ROOM, "set_aside", "the room is gone")
    await record.deliveries.finish_message(session, "room-r4", ROOM, "empty")


async def reset_chats(story: Story) -> None:
    """Begin new sessions: after idling, at an hour, by a command; go back to an older one."""
    old = await story.session_of(DIRECT)
    await story.record.turns.stop(old, "nobody answers", queued=True)
    story.later(2 * DAY)
    resting = RULES._replace(resets=Resets(idle_minutes=24 * 60))
    idle = await story.hear(story.arrival("Good morning", chat=DIRECT), resting)
    await story.answer(idle.session_id, "reset-r1", "Good morning, Ann.")
    story.later(DAY)
    daily = RULES._replace(resets=Resets(daily_hour=4, time_zone="Europe/Berlin"))
    next_day = await story.hear(story.arrival("Another day", chat=DIRECT), daily)
    assert len({old, idle.session_id, next_day.session_id}) == 3, next_day  # noqa: PLR2004
    new = msgspec.structs.replace(story.arrival("/new Sailing", chat=DIRECT, kind=ArrivalKind.NEW), title="Sailing")
    await story.hear(new)
    command = story.arrival("/resume 1", chat=DIRECT, kind=ArrivalKind.COMMAND)
    asked = await story.hear(command)
    reply = Message.notice("You are back in the first session.", id=f"reply-{asked.message_id}", chat=DIRECT)
    await story.record.intake.conclude(msgspec.structs.replace(command.origin, cursor=""), old, reply, "resume")
    await story.hear(story.arrival("Here we are again", chat=DIRECT))
    await story.record.routes.move("telegram:chat:99", "ended", reason="first")
    await story.hear(story.arrival("/new", chat="telegram:chat:99", identity="99", kind=ArrivalKind.NEW))
    intake = Intake(channel="telegram", account=BOT, event_id="update-1")
    elsewhere = Message.user("By the record's own door", id="door-1", author="99", chat="telegram:chat:99")
    route = await story.record.routes.read("telegram:chat:99")
    assert route is not None
    cursor = Cursor(channel="telegram", account=BOT, value="2")
    await story.record.accept([(route.session_id, elsewhere)], intake, cursor, queue_turn=True)


async def follow_a_person(story: Story) -> None:
    """Make people one by a code, part one of them; let a second chat of the same person follow a session."""
    people = story.record.people
    ann = f"person:matrix:{ANN}"
    code = await people.show_code("person:telegram:7", identity="7", chat=PHONE)
    with suppress(NotFound):
        await people.enter_code("wrong-code", ann)
    await people.enter_code(code.code, ann, told="You are Ann.")
    await people.link(ann, ADMIN)
    await people.link("person:telegram:70", "person:telegram:71")
    await people.unlink("person:telegram:71")
    await people.show_code(f"person:matrix:{BOB}", identity=BOB, chat=ROOM)
    voided = await people.show_code(f"person:matrix:{EVE}", identity=EVE, chat=ROOM)
    await people.void_code(voided.code)
    session = await story.session_of(DIRECT)
    command = story.arrival("/resume 1", chat=PHONE, identity="7", kind=ArrivalKind.COMMAND)
    await story.hear(command)
    origin = msgspec.structs.replace(command.origin, cursor="")
    await story.record.intake.conclude(origin, session, Message.notice("", id="reply-phone"), "resume")
    await story.hear(story.arrival("Said on Matrix", chat=DIRECT))
    await story.answer(session, "follow-r1", "Shown on both.")


async def let_people_in(story: Story) -> None:
    """Let strangers ask, approve one, allow one, bar one; receive invitations, answer two of them."""
    record = story.record
    for stranger in (EVE, MALLORY):
        arrival = story.arrival("Let me in", chat=f"matrix:room:!{stranger[1:4]}:example.org", identity=stranger)
        origin = msgspec.structs.replace(arrival.origin, standing=Standing.UNLISTED)
        await story.hear(msgspec.structs.replace(arrival, origin=origin))
    asked = await record.access.find("matrix", EVE)
    with suppress(NotFound):
        await record.access.approve("wrong-code")
    await record.access.approve(asked.code, welcome="Welcome!")
    await record.access.allow("telegram", "7")
    await record.access.revoke("matrix", "@carl:example.org", by="admin")
    for number, (identity, standing) in enumerate(((ANN, Standing.LISTED), (MALLORY, Standing.UNLISTED)) * 2, 1):
        invitation = Origin(
            channel="matrix",
            account=AGENT,
            event_id=f"$invite-{number}",
            chat=f"matrix:room:!new{number}:example.org",
            identity=identity,
            standing=standing,
            cursor=f"s-invite-{number}",
        )
        await record.invitations.receive(invitation, RULES)
    for number, failure in ((1, ""), (2, "the room is gone")):
        answered = InvitationAnswered(channel="matrix", account=AGENT, event_id=f"$invite-{number}", failure=failure)
        told = "The room could not be joined." if failure else ""
        await record.invitations.settle_invitation(answered, ROOM, told)
