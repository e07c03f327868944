"""What has to be known about a room before anything is said in it: who is there, and whether it is encrypted.

A room is asked for when it is first needed, and kept up to date by what syncs tell. So neither the start nor a message
costs more when the account is in many rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from hansard.channels.matrix.reading import ENCRYPTION, MEMBER
from hansard.channels.matrix.wire import HTTP_NOT_FOUND, error_of, path
from hansard.channels.values import Json, object_of, objects_of, text_of
from hansard.errors import ChannelDown, PostUnknown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.channels.matrix.crypto import Crypto
    from hansard.channels.matrix.wire import Wire

PRESENT: Final = frozenset({"join", "invite"})


class Room(msgspec.Struct, kw_only=True):
    """One room, as it is now. `members` are those who joined or are invited, with the names that they show."""

    agent: str
    members: dict[str, str]
    is_encrypted: bool

    @property
    def is_left(self) -> bool:
        """Whether the agent is no longer there. The members are then those of the moment when it left."""
        return self.agent not in self.members

    @property
    def is_direct(self) -> bool:
        """Whether only one person is there besides the agent.

        The flag that clients set on direct chats is not asked: it stays when a third person is invited, who would then
        sit in a chat in which the first one's history can be opened.
        """
        return len(self.members.keys() - {self.agent}) <= 1


class Rooms:
    """The rooms that were needed since the start."""

    def __init__(self, wire: Wire, crypto: Crypto) -> None:
        self._wire, self._crypto = wire, crypto
        self._known: dict[str, Room] = {}
        self._changed: set[str] = set()

    async def get(self, room_id: str) -> Room:
        """Return a room, asked for when it is not known yet."""
        while (room := self._known.get(room_id)) is None:
            self._changed.discard(room_id)
            loaded = await self._load(room_id)
            # A sync that came meanwhile may be newer than what was loaded.
            if room_id not in self._changed:
                self._known.setdefault(room_id, loaded)
        return room

    def take(self, room_id: str, events: Iterable[Json]) -> None:
        """Take what changed in a room."""
        room = self._known.get(room_id)
        for raw in events:
            kind = text_of(raw, "type")
            if "state_key" not in raw or kind not in {MEMBER, ENCRYPTION}:
                continue
            if kind == ENCRYPTION:
                self._crypto.remember_encrypted(room_id)
            self._changed.add(room_id)
            if room is not None:
                apply(room, raw)

    def forget(self, room_id: str) -> None:
        """Ask again before the room is next used."""
        self._known.pop(room_id, None)
        self._changed.add(room_id)

    async def _load(self, room_id: str) -> Room:
        what = "asking about a room"
        listed = await self._wire.ask(
            "GET", path("rooms", room_id, "members"), what=what, query={"not_membership": "leave"}
        )
        is_encrypted = room_id in self._crypto.encrypted_rooms
        if not is_encrypted:
            answer = await self._wire.try_ask("GET", path("rooms", room_id, "state", ENCRYPTION, ""), what=what)
            if answer.is_good:
                is_encrypted = True
                self._crypto.remember_encrypted(room_id)
            elif not (answer.status == HTTP_NOT_FOUND and answer.code == "M_NOT_FOUND"):
                # Nothing is sent in the clear on a guess.
                error = error_of(answer, what)
                raise ChannelDown(str(error)) if isinstance(error, PostUnknown) else error
        room = Room(agent=self._crypto.user_id, members={}, is_encrypted=is_encrypted)
        for raw in objects_of(listed, "chunk"):
            apply(room, raw)
        return room


def apply(room: Room, raw: Json) -> None:
    """Change a room as a state event says."""
    if text_of(raw, "type") == ENCRYPTION:
        room.is_encrypted = True
        return
    user_id, content = text_of(raw, "state_key"), object_of(raw, "content")
    if text_of(content, "membership") in PRESENT:
        room.members[user_id] = text_of(content, "displayname")
    else:
        room.members.pop(user_id, None)
