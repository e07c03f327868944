"""matrix-nio's Olm machine, which gives room keys only to whom `pins` allows, and takes a forwarded one from its maker.

By itself nio asks the writer of an unreadable event for the key and then refuses the answer, because it trusts only the
account's own devices. The device that made a key could have sent it in the first place: nobody new is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.channels.matrix.pins import Device

if TYPE_CHECKING:
    from hansard.channels.matrix.pins import Pins


def new_machine(user_id: str, device_id: str, store: Any, pins: Pins) -> Any:  # noqa: ANN401  # nio is untyped
    """Make the machine of a device from what its store holds."""
    from nio.crypto import Olm

    class Machine(Olm):  # type: ignore[misc]  # nio is untyped
        """The machine with these two rules."""

        def is_device_blacklisted(self, device: Any) -> bool:  # noqa: ANN401
            """Whether a device gets no room key."""
            known = Device(device.ed25519, device.curve25519)
            return not pins.may_have_keys(device.user_id, device.id, known) or bool(
                super().is_device_blacklisted(device)
            )

        def _should_accept_forward(self, sender: str, sender_key: str, event: Any) -> bool:  # noqa: ANN401
            """Whether a forwarded key is taken: asked for, and from its maker or one of our own trusted devices."""
            wanted = self.outgoing_key_requests.get(event.session_id)
            asked = wanted is not None and (wanted.room_id, wanted.algorithm) == (event.room_id, event.algorithm)
            if asked and event.source["content"].get("sender_key") == sender_key:
                return True
            return bool(super()._should_accept_forward(sender, sender_key, event))

    return Machine(user_id, device_id, store)
