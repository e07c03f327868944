"""What a stranger sees of the agent's keys, checked without any code of the product."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hansard.channels.matrix.keeping import Keeping, Login
from tests.channels.matrix.people import Account, Peer


def unpadded(text: str) -> bytes:
    """Base64 as Matrix writes it."""
    return base64.b64decode(text + "=" * (-len(text) % 4))


def verified(value: dict[str, Any], user_id: str, key_id: str, public: str) -> bool:
    """Check a signature without any code of the product: canonical JSON by the standard library."""
    bare = {name: field for name, field in value.items() if name not in {"signatures", "unsigned"}}
    data = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    signature = value["signatures"][user_id][f"ed25519:{key_id}"]
    Ed25519PublicKey.from_public_bytes(unpadded(public)).verify(unpadded(signature), data)
    return True


async def queried(ann: Peer, bot: Account) -> dict[str, Any]:
    """What the homeserver tells a stranger about the agent's keys."""
    found: dict[str, Any] = await ann.raw("POST", "/_matrix/client/v3/keys/query", {"device_keys": {bot.user_id: []}})
    return found


def only_key(document: dict[str, Any]) -> str:
    """The public key of a cross-signing document."""
    (key,) = document["keys"].values()
    return str(key)


async def signed_devices(ann: Peer, bot: Account) -> set[str]:
    """The agent's devices for which the chain device → self-signing → master holds."""
    keys = await queried(ann, bot)
    master = only_key(keys["master_keys"][bot.user_id])
    own = keys["self_signing_keys"][bot.user_id]
    assert verified(own, bot.user_id, master, master)
    devices = keys["device_keys"][bot.user_id].items()
    return {
        device_id
        for device_id, device in devices
        if f"ed25519:{only_key(own)}" in device["signatures"][bot.user_id]
        and verified(device, bot.user_id, only_key(own), only_key(own))
        and verified(device, bot.user_id, device_id, device["keys"][f"ed25519:{device_id}"])
    }


async def until_signed_anew(person: Peer, bot: Account, home: Path, before: Login) -> Login:
    """Wait until the agent has another device, as a stranger would see it; return its login."""
    async with asyncio.timeout(60):
        while True:
            login = Keeping(home).login()
            if login is not None and login.device_id != before.device_id:
                devices = await signed_devices(person, bot)
                if login.device_id in devices and before.device_id not in devices:
                    return login
            await asyncio.sleep(0.05)


async def published_keys(person: Peer, bot: Account, device_id: str) -> dict[str, str]:
    """Return the keys by which a stranger knows a device of the agent; empty when there is no such device."""
    found = await person.raw("POST", "/_matrix/client/v3/keys/query", {"device_keys": {bot.user_id: []}})
    keys: dict[str, str] = found["device_keys"].get(bot.user_id, {}).get(device_id, {}).get("keys", {})
    return keys
