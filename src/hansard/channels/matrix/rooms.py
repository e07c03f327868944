"""What has to be known about a room before anything is said in it: who is there, and whether it is encrypted.

A room is asked for when it is first needed, and kept up to date by what syncs tell. So neither the start nor a message
costs more when the account is in many rooms.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import msgspec

from hansard.channels import Json, object_of, objects_of, remember, text_of
from hansard.channels.matrix.crypto import Crypto
from hansard.channels.matrix.reading import ENCRYPTION, MEMBER, RULES, VISIBILITY
from hansard.channels.matrix.wire import MatrixWire, asking_error_of, path

PRESENT: Final = frozenset({"join", "invite"})
INVITE: Final = "invite"
"""The only join rule by which nobody comes uninvited; a room without any has it, too."""
STATE_KINDS: Final = (MEMBER, ENCRYPTION, RULES, VISIBILITY)
MEMBERS_READ: Final = frozenset({"invited", "joined", "shared"})
"""The visibilities by which only members read."""
SHARED: Final = "shared"
"""The visibility of a room that names none."""
KNOWN_MAX: Final = 2000
"""Rooms that are remembered with their members, the last used ones; others are asked for again."""


class MatrixRoom(msgspec.Struct, kw_only=True):
    """One room, as it is now. `members` are those who joined or are invited, with the names that they show."""

    agent: str
    members: dict[str, str]
    is_encrypted: bool
    join_rule: str = INVITE
    history_visibility: str = SHARED

    @property
    def is_left(self) -> bool:
        """Whether the agent is no longer there. The members are then those of the moment when it left."""
        return self.agent not in self.members

    @property
    def is_direct(self) -> bool:
        """Whether only one person is there besides the agent, and nobody else can come or read uninvited.

        A chat that the person has just left counts, too: what was said in it was said to the agent alone.
        """
        is_private = self.join_rule == INVITE and self.history_visibility in MEMBERS_READ
        return is_private and len(self.members.keys() - {self.agent}) <= 1


class Load:
    """A room that is asked for. `is_stale`: it has changed since."""

    is_stale = False


class MatrixRooms:
    """The rooms that were needed last."""

    def __init__(self, wire: MatrixWire, crypto: Crypto) -> None:
        self._wire, self._crypto = wire, crypto
        self._known: dict[str, MatrixRoom] = {}
        self._loading: dict[str, list[Load]] = {}
        """Rooms that are asked for now."""

    async def get(self, room_id: str) -> MatrixRoom:
        while (room := self._known.pop(room_id, None)) is None:
            load = Load()
            self._loading.setdefault(room_id, []).append(load)
            try:
                loaded = await self._load(room_id)
            finally:
                self._loading[room_id].remove(load)
                if not self._loading[room_id]:
                    del self._loading[room_id]
            # A sync that came meanwhile may be newer than what was loaded.
            if not load.is_stale:
                self._known.setdefault(room_id, loaded)
        remember(self._known, room_id, room, KNOWN_MAX)
        return room

    def take_events(self, room_id: str, events: Iterable[Json]) -> None:
        room = self._known.get(room_id)
        for raw in events:
            kind = text_of(raw, "type")
            if "state_key" not in raw or kind not in STATE_KINDS:
                continue
            if kind == ENCRYPTION:
                self._crypto.remember_encrypted(room_id)
            self._outdate(room_id)
            if room is not None:
                apply(room, raw)

    def forget(self, room_id: str) -> None:
        """Ask again before the room is next used."""
        self._known.pop(room_id, None)
        self._outdate(room_id)

    def _outdate(self, room_id: str) -> None:
        """What is being loaded of a room may be older than what is known now."""
        for load in self._loading.get(room_id, ()):
            load.is_stale = True

    async def _load(self, room_id: str) -> MatrixRoom:
        what = "asking about a room"
        listed = await self._wire.ask(
            "GET", path("rooms", room_id, "members"), what=what, query={"not_membership": "leave"}
        )
        room = MatrixRoom(agent=self._crypto.user_id, members={}, is_encrypted=room_id in self._crypto.encrypted_rooms)
        if not room.is_encrypted and await self._state(room_id, ENCRYPTION) is not None:
            self._crypto.remember_encrypted(room_id)
            room.is_encrypted = True
        for kind in (RULES, VISIBILITY):
            apply(room, {"type": kind, "content": await self._state(room_id, kind) or {}})
        for raw in objects_of(listed, "chunk"):
            apply(room, raw)
        return room

    async def _state(self, room_id: str, kind: str) -> Json | None:
        """Return what a room's state says; None when it says nothing. A failure raises: a state is never guessed."""
        what = "asking about a room"
        answer = await self._wire.try_ask("GET", path("rooms", room_id, "state", kind, ""), what=what)
        if answer.is_good:
            return answer.body
        if answer.status == HTTPStatus.NOT_FOUND and answer.code == "M_NOT_FOUND":
            return None
        raise asking_error_of(answer, what)


def apply(room: MatrixRoom, raw: Json) -> None:
    kind, content = text_of(raw, "type"), object_of(raw, "content")
    if kind == ENCRYPTION:
        room.is_encrypted = True
    elif kind == RULES:
        room.join_rule = rule_of(content)
    elif kind == VISIBILITY:
        room.history_visibility = visibility_of(content)
    elif text_of(content, "membership") in PRESENT:
        room.members[text_of(raw, "state_key")] = text_of(content, "displayname")
    else:
        room.members.pop(text_of(raw, "state_key"), None)


def rule_of(content: Json) -> str:
    return text_of(content, "join_rule") or INVITE


def visibility_of(content: Json) -> str:
    return text_of(content, "history_visibility") or SHARED


def is_opening(raw: Json) -> bool:
    """Whether a state event lets others come or read uninvited who could not before."""
    now, before = object_of(raw, "content"), object_of(raw, "unsigned", "prev_content")
    if text_of(raw, "type") == RULES:
        return rule_of(now) != INVITE and rule_of(before) == INVITE
    if text_of(raw, "type") == VISIBILITY:
        return visibility_of(now) not in MEMBERS_READ and visibility_of(before) in MEMBERS_READ
    return False
