"""One conversation on a real homeserver, on a Bot API and in a terminal, in one gateway that is killed on the way."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from hansard.domain.messages import Role
from hansard.record.api import Record
from tests.channels.matrix.people import new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.channels.telegram.bot_api import BotApi, bot_api
from tests.gateway.matrix_stage import (
    PROGRAM,
    Bot,
    Offspring,
    Program,
    Talk,
    joined,
    kill,
    read_timeline,
    ready,
    rest,
    running,
    write_config,
)
from tests.gateway.stage import until, write_script

SAID = ["phone-1", "terminal-2", "room-3", "phone-4", "terminal-5"]
CODE = re.compile(r"/link ([a-z0-9]{4}-[a-z0-9]{4})")

pytestmark = pytest.mark.slow


async def typed(bot: Bot, session_id: str, text: str) -> str:
    """Say something in a terminal, in a session, as people do; return what it shows."""
    arguments = [*PROGRAM, "-r", session_id, "-p", text]
    done = await asyncio.to_thread(
        subprocess.run,
        arguments,
        env=bot.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input="",
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def restarted(bot: Bot, process: Program) -> Program:
    """Kill the gateway, and start another."""
    kill(process)
    started = Offspring(bot)
    await ready(bot, started)
    return started


async def heard(api: BotApi, chat_id: int, text: str) -> None:
    """Wait until the bot has said something to somebody on Telegram."""
    await until(lambda: any(text in each for each in api.world.of_bot(chat_id)))


async def linked(talk: Talk, bot: Bot, api: BotApi, phone: int) -> None:
    """Be one person in both chats: a code that is shown in the room is entered on the telephone."""
    await talk.person.say(talk.room_id, "/link")
    await talk.person.hears(talk.room_id, bot.account.user_id, "/link ")
    shown = [CODE.search(each.body) for each in talk.person.heard if each.sender == bot.account.user_id]
    code = next(found[1] for found in shown if found)
    api.world.say(phone, phone, f"/link {code}")
    await heard(api, phone, "You are one person with")
    await talk.person.hears(talk.room_id, bot.account.user_id, "entered your code")


def check_shown(chat: str, said: list[str], shown: list[str]) -> None:
    """Compare what a chat shows with what was said: every answer, and the words that were said elsewhere."""
    for words in said:
        assert any(f"{words}, you said." in text for text in shown), (chat, words)
        quoted = [text for text in shown if text.startswith("You said") and words in text]
        assert bool(quoted) == (not words.startswith(chat)), (chat, words)


async def check_record(record: Record, session_id: str) -> None:
    """Compare what the session holds with what was said."""
    transcript = await record.load_transcript(session_id)
    assert [each.text for each in transcript if each.role is Role.USER] == SAID
    report = await record.verify()
    assert report.ok, report.findings


@pytest.mark.drawn(2, "synapse")
@pytest.mark.loss("A1", "E5", "F11", "F15", "H1", "H3", "J1", "J2")
async def test_from_telegram_to_the_terminal_to_matrix_and_back(synapse: Synapse, tmp_path: Path) -> None:
    """Linked by a code, carried over four hops with kills in between: one session, whole, and shown where it leads.

    What each chat shows is compared with what the platforms themselves tell.
    """
    async with bot_api() as api, peer(synapse, tmp_path) as person:
        phone = api.world.person("Ann")
        additions = (("HANSARD_TELEGRAM_TOKEN", api.token), ("PTB_TIMEDELTA", "true"))
        bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url, additions)
        write_config(bot, write_script(tmp_path / "script", "{last}, you said."), busy="queue")
        with (bot.home / "config.toml").open("a") as config:
            config.write(f'[channels.telegram]\nenabled = true\nbase_url = "{api.url}"\nallow = ["{phone}"]\n')
        async with running(bot, Offspring) as first:
            talk = Talk(person, await person.open_room(bot.account.user_id, encrypted=False), [])
            await joined(person, talk.room_id, bot.account.user_id)
            api.world.say(phone, phone, "phone-1")
            await heard(api, phone, "phone-1, you said.")
            await linked(talk, bot, api, phone)
            process = await restarted(bot, first)
            try:
                async with Record.open(bot.home) as record:
                    route = await record.routes.read(f"telegram:chat:{phone}")
                    assert route is not None
                    session_id = route.session_id
                    await record.people.link("person:admin", f"person:telegram:{phone}")
                    assert await typed(bot, session_id, "terminal-2") == "terminal-2, you said.\n"
                    await heard(api, phone, "You said in the terminal:")
                    await heard(api, phone, "terminal-2, you said.")
                    await talk.person.say(talk.room_id, f"/resume {session_id}")
                    await person.hears(talk.room_id, bot.account.user_id, "Resumed")
                    await person.say_at_once(talk.room_id, "room-3")
                    process = await restarted(bot, process)
                    await person.hears(talk.room_id, bot.account.user_id, "room-3, you said.")
                    await heard(api, phone, "room-3, you said.")
                    api.world.say(phone, phone, "phone-4")
                    process = await restarted(bot, process)
                    await heard(api, phone, "phone-4, you said.")
                    await person.hears(talk.room_id, bot.account.user_id, "phone-4, you said.")
                    assert await typed(bot, session_id, "terminal-5") == "terminal-5, you said.\n"
                    process = await restarted(bot, process)
                    await heard(api, phone, "terminal-5, you said.")
                    await person.hears(talk.room_id, bot.account.user_id, "terminal-5, you said.")
                    await rest(bot)
                    await check_record(record, session_id)
            finally:
                kill(process)
        timeline = await read_timeline(person, talk.room_id)
        bodies = [event.source["content"]["body"] for event in timeline.by(bot.account.user_id)]
        assert [text for text in bodies if "terminal-2" in text] == []
        check_shown("room", SAID[2:], bodies)
        check_shown("phone", SAID, api.world.of_bot(phone))
