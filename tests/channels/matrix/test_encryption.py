"""End-to-end encryption: keys that come late, that are kept, that are shared with whom they should be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nio.event_builders import ToDeviceMessage
from nio.events import RoomKeyRequest

from hansard.errors import ChannelDown
from hansard.ports.channel import EventKind, Post
from tests.channels.matrix.people import WAIT_SECONDS, Account, Agent, Peer, channel_of, new_account, peer
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.synapse import Synapse

OLM = "m.olm.v1.curve25519-aes-sha2"


class Withheld:
    """A room key that the peer does not give to the agent, until told to."""

    def __init__(self, ann: Peer, room_id: str, bot: Account) -> None:
        self._ann, self._room_id, self._bot = ann, room_id, bot
        olm: Any = ann.client.olm
        olm.create_outbound_group_session(room_id)
        self._session = olm.outbound_group_sessions[room_id]
        self._key = self._session.session_key
        self._session.shared = True

    async def give(self) -> None:
        """Send the key to the agent's device."""
        client = self._ann.client
        await self._ann.sync()
        (device,) = client.device_store.active_user_devices(self._bot.user_id)
        await client.keys_claim({self._bot.user_id: [device.id]})
        content = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "room_id": self._room_id,
            "session_id": self._session.id,
            "session_key": self._key,
        }
        session = client.olm.session_store.get(device.curve25519)
        packed = client.olm._olm_encrypt(session, device, "m.room_key", content)  # noqa: SLF001
        await client.to_device(ToDeviceMessage("m.room.encrypted", device.user_id, device.id, packed))


@pytest.mark.loss("F19")
async def test_keys_that_come_late(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A message without its key comes as unreadable, and again as what it is when the key comes."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        await ann.sync()
        withheld = Withheld(ann, room_id, bot)
        said = [await ann.say(room_id, f"secret {number}") for number in range(2)]
        sealed = [await agent.next() for _ in said]
        assert [(event.kind, event.id, event.text) for event in sealed] == [
            (EventKind.UNREADABLE, id, "") for id in said
        ]
        await withheld.give()
        opened = [await agent.next() for _ in said]
        assert [(event.kind, event.id, event.text, event.chat) for event in opened] == [
            (EventKind.MESSAGE, id, f"secret {number}", chat) for number, id in enumerate(said)
        ]


@pytest.mark.loss("F19")
async def test_keys_that_are_asked_for(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """The writer's device is asked for a missing key, and its answer is taken; nobody else's is."""
    bot = new_account(synapse, "bot")
    async with (
        peer(synapse, tmp_path) as ann,
        peer(synapse, tmp_path, "eve") as eve,
        Agent(channel_of(bot, synapse.url, home)) as agent,
    ):
        room_id = await ann.open_room(bot.user_id, eve.user_id, encrypted=True)
        await agent.come()
        await eve.client.join(room_id)
        await ann.sync()
        Withheld(ann, room_id, bot)
        said = await ann.say(room_id, "secret")
        assert (await agent.next()).kind is EventKind.UNREADABLE
        asked = await key_request(ann)
        assert (asked.sender, asked.room_id) == (bot.user_id, room_id)
        key = ann.client.olm.inbound_group_store.get(room_id, asked.sender_key, asked.session_id)
        await eve.sync()
        await forward(eve, bot, room_id, key)
        again = await ann.say(room_id, "still secret")
        assert (await agent.next()).kind is EventKind.UNREADABLE
        await forward(ann, bot, room_id, key)
        opened = [await agent.next(), await agent.next()]
        assert [(event.kind, event.id, event.text) for event in opened] == [
            (EventKind.MESSAGE, said, "secret"),
            (EventKind.MESSAGE, again, "still secret"),
        ]


async def key_request(person: Peer) -> Any:  # noqa: ANN401
    """Wait until somebody asks this person's device for a key."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            answer = await person.sync()
            for event in answer.to_device_events:
                if isinstance(event, RoomKeyRequest):
                    return event
            await asyncio.sleep(0.05)


async def forward(person: Peer, bot: Account, room_id: str, key: Any) -> None:  # noqa: ANN401
    """Send a room key to the agent's device as a forwarded one."""
    client = person.client
    (device,) = client.device_store.active_user_devices(bot.user_id)
    await client.keys_claim({bot.user_id: [device.id]})
    session = client.olm.session_store.get(device.curve25519)
    await client.to_device(client.olm._encrypt_forwarding_key(room_id, key, session, device))  # noqa: SLF001


@pytest.mark.loss("F19")
async def test_keys_that_come_while_down(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """What was held before a restart is read after it, when the key came in between."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            await agent.come()
            await ann.sync()
            withheld = Withheld(ann, room_id, bot)
            said = await ann.say(room_id, "secret")
            held = await agent.next()
            assert held.kind is EventKind.UNREADABLE
        await withheld.give()
        async with Agent(channel_of(bot, synapse.url, home), agent.cursor, [held.raw]) as later:
            event = await later.next()
            assert (event.kind, event.id, event.text) == (EventKind.MESSAGE, said, "secret")


@pytest.mark.loss("F19")
async def test_a_sync_that_breaks_in_the_middle(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """When a key came with a sync that could not be finished, the event is still read with the next one."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Proxy(synapse.port) as proxy:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            await agent.come()
            await ann.sync()
            withheld = Withheld(ann, room_id, bot)
            said = await ann.say(room_id, "secret")
            held = await agent.next()
        await withheld.give()
        proxy.lose_answer_to = b"GET /_matrix/client/v3/rooms"
        async with Agent(channel_of(bot, proxy.url, home), agent.cursor, [held.raw]) as later:
            async with asyncio.timeout(WAIT_SECONDS):
                while proxy.lost < 2:  # noqa: ASYNC110  # the proxy only counts
                    await asyncio.sleep(0.02)
            assert later.events.empty()
            proxy.lose_answer_to = b""
            event = await later.next()
            assert (event.kind, event.id, event.text) == (EventKind.MESSAGE, said, "secret")


@pytest.mark.loss("F19", "F11")
async def test_the_same_sync_again(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A process that ends before its cursor is kept is given the same messages again, and can still read them."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            await agent.come()
            await ann.sync()
            await agent.ready()
            cursor = agent.cursor
            said = await ann.say(room_id, "secret")
            assert (await agent.next()).id == said
        for _ in range(2):
            async with Agent(channel_of(bot, synapse.url, home), cursor) as again:
                event = await again.next()
                assert (event.kind, event.id, event.text) == (EventKind.MESSAGE, said, "secret")


@pytest.mark.loss("F19", "B22")
async def test_keys_that_could_not_be_stored(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """While the key store cannot be written nothing is acknowledged; afterwards the key and the message are there."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        session = agent.channel._account._session  # noqa: SLF001
        assert session is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while room_id not in session.crypto.encrypted_rooms:  # noqa: ASYNC110  # then nothing but the key is due
                await asyncio.sleep(0.02)
        database = session.crypto._store.database  # noqa: SLF001
        database.execute_sql("PRAGMA query_only = 1")
        said = await ann.say(room_id, "kept for you")
        with pytest.raises(ChannelDown):
            await agent.channel.send(Post(key="v", chat=chat, markdown="an answer"))
        async with asyncio.timeout(WAIT_SECONDS):
            while "keys cannot be written" not in agent.channel.trouble:  # noqa: ASYNC110  # a plain property
                await asyncio.sleep(0.02)
        assert agent.events.empty()
        database.execute_sql("PRAGMA query_only = 0")
        event = await agent.next()
        assert (event.kind, event.id, event.text) == (EventKind.MESSAGE, said, "kept for you")
        await agent.channel.send(Post(key="v", chat=chat, markdown="an answer"))
        assert [event.body for event in await ann.sees(room_id)] == ["kept for you", "an answer"]


async def test_history_survives_a_restart(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Everything said in an encrypted room, by both sides, can be read by the next process."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            chat = await agent.come()
            expected = []
            for number in range(3):
                await ann.say(room_id, f"question {number}")
                await agent.next()
                await agent.channel.send(Post(key=f"q{number}", chat=chat, markdown=f"answer {number}"))
                expected += [f"question {number}", f"answer {number}"]
        later = channel_of(bot, synapse.url, home)
        shown = [event async for event in later.history(chat)]
        await later.close()
        assert [event.text for event in reversed(shown)] == expected
        assert all(event.is_readable for event in shown)
        assert [event.body for event in await ann.sees(room_id)] == expected


async def test_who_comes_and_who_leaves(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Who is in the room can read what the agent says from then on; who left is not given the next key."""
    bot = new_account(synapse, "bot")
    async with (
        peer(synapse, tmp_path) as ann,
        peer(synapse, tmp_path, "ben") as ben,
        Agent(channel_of(bot, synapse.url, home)) as agent,
    ):
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        await agent.channel.send(Post(key="r", chat=chat, markdown="for ann"))
        await ann.client.room_invite(room_id, ben.user_id)
        await ben.client.join(room_id)
        await ann.say(room_id, "ben is here")
        assert await next_words(agent) == "ben is here"
        await agent.channel.send(Post(key="s", chat=chat, markdown="for both"))
        assert [getattr(event, "body", "") for event in await ben.sees(room_id)][-1] == "for both"
        await ben.client.room_leave(room_id)
        await ann.say(room_id, "ben is gone")
        assert await next_words(agent) == "ben is gone"
        await agent.channel.send(Post(key="t", chat=chat, markdown="for ann again"))
        keys = [event.source["content"]["session_id"] for event in await raw_own(ann, room_id, bot)]
        assert len(set(keys)) == 3
        assert [event.body for event in await ann.sees(room_id)][-1] == "for ann again"
        await ben.sync()
        assert ben.client.olm.inbound_group_store.get(room_id, sender_key(agent), keys[-1]) is None


async def next_words(agent: Agent) -> str:
    """Return what is said next. That others came may be told before it or after it."""
    while (event := await agent.next()).kind is EventKind.COMPANY:
        pass
    return event.text


def sender_key(agent: Agent) -> str:
    """The public key of the agent's device."""
    session = agent.channel._account._session  # noqa: SLF001
    assert session is not None
    return session.crypto.identity_keys["curve25519"]


async def raw_own(ann: Peer, room_id: str, bot: Account) -> list[Any]:
    """The agent's encrypted events as they stand on the homeserver, the oldest first."""
    path = f"/_matrix/client/v3/rooms/{room_id}/messages?dir=b&limit=100"
    found = await ann.raw("GET", path)

    class Raw:
        def __init__(self, source: Any) -> None:  # noqa: ANN401
            self.source = source

    events = [Raw(source) for source in found["chunk"] if source["sender"] == bot.user_id]
    return [event for event in reversed(events) if event.source["type"] == "m.room.encrypted"]


async def test_bad_messages_to_the_device_stop_nothing(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Whatever is sent to the agent's device, what comes after it is received."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        await agent.come()
        key = sender_key(agent)
        bad: list[dict[str, Any]] = [
            {},
            {"algorithm": OLM, "sender_key": "x", "ciphertext": {key: {"type": 0, "body": "x"}}},
            {"algorithm": OLM, "sender_key": key, "ciphertext": {key: {"type": 1, "body": "AAAA"}}},
            {"algorithm": 7, "ciphertext": []},
        ]
        for content in bad:
            for kind in ("m.room.encrypted", "m.room_key_request", "m.key.verification.start"):
                await ann.client.to_device(ToDeviceMessage(kind, bot.user_id, "*", content))
        await ann.say(room_id, "still there?")
        assert (await agent.next()).text == "still there?"
