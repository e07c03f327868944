"""S7: events that cannot be decrypted cost little, are kept for people who may talk, and are waited for by nobody."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from hansard.channels.matrix.receiving import UnreadableEvents
from hansard.intake.receive import HeldEvents
from hansard.ports.channel import EventKind
from hansard.record.intake.events import HELD_DAYS_MAX, PERSON_HELD_BYTES_MAX, PERSON_HELD_MAX
from tests.channels.matrix.people import Agent, Peer, channel_of, new_account, peer
from tests.channels.matrix.proxy import Proxy
from tests.channels.matrix.synapse import Synapse
from tests.gateway.stage import until
from tests.intake.town import ANN, BOB, EVE, HOME_OF_ANN, Town, town

EVES = "matrix:room:!eve:elsewhere.net"
STRANGERS_EVENTS = 5


def sealed() -> dict[str, Any]:
    """What nobody can decrypt."""
    return {
        "algorithm": "m.megolm.v1.aes-sha2",
        "ciphertext": secrets.token_hex(16),
        "sender_key": "A" * 43,
        "session_id": secrets.token_urlsafe(32),
        "device_id": "GONE",
    }


async def send_sealed(who: Peer, room_id: str) -> str:
    """Send something of which nobody has the key; return the id of that key."""
    path = f"/_matrix/client/v3/rooms/{room_id}/send/m.room.encrypted/{secrets.token_hex(8)}"
    content = sealed()
    assert "event_id" in await who.raw("PUT", path, content)
    return str(content["session_id"])


async def test_keys_are_asked_for_beside_and_for_those_who_are_kept(
    synapse: Synapse, home: Path, tmp_path: Path
) -> None:
    """No request for a stranger's event; one for a member's; and while that hangs, others are heard."""
    bot = new_account(synapse, "bot")
    async with peer(synapse, tmp_path) as ann, peer(synapse, tmp_path, "eve") as eve, Proxy(synapse.port) as proxy:
        kept: set[str] = set()
        held = HeldEvents([], lambda event_id: event_id in kept)
        async with Agent(channel_of(bot, proxy.url, home), held=held) as agent:
            room_id = await ann.open_room(bot.user_id, eve.user_id, encrypted=True, direct=False)
            await agent.come()
            plain_room = await ann.open_room(bot.user_id)
            await agent.come()
            await eve.client.join(room_id)
            proxy.hang = b"PUT /_matrix/client/v3/sendToDevice/m.room_key_request/"
            for _ in range(STRANGERS_EVENTS):
                await send_sealed(eve, room_id)
            for _ in range(STRANGERS_EVENTS):
                assert (await next_said(agent)).sender == eve.user_id
            await ann.say(plain_room, "one")
            assert (await next_said(agent)).text == "one"
            agent.keep = kept.add
            key = await send_sealed(ann, room_id)
            assert (await next_said(agent)).kind is EventKind.UNREADABLE
            await until(lambda: bool(proxy.hung))
            await ann.say(plain_room, "two")
            assert (await next_said(agent)).text == "two"
            (request,) = proxy.hung
            assert key.encode() in request, "a stranger's key was asked for"
            proxy.let.set()


async def next_said(agent: Agent) -> Any:  # noqa: ANN401
    """The next event that is no coming or going."""
    while (event := await agent.next()).kind in {EventKind.COMPANY, EventKind.LEFT}:
        pass
    return event


def raw_of(number: int) -> dict[str, Any]:
    """An event as the homeserver gives it."""
    return {"event_id": f"$e{number}", "content": {"session_id": f"s{number}"}}


def test_what_is_not_kept_is_forgotten() -> None:
    """Only what the record keeps stays in memory, and nothing of a sync that failed."""
    waiting = UnreadableEvents(HeldEvents([], lambda event_id: event_id == "$e1"))
    waiting.begin()
    waiting.came(raw_of(1))
    waiting.begin()
    for number in (1, 2):
        waiting.came(raw_of(number))
    assert [raw["event_id"] for raw in waiting.kept()] == ["$e1"]
    assert [raw["event_id"] for raw in waiting.due({"s1", "s2"})] == ["$e1"]
    waiting.done([raw_of(1)])
    assert waiting.due({"s1"}) == []


async def unreadable(here: Town, sender: str, chat: str, raw: str = "{}") -> bool:
    """Something unreadable comes; return whether it is kept."""
    event = here.event(sender=sender, chat=chat, kind=EventKind.UNREADABLE, raw=raw)
    held = await here.intake.held()
    await here.take(event)
    return held.keeps(event.id)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("size", [2, PERSON_HELD_BYTES_MAX // 4])
async def test_so_much_of_one_person_is_kept(home: Path, size: int) -> None:
    """Ann's events are bounded by count and by bytes; a stranger's are not kept at all; Bob's are, meanwhile."""
    raw = json.dumps("x" * (size - 2))
    fit = min(PERSON_HELD_MAX, PERSON_HELD_BYTES_MAX // size)
    async with town(home) as here:
        kept = [await unreadable(here, ANN, HOME_OF_ANN, raw) for _ in range(fit + 2)]
        assert kept == [True] * fit + [False, False]
        assert not await unreadable(here, EVE, EVES, raw)
        assert await unreadable(here, BOB, HOME_OF_ANN.replace("ann", "bob"), raw)
        assert len(here.at_home("intake.held")) == fit + 1
        here.clock.advance((HELD_DAYS_MAX + 1) * 86_400)
        assert await here.intake.held() == []
        assert await unreadable(here, ANN, HOME_OF_ANN, raw)
        await here.check()
