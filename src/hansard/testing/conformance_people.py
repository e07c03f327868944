"""Contracts of people: who is one person with whom, who sees what by that, and where it is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.messages import Message
from hansard.domain.people import ADMIN, CODE_MINUTES
from hansard.domain.settings import Busy
from hansard.errors import InvalidInput, NotFound
from hansard.testing.conformance_chats import ContractChat
from hansard.testing.conformance_kit import (
    RecordUnderTest,
    contract,
    fresh,
    record_contract,
    require,
    require_equal,
    require_error,
)

if TYPE_CHECKING:
    from hansard.record.api import Record


def new_person() -> str:
    return f"person:matrix:@{fresh('person')}:example.org"


async def seen(record: Record, owner: str) -> list[str]:
    return sorted(session.title or "" for session in await record.sessions(owner=owner))


@contract("people")
async def linked_people_see_both_and_parted_ones_their_own(backend: RecordUnderTest) -> None:
    """Lists, names and search follow the circle of an owner, also after reopening; no session changes its owner."""
    one, other = new_person(), new_person()
    word = fresh("word")
    async with backend.open_record() as record:
        for owner, title in ((one, "first"), (other, "second")):
            session = await record.create_session(source="cli", owner=owner, title=f"{word} {title}")
            await record.append(session.id, Message.user(f"{word} said by the {title}"))
        require_equal(await seen(record, one), [f"{word} first"], "before")
        require(await record.people.link(one, other), "linking is news")
    async with backend.open_record() as record:
        for owner in (one, other):
            require_equal(await seen(record, owner), [f"{word} first", f"{word} second"], "while linked")
            found = await record.resolve(f"{word} second", owner=owner)
            require_equal(found.owner, other, "whose it is")
            require_equal(len(await record.search(word, owner=owner)), 2, "what is found")
        parted = await record.people.unlink(one)
        require_equal(parted.left, (other,), "from whom")
        require_equal(await seen(record, one), [f"{word} first"], "afterwards")
        require_equal(len(await record.search(word, owner=other)), 1, "what is found afterwards")
        with require_error(NotFound, "another's session"):
            await record.resolve(f"{word} second", owner=one)


@record_contract("people")
async def a_circle_is_joined_and_left_as_a_whole(record: Record) -> None:
    """Whoever is linked to either is one person with both; whoever leaves is alone, and the others stay together."""
    people = [new_person() for _ in range(4)]
    await record.people.link(people[0], people[1])
    await record.people.link(people[2], people[3])
    await record.people.link(people[1], people[2])
    for each in people:
        require_equal(await record.people.circle(each), tuple(sorted(people)), "the circle")
    await record.people.unlink(people[1])
    require_equal(await record.people.circle(people[1]), (people[1],), "who left")
    rest = tuple(sorted({*people} - {people[1]}))
    require_equal(await record.people.circle(people[3]), rest, "who stayed")
    with require_error(InvalidInput, "a room"):
        await record.people.link(people[0], f"room:matrix:!{fresh('room')}:example.org")


@record_contract("people")
async def a_code_joins_one_pair_once(record: Record) -> None:
    """Of several who enter one code at the same time one is linked; afterwards it counts for nobody."""
    shown_to = new_person()
    tried = [new_person() for _ in range(4)]
    code = (await record.people.show_code(shown_to)).code
    entered = await asyncio.gather(*(record.people.enter_code(code, each) for each in tried), return_exceptions=True)
    require_equal(sum(not isinstance(each, BaseException) for each in entered), 1, "how many were linked")
    require_equal(len(await record.people.circle(shown_to)), 2, "the circle")
    with require_error(NotFound, "a used code"):
        await record.people.enter_code(code, new_person())


@contract("people", "clock")
async def a_code_counts_for_a_while(backend: RecordUnderTest) -> None:
    """When its minutes are over, a code is as good as none."""
    if backend.clock is None:
        raise TypeError(backend)
    async with backend.open_record() as record:
        code = (await record.people.show_code(new_person())).code
        backend.clock.advance(CODE_MINUTES * 60)
        with require_error(NotFound, "an old code"):
            await record.people.enter_code(code, new_person())


@record_contract("people")
async def what_is_said_elsewhere_waits_where_the_same_person_is(record: Record) -> None:
    """A second chat of the same person that leads to the session is to be shown words and answer; a stranger's is not.

    Whoever is parted afterwards follows no longer, and the record says so when it is asked.
    """
    chat, second = ContractChat(record), ContractChat(record)
    owner, other = new_person(), new_person()
    for each, who in ((chat, owner), (second, other)):
        arrival = each.arrival("hello")
        origin = msgspec.structs.replace(arrival.origin, owner=who)
        received = await record.intake.receive(msgspec.structs.replace(arrival, origin=origin))
        async with record.turn(received.session_id, waiting=received.turn_id) as turn, turn.reply() as reply:
            await reply.write("hello")
    session_id = await chat.leads_to()
    await record.people.link(owner, other)
    await record.people.link(owner, ADMIN)
    command = second.origin(fresh("event"), identity=other.removeprefix("person:matrix:"))
    command = msgspec.structs.replace(command, owner=other)
    await record.intake.conclude(command, session_id, Message.notice(""), "resume")
    await record.accept([(session_id, Message.user("typed"))], queue_turn=True, busy=Busy.QUEUE)
    async with record.turn(session_id) as turn, turn.reply() as reply:
        await reply.write("answered")
    waiting = [each for each in await record.deliveries.list_waiting("matrix") if each.chat in {chat.key, second.key}]
    follows = [each for each in waiting if each.follows]
    require_equal({each.chat for each in follows}, {chat.key, second.key}, "who follows")
    require_equal(len(follows), 4, "words and answer, in both chats")
    require(await record.routes.find_follower(session_id, second.key), "it follows")
    await record.people.unlink(other)
    await record.people.unlink(ADMIN)
    require_equal(await record.routes.find_follower(session_id, second.key), None, "who follows after parting")
    require(await record.routes.find_follower(session_id, chat.key), "the other still does")
