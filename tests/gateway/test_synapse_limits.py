"""A homeserver with its stock rate limits: people see first words at once, and whole answers as soon as it allows."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.channels.matrix.people import Peer, new_account, peer
from tests.channels.matrix.synapse import Synapse, interpreter
from tests.gateway.matrix_stage import Bot, joined, running, write_config

pytestmark = pytest.mark.slow

PROVES = bool(os.environ.get("HANSARD_PROVE"))
PEOPLE = 10
STOCK = {"per_second": 0.2, "burst_count": 10}
"""Synapse's default of `rc_message`, for each account."""
SERVER_SECONDS = PEOPLE / STOCK["per_second"]
"""What the homeserver itself takes for the ends of all answers, when their beginnings used the burst up."""


async def ask(person: Peer, bot: Bot, room_id: str) -> float:
    """Ask something; return how long the whole answer took."""
    began = time.monotonic()
    await person.say(room_id, "tell me")
    async with asyncio.timeout(240):
        while not any("the end" in each.body for each in person.heard if each.sender == bot.account.user_id):
            await person.client.sync(timeout=2000)
    return time.monotonic() - began


@pytest.mark.skipif(not PROVES, reason="two minutes: HANSARD_PROVE=1")
@pytest.mark.timeout(600)
async def test_ten_people_at_once(tmp_path: Path) -> None:
    """With ten people at once nobody waits much longer than the server's own limit makes them wait."""
    python = interpreter()
    if python is None:
        pytest.skip("Synapse cannot be installed here (scripts/synapse.py)")
    synapse = Synapse(python, tmp_path / "synapse", rc_message=STOCK)
    synapse.start()
    additions = tuple(("PYTHONPATH", path) for path in [os.environ.get("HANSARD_MEASURED_SRC", "")] if path)
    bot = Bot(new_account(synapse, "agent"), tmp_path / "home", synapse.url, additions)
    script = tmp_path / "script"
    script.write_text(f"[[answers]]\ntext = '{'and more ' * 60}and this is the end'\ndelay_seconds = 0.1\n")
    write_config(bot, script)
    try:
        async with AsyncExitStack() as stack:
            people = [await stack.enter_async_context(peer(synapse, tmp_path)) for _ in range(PEOPLE)]
            async with running(bot):
                rooms = [await person.open_room(bot.account.user_id) for person in people]
                for person, room_id in zip(people, rooms, strict=True):
                    await joined(person, room_id, bot.account.user_id)
                waits = await asyncio.gather(
                    *(ask(person, bot, room) for person, room in zip(people, rooms, strict=True))
                )
            posted = sum(each.sender == bot.account.user_id for person in people for each in person.heard)
            print(f"waits {sorted(round(wait) for wait in waits)}, {posted} events")  # noqa: T201 - the measurement
            assert posted <= 3 * PEOPLE, "first words and ends, and what was spent before the limit was met"
            assert max(waits) < SERVER_SECONDS + 60
    finally:
        synapse.close()
