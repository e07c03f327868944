"""On a real homeserver: a guest's threads and undecryptable events, and an owner who is answered meanwhile."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from urllib.parse import quote

import pytest

from hansard.domain.settings import Channels, Settings, TurnLimits
from hansard.domain.settings.channels import Matrix
from hansard.gateway.process import Gateway
from hansard.record.api import Record
from tests.channels.matrix.people import Peer, channel_of, new_account, peer
from tests.channels.matrix.synapse import SERVER_NAME, Synapse
from tests.counts import times
from tests.gateway.matrix_stage import joined
from tests.gateway.stage import TIMING, app_with, until
from tests.security.crowd import Doors

THREADS = times(test=5, long=20, prove=100)


async def write_in_threads(guest: Peer, room_id: str) -> None:
    """Write in many threads; beside each, send something that nobody can decrypt."""
    for number in range(THREADS):
        root = await guest.send(room_id, {"body": "a root"}, kind="org.example.root")
        thread = {"m.relates_to": {"rel_type": "m.thread", "event_id": root}}
        await guest.say(room_id, f"guest {number}", **thread)
        unreadable = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "ciphertext": secrets.token_urlsafe(60),
            "sender_key": secrets.token_urlsafe(32),
            "session_id": secrets.token_urlsafe(32),
            "device_id": "LOST",
        }
        place = f"/_matrix/client/v3/rooms/{quote(room_id)}/send/m.room.encrypted/{number}"
        await guest.raw("PUT", place, unreadable)


@pytest.mark.drawn(2, "synapse")
async def test_a_guest_on_a_homeserver(synapse: Synapse, home: Path, tmp_path: Path) -> None:
    """The guest has two turns that do not end; the owner's begins, is answered and shown before any other of theirs."""
    model, account = Doors(), new_account(synapse, "agent")
    settings = Settings(
        limits=TurnLimits(person_sessions_hour_max=10_000),
        channels=Channels(matrix=Matrix(allow=(f"*:{SERVER_NAME}",))),
    )
    channel = channel_of(account, synapse.url, home)
    async with (
        peer(synapse, tmp_path, "guest") as guest,
        peer(synapse, tmp_path, "owner") as owner,
        Record.open(home) as record,
        app_with(record, settings, model) as app,
    ):
        stop = asyncio.Event()
        task = asyncio.create_task(Gateway(app, [channel], TIMING).run(stop))
        try:
            theirs, own = await guest.open_room(account.user_id), await owner.open_room(account.user_id)
            await joined(guest, theirs, account.user_id)
            await joined(owner, own, account.user_id)
            await write_in_threads(guest, theirs)
            await until(lambda: app.runner.waiting == THREADS - 2)
            await until(lambda: len(model.begun) == 2)
            await owner.say(own, "owner")
            await until(lambda: len(model.begun) == 3)
            assert model.begun[2] == "owner"
            model.let(3)
            await owner.hears(own, account.user_id, "to owner")
            model.let(THREADS)
            await until(lambda: not app.runner.busy)
        finally:
            stop.set()
            await asyncio.wait({task})
        task.result()
        assert (model.most["guest"], len(model.begun)) == (2, THREADS + 1)
        assert (await record.verify()).ok
