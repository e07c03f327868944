"""What is sent is shown once, as it was given, where it belongs; and what became of it is said truly."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.errors import ChannelBusy, ChannelDown, ChatGone, NotFound, PostRefused, PostUnknown, TooLarge
from hansard.ports.channel import LocalFile, Post, RemoteFile
from tests.channels.matrix.people import Account, Agent, channel_of, new_account, peer
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.synapse import Synapse, free_port

MARKDOWN = "# Title\n\nSome **bold** words, `code` and <script>alert(1)</script>.\n\n- one\n- two\n"
ENCRYPTION = pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])


@pytest.mark.drawn(1)
@ENCRYPTION
@pytest.mark.loss("E5", "E7")
async def test_the_same_key_shows_nothing_twice(
    synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool
) -> None:
    """A key that was sent shows the same event again, in this process and in the next one."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=encrypted)
            chat = await agent.come()
            post = Post(key="delivery-1", chat=chat, markdown=MARKDOWN)
            first = await agent.channel.send(post)
            assert await agent.channel.send(post) == first
        later = channel_of(bot, synapse.url, home)
        assert await later.send(post) == first
        shown = [event async for event in later.history(chat)]
        assert [(event.id, event.key, event.text) for event in shown] == [(first, "delivery-1", MARKDOWN)]
        await later.close()
        assert [event.body for event in await ann.sees(room_id)] == [MARKDOWN]


@pytest.mark.drawn(1)
@ENCRYPTION
async def test_edits_replace_what_was_shown(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """An edit names the first event, and holds the new words, plain and as HTML without what is not allowed."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=encrypted)
        chat = await agent.come()
        first = await agent.channel.send(Post(key="a", chat=chat, markdown="Some"))
        edit = await agent.channel.send(Post(key="b", chat=chat, markdown=MARKDOWN, edits=first))
        seen = await ann.sees(room_id)
        content = seen[1].source["content"]
        assert content["m.relates_to"] == {"rel_type": "m.replace", "event_id": first}
        assert content["m.new_content"]["body"] == MARKDOWN
        html = content["m.new_content"]["formatted_body"]
        assert "<strong>bold</strong>" in html
        assert "<script" not in html
        shown = [event async for event in agent.channel.history(chat)]
        assert [(event.id, event.edits, event.text) for event in shown] == [
            (edit, first, MARKDOWN),
            (first, "", "Some"),
        ]


async def test_notices_and_replies(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A notice is marked as one, a reply names what it answers, and no words ring in a whole room."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        chat = await agent.come()
        asked = await ann.say(room_id, "a question")
        await agent.channel.send(Post(key="c", chat=chat, markdown="@room an answer", notice=True, reply_to=asked))
        content = (await ann.sees(room_id))[-1].source["content"]
        assert content["msgtype"] == "m.notice"
        assert content["m.relates_to"] == {"m.in_reply_to": {"event_id": asked}}
        assert content["m.mentions"] == {}


@pytest.mark.drawn(1)
@ENCRYPTION
@pytest.mark.loss("F20", "J9")
async def test_files_both_ways(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """A file arrives byte for byte in both directions, encrypted where the room is; limits and losses are told."""
    bot = new_account(synapse, "bot")
    data = bytes(range(256)) * 40
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=encrypted)
        chat = await agent.come()
        file = LocalFile(data=data, name="curve.png", media_type="image/png")
        receipt = await agent.channel.send(Post(key="d", chat=chat, markdown="a picture", files=(file,)))
        words, picture = await ann.sees(room_id)
        assert (words.event_id, words.body, picture.body) == (receipt, "a picture", "curve.png")
        content = picture.source["content"]
        assert ("file" in content, "url" in content) == (encrypted, not encrypted)
        # What the peer got is sent back, and fetched through the port.
        await ann.send(room_id, {key: value for key, value in content.items() if key != "hansard.key"})
        event = await agent.next()
        assert (event.text, event.files[0].name, event.files[0].media_type) == ("", "curve.png", "image/png")
        assert event.files[0].size_bytes == len(data)
        assert await agent.channel.fetch(event.files[0], bytes_max=len(data)) == data
        with pytest.raises(TooLarge):
            await agent.channel.fetch(event.files[0], bytes_max=len(data) - 1)
        with pytest.raises(NotFound):
            await agent.channel.fetch(RemoteFile(reference='{"url":"mxc://test.example/none"}'), bytes_max=10)


async def test_chats_that_are_gone(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A room that the agent was removed from, and one that never was, are gone; other rooms are not."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        chat = await agent.come()
        await agent.channel.send(Post(key="e", chat=chat, markdown="hello"))
        await ann.client.room_kick(room_id, bot.user_id)
        for number in range(2):
            with pytest.raises(ChatGone):
                await agent.channel.send(Post(key=f"f{number}", chat=chat, markdown="hello?"))
        with pytest.raises(ChatGone):
            await agent.channel.send(Post(key="g", chat="matrix:room:!none:test.example", markdown="hello?"))


@pytest.mark.drawn(1)
@ENCRYPTION
async def test_the_largest_posts_fit(synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool) -> None:
    """Every text of the promised size can be posted and can replace another, however badly it encodes."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        await ann.open_room(bot.user_id, encrypted=encrypted)
        chat = await agent.come()
        size = agent.channel.capabilities.text_bytes_max
        first = await agent.channel.send(Post(key="h", chat=chat, markdown="short"))
        for number, sign in enumerate(['"', "\x01", "<", "ü", "😀", "> " * 20 + "a\n\n", "* a\n"]):
            text = sign * (size // len(sign.encode()))
            await agent.channel.send(Post(key=f"i{number}", chat=chat, markdown=text))
            await agent.channel.send(Post(key=f"j{number}", chat=chat, markdown=text, edits=first))
        with pytest.raises(PostRefused):
            await agent.channel.send(Post(key="k", chat=chat, markdown="x" * 70_000))


@pytest.mark.loss("E1", "E6")
async def test_nobody_there_is_not_unknown(home: Path) -> None:
    """Without a homeserver nothing was shown, for certain."""
    bot = channel_of(Account("@bot:test.example", "secret"), f"http://127.0.0.1:{free_port()}", home)
    with pytest.raises(ChannelDown):
        await bot.send(Post(key="l", chat="matrix:room:!a:b", markdown="hello"))
    await bot.close()


@pytest.mark.drawn(1)
@ENCRYPTION
@pytest.mark.loss("E4")
async def test_a_lost_answer_is_unknown_and_then_known(
    synapse: Synapse, home: Path, tmp_path: Path, *, encrypted: bool
) -> None:
    """The connection cut before the answer: unknown. The same key again: the event that was shown, and only it."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Proxy(synapse.port) as proxy:
        async with Agent(channel_of(bot, proxy.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=encrypted)
            chat = await agent.come()
            await agent.channel.send(Post(key="m", chat=chat, markdown="first"))
            proxy.lose_answer_to = b"PUT /_matrix/client/v3/rooms"
            post = Post(key="n", chat=chat, markdown="second")
            with pytest.raises(PostUnknown):
                await agent.channel.send(post)
            assert proxy.lost
            proxy.lose_answer_to = b""
            receipt = await agent.channel.send(post)
        assert [event.body for event in await ann.sees(room_id)] == ["first", "second"]
        assert (await ann.sees(room_id))[-1].event_id == receipt


@pytest.mark.loss("E1", "F9")
async def test_cuts_and_restarts_of_the_homeserver(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A homeserver that is cut off, killed and back: receiving goes on by itself, and nothing is lost or doubled."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Proxy(synapse.port) as proxy:
        room_id = await ann.open_room(bot.user_id)
        async with Agent(channel_of(bot, proxy.url, home)) as agent:
            chat = await agent.come()
            for number in range(5):
                proxy.cut()
                await ann.say(room_id, f"cut {number}")
                assert (await agent.next()).text == f"cut {number}"
            await asyncio.to_thread(synapse.kill)
            try:
                with pytest.raises((ChannelDown, PostUnknown)):
                    await agent.channel.send(Post(key="o", chat=chat, markdown="an answer"))
            finally:
                await asyncio.to_thread(synapse.start)
            await agent.channel.send(Post(key="o", chat=chat, markdown="an answer"))
            await ann.say(room_id, "back")
            assert (await agent.next()).text == "back"
            synapse.throttle(bot.user_id, per_second=1, burst=2)
            posts = [Post(key=f"p{number}", chat=chat, markdown="more") for number in range(10)]
            with pytest.raises(ChannelBusy) as busy:
                await asyncio.gather(*map(agent.channel.send, posts))
            assert 0 < busy.value.seconds < 10
            assert agent.events.empty()
        assert [event.body for event in await ann.sees(room_id)].count("an answer") == 1
