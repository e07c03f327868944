"""Whatever a person's client shows of a message is in the record, and `hansard audit` checks it against the room."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hansard.domain.messages import Message, Role
from hansard.domain.notices import ENGLISH
from hansard.record.api import Record
from tests.channels.matrix.people import Peer, new_account, peer
from tests.channels.matrix.synapse import Synapse
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


@pytest.mark.drawn(2, "synapse")
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


HTML = {"format": "org.matrix.custom.html"}
POLL = {
    "org.matrix.msc1767.text": "Tea or coffee?\n1. Tea\n2. Coffee",
    "org.matrix.msc3381.poll.start": {
        "question": {"org.matrix.msc1767.text": "Tea or coffee?"},
        "answers": [
            {"id": "a", "org.matrix.msc1767.text": "Tea"},
            {"id": "b", "org.matrix.msc1767.text": "Coffee, of course"},
        ],
    },
}


@pytest.mark.drawn(2, "synapse")
async def test_whatever_a_person_sends_is_recorded(synapse: Synapse, tmp_path: Path) -> None:
    """Notices, empty and HTML messages, stickers, polls, reactions: all recorded, words answered, the audit agrees."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "You said: {last}"), busy="queue")
    message = "m.room.message"
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "notice": (message, {"msgtype": "m.notice", "body": "/new says a program"}),
        "empty": (message, {"msgtype": "m.text", "body": ""}),
        "html": (message, {"msgtype": "m.text", "body": "", **HTML, "formatted_body": "<p>only <b>HTML</b></p>"}),
        "differing": (message, {"msgtype": "m.text", "body": "I agree", **HTML, "formatted_body": "I do <b>not</b>"}),
        "markdown": (message, {"msgtype": "m.text", "body": "**so**", **HTML, "formatted_body": "<strong>so</strong>"}),
        "sticker": ("m.sticker", {"body": "a cat waves", "info": {"mimetype": "image/png"}, "url": "mxc://x/none"}),
        "poll": ("org.matrix.msc3381.poll.start", POLL),
        "unknown": ("org.example.thing", {"what": 1}),
    }
    expected = {
        "notice": "/new says a program",
        "empty": "",
        "html": "only HTML",
        "differing": "I agree\n\nI do not",
        "markdown": "**so**",
        "sticker": "a cat waves",
        "poll": "Tea or coffee?\n1. Tea\n2. Coffee\n- Coffee, of course",
        "unknown": "(org.example.thing)",
        "reaction": "(👍)",
    }
    async with peer(synapse, tmp_path) as ann, running(bot):
        room_id = await open_direct(ann, bot)
        sent = {}
        for name, (kind, content) in kinds.items():
            sent[name] = await ann.send(room_id, content, kind)
        related = {"rel_type": "m.annotation", "event_id": sent["html"], "key": "👍"}
        sent["reaction"] = await ann.send(room_id, {"m.relates_to": related}, "m.reaction")
        await ann.say(room_id, "and that was all")
        await ann.hears(room_id, bot.account.user_id, "and that was all")
        await rest(bot)
        found = await recorded(bot, room_id)
        assert {name: found[event_id].text for name, event_id in sent.items()} == expected
        answered = "\n".join(await answers(bot, room_id))
        assert all(
            words in answered for words in ("only HTML", "I do not", "**so**", "a cat waves", "Coffee, of course")
        )
        timeline = [event.body for event in await ann.sees(room_id) if event.sender == bot.account.user_id]
        assert timeline.count(ENGLISH.unanswerable) == 2, "of the empty message and of the unknown one"
        audited = await asyncio.to_thread(run_audit, bot, room_id)
        assert audited.returncode == 0, audited.stdout + audited.stderr


@pytest.mark.drawn(2, "synapse")
async def test_what_an_audit_cannot_compare(synapse: Synapse, tmp_path: Path) -> None:
    """A message to the agent that is missing in a room is found; what cannot be decrypted is not called recorded."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "You said: {last}"))
    me = bot.account.user_id
    async with peer(synapse, tmp_path) as ann, peer(synapse, tmp_path, "ben") as ben:
        async with running(bot):
            secret_room = await open_direct(ann, bot, encrypted=True)
            await ann.say(secret_room, "a secret word")
            await ann.hears(secret_room, me, "You said")
            room_id = await ann.open_room(me, ben.user_id, direct=False)
            await ben.client.join(room_id)
            await joined(ann, room_id, me)
            await ann.say(room_id, f"{me}: one")
            await ann.hears(room_id, me, "one")
            await rest(bot)
        await ann.say(room_id, "to ben alone")
        missing = await ann.say(room_id, f"{me}: two")
        audited = await asyncio.to_thread(run_audit, bot, room_id)
        assert (audited.returncode, audited.stdout.count("unread:")) == (1, 1), audited.stdout + audited.stderr
        assert f"unread: {missing}" in audited.stdout
        for store in (bot.home / "matrix").glob("crypto-*"):
            store.unlink()
        without = bot._replace(additions=(("HANSARD_MATRIX_PASSWORD", ""),))
        audited = await asyncio.to_thread(run_audit, without, secret_room)
        assert audited.returncode == 3, audited.stdout + audited.stderr
        assert "all of it is in the record" not in audited.stdout
        assert " events cannot be decrypted here" in audited.stdout
        assert audited.stderr == ""
