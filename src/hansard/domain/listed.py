"""Who somebody is, as the settings say: their name, their standing, and whom their sessions belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.access import Standing, rank_of
from hansard.domain.chats import parse_key, person_owner
from hansard.domain.people import ADMIN
from hansard.domain.ranks import Standpoint, Where

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from hansard.domain.access import Grant
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
        self._admins = frozenset(name for name, person in settings.people.items() if person.terminal)
        self._listed = listed_in(channel, settings.channels.section(channel).allow, settings.people)

    def name(self, identity: str) -> str:
        """Return a person's name; empty when the settings know none."""
        return self._names.get(identity, "")

    def standing(self, identity: str, chat: str) -> Standing:
        """Return what the settings say of somebody in a chat."""
        server = identity.partition(":")[2]
        if self.name(identity) in self._listed.names or self._listed.accounts & {identity, f"*:{server}"}:
            return Standing.LISTED
        return Standing.ROOM if parse_key(chat).place in self._listed.accounts else Standing.UNLISTED

    def standpoint(self, identity: str, chat: str, grant: Grant, *, is_direct: bool) -> Standpoint:
        """Return what somebody is in a chat, and what kind of a place that is."""
        found = rank_of(self.standing(identity, chat), grant, is_admin=self.name(identity) in self._admins)
        where = Where.DIRECT if is_direct else Where.THREAD if parse_key(chat).part else Where.ROOM
        return Standpoint(found, where)

    def owner(self, identity: str, key: str, *, is_direct: bool) -> str:
        """Return whom a session belongs to that begins in a chat: the person, the room, or the person in that room."""
        found = parse_key(key)
        if is_direct:
            return person_owner(found.channel, identity, self.name(identity))
        return found.person_room_owner


class Listed(NamedTuple):
    """Who is on the list `allow`: names of the settings, and ids of the platform. Neither is taken for the other."""

    names: frozenset[str]
    accounts: frozenset[str]
    """Of people, of servers with `*:`, and of rooms."""


def listed_in(channel: str, allow: Iterable[str], people: Collection[str]) -> Listed:
    """Return whom a list means. A name of [people] is never an account; CHANNEL:ID is always one.

    On Telegram a number is an account, whatever the people of the settings are called.
    """
    names = frozenset(each for each in allow if each in people and not (channel == "telegram" and each.isdecimal()))
    return Listed(names, frozenset(each.removeprefix(f"{channel}:") for each in allow if each not in names))


def terminal_owner(people: Mapping[str, Person]) -> str:
    """Return whose the terminal is."""
    return next((person_owner("", "", name) for name, person in people.items() if person.terminal), ADMIN)
