"""What people do in Matrix comes through the port, once and as they did it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.channels.matrix.history import Pages
from hansard.ports.channel import EventKind, Post, ReplyKind
from tests.channels.matrix.people import Agent, channel_of, new_account, peer, room_of
from tests.channels.matrix.synapse import Synapse


async def test_first_start_takes_only_what_comes_after(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Without a cursor, old words stay old, and a waiting invitation is offered."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home / "first")) as agent:
            room_id = await ann.open_room(bot.user_id)
            await agent.come()
            await ann.say(room_id, "before")
            assert (await agent.next()).text == "before"
        other = await ann.open_room(bot.user_id)
        async with Agent(channel_of(bot, synapse.url, home / "second")) as agent:
            event = await agent.next()
            assert (event.kind, room_of(event.chat), event.sender) == (EventKind.INVITATION, other, ann.user_id)
            await ann.say(room_id, "after")
            assert (await agent.next()).text == "after"


@pytest.mark.loss("F1", "F8", "F15")
async def test_what_was_sent_while_down_is_received(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """From its cursor a new process receives everything sent meanwhile, more than a sync holds, once and in order."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id)
            await agent.come()
            await ann.say(room_id, "before")
            assert (await agent.next()).text == "before"
        said = [f"missed {number}" for number in range(45)]
        for words in said:
            await ann.say(room_id, words)
        async with Agent(channel_of(bot, synapse.url, home), agent.cursor) as later:
            assert [(await later.next()).text for _ in said] == said
            await ann.say(room_id, "now")
            assert (await later.next()).text == "now"
            assert not any(batch.cut for batch in later.batches)


@pytest.mark.loss("F3")
async def test_too_long_a_gap_is_told(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """When more was missed than is fetched, the latest is received and the batch names the chat."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id)
            chat = await agent.come()
            await ann.say(room_id, "before")
            await agent.next()
        for number in range(30):
            await ann.say(room_id, f"missed {number}")
        channel = channel_of(bot, synapse.url, home, pages=Pages(events=5, count_max=2))
        async with Agent(channel, agent.cursor) as later:
            assert (await later.next()).text == "missed 15"
            assert later.batches[0].cut == (chat,)
            assert later.batches[0].events[-1].text == "missed 29"


async def test_words_said_before_the_agent_came(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """What was said since the invitation is received when the agent comes; what was said before it is not."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        await agent.ready()
        room_id = await ann.open_room()
        await ann.say(room_id, "to myself")
        await ann.client.room_invite(room_id, bot.user_id)
        said = [f"hello {number}" for number in range(25)]
        for words in said:
            await ann.say(room_id, words)
        await agent.come()
        assert [(await agent.next()).text for _ in said] == said


@pytest.mark.loss("F18")
async def test_edits_and_deletions(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """An edit and a deletion come as such, and name what they are about."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        await agent.come()
        first = await ann.say(room_id, "helo")
        new = {"msgtype": "m.text", "body": "hello"}
        related = {"rel_type": "m.replace", "event_id": first}
        edit = await ann.say(room_id, "* hello", **{"m.new_content": new, "m.relates_to": related})
        redaction = await ann.client.room_redact(room_id, first)
        assert (await agent.next()).id == first
        changed, gone = await agent.next(), await agent.next()
        assert (changed.kind, changed.id, changed.about, changed.text) == (EventKind.EDIT, edit, first, "hello")
        assert (gone.kind, gone.id, gone.about) == (EventKind.DELETION, redaction.event_id, first)


async def test_direct_chats_and_rooms(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A chat is direct while only one person is there besides the agent, whatever its flag says."""
    bot = new_account(synapse, "bot")
    async with (
        peer(synapse, tmp_path) as ann,
        peer(synapse, tmp_path, "ben") as ben,
        Agent(channel_of(bot, synapse.url, home)) as agent,
    ):
        room_id = await ann.open_room(bot.user_id, direct=True)
        await agent.come()
        await ann.say(room_id, "alone")
        event = await agent.next()
        assert event.is_direct
        assert event.is_for_agent
        await ann.client.room_invite(room_id, ben.user_id)
        await ann.say(room_id, "not alone")
        event = await agent.next()
        assert not event.is_direct
        assert not event.is_for_agent


@pytest.mark.loss("J5")
async def test_who_is_meant_in_a_room(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Mentions, links, names at the beginning and replies to the agent are for it; other words are not."""
    bot = new_account(synapse, "bot")
    name = bot.user_id[1:].partition(":")[0]
    async with (
        peer(synapse, tmp_path) as ann,
        peer(synapse, tmp_path, "ben") as ben,
        Agent(channel_of(bot, synapse.url, home)) as agent,
    ):
        room_id = await ann.open_room(bot.user_id, ben.user_id, direct=False)
        await ben.client.join(room_id)
        chat = await agent.come()
        own = await agent.channel.send(Post(key="one", chat=chat, markdown="I am here"))
        reply = {"m.relates_to": {"m.in_reply_to": {"event_id": own}}}
        other = await ann.say(room_id, "nobody is meant")
        await ann.say(room_id, "look", **{"m.mentions": {"user_ids": [bot.user_id]}})
        await ben.say(room_id, f"{name}: what time is it?")
        await ben.say(room_id, f"{name}ish things happen")
        await ann.say(room_id, f"> <{bot.user_id}> I am here\n\nand I answer", **reply)
        await ann.say(room_id, "to ann", **{"m.relates_to": {"m.in_reply_to": {"event_id": other}}})
        got = [await agent.next() for _ in range(6)]
        assert [event.is_for_agent for event in got] == [False, True, True, False, True, False]
        assert [event.sender for event in got] == [ann.user_id] * 2 + [ben.user_id] * 2 + [ann.user_id] * 2
        assert (got[4].words, got[4].reply_to) == ("and I answer", own)
        assert got[4].text == f"> <{bot.user_id}> I am here\n\nand I answer"


async def test_threads(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A thread is a chat of its own, and an answer to it is shown in it."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        chat = await agent.come()
        root = await ann.say(room_id, "a subject")
        related = {
            "rel_type": "m.thread",
            "event_id": root,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": root},
        }
        await ann.say(room_id, "inside", **{"m.relates_to": related})
        assert (await agent.next()).chat == chat
        inside = await agent.next()
        assert (inside.chat, inside.text, inside.reply_to) == (f"{chat}:thread:{root}", "inside", "")
        own = await agent.channel.send(Post(key="two", chat=inside.chat, markdown="I am in it"))
        edit = await agent.channel.send(Post(key="three", chat=inside.chat, markdown="I am **in** it", edits=own))
        found = await ann.raw("GET", f"/_matrix/client/v1/rooms/{room_id}/relations/{root}/m.thread")
        assert own in [event["event_id"] for event in found["chunk"]]
        shown = [event async for event in agent.channel.history(inside.chat)]
        assert [(event.id, event.text, event.edits) for event in shown[:2]] == [
            (edit, "I am **in** it", own),
            (own, "I am in it", ""),
        ]


async def test_own_words_do_not_come_in(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """What the agent says does not come back. What programs say comes as something that nobody answers."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        chat = await agent.come()
        await agent.channel.send(Post(key="four", chat=chat, markdown="mine"))
        await ann.send(room_id, {"msgtype": "m.notice", "body": "a program's"})
        await ann.send(room_id, {"msgtype": "m.emote", "body": "waves"})
        got = [await agent.next() for _ in range(2)]
        assert [(event.text, event.sender) for event in got] == [("a program's", ann.user_id), ("* waves", ann.user_id)]
        assert [event.reply for event in got] == [ReplyKind.NONE, ReplyKind.ANSWER]


async def test_being_sent_away_from_a_room(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Two people who stay behind are not one: what they said to each other was not said to the agent."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, peer(synapse, tmp_path, "ben") as ben:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, ben.user_id, direct=False)
            await ben.client.join(room_id)
            await agent.come()
            await ann.say(room_id, "hello")
            await agent.next()
        await ann.say(room_id, "to ben")
        await ann.say(room_id, f"{bot.user_id}: to you")
        await ann.client.room_kick(room_id, bot.user_id)
        async with Agent(channel_of(bot, synapse.url, home), agent.cursor) as later:
            got = [await later.next() for _ in range(2)]
            assert [(event.is_direct, event.is_for_agent) for event in got] == [(False, False), (False, True)]
            assert (await later.next()).kind is EventKind.LEFT


async def test_being_sent_away(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """What was said before the agent was removed is received, and then that it was; declining is not leaving."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id)
            chat = await agent.come()
            await ann.say(room_id, "hello")
            await agent.next()
        await ann.say(room_id, "goodbye")
        await ann.client.room_kick(room_id, bot.user_id, "enough")
        async with Agent(channel_of(bot, synapse.url, home), agent.cursor) as later:
            last = await later.next()
            assert (last.text, last.is_direct, last.is_for_agent, last.reply) == ("goodbye", True, True, ReplyKind.NONE)
            gone = await later.next()
            assert (gone.kind, gone.chat, gone.text) == (EventKind.LEFT, chat, "enough")
            await ann.client.room_invite(room_id, bot.user_id)
            again = await later.next()
            assert (again.kind, again.chat) == (EventKind.INVITATION, chat)
            await later.channel.answer(again.chat, accept=False)
            await ann.client.room_invite(room_id, bot.user_id)
            third = await later.next()
            assert third.kind is EventKind.INVITATION
            assert third.id != again.id
