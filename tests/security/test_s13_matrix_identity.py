"""S13: a device that the homeserver adds to a person's account reads nothing, and speaks for nobody.

The peers are matrix-nio's client with signing calls of their own (`tests/channels/matrix/signing.py`). No Element was
tried.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nio
import pytest

from hansard.channels.matrix.keeping import Confirmation, Keeping
from hansard.ports.channel import Event, EventKind, Post
from tests.channels.matrix.people import Agent, Peer, channel_of, new_account, peer
from tests.channels.matrix.signing import new_identity
from tests.channels.matrix.synapse import Synapse

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()


class Rogue(Peer):
    """A device that is logged in to a person's account, as the homeserver could do by itself."""

    def __init__(self, synapse: Synapse, person: Peer, folder: Path) -> None:
        device_id = f"ROGUE{next(NUMBERS)}"
        super().__init__(synapse, person.account, folder / device_id, device_id)
        self.told: list[Any] = []
        self.client.add_to_device_callback(self.told.append, nio.UnknownToDeviceEvent)

    @property
    def codes(self) -> set[str]:
        """Why it was told that it gets no keys."""
        return {str(each.source["content"].get("code")) for each in self.told}


@asynccontextmanager
async def another_device(synapse: Synapse, person: Peer, folder: Path) -> AsyncIterator[Rogue]:
    """A device of a person's account that the person did not sign."""
    rogue = Rogue(synapse, person, folder)
    await rogue.start()
    try:
        yield rogue
    finally:
        await rogue.client.close()
        if rogue.client.store is not None:
            rogue.client.store.database.close()


async def reads(device: Peer, room_id: str, event_id: str) -> str | None:
    """What a device reads of an event; None when it cannot decrypt it."""
    found = next(each for each in await device.sees(room_id) if each.event_id == event_id)
    return None if isinstance(found, nio.MegolmEvent) else str(found.body)


async def post(agent: Agent, chat: str, text: str) -> str:
    """Let the agent say something."""
    return await agent.channel.send(Post(key=f"key{next(NUMBERS)}", chat=chat, markdown=text))


async def heard(agent: Agent) -> Event:
    """The next message that came, readable."""
    while (event := await agent.next()).kind is not EventKind.MESSAGE:
        pass
    return event


async def test_a_device_without_the_persons_signature_reads_nothing(
    synapse: Synapse, home: Path, tmp_path: Path
) -> None:
    """From the moment that it is added, through a restart, and also when it asks for the keys."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        identity = await new_identity(ann)
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            chat = await agent.come()
            first = await post(agent, chat, "before")
            assert await reads(ann, room_id, first) == "before"
            async with another_device(synapse, ann, tmp_path) as rogue:
                second = await post(agent, chat, "after it was added")
                assert await reads(ann, room_id, second) == "after it was added"
                assert await reads(rogue, room_id, second) is None
                unread = next(each for each in await rogue.sees(room_id) if each.event_id == second)
                await rogue.client.request_room_key(unread)
                await ann.say(room_id, "the agent syncs")
                await heard(agent)
                third = await post(agent, chat, "after it asked")
                assert [await reads(rogue, room_id, each) for each in (first, second, third)] == [None, None, None]
                assert "m.unverified" in rogue.codes
                await agent.__aexit__(None, None, None)
                async with Agent(channel_of(bot, synapse.url, home), agent.cursor) as again:
                    await again.ready()
                    fourth = await post(again, chat, "after a restart")
                    assert await reads(ann, room_id, fourth) == "after a restart"
                    assert await reads(rogue, room_id, fourth) is None
                    await identity.sign_device(rogue.client.device_id)
                    await ann.say(room_id, "it is mine")
                    await heard(again)
                    fifth = await post(again, chat, "signed now")
                    assert await reads(rogue, room_id, fifth) == "signed now"


async def test_a_changed_identity_has_to_be_confirmed(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Whoever replaces a person's identity gets no keys; the admin confirms it while the gateway runs."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        pinned = await new_identity(ann)
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        assert await reads(ann, room_id, await post(agent, chat, "pinned")) == "pinned"
        assert agent.channel.note == ""
        changed = await new_identity(ann)
        await ann.say(room_id, "the agent syncs")
        await heard(agent)
        assert await reads(ann, room_id, await post(agent, chat, "not for the new one")) is None
        assert ann.user_id in agent.channel.note
        assert not await agent.channel.is_direct(chat), "nothing private is posted there"
        pins = Keeping(home).pins()
        assert (pins[ann.user_id].master, pins[ann.user_id].seen) == (pinned.master, changed.master)
        Keeping(home).keep_confirmation(Confirmation(user_id=ann.user_id, master=pinned.master))
        assert await reads(ann, room_id, await post(agent, chat, "another key was confirmed")) is None
        Keeping(home).keep_confirmation(Confirmation(user_id=ann.user_id, master=changed.master))
        assert await reads(ann, room_id, await post(agent, chat, "confirmed")) == "confirmed"
        assert await agent.channel.is_direct(chat)
        assert agent.channel.note == ""


async def test_people_without_an_identity_are_counted(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Their devices get keys as before, until they have an identity; then it is pinned."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        async with another_device(synapse, ann, tmp_path) as second:
            said = await post(agent, chat, "for all devices")
            assert [await reads(each, room_id, said) for each in (ann, second)] == ["for all devices"] * 2
            assert "without cross-signing" in agent.channel.note
            assert agent.channel.note.endswith(": 1")
            await new_identity(ann)
            await ann.say(room_id, "the agent syncs")
            await heard(agent)
            said = await post(agent, chat, "for one device")
            assert [await reads(each, room_id, said) for each in (ann, second)] == ["for one device", None]
            assert agent.channel.note == ""


async def test_events_that_nobody_vouches_for(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """In an encrypted room, what a foreign device writes and what comes in the clear is not the person's own."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        identity = await new_identity(ann)
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        await agent.come()
        await ann.say(room_id, "mine")
        own = await heard(agent)
        assert (own.text, own.is_unverified) == ("mine", False)
        async with another_device(synapse, ann, tmp_path) as rogue:
            await rogue.say(room_id, "/yes")
            forged = await heard(agent)
            assert (forged.sender, forged.text, forged.is_unverified) == (ann.user_id, "/yes", True)
            await identity.sign_device(rogue.client.device_id)
            await rogue.say(room_id, "a new phone")
            signed = await heard(agent)
            assert (signed.text, signed.is_unverified) == ("a new phone", False)
        target = f"/_matrix/client/v3/rooms/{room_id}/send/m.room.message"
        clear = {"msgtype": "m.text", "body": "in the clear"}
        edit = clear | {"m.new_content": clear, "m.relates_to": {"rel_type": "m.replace", "event_id": own.id}}
        await ann.raw("PUT", f"{target}/1", clear)
        event = await heard(agent)
        assert (event.text, event.is_unverified) == ("in the clear", True)
        await ann.raw("PUT", f"{target}/2", edit)
        changed = await agent.next()
        assert (changed.kind, changed.is_unverified) == (EventKind.EDIT, True)
        await new_identity(ann)
        await ann.say(room_id, "with a new identity")
        replaced = await heard(agent)
        assert (replaced.text, replaced.is_unverified) == ("with a new identity", True)
        plain = await ann.open_room(bot.user_id)
        while (event := await agent.next()).kind is not EventKind.INVITATION:
            pass
        await agent.channel.answer(event.chat, accept=True)
        await ann.say(plain, "in an unencrypted room")
        said = await heard(agent)
        assert (said.text, said.is_unverified) == ("in an unencrypted room", False)
