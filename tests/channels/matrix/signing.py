"""A person's identity (cross-signing), which matrix-nio's client does not have: three keys, and what they sign.

It shares no code with the product: Ed25519 by `cryptography`, canonical JSON by the standard library.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.channels.matrix.people import Peer

Json = dict[str, Any]


def unpadded(data: bytes) -> str:
    """Base64 as Matrix writes it."""
    return base64.b64encode(data).decode().rstrip("=")


def public(key: Ed25519PrivateKey) -> str:
    """The public half of a key, as Matrix writes it."""
    return unpadded(key.public_key().public_bytes_raw())


def signed(value: Json, user_id: str, key: Ed25519PrivateKey) -> Json:
    """An object with a signature added to those that it has."""
    bare = {name: field for name, field in value.items() if name not in {"signatures", "unsigned"}}
    data = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    signatures: Json = {each: dict(keys) for each, keys in value.get("signatures", {}).items()}
    signatures.setdefault(user_id, {})[f"ed25519:{public(key)}"] = unpadded(key.sign(data))
    return bare | {"signatures": signatures}


class PeerIdentity:
    """The identity of a person, on their homeserver."""

    def __init__(self, person: Peer) -> None:
        self._person, self._user_id = person, person.user_id
        self._keys = {usage: Ed25519PrivateKey.generate() for usage in ("master", "self_signing", "user_signing")}

    @property
    def master(self) -> str:
        """The public master key."""
        return public(self._keys["master"])

    async def publish(self) -> None:
        """Upload the public keys, in place of an identity of before."""
        body: Json = {}
        for usage, key in self._keys.items():
            document: Json = {
                "user_id": self._user_id,
                "usage": [usage],
                "keys": {f"ed25519:{public(key)}": public(key)},
            }
            body[f"{usage}_key"] = document
            if usage != "master":
                body[f"{usage}_key"] = signed(document, self._user_id, self._keys["master"])
        path = "/_matrix/client/v3/keys/device_signing/upload"
        answer = await self._person.raw("POST", path, body)
        if "flows" in answer:
            body["auth"] = {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": self._user_id},
                "password": self._person.account.password,
                "session": answer["session"],
            }
            answer = await self._person.raw("POST", path, body)
        assert answer == {}, answer

    async def sign_device(self, device_id: str) -> None:
        """Say that a device is this person's."""
        asked: Json = {"device_keys": {self._user_id: []}}
        keys = await self._person.raw("POST", "/_matrix/client/v3/keys/query", asked)
        device = signed(keys["device_keys"][self._user_id][device_id], self._user_id, self._keys["self_signing"])
        body = {self._user_id: {device_id: device}}
        answer = await self._person.raw("POST", "/_matrix/client/v3/keys/signatures/upload", body)
        assert not answer.get("failures"), answer


async def new_identity(person: Peer) -> PeerIdentity:
    """Give a person an identity that signs the device that they write with."""
    identity = PeerIdentity(person)
    await identity.publish()
    await identity.sign_device(person.client.device_id)
    return identity
