"""Whatever a person's client shows of a message is in the record, and `hansard audit` checks it against the room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.domain.messages import Message, Role
from hansard.record.api import Record
from tests.channels.people import Peer, new_account, peer
from tests.channels.synapse import Synapse
from tests.gateway.matrix_stage import Bot, joined, rest, run_audit, running, transcripts, write_config
from tests.gateway.stage import write_script

pytestmark = pytest.mark.slow


async def recorded(bot: Bot, room_id: str) -> dict[str, Message]:
    """Return what people said in a room, by the event."""
    async with Record.open(bot.home) as record:
        messages = await transcripts(record, f"matrix:room:{room_id}")
    return {message.event_id: message for message in messages if message.event_id}


async def answers(bot: Bot, room_id: str) -> list[str]:
    """Return what the agent answered in a room."""
    async with Record.open(bot.home) as record:
        messages = await transcripts(record, f"matrix:room:{room_id}")
    return [message.text for message in messages if message.role is Role.ASSISTANT]


async def open_direct(person: Peer, bot: Bot, *, encrypted: bool = False) -> str:
    """Begin a direct chat with the agent."""
    room_id = await person.open_room(bot.account.user_id, encrypted=encrypted)
    await joined(person, room_id, bot.account.user_id)
    return room_id


@pytest.mark.loss("F1")
async def test_replies_are_recorded_whole(synapse: Synapse, tmp_path: Path) -> None:
    """Lines that a person typed with `>` stay theirs; a client's repetition is recorded, and kept from the model."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "You said: {last}"))
    async with peer(synapse, tmp_path) as ann, running(bot):
        room_id = await open_direct(ann, bot)
        first = await ann.say(room_id, "hello")
        await ann.hears(room_id, bot.account.user_id, "You said: hello")
        reply = {"m.relates_to": {"m.in_reply_to": {"event_id": first}}}
        typed = "> to be or not to be\n\nwho wrote that?"
        repeated = f"> <{ann.user_id}> hello\n\nand good day"
        said = {}
        for text, heard in ((typed, typed), (repeated, "and good day")):
            said[await ann.say(room_id, text, **reply)] = text
            await ann.hears(room_id, bot.account.user_id, f"You said: {heard}")
        command = await ann.say(room_id, f"> <{ann.user_id}> hello\n\n/status", **reply)
        await ann.hears(room_id, bot.account.user_id, "scripted")
        await rest(bot)
        found = await recorded(bot, room_id)
        assert {event_id: found[event_id].text for event_id in said} == said
        assert found[command].role is Role.NOTICE
        assert (await answers(bot, room_id))[1:] == [f"You said: {typed}", "You said: and good day"]
        audited = await asyncio.to_thread(run_audit, bot, room_id)
        assert audited.returncode == 0, audited.stdout + audited.stderr
