"""S13: a chat that others can enter or read uninvited is not direct, however few are in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hansard.channels.matrix.rooms import MatrixRoom
from hansard.domain.messages import Role
from hansard.ports.channel import EventKind
from hansard.record.api import Record
from tests.channels.matrix.people import WAIT_SECONDS, Agent, Peer, channel_of, new_account, peer
from tests.channels.matrix.synapse import Synapse
from tests.gateway.matrix_stage import Bot, joined, rest, running, write_config
from tests.gateway.stage import write_script

RULES = "m.room.join_rules"
VISIBILITY = "m.room.history_visibility"
OPENINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (RULES, {"join_rule": "public"}),
    (RULES, {"join_rule": "knock"}),
    (RULES, {"join_rule": "restricted", "allow": []}),
    (VISIBILITY, {"history_visibility": "world_readable"}),
)
CLOSED = {RULES: {"join_rule": "invite"}, VISIBILITY: {"history_visibility": "shared"}}


async def put(ann: Peer, room_id: str, kind: str, content: dict[str, Any]) -> None:
    """Change a room's state."""
    answer = await ann.raw("PUT", f"/_matrix/client/v3/rooms/{room_id}/state/{kind}/", content)
    assert "event_id" in answer, answer


async def until_direct(agent: Agent, chat: str, *, is_direct: bool) -> None:
    """Wait until the channel says so."""
    async with asyncio.timeout(WAIT_SECONDS):
        while await agent.channel.is_direct(chat) is not is_direct:  # noqa: ASYNC110 - the server rings for nobody
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("rule", ["invite", "public", "knock", "restricted", "knock_restricted", "private", ""])
@pytest.mark.parametrize("visibility", ["invited", "joined", "shared", "world_readable", ""])
def test_what_direct_means(others: int, rule: str, visibility: str) -> None:
    """At most one other person, who can be joined by invitation only, where nobody else can read."""
    members = dict.fromkeys(["@bot:x", "@ann:x", "@ben:x"][: others + 1], "")
    room = MatrixRoom(agent="@bot:x", members=members, is_encrypted=True, join_rule=rule, history_visibility=visibility)
    is_private = rule == "invite" and visibility in {"invited", "joined", "shared"}
    assert room.is_direct is (others <= 1 and is_private)


@pytest.mark.slow
async def test_a_chat_that_is_opened(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Whoever opens a chat to others ends its being direct, is told so, and can close it again."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id)
        chat = await agent.come()
        await until_direct(agent, chat, is_direct=True)
        for kind, content in OPENINGS:
            await put(ann, room_id, kind, content)
            event = await agent.next()
            assert (event.kind, event.chat, event.text) == (EventKind.COMPANY, chat, ""), content
            assert not await agent.channel.is_direct(chat), content
            await ann.say(room_id, "hello")
            assert (await agent.next()).is_direct is False
            await put(ann, room_id, kind, CLOSED[kind])
            await until_direct(agent, chat, is_direct=True)
    later = Agent(channel_of(bot, synapse.url, home), agent.cursor)
    async with peer(synapse, tmp_path) as ann, later as agent:
        room_id = await ann.open_room(bot.user_id)
        await put(ann, room_id, *OPENINGS[0])
        chat = await agent.come()
        await until_direct(agent, chat, is_direct=False)


@pytest.mark.slow
async def test_people_are_told_that_their_chat_is_open(synapse: Synapse, tmp_path: Path) -> None:
    """The agent says in plain words that others can come, and what was private goes on elsewhere."""
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url)
    write_config(bot, write_script(tmp_path / "script", "You said: {last}"))
    me = bot.account.user_id
    async with peer(synapse, tmp_path) as ann, running(bot):
        room_id = await ann.open_room(me)
        await joined(ann, room_id, me)
        await ann.say(room_id, "a secret")
        await ann.hears(room_id, me, "You said: a secret")
        await put(ann, room_id, *OPENINGS[0])
        await ann.hears(room_id, me, "others can come in or read here without an invitation")
        await ann.say(room_id, f"{me} what did I say?")
        await ann.hears(room_id, me, "what did I say?")
        await rest(bot)
        async with Record.open(bot.home) as record:
            route = await record.routes.read(f"matrix:room:{room_id}")
            assert route is not None
            said = [each.text for each in await record.load_transcript(route.session_id) if each.role is Role.USER]
        assert said == [f"{me} what did I say?"], "the room has a session of its own"
