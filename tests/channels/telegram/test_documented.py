"""docs/run/telegram.md, step by step on the Bot API of this machine: what it says to write, run and see is so."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from hansard.record.api import Record
from tests.channels.telegram.bot_api import BotApi
from tests.channels.telegram.program import ROOT, Bot, check_chat, hansard, rest, running
from tests.channels.telegram.stage import until
from tests.gateway.stage import write_script

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "run" / "telegram.md").read_text(encoding="utf-8")
FIRST, PEOPLE, GROUPS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
CODE_SHOWN = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
PERSON, GROUP, OWN_CODE = "100001", "-1001234567890", "ejxk-d7qh"


def write(bot: Bot, settings: str, script: Path) -> None:
    """Write settings as the page has them, and a model; the address of this machine's Bot API is in the environment."""
    bot.configure(script)
    (bot.home / "config.toml").write_text(f'model = "scripted:{script}"\n{settings}')


@pytest.fixture
def bot(api: BotApi, tmp_path: Path) -> Bot:
    """A home whose programs go to this machine's Bot API."""
    return Bot(tmp_path / "home", api.url, api.token, (("HANSARD_CHANNELS__TELEGRAM__BASE_URL", api.url),))


async def test_from_nothing_to_a_talking_bot(api: BotApi, bot: Bot, tmp_path: Path) -> None:
    """With the first settings the gateway starts; a stranger is shown the page's code, is approved, and talks."""
    script = write_script(tmp_path / "script")
    write(bot, FIRST, script)
    assert (await hansard(bot, "config", "check")).stdout == "ok\n"
    assert stat.S_IMODE((bot.home / "telegram" / "token").stat().st_mode) == 0o600
    ann = api.world.person("Ann")
    assert str(ann) == PERSON
    async with running(bot):
        status = (await hansard(bot, "gateway", "status")).stdout
        assert re.fullmatch(
            rf"ok: process \d+, since \S+\n  telegram {api.world.bot.id}: connected\n",
            status,
        )
        api.world.say(ann, ann, "/start")
        await until(lambda: len(api.world.of_bot(ann)) == 1)
        assert CODE_SHOWN is not None
        code = api.world.of_bot(ann)[0].partition("hansard pair approve ")[2].split()[0]
        assert api.world.of_bot(ann)[0] == CODE_SHOWN[1].strip().replace(OWN_CODE, code)
        assert f"code {code} until" in (await hansard(bot, "pair")).stdout
        assert (await hansard(bot, "pair", "approve", code)).stdout.startswith(f"allowed  {ann} ")
        await until(lambda: len(api.world.of_bot(ann)) == 2)
        api.world.say(ann, ann, "hello")
        await until(lambda: api.world.of_bot(ann)[-1] == "You said: hello")
        await rest(bot, api)
        assert (await hansard(bot, "deliveries")).stdout == "everything was shown\n"
        audit = await hansard(bot, "audit", f"telegram:{ann}")
        assert audit.stderr.startswith("hansard: telegram tells nothing of the past")
        assert (await hansard(bot, "verify")).returncode == 0


async def test_people_and_groups(api: BotApi, bot: Bot, tmp_path: Path) -> None:
    """With the other settings no code is needed; in a listed group everybody is answered, and in no other."""
    script = write_script(tmp_path / "script")
    ann, bob = api.world.person("Ann"), api.world.person("Bob")
    group = api.world.group("Friends", ann, bob)
    write(bot, GROUPS.replace(GROUP, str(group)), script)
    assert (await hansard(bot, "config", "check")).stdout == "ok\n"
    async with running(bot):
        api.world.say(group, bob, f"@{api.world.bot.username} may I?")
        api.world.say(bob, bob, "may I here?")
        await until(lambda: any("may I?" in text for text in api.world.of_bot(group)))
        await until(lambda: any("hansard pair approve" in text for text in api.world.of_bot(bob)))
        await rest(bot, api)
    sessions = (await hansard(bot, "sessions", "--json")).stdout
    assert f"room:telegram:{group}" in sessions, "where the page says that the group's number is"
    write(bot, PEOPLE, script)
    assert (await hansard(bot, "config", "check")).stdout == "ok\n"
    async with running(bot):
        api.world.say(ann, ann, "hello")
        await until(lambda: api.world.of_bot(ann) == ["You said: hello"])
        await rest(bot, api)
    async with Record.open(bot.home) as record:
        owners = {session.owner for session in await record.sessions(source="telegram")}
        assert owners == {"person:ann", f"room:telegram:{group}"}
        assert await check_chat(record, api, api.world.chats[ann], f"telegram:chat:{ann}") == 0
