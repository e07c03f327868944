"""Who somebody is, as the settings say: their name, their standing, and whom their sessions belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.access import Standing
from hansard.domain.chats import parse_key, person_owner
from hansard.domain.people import ADMIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hansard.domain.settings import Person, Settings


class People:
    """What the settings say of people on one channel, ready to be asked for each message."""

    def __init__(self, settings: Settings, channel: str = "matrix") -> None:
        """Read the settings once: a message costs the same however many people there are."""
        self._names = {
            identity: name
            for name, person in settings.people.items()
            for where, identity in person.places()
            if where == channel
        }
        self._listed: frozenset[str] = frozenset(settings.channels.section(channel).allow)

    def name(self, identity: str) -> str:
        """Return a person's name; empty when the settings know none."""
        return self._names.get(identity, "")

    def standing(self, identity: str, chat: str) -> Standing:
        """Return what the settings say of somebody in a chat."""
        server = identity.partition(":")[2]
        if self._listed & {identity, self.name(identity) or identity, f"*:{server}"}:
            return Standing.LISTED
        return Standing.ROOM if parse_key(chat).place in self._listed else Standing.UNLISTED

    def owner(self, identity: str, chat: str, *, is_direct: bool) -> str:
        """Return whom a session belongs to that begins in a chat: the person, or the room."""
        key = parse_key(chat)
        return person_owner(key.channel, identity, self.name(identity)) if is_direct else key.room_owner


def terminal_owner(people: Mapping[str, Person]) -> str:
    """Return whose the terminal is."""
    return next((person_owner("", "", name) for name, person in people.items() if person.terminal), ADMIN)
