"""Telling devices that do not get a room's key why: `m.room_key.withheld`. A courtesy, for clients that show it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from hansard.channels.matrix.pins import Trust
from hansard.errors import ChannelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from hansard.channels.matrix.pins import Pins
    from hansard.channels.values import Json

logger = logging.getLogger(__name__)

WITHHELD_MAX: Final = 1000
"""Devices that are told why they do not get one key."""
REASONS: Final = {
    Trust.OPEN: "",
    Trust.PINNED: "This device is not verified by its owner, so it gets no keys. Verify it from another device.",
    Trust.CHANGED: "Your identity changed since this agent first saw it. Its admin has to confirm the new one.",
}


class Withholding:
    """Who was told so far, by room and key."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins
        self._told: dict[str, tuple[str, set[tuple[str, str]]]] = {}

    async def tell(
        self,
        room_id: str,
        machine: Any,  # noqa: ANN401  # nio is untyped
        refused: Iterable[Any],
        send: Callable[[str, Json], Awaitable[None]],
    ) -> None:
        """Tell devices of a room's present key, unless they were told before."""
        session, sender_key = machine.outbound_group_sessions[room_id], machine.account.identity_keys["curve25519"]
        messages = self._messages(room_id, session, sender_key, refused)
        if messages:
            try:
                await send("m.room_key.withheld", {"messages": messages})
            except ChannelError as error:
                logger.warning("devices could not be told why they get no key: %s", error)

    def forget_room(self, room_id: str) -> None:
        """Forget who was told of a room's key."""
        self._told.pop(room_id, None)

    def _messages(self, room_id: str, session: Any, sender_key: str, refused: Iterable[Any]) -> Json:  # noqa: ANN401
        """Return what devices are to be told that were not told before, by user and device."""
        session_id, told = self._told.get(room_id, ("", set()))
        if session_id != session.id:
            told = set()
        self._told[room_id] = (session.id, told)
        withheld = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "room_id": room_id,
            "session_id": session.id,
            "sender_key": sender_key,
            "code": "m.unverified",
        }
        messages: Json = {}
        for device in refused:
            if (device.user_id, device.id) not in told and len(told) < WITHHELD_MAX:
                told.add((device.user_id, device.id))
                reason = REASONS[self._pins.trust(device.user_id)]
                messages.setdefault(device.user_id, {})[device.id] = withheld | {"reason": reason}
        return messages
