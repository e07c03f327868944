"""matrix-nio's Olm machine, which gives room keys only to whom `pins` allows, and takes a forwarded one from its maker.

By itself nio asks the writer of an unreadable event for the key and then refuses the answer, because it trusts only the
account's own devices. The device that made a key could have sent it in the first place: nobody new is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hansard.channels import Json
from hansard.channels.matrix.pins import Device, Pins


def new_fallback_keys(machine: Any, kind: str) -> Json:  # noqa: ANN401
    """Return a key for those who come when all one-time keys are used up. nio's account does not offer them yet."""
    account = machine.account._account  # noqa: SLF001  # the only way to it
    account.generate_fallback_key()
    keys: Json = {}
    for name, key in account.fallback_key.items():
        value: Json = {"key": key.to_base64(), "fallback": True}
        value["signatures"] = {machine.user_id: {f"ed25519:{machine.device_id}": machine.sign_json(value)}}
        keys[f"{kind}:{name}"] = value
    return keys


def queue_key_request(machine: Any, room_id: str, raw: Json) -> None:  # noqa: ANN401
    """Ask for the missing room key of an event, once: the device that wrote the event, and our own others."""
    from nio.events import Event, MegolmEvent

    event: Any = Event.parse_event(raw)
    if not isinstance(event, MegolmEvent):
        return
    event.room_id = room_id
    waiting = {getattr(message, "request_id", "") for message in machine.outgoing_to_device_messages}
    if event.session_id not in waiting | machine.outgoing_key_requests.keys():
        machine.outgoing_to_device_messages += [
            event.as_key_request(machine.user_id, machine.device_id),
            event.as_key_request(event.sender, machine.device_id, None, event.device_id),
        ]


def read_event(machine: Any, room_id: str, raw: Json) -> Json | None:  # noqa: ANN401
    """Return the event that was encrypted, or None when its key is missing."""
    from nio.events import Event, MegolmEvent
    from nio.exceptions import EncryptionError

    event: Any = Event.parse_event(raw)
    if not isinstance(event, MegolmEvent):
        return None
    try:
        plain: Any = machine.decrypt_megolm_event(event, room_id)
    except EncryptionError:
        return None
    source = getattr(plain, "source", None)
    if not isinstance(source, dict) or source.get("room_id") != room_id:
        return None
    # The envelope is the homeserver's; only type and content were encrypted.
    return raw | {"type": source.get("type"), "content": source.get("content")}


def new_machine(user_id: str, device_id: str, store: Any, pins: Pins) -> Any:  # noqa: ANN401  # nio is untyped
    from nio.crypto import Olm

    class Machine(Olm):  # type: ignore[misc]  # nio is untyped
        """The machine with these rules."""

        def may_have_keys(self, device: Any) -> bool:  # noqa: ANN401
            return pins.may_have_keys(device.user_id, device.id, Device(device.ed25519, device.curve25519))

        def is_device_blacklisted(self, device: Any) -> bool:  # noqa: ANN401
            return not self.may_have_keys(device) or bool(super().is_device_blacklisted(device))

        def get_missing_sessions(self, users: list[str]) -> dict[str, list[str]]:
            """The devices that may have keys and cannot be sent any yet."""
            missing: dict[str, list[str]] = super().get_missing_sessions(users)
            store = self.device_store
            kept = {user: [i for i in ids if self.may_have_keys(store[user][i])] for user, ids in missing.items()}
            return {user: ids for user, ids in kept.items() if ids}

        def other_devices(self, user: str) -> Iterable[Any]:
            own = (self.user_id, self.device_id)
            return (each for each in self.device_store.active_user_devices(user) if (user, each.id) != own)

        def _should_accept_forward(self, sender: str, sender_key: str, event: Any) -> bool:  # noqa: ANN401
            """Whether a forwarded key is taken: asked for, and from its maker or one of our own trusted devices."""
            wanted = self.outgoing_key_requests.get(event.session_id)
            asked = wanted is not None and (wanted.room_id, wanted.algorithm) == (event.room_id, event.algorithm)
            if asked and event.source["content"].get("sender_key") == sender_key:
                return True
            return bool(super()._should_accept_forward(sender, sender_key, event))

    return Machine(user_id, device_id, store)
