"""The identities of people: whose devices may have room keys, and whose events are their own.

A homeserver can add a device to anybody's account. A person's identity (cross-signing) tells which devices are theirs:
the master key signs the self-signing key, and that signs each device. The master key is pinned when it is first seen.

| the person has | devices that get room keys | their events are |
|---|---|---|
| no identity, and none is pinned | all that the homeserver names | taken as theirs |
| the pinned identity | those that it signed | theirs if a signed device wrote them |
| another identity than the pinned one, or none any more | none | not theirs, until the admin confirms the change |

Reads, writes: `identities.json`; reads `confirmed-….json`, which `hansard people confirm` writes.
Invariants: a pin is on the disk before it is used. Without a person's pinned identity nothing is sent to their devices.
On crash: what was not pinned is seen again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from hansard.channels import Json, list_of, object_of, text_of
from hansard.channels.matrix.identity import Identity, is_signed
from hansard.channels.matrix.keeping import Keeping, Pin
from hansard.errors import ConfigInvalid

logger = logging.getLogger(__name__)

NAMES_MAX: Final = 5
"""Of people whose identity changed, in the status. All of them are in `hansard people identities`."""
CHANGED: Final = (
    "The Matrix identity of {user} changed. Their devices get no keys, and what they write is not acted on, until you "
    "confirm it: hansard people identities"
)


class Trust(StrEnum):
    """How far a person's devices are known to be theirs."""

    OPEN = "open"
    """There is no identity: whichever devices the homeserver names count."""
    PINNED = "pinned"
    """Devices that the pinned identity signed count."""
    CHANGED = "changed"
    """The identity is not the pinned one: no device counts."""


class Device(NamedTuple):
    """A device as its person signed it."""

    ed25519: str
    curve25519: str


class Pins:
    """The identities of everybody whom one account shares encrypted rooms with."""

    def __init__(self, keeping: Keeping, own_user_id: str) -> None:
        self._keeping, self._own_user_id = keeping, own_user_id
        self._pins = keeping.pins()
        self._signed: dict[str, dict[str, Device]] = {}
        self._without: set[str] = set()
        self._own_master = ""

    def take_keys(self, users: Collection[str], answer: Json) -> None:
        """Take what the homeserver says of these people's keys. People whose server did not answer are left out."""
        pins, now = dict(self._pins), time.time()
        signed: dict[str, dict[str, Device]] = {}
        for user_id in users:
            master = public_key(object_of(answer, "master_keys", user_id), user_id, "master")
            if user_id == self._own_user_id:
                # The account's own identity is that of this home, whatever the homeserver says.
                seeds = self._keeping.seeds()
                master = self._own_master = Identity.of(seeds).master.public if seeds is not None else ""
            else:
                pin = seen_pin(pins.get(user_id), master, now)
                if pin is not None:
                    pins[user_id] = pin
                else:
                    self._without.add(user_id)
            signed[user_id] = signed_devices(answer, user_id, master)
        if pins != self._pins:
            self._keeping.keep_pins(pins)
            for user_id, pin in pins.items():
                if pin.is_changed and pin != self._pins.get(user_id):
                    logger.warning(CHANGED.format(user=user_id))
            self._pins = pins
        self._without -= pins.keys()
        self._signed.update(signed)

    def trust(self, user_id: str) -> Trust:
        """Return how far a person's devices are known to be theirs, now."""
        if user_id == self._own_user_id:
            return Trust.PINNED if self._own_master else Trust.OPEN
        pin = self._pins.get(user_id)
        if pin is not None and pin.is_changed:
            pin = self._confirmed(user_id, pin)
        if pin is None:
            return Trust.OPEN
        return Trust.CHANGED if pin.is_changed else Trust.PINNED

    def may_have_keys(self, user_id: str, device_id: str, device: Device) -> bool:
        trust = self.trust(user_id)
        return trust is Trust.OPEN or (trust is Trust.PINNED and self._signed.get(user_id, {}).get(device_id) == device)

    def vouches(self, user_id: str, device: Device) -> bool:
        """Return whether what a device wrote was written by its person, as far as anybody can know."""
        trust = self.trust(user_id)
        return trust is Trust.OPEN or (trust is Trust.PINNED and device in self._signed.get(user_id, {}).values())

    @property
    def note(self) -> str:
        """What the admin should know; empty when nothing."""
        changed = sorted(user_id for user_id in [*self._pins] if self.trust(user_id) is Trust.CHANGED)
        notes = []
        if changed:
            names = ", ".join(changed[:NAMES_MAX]) + (", …" if len(changed) > NAMES_MAX else "")
            notes.append(f"Matrix identities changed: {len(changed)} ({names}). See: hansard people identities")
        if self._without:
            notes.append(f"people without cross-signing, whose devices nobody checks: {len(self._without)}")
        return "; ".join(notes)

    def _confirmed(self, user_id: str, pin: Pin) -> Pin | None:
        """Return a person's pin after what the admin confirmed meanwhile; None when none is left."""
        pins = dict(self._pins)
        try:
            confirmation = self._keeping.confirmation(user_id)
            if confirmation is None or (confirmation.user_id, confirmation.master) != (user_id, pin.seen):
                return pin
            if pin.seen:
                pins[user_id] = msgspec.structs.replace(pin, master=pin.seen, since_seconds=time.time())
            else:
                del pins[user_id]
                self._without.add(user_id)
            self._keeping.keep_pins(pins)
        except (OSError, ConfigInvalid) as error:
            logger.warning("a confirmed identity cannot be taken up: %s", error)
            return pin
        self._pins = pins
        logger.warning("the changed Matrix identity of %s counts from now on: the admin confirmed it", user_id)
        return pins.get(user_id)


def seen_pin(pin: Pin | None, master: str, now: float) -> Pin | None:
    """Return a person's pin after their master key was seen; an empty one means that they have none."""
    if pin is None:
        return Pin(master=master, since_seconds=now, seen=master, seen_seconds=now) if master else None
    if pin.seen == master:
        return pin
    return msgspec.structs.replace(pin, seen=master, seen_seconds=now)


def public_key(document: Json, user_id: str, usage: str) -> str:
    """Return the public key of a cross-signing document; empty when it is not one of this person for this usage."""
    keys = [*object_of(document, "keys").items()]
    if text_of(document, "user_id") != user_id or usage not in list_of(document, "usage") or len(keys) != 1:
        return ""
    ((name, key),) = keys
    return key if isinstance(key, str) and key and name == f"ed25519:{key}" else ""


def signed_devices(answer: Json, user_id: str, master: str) -> dict[str, Device]:
    """Return the devices that a person's identity signed: by the self-signing key, and that by the master key."""
    document = object_of(answer, "self_signing_keys", user_id)
    self_signing = public_key(document, user_id, "self_signing")
    if not master or not self_signing or not is_signed(document, user_id, master):
        return {}
    found = {}
    for device_id in object_of(answer, "device_keys", user_id):
        device = object_of(answer, "device_keys", user_id, device_id)
        if (text_of(device, "user_id"), text_of(device, "device_id")) != (user_id, device_id):
            continue
        if is_signed(device, user_id, self_signing):
            keys = object_of(device, "keys")
            found[device_id] = Device(text_of(keys, f"ed25519:{device_id}"), text_of(keys, f"curve25519:{device_id}"))
    return found
