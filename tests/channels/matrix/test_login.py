"""Logging in: late, again, and what is said when it cannot be done."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from hansard.channels.matrix.keeping import Keeping, store_name
from hansard.errors import ChannelDown, ConfigInvalid, PostRefused
from hansard.ports.channel import Post
from tests.channels.matrix.people import WAIT_SECONDS, Account, Agent, channel_of, new_account, peer
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.published import published_keys, until_signed_anew
from tests.channels.matrix.synapse import Synapse, free_port


async def until_trouble(agent: Agent) -> str:
    """Wait until the channel says what is wrong."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not agent.channel.trouble:  # noqa: ASYNC110  # a plain property, for status pages
            await asyncio.sleep(0.02)
    return agent.channel.trouble


@pytest.mark.loss("E1")
async def test_the_homeserver_comes_later(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """A channel that starts before its homeserver joins it when it comes."""
    bot, port = new_account(synapse, "bot"), free_port()
    async with Agent(channel_of(bot, f"http://127.0.0.1:{port}", home)) as agent:
        with pytest.raises(ChannelDown):
            await agent.channel.send(Post(key="a", chat="matrix:room:!a:b", markdown="hello"))
        async with Proxy(synapse.port, port=port), peer(synapse, tmp_path) as ann:
            await agent.ready()
            room_id = await ann.open_room(bot.user_id)
            await agent.come()
            await ann.say(room_id, "there you are")
            assert (await agent.next()).text == "there you are"


async def test_a_device_that_was_logged_out(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """With the password, a new device logs in and is signed; what was said to the old one stays readable.

    A client that saw a device removed never sends keys to a device of that name again.
    """
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=True)
        chat = await agent.come()
        await ann.say(room_id, "before")
        assert (await agent.next()).text == "before"
        before = Keeping(home).login()
        assert before is not None
        await log_out(synapse, before.token)
        await ann.sync()
        after = await until_signed_anew(ann, bot, home, before)
        await ann.say(room_id, "are you there?")
        assert (await agent.next()).text == "are you there?"
        assert after.token != before.token
        assert agent.channel.capabilities.repeat_seconds < 3600, "earlier posts are another device's"
        assert [shown.text async for shown in agent.channel.history(chat)] == ["are you there?", "before"]


async def test_lost_keys(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Without the crypto store nothing is published over the device's keys; the documented remedy mends it for good."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            room_id = await ann.open_room(bot.user_id, encrypted=True)
            chat = await agent.come()
            await ann.say(room_id, "before")
            assert (await agent.next()).text == "before"
        before = Keeping(home).login()
        assert before is not None
        known = await published_keys(ann, bot, before.device_id)
        (home / "matrix" / store_name(before.device_id)).unlink()
        cursor = agent.cursor
        for _ in range(2):
            async with Agent(channel_of(bot, synapse.url, home, {}), cursor) as lost:
                await lost.ready()
                assert "nothing can be read or said in any encrypted room" in lost.channel.trouble
                assert "HANSARD_MATRIX_PASSWORD" in lost.channel.trouble
                with pytest.raises(PostRefused):
                    await lost.channel.send(Post(key="a", chat=chat, markdown="hello"))
            assert await published_keys(ann, bot, before.device_id) == known
        wrong = channel_of(bot, synapse.url, home, {"HANSARD_MATRIX_PASSWORD": "wrong"})
        async with Agent(wrong, cursor) as refused:
            assert "refuses the password" in await until_trouble(refused)
        async with Agent(channel_of(bot, synapse.url, home), cursor) as mended:
            await mended.ready()
            await until_signed_anew(ann, bot, home, before)
            assert mended.channel.trouble == ""
            await ann.say(room_id, "after")
            assert (await mended.next()).text == "after"
        async with Agent(channel_of(bot, synapse.url, home, {}), mended.cursor) as again:
            await ann.say(room_id, "once more")
            assert (await again.next()).text == "once more"
            await again.channel.send(Post(key="b", chat=chat, markdown="good day"))
            assert again.channel.trouble == ""
        assert (await ann.sees(room_id))[-1].body == "good day"


async def test_the_password_in_a_file(synapse: Synapse, home: Path) -> None:
    """A password in the folder is as good as one in the environment; a folder that others may read is refused."""
    bot = new_account(synapse, "bot")
    (home / "matrix").mkdir(parents=True, mode=0o700)
    (home / "matrix" / "password").write_text(f"{bot.password}\n")
    async with Agent(channel_of(bot, synapse.url, home, {})) as agent:
        await agent.ready()
        assert agent.channel.trouble == ""
    (home / "matrix").chmod(0o750)
    careless = channel_of(bot, synapse.url, home, {})
    with pytest.raises(ConfigInvalid, match="chmod"):
        await careless.send(Post(key="c", chat="matrix:room:!a:b", markdown="hello"))
    await careless.close()


async def log_out(synapse: Synapse, token: str) -> None:
    """End a device from outside, as a person would in the account's settings."""
    status, _ = await asyncio.to_thread(synapse.ask, "POST", "/_matrix/client/v3/logout", {}, token)
    assert status == 200


async def test_a_revoked_token_says_what_to_do(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Without a password, the channel says what is to be done, and goes on by itself once it is."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        async with Agent(channel_of(bot, synapse.url, home)) as agent:
            await agent.ready()
        kept = Keeping(home).login()
        assert kept is not None
        await log_out(synapse, kept.token)
        async with Agent(channel_of(bot, synapse.url, home, {"HANSARD_MATRIX_TOKEN": kept.token})) as later:
            assert "HANSARD_MATRIX_PASSWORD" in await until_trouble(later)
            with pytest.raises(ChannelDown):
                await later.channel.send(Post(key="b", chat="matrix:room:!a:b", markdown="hello"))
        async with Agent(channel_of(bot, synapse.url, home), agent.cursor) as again:
            room_id = await ann.open_room(bot.user_id)
            await again.come()
            await ann.say(room_id, "back")
            assert (await again.next()).text == "back"
            assert again.channel.trouble == ""


@pytest.mark.parametrize("given", ["password", "nothing", "token of another"])
async def test_what_cannot_log_in_says_why(
    synapse: Synapse, home: Path, tmp_path: Path, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong password, none, or a token of somebody else: each is told apart, and no secret is in any text."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann:
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        secret = {"password": "wrong-secret", "nothing": "", "token of another": ann.client.access_token}[given]
        variable = "HANSARD_MATRIX_TOKEN" if given == "token of another" else "HANSARD_MATRIX_PASSWORD"
        async with Agent(channel_of(Account(bot.user_id, secret), synapse.url, home, {variable: secret})) as agent:
            trouble = await until_trouble(agent)
        expected = {
            "password": "refuses the password",
            "nothing": "no way to log",
            "token of another": ann.user_id,
        }
        assert expected[given] in trouble
        if secret:
            assert secret not in trouble + caplog.text
