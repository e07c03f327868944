"""What happens to a chat on a real homeserver: others are invited to it, it is replaced, commands are given in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hansard.domain.messages import Role
from hansard.record.api import Record
from tests.channels.matrix.people import new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.gateway.matrix_stage import Bot, joined, rest, running, transcripts, write_config
from tests.gateway.stage import write_script

pytestmark = pytest.mark.slow


@pytest.mark.drawn(2, "synapse")
async def test_a_chat_that_changes(synapse: Synapse, tmp_path: Path) -> None:
    """An invited third person is told of, bare commands are answered, and a replaced chat goes on in the new room."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "You said: {last}"))
    me = bot.account.user_id
    async with peer(synapse, tmp_path) as ann, peer(synapse, tmp_path, "ben") as ben, running(bot):
        old = await ann.open_room(me)
        await joined(ann, old, me)
        await ann.say(old, "first")
        await ann.hears(old, me, "You said: first")
        upgraded = await ann.raw("POST", f"/_matrix/client/v3/rooms/{old}/upgrade", {"new_version": "11"})
        new = str(upgraded["replacement_room"])
        await ann.client.room_invite(new, me)
        await joined(ann, new, me)
        await ann.say(new, "second")
        await ann.hears(new, me, "You said: second")
        await rest(bot)
        async with Record.open(bot.home) as record:
            said = [each.text for each in await transcripts(record, f"matrix:room:{new}") if each.role is Role.USER]
            routes = [await record.routes.read(f"matrix:room:{room_id}") for room_id in (old, new)]
        assert said == ["first", "second"], "the same session goes on"
        assert routes[0] is not None
        assert routes[1] is not None
        assert routes[0].session_id == routes[1].session_id
        await ann.client.room_invite(new, ben.user_id)
        await ann.hears(new, me, "no longer a chat of two")
        assert ben.user_id in next(each.body for each in ann.heard if "no longer a chat of two" in each.body)
        heard = len(ann.heard)
        await ann.say(new, "is anybody there?")
        await ann.say(new, "/sessions")
        await ann.hears(new, me, after=heard)
        assert not any("You said" in each.body for each in ann.heard[heard:]), "only the command was for the agent"
