"""All resets on a real homeserver, with a clock that a test moves: every word lands in the session it belongs to."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard.app.wiring import App
from hansard.channels.matrix import MatrixChannel
from hansard.delivery.audit import audit_chat
from hansard.domain.requests import AssistantSaid, Request, UserSaid
from hansard.domain.sessions import Link
from hansard.domain.settings import Busy, Channels, Resets, Settings, TurnLimits
from hansard.domain.settings.channels import Matrix
from hansard.gateway.process import Gateway
from hansard.journal.store import Wiring
from hansard.record.api import Record
from hansard.record.sessions import SessionCreated
from hansard.testing import FakeClock
from tests.channels.matrix.people import Peer, channel_of, new_account, peer
from tests.channels.matrix.synapse import SERVER_NAME, Synapse
from tests.gateway.matrix_stage import joined
from tests.gateway.stage import TIMING, WAIT_SECONDS_MAX, app_with, is_idle, until
from tests.gateway.witness import SLOW, Witness

ROOMS = 10
NOON = round(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1_000_000)
IDLE_MINUTES, DAILY_HOUR = 60, 15
MINUTE_SECONDS = 60
WORDS = re.compile(rf"chat(\d+) session(\d+)(?: {SLOW}| more)?")

pytestmark = pytest.mark.slow


class Room(NamedTuple):
    """A room, and what was said in it that a session has to hold: by session, in order."""

    number: int
    room_id: str
    said: dict[int, list[str]]


class Scene:
    """Somebody who talks in ten rooms at once, and the gateway that is asked."""

    def __init__(self, person: Peer, app: App, channel: MatrixChannel, witness: Witness, clock: FakeClock) -> None:
        """Nothing was said yet."""
        self.person, self.record, self.runner, self.channel = person, app.record, app.runner, channel
        self.witness, self.clock = witness, clock
        self.last: dict[str, str] = {}
        """What was said last, by room."""

    async def say(self, rooms: Sequence[Room], session: int, words: str = "") -> None:
        """Say the same in several rooms; each message names its room and the session that it belongs to."""
        await asyncio.gather(*(self._say(room, session, words) for room in rooms))

    async def _say(self, room: Room, session: int, words: str) -> None:
        text = f"chat{room.number} session{session} {words}".strip()
        room.said.setdefault(session, []).append(text)
        self.last[room.room_id] = await self.person.say(room.room_id, text)

    async def command(self, rooms: Sequence[Room], text: str) -> None:
        """Give the same command in several rooms; something is said there next."""
        await asyncio.gather(*(self.person.say(room.room_id, text) for room in rooms))

    async def received(self) -> None:
        """Wait until everything is in the record; within a room it comes in order."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            for room_id, event_id in self.last.items():
                while event_id not in await self._ids(f"matrix:room:{room_id}"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def _ids(self, chat: str) -> set[str]:
        route = await self.record.routes.read(chat)
        messages = await self.record.load_transcript(route.session_id) if route is not None else []
        return {message.event_id for message in messages}

    async def settled(self) -> None:
        """Wait until everything is received, answered and shown."""
        await self.received()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await self._is_busy():  # noqa: ASYNC110 - what is shown has no bell here
                await asyncio.sleep(0.05)

    async def _is_busy(self) -> bool:
        return self.runner.busy or not await is_idle(self.record, "matrix")

    @asynccontextmanager
    async def during_turns(self, rooms: Sequence[Room], session: int) -> AsyncIterator[None]:
        """Let an answer stream in each of the rooms until the block is left; then let all of them end."""
        self.witness.gate.clear()
        slow = self.witness.slow + len(rooms)
        await self.say(rooms, session, SLOW)
        await until(lambda: self.witness.slow == slow)
        yield
        await self.received()
        self.witness.gate.set()
        await self.settled()


@asynccontextmanager
async def staged(synapse: Synapse, home: Path, folder: Path) -> AsyncIterator[Scene]:
    """A gateway in this process, on the homeserver, with a clock of its own."""
    clock, witness = FakeClock(NOON), Witness()
    account = new_account(synapse, "agent")
    settings = Settings(
        busy=Busy.QUEUE,
        channels=Channels(matrix=Matrix(allow=(f"*:{SERVER_NAME}",))),
        resets=Resets(idle_minutes=IDLE_MINUTES, daily_hour=DAILY_HOUR, time_zone="UTC"),
        limits=TurnLimits(person_turns_running_max=16),
    )
    channel = channel_of(account, synapse.url, home)
    async with (
        peer(synapse, folder) as person,
        Record.open(home, wiring=Wiring(clock=clock)) as record,
        app_with(record, settings, witness) as app,
    ):
        stop = asyncio.Event()
        task = asyncio.create_task(Gateway(app, [channel], TIMING).run(stop))
        try:
            yield Scene(person, app, channel, witness, clock)
        finally:
            stop.set()
            await asyncio.wait({task})
        task.result()


async def open_rooms(scene: Scene) -> list[Room]:
    """Invite the agent to all rooms; one of them is encrypted."""
    account = scene.channel.account
    found = [await scene.person.open_room(account, encrypted=number == ROOMS - 1) for number in range(ROOMS)]
    for room_id in found:
        await joined(scene.person, room_id, account)
    return [Room(number, room_id, {}) for number, room_id in enumerate(found)]


@pytest.mark.drawn(2, "synapse")
@pytest.mark.loss("H1", "H2", "H7", "H8", "H10")
async def test_all_resets_during_turns_and_between_them(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Ten rooms are reset by `/new`, a pause and an hour of the day, half of them while an answer streams.

    Who asks for a new session has it at once; the other resets wait for the answer that is owed. No message is in a
    session that it does not belong to, and each request holds what was said in its session before, and nothing else.
    """
    async with staged(synapse, home, tmp_path) as scene:
        rooms = await open_rooms(scene)
        early, late = rooms[: ROOMS // 2], rooms[ROOMS // 2 :]
        await scene.say(rooms, 1)
        await scene.settled()
        async with scene.during_turns(late, 1):
            await scene.command(rooms, "/new")
            await scene.say(rooms, 2)
        async with scene.during_turns(late, 2):
            scene.clock.advance((IDLE_MINUTES + 1) * MINUTE_SECONDS)
            await scene.say(late, 2, "more")
            await scene.say(early, 3)
        scene.clock.advance((IDLE_MINUTES + 1) * MINUTE_SECONDS)
        await scene.say(late, 3)
        await scene.say(early, 4)
        await scene.settled()
        async with scene.during_turns(late, 3):
            scene.clock.advance((IDLE_MINUTES - 1) * MINUTE_SECONDS)
            await scene.say(late, 3, "more")
            await scene.say(early, 5)
        scene.clock.advance(MINUTE_SECONDS)
        await scene.say(late, 4)
        await scene.settled()
        reasons = await check_sessions(scene.record, rooms)
        assert reasons == {"": 10, "new": 10, "idle": 15, "daily": 10}
        check_requests(scene.witness.requests, rooms)
        for room in rooms:
            chat = f"matrix:room:{room.room_id}"
            audit = await audit_chat(scene.record, scene.channel, "matrix", scene.channel.account, chat)
            assert audit.ok, audit.differences
        report = await scene.record.verify()
        assert report.ok, report.findings


async def check_sessions(record: Record, rooms: list[Room]) -> Counter[str]:
    """Every session holds what was meant for it, and follows the one before it; return why they began."""
    reasons: Counter[str] = Counter()
    names: dict[str, tuple[int, int]] = {}
    parents: dict[str, str] = {}
    for session in await record.sessions(source="matrix"):
        texts = [message.text for message in await record.load_transcript(session.id) if message.role == "user"]
        found = WORDS.match(texts[0])
        assert found, texts
        number, place = int(found[1]), int(found[2])
        assert texts == rooms[number].said[place]
        names[session.id] = (number, place)
        created = (await record.sessions.read_entries(session.id))[0].body
        assert isinstance(created, SessionCreated)
        reasons[created.reason] += 1
        if session.parent is not None:
            assert session.parent.link is Link.RESET
            parents[session.id] = session.parent.session_id
    assert sorted(names.values()) == sorted((room.number, place) for room in rooms for place in room.said)
    for session_id, (number, place) in names.items():
        assert (place == 1) == (session_id not in parents)
        assert place == 1 or names[parents[session_id]] == (number, place - 1)
    return reasons


def check_requests(requests: list[Request], rooms: list[Room]) -> None:
    """Each request holds what was said in one session so far, with an answer to all but the last; none is missing."""
    seen: Counter[tuple[int, int]] = Counter()
    for request in requests:
        people = " ".join(message.text for message in request.messages if isinstance(message, UserSaid))
        said = [found[0] for found in WORDS.finditer(people)]
        number, place = (int(each) for each in WORDS.findall(people)[0])
        assert said == rooms[number].said[place][: len(said)]
        assert sum(isinstance(message, AssistantSaid) for message in request.messages) == len(said) - 1
        seen[number, place] += 1
    assert seen == {(room.number, place): len(said) for room in rooms for place, said in room.said.items()}
