"""The gateway on a real homeserver: what any member of a room can see is in the record, whatever happens."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansard.domain.messages import Role
from hansard.domain.notices import ENGLISH
from hansard.record.api import Record
from hansard.record.messages.entries import MessageAdded, MessageOpened
from hansard.record.turns.entries import TurnEnded
from tests.channels.matrix.people import Peer, new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.counts import times
from tests.gateway.matrix_stage import (
    Bot,
    Offspring,
    Talk,
    check_rooms,
    joined,
    kill,
    ready,
    rest,
    run_audit,
    running,
    transcripts,
    write_config,
)
from tests.gateway.stage import entries_of, write_script

REPLAYS = times(test=3, long=10, prove=50)
PEOPLE = times(test=3, long=10, prove=10)
"""Who play the report at the same time, each in a room of their own; every second room is encrypted."""
KILLS = times(test=3, long=10, prove=100)

pytestmark = pytest.mark.slow


async def replay(person: Peer, bot: Bot, *, encrypted: bool) -> Talk:
    """Play the report once: three rapid messages while a reply streams."""
    talk = Talk(person, await person.open_room(bot.account.user_id, encrypted=encrypted), [])
    await joined(person, talk.room_id, bot.account.user_id)
    await talk.say("tell me")
    await person.hears(talk.room_id, bot.account.user_id)
    for text in ("one", "two", "three"):
        talk.sent.append(await person.say_at_once(talk.room_id, text))
    await person.hears(talk.room_id, bot.account.user_id, "three")
    return talk


async def was_streaming(record: Record, talk: Talk) -> bool:
    """Return whether the first of the rapid messages met a reply that had begun and had not ended."""
    route = await record.routes.read(talk.chat)
    assert route is not None
    kinds = [
        type(entry.body)
        for entry in await entries_of(record, route.session_id)
        if isinstance(entry.body, MessageOpened | TurnEnded)
        or (isinstance(entry.body, MessageAdded) and entry.body.event_id == talk.sent[1])
    ]
    return kinds[:2] == [MessageOpened, MessageAdded]


@pytest.mark.drawn(2, "synapse")
@pytest.mark.loss("F1", "F5", "A6", "A7", "E7", "I1")
@pytest.mark.timeout(900)
async def test_three_rapid_messages_while_a_reply_streams(synapse: Synapse, tmp_path: Path) -> None:
    """Plain and encrypted, often: every event of the agent is in the transcript with its id, every message once.

    The order is the room's. A member's own client reads the timeline, and `hansard audit` says the same.
    """
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    script = tmp_path / "script"
    answers = ["You said: {last} " + "and more " * count for count in (60, 4)]
    script.write_text("".join(f"[[answers]]\ntext = '{text}'\ndelay_seconds = 0.1\n" for text in answers))
    write_config(bot, script)
    async with AsyncExitStack() as stack:
        people = await asyncio.gather(*(stack.enter_async_context(peer(synapse, tmp_path)) for _ in range(PEOPLE)))
        async with running(bot):
            for number in range(0, REPLAYS, PEOPLE):
                played = await asyncio.gather(
                    *(replay(person, bot, encrypted=(number + place) % 2 == 1) for place, person in enumerate(people))
                )
                await rest(bot)
                await check_rooms(bot, played)
                async with Record.open(bot.home) as record:
                    assert all([await was_streaming(record, talk) for talk in played]), "the report was replayed"
            audited = await asyncio.to_thread(run_audit, bot, played[1].room_id)
            assert audited.returncode == 0, audited.stdout + audited.stderr


async def check_answers(bot: Bot, talks: list[Talk]) -> None:
    """No message is answered twice, and none is left without an answer to it or to what came with it."""
    async with Record.open(bot.home) as record:
        for talk in talks:
            messages = await transcripts(record, talk.chat)
            answers = [message.text for message in messages if message.role is Role.ASSISTANT]
            for message in messages:
                if message.role is Role.USER:
                    whole = f"{message.text} is what you said, and I say so."
                    assert sum(answer.endswith(whole) for answer in answers) <= 1, message.text
            lost = ENGLISH.recovered
            told = [message for message in messages if message.role is not Role.NOTICE or message.text == lost]
            assert told[-1].role is not Role.USER, told[-1].text
        report = await record.verify()
        assert report.ok, report.findings


@pytest.mark.drawn(2, "synapse")
@pytest.mark.loss("A1", "A13", "E5", "F8", "F11", "F15", "F16", "H3")
@pytest.mark.timeout(1800)
async def test_kills_at_random_moments(synapse: Synapse, tmp_path: Path, seed: int) -> None:
    """However often `hansard gateway` is killed: no message is lost or answered twice, and no post is doubled."""
    draw = random.Random(seed)
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "{last} is what you said, and I say so.", delay_seconds=0.05))
    async with peer(synapse, tmp_path) as person:
        rooms = [await person.open_room(bot.account.user_id, encrypted=encrypted) for encrypted in (False, True)]
        talks = [Talk(person, room_id, []) for room_id in rooms]

        async def say(count: int) -> None:
            for _ in range(count):
                talk = draw.choice(talks)
                await talk.say(f"message {len(talk.sent)}")

        for number in range(KILLS):
            process = Offspring(bot)
            try:
                if number == 0:
                    for room_id in rooms:
                        await joined(person, room_id, bot.account.user_id)
                if draw.random() < 0.7:
                    await ready(bot, process)
                await say(draw.choice([1, 2, 3]))
                await asyncio.sleep(draw.random())
            finally:
                kill(process)
            if number % 2:
                await say(1)
        async with running(bot, Offspring):
            for talk in talks:
                await talk.say("the last one")
                await person.hears(talk.room_id, bot.account.user_id, "the last one")
            await rest(bot)
        await check_rooms(bot, talks)
        await check_answers(bot, talks)
