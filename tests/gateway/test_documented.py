"""docs/run/matrix.md, step by step on a real homeserver: what it says to write, run and see is so."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

from hansard.record.api import Record
from tests.acceptance.shown.program import run_forked
from tests.channels.matrix.people import Peer, new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.gateway.matrix_stage import ROOT, Bot, Talk, check_rooms, joined, rest, running, start
from tests.gateway.stage import WAIT_SECONDS_MAX, write_script

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "run" / "matrix.md").read_text(encoding="utf-8")
BLOCKS: list[str] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
FIRST, PEOPLE = BLOCKS
SECTION = "[channels.matrix]\n"
DECLINED = re.compile(r"`hansard pair approve (\S+)`")


def documented(with_people: bool) -> str:  # noqa: FBT001 - a parameter of the test
    """Return the settings as the page has them; the second block is to be added to the first."""
    if not with_people:
        return FIRST
    where = "".join(line for line in FIRST.splitlines(keepends=True) if line.startswith(("homeserver", "user_id")))
    return PEOPLE.replace(SECTION, SECTION + where)


def write_documented(bot: Bot, settings: str, person: Peer, script: Path) -> None:
    """Put in the names and the address that are here, and a model."""
    here = {"https://matrix.example.org": bot.url, "@hansard:example.org": bot.account.user_id}
    for there, name in {**here, "@ann:example.org": person.user_id}.items():
        assert there in settings
        settings = settings.replace(there, name)
    bot.home.mkdir(mode=0o700)
    (bot.home / "config.toml").write_text(f"model = {json.dumps(f'scripted:{script}')}\n{settings}")


async def hansard(bot: Bot, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does, without the password."""
    environment = {name: value for name, value in bot.environment.items() if name != "HANSARD_MATRIX_PASSWORD"}
    return await asyncio.to_thread(run_forked, *arguments, variables=environment)


async def answered(person: Peer, bot: Bot, room_id: str, text: str) -> str:
    """Say something, and wait until the room shows the answer to it; return the event's id."""
    event_id = await person.say(room_id, text)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            own = [event for event in await person.sees(room_id) if event.sender == bot.account.user_id]
            if any(event.source["content"].get("body", "").endswith(f"You said: {text}") for event in own):
                return event_id
            await asyncio.sleep(0.1)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("with_people", [False, True], ids=["alone", "people"])
async def test_from_nothing_to_a_talking_bot(synapse: Synapse, tmp_path: Path, *, with_people: bool) -> None:
    """With the settings of the page the gateway starts, and talks in an encrypted room; the commands say what it says.

    The password is needed once: the second start has none.
    """
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    async with peer(synapse, tmp_path) as person:
        write_documented(bot, documented(with_people), person, write_script(tmp_path / "script"))
        assert (await hansard(bot, "config", "check")).stdout == "ok\n"
        async with running(bot, start):
            status = (await hansard(bot, "gateway", "status")).stdout
            assert re.fullmatch(rf"ok: process \d+, since \S+\n  matrix {bot.account.user_id}: connected\n", status)
            room_id = await person.open_room(bot.account.user_id, encrypted=True)
            await joined(person, room_id, bot.account.user_id)
            sent = [await answered(person, bot, room_id, "hello")]
        bot = bot._replace(account=bot.account._replace(password=""))
        async with running(bot):
            sent.append(await answered(person, bot, room_id, "again"))
            await rest(bot)
            audit = await hansard(bot, "audit", f"matrix:{room_id}")
            assert audit.stdout.endswith(" (0 not to the agent, 0 from before): all of it is in the record\n")
            assert (audit.returncode, audit.stderr) == (0, "")
            assert (await hansard(bot, "deliveries")).stdout == "everything was shown\n"
            second = await hansard(bot, "gateway")
            assert second.returncode == 2
            assert "another gateway serves" in second.stderr
        await check_rooms(bot, [Talk(person, room_id, sent)])
        assert {path.stat().st_mode & 0o077 for path in (bot.home / "matrix").iterdir()} == {0}
        async with Record.open(bot.home) as record:
            (session,) = await record.sessions()
            assert session.owner == ("person:ann" if with_people else f"person:matrix:{person.user_id}")


async def membership(person: Peer, bot: Bot, room_id: str, wanted: str) -> str:
    """Wait until the agent's membership is that; return the reason which clients show beside it."""
    path = f"/_matrix/client/v3/rooms/{room_id}/state/m.room.member/{bot.account.user_id}"
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while (content := await person.raw("GET", path)).get("membership") != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return str(content.get("reason", ""))


async def test_a_stranger_invites_and_is_let_in(synapse: Synapse, tmp_path: Path) -> None:
    """Declined with a code as the reason; approved by the command; invites again, and talks."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    async with peer(synapse, tmp_path) as ann, peer(synapse, tmp_path, "eve") as eve:
        write_documented(bot, FIRST, ann, write_script(tmp_path / "script"))
        async with running(bot):
            room_id = await eve.open_room(bot.account.user_id, encrypted=True)
            reason = await membership(eve, bot, room_id, "leave")
            (code,) = DECLINED.findall(reason)
            assert f"code {code} until" in (await hansard(bot, "pair")).stdout
            again = await eve.open_room(bot.account.user_id)
            assert await membership(eve, bot, again, "leave") == reason
            approved = await hansard(bot, "pair", "approve", code)
            assert approved.stdout.startswith(f"allowed  {eve.user_id}")
            assert approved.stdout.endswith("they have to invite the agent again.\n")
            invite = f"/_matrix/client/v3/rooms/{room_id}/invite"
            assert await eve.raw("POST", invite, {"user_id": bot.account.user_id}) == {}
            assert await membership(eve, bot, room_id, "join") == ""
            sent = [await answered(eve, bot, room_id, "here I am")]
            await rest(bot)
        await check_rooms(bot, [Talk(eve, room_id, sent)])
        assert (await hansard(bot, "verify")).returncode == 0
