"""Chats and session keys: where something is said, in one text, and back. When a chat begins a new session by itself.

    chat          matrix:room:ID[:thread:ID]              telegram:chat:ID[:topic:ID]
                  NAME:chat:ID[:thread:ID] of any other channel, whose ids have no colons
    session key   the chat, plus :person:ID where a room keeps each person's conversation apart
    owner         person:NAME, person:matrix:@ann:example.org, room:matrix:!id:example.org,
                  room:matrix:!id:example.org:person:@ann:example.org of one person's conversations in a room

Ids of a platform hold colons themselves. A text is made only of ids with which it can be read back as what it was.

Resets are off until somebody sets them. They happen with the next message, never in between: nobody is told something
at night, and the last words can be answered until somebody says something else. Time is the record's own clock.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput

if TYPE_CHECKING:
    from hansard.domain.settings import Resets


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What a platform calls its places, and what the ids there look like."""

    place: str
    part: str
    place_id: str
    part_id: str
    person_id: str


GRAMMARS: Final = {
    "matrix": Grammar(place="room", part="thread", place_id=r"!\S+?", part_id=r"\$\S+?", person_id=r"@\S+"),
    "telegram": Grammar(place="chat", part="topic", place_id=r"-?[0-9]+", part_id=r"[0-9]+", person_id=r"[0-9]+"),
}

OTHER: Final = Grammar(place="chat", part="thread", place_id=r"[^\s:]+", part_id=r"[^\s:]+", person_id=r"[^\s:]+")
"""On channels that Hansard does not bring along. Ids without colons can be told apart whatever they are."""

OTHER_NAME: Final = r"[a-z][a-z0-9_]{0,31}"
OWN_NAMES: Final = frozenset({"person", "room", "terminal", "cli"})
"""Words that mean something else where a channel's name may stand."""


def is_channel(name: str) -> bool:
    return name in GRAMMARS or (re.fullmatch(OTHER_NAME, name) is not None and name not in OWN_NAMES)


def grammar_of(channel: str) -> Grammar:
    return GRAMMARS.get(channel, OTHER)


ROOM_PREFIX: Final = "room:"
PERSON_PREFIX: Final = "person:"
"""How a person's owner begins, and the author of what is said at the terminal: `person:NAME`. No platform's ids do."""


@cache
def owner_pattern_of(channel: str) -> re.Pattern[str]:
    """Return how a room's owner is read, by the same rule as a key: the shortest ids count."""
    grammar = grammar_of(channel)
    return re.compile(
        f"{ROOM_PREFIX}{channel}:(?P<place>{grammar.place_id})(?::person:(?P<person>{grammar.person_id}))?"
    )


@cache
def pattern_of(channel: str) -> re.Pattern[str]:
    """Return how a key of a channel is read. The shortest ids count, so that nothing hides in one."""
    grammar = grammar_of(channel)
    return re.compile(
        f"{channel}:{grammar.place}:(?P<place>{grammar.place_id})"
        f"(?::{grammar.part}:(?P<part>{grammar.part_id}))?(?::person:(?P<person>{grammar.person_id}))?"
    )


class SessionKey(msgspec.Struct, frozen=True, kw_only=True):
    """A session key. `place` is the room, `part` a thread of it, `person` whose conversation it is in a room."""

    channel: str
    place: str
    part: str = ""
    person: str = ""

    def __str__(self) -> str:
        grammar = grammar_of(self.channel)
        part = f":{grammar.part}:{self.part}" if self.part else ""
        person = f":person:{self.person}" if self.person else ""
        return f"{self.channel}:{grammar.place}:{self.place}{part}{person}"

    @property
    def chat(self) -> str:
        return str(msgspec.structs.replace(self, person=""))

    @property
    def room_owner(self) -> str:
        """Whom the sessions of this room belong to. A thread belongs to its room."""
        return f"{ROOM_PREFIX}{self.channel}:{self.place}"

    @property
    def person_room_owner(self) -> str:
        """Whom this person's sessions in this room belong to, where the room keeps them apart."""
        return f"{self.room_owner}:person:{self.person}" if self.person else self.room_owner


def parse_key(text: str) -> SessionKey:
    channel = text.partition(":")[0]
    found = pattern_of(channel).fullmatch(text) if is_channel(channel) else None
    if found is None:
        raise InvalidInput(f"not a chat: {text[:80]!r}")
    return SessionKey(channel=channel, place=found["place"], part=found["part"] or "", person=found["person"] or "")


def read_chat(text: str) -> SessionKey:
    """Return the chat that an admin writes: `matrix:!ROOM`, `!ROOM`, `telegram:NUMBER`, or the chat itself."""
    channel, _, rest = text.partition(":")
    if text.startswith("!"):
        return parse_key(f"matrix:room:{text}")
    if channel in GRAMMARS and re.fullmatch(GRAMMARS[channel].place_id, rest):
        return parse_key(f"{channel}:{GRAMMARS[channel].place}:{rest}")
    return parse_key(text)


def parse_owner(owner: str) -> SessionKey | None:
    """Return the room, and maybe the one person in it, whose sessions an owner has; None when the owner is no room."""
    channel = owner.removeprefix(ROOM_PREFIX).partition(":")[0]
    if not owner.startswith(ROOM_PREFIX) or not is_channel(channel):
        return None
    found = owner_pattern_of(channel).fullmatch(owner)
    if found is None:
        return SessionKey(channel=channel, place=owner.removeprefix(f"{ROOM_PREFIX}{channel}:"))
    return SessionKey(channel=channel, place=found["place"], part="", person=found["person"] or "")


def make_key(channel: str, place: str, part: str = "", person: str = "") -> str:
    """Return a session key, or without a person a chat; refuse ids with which it would say something else."""
    if not is_channel(channel):
        raise InvalidInput(f"{channel[:80]!r} is no name of a channel")
    key = SessionKey(channel=channel, place=place, part=part, person=person)
    text = clean_name(str(key), "a session key", NAME_CHARACTERS_MAX)
    if parse_key(text) != key:
        raise InvalidInput(f"these ids make no session key: {text[:200]!r}")
    return text


def key_in_chat(chat: str, person: str = "") -> str:
    key = parse_key(chat)
    return make_key(key.channel, key.place, key.part, person)


def person_owner(channel: str, identity: str, name: str = "") -> str:
    """Return whom a person's sessions belong to: a linked person has one history everywhere."""
    return f"{PERSON_PREFIX}{name}" if name else f"{PERSON_PREFIX}{channel}:{identity}"


def identity_of(owner: str) -> tuple[str, str] | None:
    """Return the channel and the account that a person's owner names; None for a name of the settings, or a room."""
    channel, _, identity = owner.removeprefix(PERSON_PREFIX).partition(":")
    return (channel, identity) if owner.startswith(PERSON_PREFIX) and identity and is_channel(channel) else None


def check_sender(identity: str) -> None:
    """Refuse a platform's event whose sender passes for the terminal's person, or for a room."""
    if identity.startswith((PERSON_PREFIX, ROOM_PREFIX)):
        raise InvalidInput(f"a platform calls nobody {identity[:80]!r}")


def message_id_of(channel: str, account: str, event_id: str) -> str:
    """Return the id of the message that a platform's event becomes: always the same one."""
    digest = hashlib.sha256(f"{channel}\n{account}\n{event_id}".encode()).hexdigest()
    return f"{channel}-{digest[:32]}"


def reply_id_of(message_id: str) -> str:
    return f"{message_id}-reply"


MINUTE_MICROSECONDS = 60_000_000


class Began(StrEnum):
    """Why a session follows another one in its chat."""

    NEW = "new"
    """Somebody asked for it."""
    IDLE = "idle"
    """Nothing had happened for a while."""
    DAILY = "daily"
    """A new day began, at the hour that was set."""
    OTHERS = "others"
    """Other people are in the chat now: what was said there to one person is not theirs to read."""
    PARTED = "parted"
    """The session is another person's: whoever it belongs to is no longer linked with whom the chat is with."""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the session that a chat is in."""

    messages: int
    active_at: int
    """When anything was last recorded in it."""
    led_since: int
    """Since when the chat leads to it."""
    has_turn: bool
    """Whether a turn runs or waits in it: then somebody is owed an answer there."""


def due(resting: Resting, resets: Resets, now: int) -> Began | None:
    """Return why a new session is due, or None. Times are in microseconds since 1970."""
    if resting.has_turn or not resting.messages:
        return None
    idle = resets.idle_minutes
    if idle is not None and now - resting.active_at >= idle * MINUTE_MICROSECONDS:
        return Began.IDLE
    hour = resets.daily_hour
    if hour is not None and resting.led_since < latest_hour(now, hour, resets.time_zone) <= now:
        return Began.DAILY
    return None


@lru_cache(maxsize=8)
def zone_of(name: str) -> tzinfo:
    """Return a time zone. The tables are loaded when a zone is used: most never are, and every command would wait."""
    zone: tzinfo = import_module("zoneinfo").ZoneInfo(name)
    return zone


def latest_hour(now: int, hour: int, time_zone: str) -> int:
    """Return when it was last that hour, on a clock of that zone.

    An hour that the clock skips in spring begins where it jumps to; one that it shows twice in autumn begins once,
    the first time.
    """
    zone = zone_of(time_zone)
    moment = datetime.fromtimestamp(now / 1_000_000, UTC)
    today = moment.astimezone(zone).date()
    for days in (0, 1, 2):
        start = datetime.combine(today - timedelta(days=days), datetime.min.time(), zone).replace(hour=hour, fold=0)
        began = round(start.astimezone(UTC).timestamp() * 1_000_000)
        if began <= now:
            return began
    return 0


class ChatRange(NamedTuple):
    """A range of chats by name: from the first up to, and without, the end."""

    first: str
    end: str


def chats_of(channel: str) -> ChatRange:
    """Return the range of a channel's chats: `matrix:` and whatever follows."""
    return ChatRange(f"{channel}:", f"{channel};")


def parts_of(chat: str) -> ChatRange:
    part = grammar_of(chat.partition(":")[0]).part
    return ChatRange(f"{chat}:{part}:", f"{chat}:{part};")
