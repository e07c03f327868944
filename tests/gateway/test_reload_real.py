"""A reload of real channels: a server under another name is another address, and the conversation goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hansard.cli.gateway import have_renewed
from hansard.record.api import Record
from tests.channels.matrix.people import new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.channels.telegram import program as telegram
from tests.channels.telegram.bot_api import bot_api
from tests.channels.telegram.stage import until
from tests.gateway.matrix_stage import Bot, Offspring, Talk, check_rooms, joined, rest, running, write_config
from tests.gateway.stage import write_script

pytestmark = [pytest.mark.slow]


def elsewhere(url: str) -> str:
    """Return the same server under its other name."""
    there = url.replace("127.0.0.1", "localhost")
    assert there != url
    return there


async def test_matrix_is_opened_again_under_another_name(synapse: Synapse, tmp_path: Path) -> None:
    """In an encrypted room, what is said before, while and after the channel is opened again is answered once."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    script = write_script(tmp_path / "script")
    write_config(bot, script)
    async with peer(synapse, tmp_path) as person, running(bot, Offspring):
        room_id = await person.open_room(bot.account.user_id, encrypted=True)
        await joined(person, room_id, bot.account.user_id)
        talk = Talk(person, room_id, [])
        await talk.say("before")
        await person.hears(room_id, bot.account.user_id, "You said: before")
        write_config(bot._replace(url=elsewhere(bot.url)), script, busy="queue")
        renewing = asyncio.create_task(have_renewed(bot.home))
        await talk.say("while")
        health = await renewing
        assert health is not None
        assert health.config.refused == ""
        await talk.say("after")
        await person.hears(room_id, bot.account.user_id, "after")  # maybe with what was said meanwhile, in one answer
        await rest(bot)
        await check_rooms(bot, [talk])
        assert '"event":"channel closed"' in bot.log.read_text()
        async with Record.open(bot.home) as record:
            (session,) = await record.sessions()
            said = [message.text for message in await record.load_transcript(session.id) if message.role == "user"]
            assert said == ["before", "while", "after"]


async def test_telegram_is_opened_again_with_a_new_token(tmp_path: Path) -> None:
    """A token file that is written anew opens the channel again, and nothing is answered twice."""
    async with bot_api() as api:
        ann = api.world.person("Ann", "ann")
        bot = telegram.Bot(tmp_path / "home", api.url, api.token)
        script = write_script(tmp_path / "script")
        bot.configure(script, f'allow = ["{ann}"]')
        async with telegram.running(bot):
            for number, url in enumerate([api.url, elsewhere(api.url)]):
                api.world.say(ann, ann, f"number-{number}")
                bot._replace(url=url).configure(script, f'allow = ["{ann}"]', busy="queue")
                health = await have_renewed(bot.home)
                assert health is not None
                assert health.config.refused == ""
                await until(lambda: any("number-0" in text for text in api.world.of_bot(ann)))
            await telegram.rest(bot, api)
            assert bot.log.read_text().count('"event":"channel closed"') == 2
            async with Record.open(bot.home) as record:
                await telegram.check_chat(record, api, api.world.chats[ann], f"telegram:chat:{ann}")
                (session,) = await record.sessions()
                said = [message.text for message in await record.load_transcript(session.id) if message.role == "user"]
                assert said == ["number-0", "number-1"]
