"""`hansard gateway` is killed at random moments on Telegram: nothing is lost or answered twice, at most shown twice."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from hansard.domain.messages import Role
from hansard.domain.notices import ENGLISH
from hansard.record.api import Record
from tests.channels.telegram.bot_api import BotApi, Fault, FaultKind
from tests.channels.telegram.program import Bot, Program, answers_to, check_chat, rest, secret_files, told_of
from tests.gateway.stage import write_script

pytestmark = pytest.mark.slow

KILLS = 100 if os.environ.get("HANSARD_PROVE") else 3


async def talk(api: BotApi, chats: list[int], draw: random.Random, sent: list[str], seconds: float) -> None:
    """Let people talk for a while, now and then in a burst."""
    deadline = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < deadline:
        for _ in range(draw.choice([1, 1, 3])):
            sent.append(f"message-{len(sent)}")
            chat = draw.choice(chats)
            text = sent[-1] if chat > 0 else f"@{api.world.bot.username} {sent[-1]}"
            api.world.say(chat, chat if chat > 0 else min(api.world.chats[chat].members), text)
            await asyncio.sleep(draw.random() * 0.02)
        await asyncio.sleep(draw.random() * 0.4)


@pytest.mark.loss("A1", "A13", "E1", "E5", "E13", "F8", "F11", "F12", "F15", "F16", "H3", "I2")
@pytest.mark.timeout(900)
async def test_kills_at_random_moments(api: BotApi, tmp_path: Path, seed: int) -> None:
    """What was said is recorded once and answered once; a kill, or a cut, leaves at most one copy, which says so."""
    draw = random.Random(seed)
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, bob)
    chats = [ann, bob, group]
    bot = Bot(tmp_path / "home", api.url, api.token)
    script = write_script(tmp_path / "script", "{last} is what you said.", delay_seconds=0.05)
    bot.configure(script, f"allow = {[str(ann), str(bob)]}".replace("'", '"'))
    sent: list[str] = []
    cuts = 0
    for _ in range(KILLS):
        program = Program(bot)
        await program.ready()
        if draw.random() < 0.5:
            kind = draw.choice([FaultKind.CUT_AFTER, FaultKind.CUT_BEFORE, FaultKind.BUSY])
            api.faults.append(Fault(kind, draw.choice(["sendMessage", "editMessageText"])))
            cuts += 1
        await talk(api, chats, draw, sent, 0.1 + draw.random())
        await program.kill()
        if draw.random() < 0.5:
            await talk(api, chats, draw, sent, 0.2)
    program = Program(bot)
    try:
        await program.ready()
        await rest(bot, api)
    finally:
        await program.stop()
    async with Record.open(bot.home) as record:
        for chat in chats:
            name = f"telegram:chat:{chat}"
            marks = await check_chat(record, api, api.world.chats[chat], name)
            assert marks <= KILLS + cuts, "at most one copy in a chat for each kill, and for each cut"
            told = await told_of(record, name)
            words = [each for each in told.messages if each.role in {Role.USER, Role.ASSISTANT}]
            notices = [each.text for each in told.messages if each.role is Role.NOTICE]
            if words:
                assert words[-1].role is Role.ASSISTANT or notices[-1:] == [ENGLISH.recovered], "it was never answered"
            for text in sent:
                assert answers_to(told, text) <= 1, text
        report = await record.verify()
        assert report.ok, report.findings
    assert not secret_files(bot)
    assert api.world.updates == [] or api.offsets[-1] > 0
