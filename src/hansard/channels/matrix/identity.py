"""The account's identity: master, self-signing and user-signing key, and their signatures (cross-signing).

Clients refuse to talk to devices that their owner has not signed, and matrix-nio does not sign. This is the whole of
it, over the client-server API, with Ed25519 by `cryptography` (channels/DESIGN.md says why so).

Reads, writes: the account's keys and secret storage on the homeserver; `cross-signing.json` and `recovery-key`.
Invariants: the private keys are on the disk before the public ones are on the homeserver. An identity that others have
seen is never replaced unless a person asked for that.
On crash: the next start goes on where this one stopped; each step looks first at what is there.
"""

from __future__ import annotations

import logging
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hansard.channels import Json, canonical, list_of, object_of, objects_of, text_of
from hansard.channels.matrix import secret_storage
from hansard.channels.matrix.keeping import CrossSigningSeeds, Keeping
from hansard.channels.matrix.secret_storage import decode, encode
from hansard.channels.matrix.wire import MatrixWire, error_of, path
from hansard.errors import ChannelDown, ConfigInvalid

if TYPE_CHECKING:
    from hansard.channels.matrix.crypto import Crypto

logger = logging.getLogger(__name__)

USAGES: Final = ("master", "self_signing", "user_signing")
DEFAULT_KEY: Final = "m.secret_storage.default_key"

NO_SEEDS: Final = (
    "The account {user} has an identity (cross-signing keys) that this home does not know, so its device stays "
    "unverified. Give its recovery key in HANSARD_MATRIX_RECOVERY_KEY; or let Hansard make a new identity: set "
    "HANSARD_MATRIX_NEW_IDENTITY=yes and HANSARD_MATRIX_PASSWORD, once."
)
OTHER_MASTER: Final = (
    "The identity of {user} was replaced elsewhere, so its device is no longer verified. Move "
    "`matrix/cross-signing.json` and `matrix/recovery-key` of the home aside, and give the new recovery key in "
    "HANSARD_MATRIX_RECOVERY_KEY."
)
PERSON_WANTED: Final = (
    "The homeserver wants the password before it takes the keys of {user}, and there is only an access token. "
    "Set HANSARD_MATRIX_PASSWORD once; it is not needed afterwards."
)


class IdentityKey:
    """One Ed25519 key of the identity."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = encode(self._private.public_key().public_bytes_raw())

    def sign(self, value: Json) -> str:
        return encode(self._private.sign(canonical(bare(value))))


def bare(value: Json) -> Json:
    return {name: field for name, field in value.items() if name not in {"signatures", "unsigned"}}


def is_signed(value: Json, user_id: str, public: str, key_id: str = "") -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = text_of(value, "signatures", user_id, f"ed25519:{key_id or public}")
    try:
        Ed25519PublicKey.from_public_bytes(decode(public)).verify(decode(signature), canonical(bare(value)))
    except (InvalidSignature, ValueError):
        return False
    return True


class Identity(NamedTuple):
    """The three keys."""

    master: IdentityKey
    self_signing: IdentityKey
    user_signing: IdentityKey

    @classmethod
    def of(cls, seeds: CrossSigningSeeds) -> Identity:
        return cls(*(IdentityKey(decode(seed)) for seed in (seeds.master, seeds.self_signing, seeds.user_signing)))

    def documents(self, user_id: str) -> Json:
        """The public halves as they are published, those below the master key signed by it."""
        made: Json = {}
        for usage, key in zip(USAGES, self, strict=True):
            document: Json = {"user_id": user_id, "usage": [usage], "keys": {f"ed25519:{key.public}": key.public}}
            if usage != "master":
                document["signatures"] = {user_id: {f"ed25519:{self.master.public}": self.master.sign(document)}}
            made[f"{usage}_key"] = document
        return made


def public_of(own_keys: Json, usage: str, user_id: str) -> str:
    """The public key that the homeserver tells about a user; empty when there is none."""
    keys = object_of(own_keys, f"{usage}_keys", user_id, "keys")
    return next((key for key in keys.values() if isinstance(key, str)), "")


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave for the account."""

    password: str = ""
    recovery_key: str = ""
    wants_new_identity: bool = False


class Signer:
    """Sees that the account has an identity, that it vouches for this device, and that a person can restore it."""

    def __init__(self, wire: MatrixWire, crypto: Crypto, keeping: Keeping, given: Secrets) -> None:
        self._wire, self._crypto, self._keeping, self._given = wire, crypto, keeping, given
        self._user_id, self._device_id = crypto.user_id, crypto.device_id

    async def ensure(self) -> None:
        """Do what is missing. What a person has to do is raised: ConfigInvalid, InvalidInput."""
        own = await self._crypto.own_keys()
        published = public_of(own, "master", self._user_id)
        seeds = self._keeping.seeds()
        if seeds is None and published and not self._given.wants_new_identity:
            seeds = await self._restored(published)
            if seeds is None:
                raise ConfigInvalid(NO_SEEDS.format(user=self._user_id))
        if seeds is None:
            seeds = CrossSigningSeeds(**{usage: encode(secrets.token_bytes(32)) for usage in USAGES})
            if not self._keeping.recovery_key():
                new_key = secrets.token_bytes(secret_storage.KEY_BYTES)
                self._keeping.keep_recovery_key(secret_storage.recovery_text(new_key))
            self._keeping.keep_seeds(seeds)
        identity = Identity.of(seeds)
        if published and published != identity.master.public and not self._given.wants_new_identity:
            raise ConfigInvalid(OTHER_MASTER.format(user=self._user_id))
        if any(public_of(own, usage, self._user_id) != key.public for usage, key in zip(USAGES, identity, strict=True)):
            await self._publish(identity)
            own = await self._crypto.own_keys()
        await self._sign(identity, own)
        await self._store(seeds)

    async def _publish(self, identity: Identity) -> None:
        """Upload the public keys. Homeservers ask for the password, at the latest when keys are replaced."""
        what = "publishing the account's identity"
        body = identity.documents(self._user_id)
        # Vouched for by the device, so that those who trusted the device can trust the identity.
        body["master_key"] = self._with(body["master_key"], self._device_id, self._crypto.sign(body["master_key"]))
        target = path("keys", "device_signing", "upload")
        answer = await self._wire.try_ask("POST", target, body, what=what)
        if answer.status == HTTPStatus.UNAUTHORIZED and "flows" in answer.body:
            stages = [list_of(flow, "stages") for flow in objects_of(answer.body, "flows")]
            if not self._given.password or ["m.login.password"] not in stages:
                raise ConfigInvalid(PERSON_WANTED.format(user=self._user_id))
            body["auth"] = {
                "type": "m.login.password",
                "identifier": {"type": "m.id.user", "user": self._user_id},
                "password": self._given.password,
                "session": text_of(answer.body, "session"),
            }
            answer = await self._wire.try_ask("POST", target, body, what=what)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                raise ConfigInvalid(f"The homeserver refuses the password of {self._user_id}.")
        if not answer.is_good:
            raise ChannelDown(str(error_of(answer, what)))

    async def _sign(self, identity: Identity, own: Json) -> None:
        """Sign the device with the self-signing key, and the master key with the device, where that is missing."""
        device = object_of(own, "device_keys", self._user_id, self._device_id)
        master = object_of(own, "master_keys", self._user_id)
        upload: Json = {}
        if not is_signed(device, self._user_id, identity.self_signing.public):
            upload[self._device_id] = self._with(
                device, identity.self_signing.public, identity.self_signing.sign(device)
            )
        if not is_signed(master, self._user_id, self._crypto.identity_keys["ed25519"], self._device_id):
            upload[identity.master.public] = self._with(master, self._device_id, self._crypto.sign(bare(master)))
        if not upload:
            return
        answer = await self._wire.ask(
            "POST", path("keys", "signatures", "upload"), {self._user_id: upload}, what="signing the device"
        )
        if object_of(answer, "failures"):
            raise ChannelDown("signing the device: the homeserver does not take the signature")

    def _with(self, value: Json, key_id: str, signature: str) -> Json:
        return bare(value) | {"signatures": {self._user_id: {f"ed25519:{key_id}": signature}}}

    async def _account_data(self, kind: str) -> Json:
        what = "reading the account's secret storage"
        target = path("user", self._user_id, "account_data", kind)
        answer = await self._wire.try_ask("GET", target, what=what)
        if answer.status == HTTPStatus.NOT_FOUND:
            return {}
        if not answer.is_good:
            raise ChannelDown(str(error_of(answer, what)))
        return answer.body

    async def _described_key(self) -> tuple[str, Json]:
        """Return the id of the secret storage's key, and what is known of that key; both empty when there is none."""
        key_id = text_of(await self._account_data(DEFAULT_KEY), "key")
        return key_id, await self._account_data(f"m.secret_storage.key.{key_id}") if key_id else {}

    async def _keep_account_data(self, kind: str, content: Json) -> None:
        target = path("user", self._user_id, "account_data", kind)
        await self._wire.ask("PUT", target, content, what="writing the account's secret storage")

    async def _restored(self, published: str) -> CrossSigningSeeds | None:
        """Read the private keys from the secret storage, if the recovery key is given and opens it."""
        text = self._given.recovery_key or self._keeping.recovery_key()
        if not text:
            return None
        key = secret_storage.recovery_key(text)
        key_id, described = await self._described_key()
        if not secret_storage.opens(key, described):
            raise ConfigInvalid(f"The recovery key is not that of {self._user_id}.")
        found: dict[str, str] = {}
        for usage in USAGES:
            name = f"m.cross_signing.{usage}"
            sealed = object_of(await self._account_data(name), "encrypted", key_id)
            secret = secret_storage.unseal(key, name, sealed)
            if secret is None:
                raise ConfigInvalid(f"The secret storage of {self._user_id} does not hold its {usage} key.")
            found[usage] = secret.decode()
        seeds = CrossSigningSeeds(**found)
        if Identity.of(seeds).master.public != published:
            raise ConfigInvalid(f"The secret storage of {self._user_id} holds the keys of an older identity.")
        self._keeping.keep_recovery_key(text)
        self._keeping.keep_seeds(seeds)
        return seeds

    async def _store(self, seeds: CrossSigningSeeds) -> None:
        """Put the private keys into the secret storage, so that the recovery key is enough for a new home."""
        text = self._keeping.recovery_key()
        if not text:
            return
        key = secret_storage.recovery_key(text)
        key_id, described = await self._described_key()
        if not described or not secret_storage.opens(key, described):
            if described and not self._given.wants_new_identity:
                logger.warning("the account's secret storage has another recovery key; it is left as it is")
                return
            key_id = secrets.token_urlsafe(24)
            await self._keep_account_data(f"m.secret_storage.key.{key_id}", secret_storage.description(key))
            await self._keep_account_data(DEFAULT_KEY, {"key": key_id})
        for usage, seed in msgspec.structs.asdict(seeds).items():
            name = f"m.cross_signing.{usage}"
            kept = await self._account_data(name)
            if secret_storage.unseal(key, name, object_of(kept, "encrypted", key_id)) != seed.encode():
                entries = object_of(kept, "encrypted") | {key_id: secret_storage.seal(key, name, seed.encode())}
                await self._keep_account_data(name, {"encrypted": entries})
