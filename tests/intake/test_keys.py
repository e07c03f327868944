"""Which session something said lands in: by where it was said, by whom, and by one setting. A table, and what moves it.

Each row of a table is one thing said. What has the same mark lands in the same session, what has another in another;
restarts, lost databases and changed settings move nothing that exists.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard.domain.chats import parse_key
from hansard.domain.sessions import SessionState
from hansard.domain.settings import Channels, Person, Settings
from hansard.domain.settings.channels import Answers, Matrix, RoomSharing, Telegram
from hansard.ports.channel import Channel, Event
from hansard.record.api import Record
from hansard.testing.fakes import FakeClock
from tests.channels.telegram.bot_api import bot_api
from tests.channels.telegram.stage import WAIT_SECONDS_MAX, channel_on
from tests.intake.town import AGENT, Town, town

ANN, BOB = "@ann:h", "@bob:h"
BOT, TANN, TBOB = "7000", "41", "42"


class Row(NamedTuple):
    """One thing said: where, by whom, whether they were alone with the agent, and what it leads to."""

    chat: str
    sender: str
    is_direct: bool
    key: str
    mark: str
    owner: str

    @property
    def channel(self) -> str:
        """The platform."""
        return self.chat.partition(":")[0]


def row(chat: str, sender: str, mark: str, owner: str, *, person: str = "", direct: bool = False) -> Row:
    """Return a row; its key is the chat, or that of a person in it."""
    return Row(chat, sender, direct, f"{chat}:person:{person}" if person else chat, mark, owner)


DIRECT = (
    row("matrix:room:!a:h", ANN, "ann", f"person:matrix:{ANN}", direct=True),
    row("matrix:room:!b:h", BOB, "bob", f"person:matrix:{BOB}", direct=True),
    row("matrix:room:!a2:h", ANN, "ann's second room", f"person:matrix:{ANN}", direct=True),
    row("matrix:room:!a:h:thread:$t", ANN, "ann's thread", f"person:matrix:{ANN}", direct=True),
    row("telegram:chat:41", TANN, "tann", f"person:telegram:{TANN}", direct=True),
    row("telegram:chat:42", TBOB, "tbob", f"person:telegram:{TBOB}", direct=True),
    row("telegram:chat:41:topic:9", TANN, "tann's topic", f"person:telegram:{TANN}", direct=True),
)
"""Where one person is alone with the agent, the setting says nothing."""


def apart(chat: str, sender: str, mark: str, room: str) -> Row:
    """Return a row of a room that keeps each person's conversation apart: it belongs to that person in that room."""
    return row(chat, sender, mark, f"{room}:person:{sender}", person=sender)


R, G, B = "room:matrix:!r:h", "room:telegram:-1001", "room:telegram:-5"

SHARED = (
    row("matrix:room:!r:h", ANN, "room", R),
    row("matrix:room:!r:h", BOB, "room", R),
    row("matrix:room:!r:h:thread:$1", ANN, "thread 1", R),
    row("matrix:room:!r:h:thread:$1", BOB, "thread 1", R),
    row("matrix:room:!r:h:thread:$2", BOB, "thread 2", R),
    # Such as the one that Matrix makes of a room which is upgraded: it has other members, and their own session.
    row("matrix:room:!s:h", ANN, "another room", "room:matrix:!s:h"),
    row("matrix:room:!s:h:thread:$1", ANN, "a thread there", "room:matrix:!s:h"),
    row("telegram:chat:-1001", TANN, "group", G),
    row("telegram:chat:-1001", TBOB, "group", G),
    row("telegram:chat:-1001:topic:7", TANN, "topic 7", G),
    row("telegram:chat:-1001:topic:7", TBOB, "topic 7", G),
    row("telegram:chat:-1001:topic:8", TBOB, "topic 8", G),
    row("telegram:chat:-5", TANN, "a small group", B),
)
PER_PERSON = (
    apart("matrix:room:!r:h", ANN, "ann in the room", R),
    apart("matrix:room:!r:h", BOB, "bob in the room", R),
    apart("matrix:room:!r:h:thread:$1", ANN, "ann in thread 1", R),
    apart("matrix:room:!r:h:thread:$1", BOB, "bob in thread 1", R),
    apart("matrix:room:!s:h", ANN, "ann in another room", "room:matrix:!s:h"),
    apart("telegram:chat:-1001", TANN, "tann in the group", G),
    apart("telegram:chat:-1001", TBOB, "tbob in the group", G),
    apart("telegram:chat:-1001:topic:7", TANN, "tann in topic 7", G),
    apart("telegram:chat:-1001:topic:7", TBOB, "tbob in topic 7", G),
)
TABLES = {RoomSharing.SHARED: DIRECT + SHARED, RoomSharing.PER_PERSON: DIRECT + PER_PERSON}


def make_settings(rooms: RoomSharing, people: dict[str, Person] | None = None) -> Settings:
    """Everybody may talk."""
    matrix = Matrix(allow=("*:h",), rooms=rooms)
    telegram = Telegram(allow=(TANN, TBOB), rooms=rooms)
    return Settings(channels=Channels(matrix=matrix, telegram=telegram), people=people or {})


class Places:
    """A town with both platforms, one after the other."""

    def __init__(self, here: Town, settings: Settings) -> None:
        """Go by these settings."""
        self.here = here
        self.record: Record = here.record
        self.settings = settings

    async def say(self, said: Row, text: str = "hello") -> str:
        """Let a row be said; return the session that its key leads to afterwards."""
        event_id = f"${secrets.token_hex(8)}"
        await self.take(
            self.here.event(text, said.sender, said.chat, id=event_id, is_direct=said.is_direct, is_for_agent=True)
        )
        return await self.here.session(said.key)

    async def take(self, event: Event) -> None:
        """Take in an event, as the intake of its channel does after a restart."""
        self.here.channel.name = event.chat.partition(":")[0]
        self.here.channel.account = BOT if self.here.channel.name == "telegram" else AGENT
        self.here.new_intake(self.settings)
        await self.here.take(event)

    async def words(self, session_id: str) -> list[str]:
        """What people said in a session."""
        return await self.here.words(session_id)


@asynccontextmanager
async def places(home: Path, rooms: RoomSharing = RoomSharing.SHARED) -> AsyncIterator[Places]:
    """Both platforms on a home."""
    settings = make_settings(rooms)
    async with town(home, settings, clock=FakeClock()) as here:
        yield Places(here, settings)
        await here.check()


async def land(on: Places, rows: Sequence[Row]) -> dict[str, str]:
    """Say everything; return the session of each mark, which has to be one."""
    found: dict[str, set[str]] = {}
    for said in rows:
        found.setdefault(said.mark, set()).add(await on.say(said, said.mark))
    assert {mark: len(sessions) for mark, sessions in found.items()} == dict.fromkeys(found, 1)
    return {mark: sessions.pop() for mark, sessions in found.items()}


def lose_database(home: Path) -> None:
    """Leave nothing but the logs."""
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink(missing_ok=True)


@pytest.mark.loss("H3", "H4", "J8")
@pytest.mark.parametrize("rooms", RoomSharing)
async def test_what_is_said_lands_where_the_table_says(home: Path, rooms: RoomSharing, seed: int) -> None:
    """Each mark has a session of its own, of the owner in the table; so it stays over restarts and a lost database."""
    table = TABLES[rooms]
    async with places(home, rooms) as on:
        first = await land(on, table)
        assert len(set(first.values())) == len(first)
        assert {session.id for session in await on.record.sessions()} == set(first.values())
        for said in table:
            session = await on.record.sessions.read(first[said.mark])
            assert (session.owner, session.source, session.state) == (said.owner, said.channel, SessionState.OPEN)
            assert str(parse_key(said.key)) == said.key
    shuffled = random.Random(seed).sample(table, len(table))
    for lost in (False, True):
        if lost:
            lose_database(home)
        async with places(home, rooms) as on:
            assert await land(on, shuffled) == first
            assert len(await on.record.sessions()) == len(first)
    async with places(home, rooms) as on:
        for mark, session_id in first.items():
            times = 3 * sum(said.mark == mark for said in table)
            assert await on.words(session_id) == [mark] * times


@pytest.mark.loss("H3", "H10")
async def test_another_setting_moves_nothing(home: Path) -> None:
    """With a session for each person, and back: what was before stays where it was, and goes on when it is asked for.

    The key that a setting asks for gets its route when somebody speaks there, and not before.
    """
    async with places(home) as on:
        shared = await land(on, TABLES[RoomSharing.SHARED])
        routes = {said.key: await on.record.routes.read(said.key) for said in TABLES[RoomSharing.SHARED]}
    async with places(home, RoomSharing.PER_PERSON) as on:
        assert all([await on.record.routes.read(said.key) is None for said in PER_PERSON])
        apart = await land(on, TABLES[RoomSharing.PER_PERSON])
        assert {said.key: await on.record.routes.read(said.key) for said in TABLES[RoomSharing.SHARED]} == routes
        for said in DIRECT:
            assert apart[said.mark] == shared[said.mark]
        own = {apart[said.mark] for said in PER_PERSON}
        assert not own & set(shared.values())
        for said in SHARED:
            session = await on.record.sessions.read(shared[said.mark])
            assert (session.state, session.owner) == (SessionState.OPEN, said.owner)
    async with places(home) as on:
        assert await land(on, TABLES[RoomSharing.SHARED]) == shared
        for said in PER_PERSON:
            assert await on.words(apart[said.mark]) == [said.mark]
            assert await on.here.session(said.key) == apart[said.mark]


@pytest.mark.loss("H3", "D13")
@pytest.mark.parametrize("said", [PER_PERSON[0], PER_PERSON[7]], ids=["matrix", "telegram"])
async def test_what_all_said_stays_the_rooms(home: Path, said: Row) -> None:
    """After the setting changed, nobody takes the room's session along; changed back, the room goes on in it."""
    before = next(each for each in SHARED if each.chat == said.chat)
    async with places(home) as on:
        old = await on.say(before, "what we all said")
    async with places(home, RoomSharing.PER_PERSON) as on:
        own = await on.say(said, "only mine")
        assert await on.say(said, f"/resume {old}") == own != old
    async with places(home) as on:
        assert await on.say(before, "here again") == old
        assert await on.words(old) == ["what we all said", "here again"]


@pytest.mark.loss("H3")
async def test_a_person_gets_a_name(home: Path) -> None:
    """Whoever is named in [people] goes on in the session that they were in."""
    said = DIRECT[0]
    async with places(home) as on:
        before = await on.say(said)
        on.settings = make_settings(RoomSharing.SHARED, people={"ann": Person(matrix=(ANN,), terminal=True)})
        assert await on.say(said) == before
        on.settings = make_settings(RoomSharing.SHARED)
        assert await on.say(said) == before


def company(mark: str, owner: str, *, direct: bool, person: str = "") -> Row:
    """Return what Ann says in a chat that others come into."""
    return row("matrix:room:!a:h", ANN, mark, owner, direct=direct, person=person)


@pytest.mark.loss("J6")
@pytest.mark.parametrize("rooms", RoomSharing)
async def test_others_come_into_a_direct_chat(home: Path, rooms: RoomSharing) -> None:
    """What was said alone with the agent is not gone on with before others, nor what the others said without them.

    Where each person has a session, the direct chat's own session goes on as soon as the person is alone again.
    """
    person, room = f"person:matrix:{ANN}", "room:matrix:!a:h"
    room += f":person:{ANN}" if rooms is RoomSharing.PER_PERSON else ""
    inside = company("others", room, direct=False, person=ANN if rooms is RoomSharing.PER_PERSON else "")
    alone = company("alone", person, direct=True)
    async with places(home, rooms) as on:
        first = await on.say(alone, "a secret")
        second = await on.say(inside, "hello all")
        assert second != first
        assert (await on.record.sessions.read(second)).owner == room
    async with places(home, rooms) as on:
        assert await on.say(inside, "again") == second
        third = await on.say(alone, "alone again")
        assert (await on.record.sessions.read(third)).owner == person
        assert (third == first) is (rooms is RoomSharing.PER_PERSON)
        assert await on.words(second) == ["hello all", "again"]
        assert (await on.words(first))[0] == "a secret"
        assert await on.say(alone, f"/resume {first}") == first


@pytest.mark.loss("H3")
async def test_a_group_that_becomes_a_supergroup(home: Path) -> None:
    """Telegram gives such a group another number: its key and its session stay, in the next process as in this one."""
    async with bot_api() as api, places(home) as on:
        api.world.is_private_mode = False
        ann = api.world.person("Ann")
        group = api.world.group("tea", ann, kind="group")
        on.settings = Settings(channels=Channels(telegram=Telegram(allow=(str(ann),), answer=Answers.EVERYTHING)))
        events, cursor = [], ""
        texts = ["before", "after the move", "in the next process"]
        for number, text in enumerate(texts):
            if number == 1:
                group = api.world.migrate(group)
            api.world.say(group, ann, text)
            async with channel_on(api, home) as channel:
                found, cursor = await hear(channel, cursor, text)
            events += found
        assert [event.text for event in events] == texts
        for event in events:
            await on.take(event)
        (session,) = await on.record.sessions()
        assert await on.words(session.id) == texts
        assert await on.here.session(events[0].chat) == session.id


async def hear(channel: Channel, cursor: str, text: str) -> tuple[list[Event], str]:
    """Receive until something was said; return everything that was, and the cursor after it."""
    found: list[Event] = []
    async with asyncio.timeout(WAIT_SECONDS_MAX), aclosing(channel.receive(cursor, ())) as batches:
        async for batch in batches:
            found += [event for event in batch.events if event.text]
            if any(event.text == text for event in found):
                return found, batch.cursor
    raise AssertionError(text)
