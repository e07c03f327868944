"""Who is in a room: the channel says whether it is still with one person, as soon as that changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nio

from tests.channels.matrix.people import WAIT_SECONDS, Agent, channel_of, new_account, peer
from tests.channels.matrix.synapse import Synapse


async def test_a_room_is_direct_until_a_third_is_invited(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """Two are alone; whoever is invited counts, before they come; and they are alone again when that one is gone."""
    bot, third = new_account(synapse, "bot"), new_account(synapse, "third")
    async with peer(synapse, tmp_path) as ann, Agent(channel_of(bot, synapse.url, home)) as agent:
        room_id = await ann.open_room(bot.user_id, encrypted=False)
        chat = await agent.come()
        assert agent.channel.capabilities.company
        assert await agent.channel.is_direct(chat)
        assert isinstance(await ann.client.room_invite(room_id, third.user_id), nio.RoomInviteResponse)
        async with asyncio.timeout(WAIT_SECONDS):
            while await agent.channel.is_direct(chat):  # noqa: ASYNC110 - the server rings for nobody
                await asyncio.sleep(0.02)
        assert isinstance(await ann.client.room_kick(room_id, third.user_id), nio.RoomKickResponse)
        async with asyncio.timeout(WAIT_SECONDS):
            while not await agent.channel.is_direct(chat):  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.02)
