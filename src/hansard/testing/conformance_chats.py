"""Contracts of chats and of people.

Chats: what comes in is taken once, in one commit, from allowed people, and goes to the session where its chat leads.
People: which identities are one person, which sessions a person sees, and where their words are shown.
"""

from __future__ import annotations

import asyncio

from hansard.domain.access import Grant, Standing
from hansard.domain.arrivals import ArrivalKind, ArrivalOutcome, IntakeRules, RouteChange
from hansard.domain.chats import Began, reply_id_of
from hansard.domain.messages import RETRACTED, Message
from hansard.domain.people import ADMIN, CODE_MINUTES
from hansard.domain.sessions import SessionState, TurnState
from hansard.domain.settings import Pairing, Resets
from hansard.errors import InvalidInput, NotFound
from hansard.record.api import Record
from hansard.testing import conformance_kit as kit
from hansard.testing.conformance_kit import ContractChat

DAY_SECONDS = 86_400


@kit.contract("chats")
async def an_arrival_is_taken_once(backend: kit.RecordUnderTest) -> None:
    """Message, session, route, turn and cursor come with the first; repeats, after reopening too, return the same."""
    async with backend.open_record() as record:
        chat = ContractChat(record)
        arrival = chat.arrival("hello", origin=chat.origin(cursor="c1"))
        first = await chat.receive(arrival)
        kit.require_equal(first.outcome, ArrivalOutcome.TAKEN, "the first time")
        kit.require_equal(await record.intake.cursor("matrix", chat.account), "c1", "the cursor")
    async with backend.open_record() as record:
        again = await record.intake.receive(arrival, chat.rules)
        kit.require_equal(again.outcome, ArrivalOutcome.KNOWN, "the second time")
        first_ids, ids = ((each.session_id, each.message_id, each.turn_id) for each in (first, again))
        kit.require_equal(ids, first_ids, "session, message and turn that it became")
        kit.require_equal(await kit.texts(record, first.session_id), ["hello"], "what was said")
        states = [turn.state for turn in await record.turns.list(first.session_id)]
        kit.require_equal(states, [TurnState.QUEUED], "turns")
        session = await record.sessions.read(first.session_id)
        kit.require_equal((session.owner, session.source), (chat.owner, "matrix"), "owner and source")


@kit.record_contract("chats")
async def who_may_not_leaves_nothing(record: Record) -> None:
    """A stranger's words are not recorded; the one code that they are shown counts once, and only for them."""
    pairing = Pairing(codes_per_hour_max=1000, source_codes_per_hour_max=1000, tries_per_hour_max=1000)
    chat = ContractChat(record, IntakeRules(pairing=pairing))
    eve = f"@{kit.fresh('eve')}:elsewhere.net"

    async def speak(standing: Standing = Standing.UNLISTED) -> ArrivalOutcome:
        arrival = chat.arrival("hi", origin=chat.origin(identity=eve, standing=standing))
        return (await chat.receive(arrival)).outcome

    kit.require_equal(await speak(), ArrivalOutcome.ASKED, "what became of it")
    for _ in range(2):
        kit.require_equal(await speak(), ArrivalOutcome.REFUSED, "what became of it, again")
    kit.require_equal(await chat.leads_to(), "", "the chat's session")
    asked = await record.access.find("matrix", eve)
    kit.require_equal(asked.state, Grant.ASKED, "the stranger's standing")
    approved = await record.access.approve(asked.code, pairing=pairing)
    kit.require_equal((approved.identity, approved.state), (eve, Grant.ALLOWED), "who may talk")
    await kit.refusal(NotFound, "the code, again", record.access.approve(asked.code, pairing=pairing))
    kit.require_equal(await speak(), ArrivalOutcome.TAKEN, "after the approval")
    await record.access.revoke("matrix", eve)
    kit.require_equal(await speak(Standing.LISTED), ArrivalOutcome.REFUSED, "after the revocation, although listed")


@kit.contract("chats", "clock")
async def a_due_reset_moves_the_chat(backend: kit.RecordUnderTest) -> None:
    """The route moves, the old session ends with its reason, parent and child are linked; never while a turn waits."""
    async with backend.open_record() as record:
        chat = ContractChat(record, IntakeRules(Resets(idle_minutes=60)))
        old = await chat.say("old")
        await record.turns.queue(old)
        kit.offered(backend.clock).advance(DAY_SECONDS)
        kit.require_equal(await chat.say("still old"), old, "the session while a turn waited")
        kit.offered(backend.clock).advance(DAY_SECONDS)
        new = await chat.say("new")
        kit.require(new != old, "another session afterwards")
        ended, child = await record.sessions.read(old), await record.sessions.read(new)
        kit.require_equal((ended.state, ended.end_reason), (SessionState.ENDED, Began.IDLE), "the old session")
        kit.require_equal(child.parent.session_id if child.parent else "", old, "the parent")
        kit.require_equal(await chat.leads_to(), new, "the route")
        began = RouteChange(Began.IDLE, old, new).told(record.words)
        kit.require_equal(await kit.texts(record, new), [began, "new"], "what is in the new session")
        newest = await chat.say("/new", ArrivalKind.NEW)
        began = RouteChange(Began.NEW, new, newest).told(record.words)
        kit.require_equal(await kit.texts(record, newest), [began], "what is in the newest session")
        kit.require_equal((await record.sessions.read(new)).end_reason, Began.NEW, "the reason of the end")


@kit.record_contract("chats")
async def changes_are_kept_beside_the_first_words(record: Record) -> None:
    """An edit by its author shows the latest words, one by another nothing; a deletion leaves a fixed sentence."""
    chat = ContractChat(record)
    first = chat.arrival("first")
    session_id = (await chat.receive(first)).session_id
    about, edit = first.origin.event_id, chat.origin()
    for _ in range(2):
        await record.intake.edit_message(edit, about, "second")
    await record.intake.edit_message(chat.origin(identity="@bob:example.org"), about, "stolen")
    (message,) = await record.load_transcript(session_id)
    kit.require_equal((message.text, message.is_edited), ("second", True), "the edited message")
    placed = (await record.conversation(session_id)).waiting
    kit.require_equal([each.message.text for each in placed], ["second"], "what the model would be told")
    await record.end_session(session_id, "over")
    await record.intake.retract_message(chat.origin(), about)
    (message,) = await record.load_transcript(session_id)
    kit.require_equal((message.text, message.is_retracted), (RETRACTED, True), "the deleted message")
    unknown = await record.intake.edit_message(chat.origin(), "$never-received", "x")
    kit.require_equal(unknown, None, "an edit of what is not known")


@kit.contract("chats")
async def what_cannot_be_read_is_held(backend: kit.RecordUnderTest) -> None:
    """It is kept whole until it is received, over reopening, and not held again afterwards."""
    async with backend.open_record() as record:
        chat = ContractChat(record)
        arrival = chat.arrival("readable now")
        for _ in range(2):
            kit.require(await record.intake.hold_event(arrival.origin, '{"sealed":1}'), "that it is kept")
    async with backend.open_record() as record:
        kit.require_equal(await record.intake.list_held("matrix", chat.account), ['{"sealed":1}'], "what is held")
        received = await record.intake.receive(arrival, chat.rules)
        kit.require_equal(received.outcome, ArrivalOutcome.TAKEN, "once it can be read")
        await record.intake.hold_event(arrival.origin, '{"sealed":1}')
        kit.require_equal(await record.intake.list_held("matrix", chat.account), [], "what is held then")


@kit.record_contract("chats")
async def a_command_leads_only_to_sessions_of_its_owner(record: Record) -> None:
    """Its end moves the route, records the reply there, once; a session of somebody else does not exist for it."""
    chat = ContractChat(record)
    here = await chat.say("hello")
    other = await record.create_session(id=kit.fresh("other"), source="matrix", owner=chat.owner)
    foreign = await record.create_session(id=kit.fresh("foreign"), source="matrix", owner="person:bob")
    command = chat.arrival("/resume", ArrivalKind.COMMAND)
    asked = await chat.receive(command)
    reply = Message.notice("done", id=reply_id_of(asked.message_id), chat=chat.key)
    concluding = record.intake.conclude(command.origin, foreign.id, reply, "resume")
    await kit.refusal(NotFound, "a session of somebody else", concluding)
    kit.require_equal(await chat.leads_to(), here, "the route after that")
    for _ in range(2):
        await record.intake.conclude(command.origin, other.id, reply, "resume")
    kit.require_equal(await chat.leads_to(), other.id, "the route")
    kit.require_equal(await kit.texts(record, other.id), ["done"], "the reply")
    kit.require(await record.intake.is_concluded(command.origin), "that the command has ended")


def new_person() -> str:
    return f"person:matrix:@{kit.fresh('person')}:example.org"


async def seen(record: Record, owner: str) -> list[str]:
    return sorted(session.title or "" for session in await record.sessions(owner=owner))


@kit.contract("people")
async def linked_people_see_both_and_parted_ones_their_own(backend: kit.RecordUnderTest) -> None:
    """Lists, names and search follow the circle of an owner, also after reopening; no session changes its owner."""
    one, other = new_person(), new_person()
    word = kit.fresh("word")
    async with backend.open_record() as record:
        for owner, title in ((one, "first"), (other, "second")):
            session = await record.create_session(source="cli", owner=owner, title=f"{word} {title}")
            await record.append(session.id, Message.user(f"{word} said by the {title}"))
        kit.require_equal(await seen(record, one), [f"{word} first"], "before")
        kit.require(await record.people.link(one, other), "linking is news")
    async with backend.open_record() as record:
        for owner in (one, other):
            kit.require_equal(await seen(record, owner), [f"{word} first", f"{word} second"], "while linked")
            found = await record.resolve(f"{word} second", owner=owner)
            kit.require_equal(found.owner, other, "whose it is")
            kit.require_equal(len(await record.search(word, owner=owner)), 2, "what is found")
        parted = await record.people.unlink(one)
        kit.require_equal(parted.left, (other,), "from whom")
        kit.require_equal(await seen(record, one), [f"{word} first"], "afterwards")
        kit.require_equal(len(await record.search(word, owner=other)), 1, "what is found afterwards")
        await kit.refusal(NotFound, "another's session", record.resolve(f"{word} second", owner=one))


@kit.record_contract("people")
async def a_circle_is_joined_and_left_as_a_whole(record: Record) -> None:
    """Whoever is linked to either is one person with both; whoever leaves is alone, and the others stay together."""
    people = [new_person() for _ in range(4)]
    await record.people.link(people[0], people[1])
    await record.people.link(people[2], people[3])
    await record.people.link(people[1], people[2])
    for each in people:
        kit.require_equal(await record.people.circle(each), tuple(sorted(people)), "the circle")
    await record.people.unlink(people[1])
    kit.require_equal(await record.people.circle(people[1]), (people[1],), "who left")
    rest = tuple(sorted({*people} - {people[1]}))
    kit.require_equal(await record.people.circle(people[3]), rest, "who stayed")
    room = f"room:matrix:!{kit.fresh('room')}:example.org"
    await kit.refusal(InvalidInput, "a room", record.people.link(people[0], room))


@kit.record_contract("people")
async def a_code_joins_one_pair_once(record: Record) -> None:
    """Of several who enter one code at the same time one is linked; afterwards it counts for nobody."""
    shown_to = new_person()
    tried = [new_person() for _ in range(4)]
    code = (await record.people.show_code(shown_to)).code
    entered = await asyncio.gather(*(record.people.enter_code(code, each) for each in tried), return_exceptions=True)
    kit.require_equal(sum(not isinstance(each, BaseException) for each in entered), 1, "how many were linked")
    kit.require_equal(len(await record.people.circle(shown_to)), 2, "the circle")
    await kit.refusal(NotFound, "a used code", record.people.enter_code(code, new_person()))


@kit.contract("people", "clock")
async def a_code_counts_for_a_while(backend: kit.RecordUnderTest) -> None:
    """When its minutes are over, a code is as good as none."""
    async with backend.open_record() as record:
        code = (await record.people.show_code(new_person())).code
        kit.offered(backend.clock).advance(CODE_MINUTES * 60)
        await kit.refusal(NotFound, "an old code", record.people.enter_code(code, new_person()))


@kit.record_contract("people")
async def what_is_said_elsewhere_waits_where_the_same_person_is(record: Record) -> None:
    """A second chat of the same person that leads to the session is to be shown words and answer; a stranger's is not.

    Whoever is parted afterwards follows no longer, and the record says so when it is asked.
    """
    owner, other = new_person(), new_person()
    chat, second = ContractChat(record, owner=owner), ContractChat(record, owner=other)
    for each in (chat, second):
        received = await each.receive(each.arrival("hello"))
        await kit.run_turn(record, received.session_id, "hello", waiting=received.turn_id)
    session_id = await chat.leads_to()
    await record.people.link(owner, other)
    await record.people.link(owner, ADMIN)
    command = second.origin(identity=other.removeprefix("person:matrix:"))
    await record.intake.conclude(command, session_id, Message.notice(""), "resume")
    await kit.ask(record, session_id, "typed")
    await kit.run_turn(record, session_id, "answered")
    waiting = [each for each in await record.deliveries.list_waiting("matrix") if each.chat in {chat.key, second.key}]
    follows = [each for each in waiting if each.follows]
    kit.require_equal({each.chat for each in follows}, {chat.key, second.key}, "who follows")
    kit.require_equal(len(follows), 4, "words and answer, in both chats")
    kit.require(await record.routes.find_follower(session_id, second.key), "it follows")
    await record.people.unlink(other)
    await record.people.unlink(ADMIN)
    kit.require_equal(await record.routes.find_follower(session_id, second.key), None, "who follows after parting")
    kit.require(await record.routes.find_follower(session_id, chat.key), "the other still does")
