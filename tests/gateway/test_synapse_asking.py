"""`ask` on a real homeserver: the call is shown in the room, and only those whom the turn answers let it run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hansard.app.wiring import open_app
from hansard.delivery.audit import audit_chat
from hansard.domain.messages import Role, ToolOutcome, ToolResult
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.agent import Tools
from hansard.domain.settings.channels import Matrix
from hansard.engine.runner import Runner
from hansard.gateway.process import Gateway
from hansard.record.api import Record
from hansard.record.questions import QuestionAnswered, QuestionAsked
from tests.channels.matrix.people import Peer, channel_of, new_account, peer
from tests.channels.matrix.synapse import SERVER_NAME, Synapse
from tests.gateway.matrix_stage import Bot, Offspring, joined, kill, read_timeline, rest, running, write_config
from tests.gateway.stage import TIMING, WAIT_SECONDS_MAX, entries_of, write_rounds

pytestmark = pytest.mark.slow


class Room(NamedTuple):
    """A room with two people and the agent, and the record behind it."""

    ann: Peer
    bob: Peer
    room_id: str
    agent: str
    record: Record
    runner: Runner

    async def ask(self, number: int) -> None:
        """Ann asks for something; both see the question."""
        await self.ann.say(self.room_id, f"{self.agent}: go {number}")
        await self.sees(self.ann, f"note {number}")
        await self.sees(self.bob, f"note {number}")

    async def sees(self, person: Peer, text: str) -> None:
        """Somebody reads something of the agent."""
        await person.hears(self.room_id, self.agent, text)

    async def session(self) -> str:
        """Where the room is."""
        route = await self.record.routes.read(f"matrix:room:{self.room_id}")
        assert route is not None
        return route.session_id

    async def outcomes(self) -> list[ToolOutcome]:
        """What became of the calls."""
        messages = await self.record.load_transcript(await self.session())
        return [part.outcome for message in messages for part in message.parts if isinstance(part, ToolResult)]

    async def question(self) -> QuestionAsked:
        """The question that was asked last."""
        asked = [each.body for each in await entries_of(self.record, await self.session())]
        return [body for body in asked if isinstance(body, QuestionAsked)][-1]

    async def code(self) -> str:
        """Its code."""
        return (await self.question()).code

    async def post(self) -> str:
        """The event in which everybody sees it, once the record knows of it."""
        question = await self.question()
        while True:
            sent = await self.record.deliveries.list_of_chat(f"matrix:room:{self.room_id}")
            found = [each.receipt for each in sent if each.message_id == question.message_id and each.receipt]
            if found:
                return found[0]
            await asyncio.sleep(0.02)

    async def react(self, person: Peer, key: str) -> None:
        """Somebody puts a sign beside the question."""
        related = {"rel_type": "m.annotation", "event_id": await self.post(), "key": key}
        await person.send(self.room_id, {"m.relates_to": related}, "m.reaction")

    def wait_for(self, seconds: float) -> None:
        """Let questions wait so long from now on."""
        agent = self.runner._agent  # noqa: SLF001 - the test's own
        policy = msgspec.structs.replace(agent.policy, ask_seconds=seconds)
        self.runner._agent = msgspec.structs.replace(agent, policy=policy)  # noqa: SLF001


async def all_sent(record: Record) -> None:
    """Wait until the record has every receipt: people read a post a moment before."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await record.deliveries.list_waiting("matrix"):  # noqa: ASYNC110 - no bell
            await asyncio.sleep(0.02)


@asynccontextmanager
async def room_of_two(synapse: Synapse, home: Path, folder: Path, *, encrypted: bool) -> AsyncIterator[Room]:
    """A gateway in this process, and two people with clients of their own."""
    account = new_account(synapse, "agent")
    settings = Settings(
        model=f"scripted:{write_rounds(folder / 'script')}",
        channels=Channels(matrix=Matrix(user_id=account.user_id, allow=(f"*:{SERVER_NAME}",))),
        tools=Tools(ask_seconds=600),
    )
    errors: list[BaseException] = []
    stop = asyncio.Event()
    async with (
        peer(synapse, folder, "ann") as ann,
        peer(synapse, folder, "bob") as bob,
        open_app(home, settings, {}, lambda _, error: errors.append(error)) as app,
    ):
        channel = channel_of(account, synapse.url, home)
        task = asyncio.create_task(Gateway(app, [channel], TIMING).run(stop))
        try:
            room_id = await ann.open_room(account.user_id, bob.user_id, encrypted=encrypted, direct=False)
            await bob.client.join(room_id)
            await joined(ann, room_id, account.user_id)
            await joined(bob, room_id, account.user_id)
            yield Room(ann, bob, room_id, account.user_id, app.record, app.runner)
            await all_sent(app.record)
            audit = await audit_chat(app.record, channel, "matrix", account.user_id, f"matrix:room:{room_id}")
            assert audit.ok, audit.differences
        finally:
            stop.set()
            await asyncio.wait({task})
        task.result()
        assert (await app.record.verify()).ok
    assert not errors, errors


@pytest.mark.loss("A12", "C4", "J5")
@pytest.mark.drawn(1)
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_a_question_in_a_room(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """The other member's yes counts for nothing; the asker's runs the call, her no does not, nor does her silence.

    `/stop` ends the wait. Questions are notices, recorded before anybody sees them; every answer says whose it is.
    """
    async with room_of_two(synapse, home, tmp_path, encrypted=encrypted) as room:
        memory = room.record.memory
        await room.ask(0)
        await room.bob.say(room.room_id, f"{room.agent}: /yes {await room.code()}")
        await room.sees(room.bob, "No question with that code waits for your answer here.")
        await room.ann.say(room.room_id, "Yes!")
        await room.ann.say(room.room_id, f"{room.agent}: ok")
        await room.sees(room.ann, "In a room, say which question you mean")
        assert await memory.list() == []
        await room.ann.say(room.room_id, f"/yes {await room.code()}")
        await room.sees(room.ann, "Round 0 is over.")
        assert [note.text for note in await memory.list()] == ["note 0"]
        await room.ask(1)
        await room.ann.say(room.room_id, f"{room.agent}: /no {await room.code()}")
        await room.sees(room.ann, "Round 1 is over.")
        await room.ask(2)
        await room.ann.say(room.room_id, f"{room.agent}: /stop")
        await room.sees(room.ann, "top")
        room.wait_for(1.0)
        await room.ann.say(room.room_id, f"{room.agent}: go on")
        await room.sees(room.ann, "Nobody answered in time")
        await room.ann.hears(room.room_id, room.agent, "is over.", after=len(room.ann.heard) - 3)
        assert [note.text for note in await memory.list()] == ["note 0"]
        await check_questions(room)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
async def test_reactions_and_replies(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """A reply to the question counts, and so does a thumb beside it; another member's do not.

    Clients send reactions in the clear, so in an encrypted room they could be the homeserver's: there none counts.
    """
    async with room_of_two(synapse, home, tmp_path, encrypted=encrypted) as room:
        memory = room.record.memory
        await room.ask(0)
        await room.react(room.bob, "👍")
        reply = {"m.relates_to": {"m.in_reply_to": {"event_id": await room.post()}}}
        await room.bob.say(room.room_id, "yes", **reply)
        await room.sees(room.bob, "Nothing waits for your answer here.")
        await room.ann.say(room.room_id, "hm")
        assert await memory.list() == []
        await room.ann.say(room.room_id, "yes", **reply)
        await room.sees(room.ann, "Round 0 is over.")
        await room.ask(1)
        await room.react(room.ann, "👎\U0001f3fd")
        if encrypted:
            await room.ann.say(room.room_id, f"/no {await room.code()} thumbs are not encrypted")
        await room.sees(room.ann, "Round 1 is over.")
        assert [note.text for note in await memory.list()] == ["note 0"]
        entries = await entries_of(room.record, await room.session())
        answered = [entry.body for entry in entries if isinstance(entry.body, QuestionAnswered)]
        reason = "thumbs are not encrypted" if encrypted else ""
        assert [(each.yes, each.by, each.reason) for each in answered] == [
            (True, room.ann.user_id, ""),
            (False, room.ann.user_id, reason),
        ]


async def check_questions(room: Room) -> None:
    """Compare what was asked and answered with what is recorded and what anybody saw."""
    session_id = await room.session()
    entries = await entries_of(room.record, session_id)
    asked = [entry.body for entry in entries if isinstance(entry.body, QuestionAsked)]
    answered = [entry.body for entry in entries if isinstance(entry.body, QuestionAnswered)]
    chat = f"matrix:room:{room.room_id}"
    assert {people for each in asked for people in each.people} == {(room.ann.user_id, chat)}
    assert [(each.yes, each.by) for each in answered] == [
        (True, room.ann.user_id),
        (False, room.ann.user_id),
        (False, ""),
    ]
    no = ToolOutcome.NOT_STARTED
    assert await room.outcomes() == [ToolOutcome.OK, no, no, no]
    notices = {message.id: message for message in await room.record.load_transcript(session_id)}
    receipts = {each.message_id: each.receipt for each in await room.record.deliveries.list_of_chat(chat)}
    seen = {event.event_id: event for event in (await read_timeline(room.bob, room.room_id)).events}
    for each in asked:
        assert notices[each.message_id].role is Role.NOTICE
        content = seen[receipts[each.message_id]].source["content"]
        assert content["msgtype"] == "m.notice"
        assert "May I run the tool memory" in content["body"]


@pytest.mark.loss("A12", "A3")
async def test_a_kill_while_it_waits(synapse: Synapse, tmp_path: Path) -> None:
    """The call was not begun; the room is told, and a yes that comes afterwards is just words: it is asked anew."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_rounds(tmp_path / "script"))
    async with peer(synapse, tmp_path) as ann:
        process = Offspring(bot)
        try:
            room_id = await ann.open_room(bot.account.user_id)
            await joined(ann, room_id, bot.account.user_id)
            await ann.say(room_id, "go")
            await ann.hears(room_id, bot.account.user_id, "May I run the tool memory")
        finally:
            kill(process)
        await ann.say(room_id, "yes")
        heard = len(ann.heard)
        async with running(bot, Offspring):
            await ann.hears(room_id, bot.account.user_id, "May I run the tool memory", after=heard)
            async with Record.open(bot.home) as record:  # what is said before it counts as shown is no answer
                await all_sent(record)
            await ann.say(room_id, "no")
            await ann.hears(room_id, bot.account.user_id, "is over.")
            await rest(bot)
    async with Record.open(bot.home) as record:
        assert await record.memory.list() == []
        (session,) = await record.sessions(source="matrix")
        first, *others = [turn.state for turn in await record.turns.list(session.id)]
        assert first is TurnState.LOST
        assert set(others) == {TurnState.COMPLETED}
        entries = await entries_of(record, session.id)
        assert not [entry for entry in entries if isinstance(entry.body, QuestionAnswered) and entry.body.yes]
        assert (await record.verify()).ok
