"""People: what the settings say of them, circles of owners who are one person, codes that join circles, who asked.

A session belongs for ever to the owner under whom it was begun. Who may see it follows the **circle** of that owner:
all the owners who are one person now, because config.toml says so or because the person linked them. Joining and
parting change the circles, and no session.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from hansard.domain.access import HOUR_MICROSECONDS, Grant, Pace, Standing, Standpoint, Where, rank_of
from hansard.domain.chats import PERSON_PREFIX, grammar_of, is_channel, parse_key, person_owner
from hansard.domain.notices import Wording
from hansard.domain.settings import Person, Settings
from hansard.domain.text import shorten
from hansard.errors import InvalidInput

ADMIN: Final = "person:admin"
"""Who runs this Hansard, and talks to it in a terminal, unless the settings name somebody."""

CODE_MINUTES: Final = 10
"""For how long a code can be entered: the time to take up the other telephone."""

CODES_PER_HOUR_MAX: Final = 6
"""Codes that one person is shown in an hour."""

TRIES_PER_HOUR_MAX: Final = 5
"""Wrong codes of one person in an hour, after which none of theirs counts until it is over."""

CIRCLE_MAX: Final = 16
"""Owners who can be one person."""

QUOTED_CHARACTERS_MAX: Final = 600
"""Of words that were said elsewhere, where they are shown to the same person: a reminder, not the record."""

MATRIX_ID: Final = r"@[^\s:]+:\S+"
"""A person of Matrix, whole: a name and a server."""

ACCOUNT_FORMS: Final = "@name:server or matrix:@name:server, telegram:NUMBER or the number alone, or CHANNEL:NAME"
"""How an admin writes an account."""

OR_NAME: Final = "; or a name of [people]"
"""The same, where a name of the settings is taken as well."""

PLATFORMS: Final = {"matrix": "Matrix", "telegram": "Telegram"}
"""What people call them; another channel is called as in the settings."""


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code that a person was shown, to be entered where they are called something else."""

    owner: str
    """Whom it was shown to."""
    code: str
    expires_at: int
    identity: str = ""
    """What the platform calls them; empty in the terminal."""
    chat: str = ""
    """Where it was shown; empty in the terminal."""

    def is_good(self, now: int) -> bool:
        return now < self.expires_at


class Circle(NamedTuple):
    """Owners who are one person, and why: a name of config.toml, or, with an empty name, a link."""

    name: str
    owners: tuple[str, ...]


def named(people: Mapping[str, Person]) -> dict[str, tuple[str, ...]]:
    """Return whom the settings make one person, by name: that name, what platforms call it, maybe the terminal."""
    found = {name: owners_of(name, person) for name, person in sorted(people.items())}
    if "admin" not in people:
        return found
    return {name: tuple(each for each in owners if each != ADMIN or name == "admin") for name, owners in found.items()}


def owners_of(name: str, person: Person) -> tuple[str, ...]:
    elsewhere = [person_owner(*each) for each in person.places()]
    return tuple(dict.fromkeys((person_owner("", "", name), *elsewhere, *((ADMIN,) if person.terminal else ()))))


def read_identity(text: str, forms: str = ACCOUNT_FORMS) -> tuple[str, str]:
    """Return the channel and the identity that an admin writes: `@ann:example.org`, `12345`, or `CHANNEL:IDENTITY`.

    InvalidInput names the forms that the caller takes.
    """
    plain = text.isprintable() and not any(sign.isspace() for sign in text)
    if text.startswith("@"):
        channel, identity = "matrix", text
    elif text.isascii() and text.isdecimal():
        channel, identity = "telegram", text
    else:
        channel, _, identity = text.partition(":")
    wanted = MATRIX_ID if channel == "matrix" else grammar_of(channel).person_id
    if plain and is_channel(channel) and re.fullmatch(wanted, identity):
        return channel, identity
    raise InvalidInput(f"{text[:80]!r} is no person's name: write {forms}")


def is_person(owner: str) -> bool:
    return owner.startswith(PERSON_PREFIX)


def may_show_code(shown: Pace, now: int) -> bool:
    return shown.within(now, HOUR_MICROSECONDS) < CODES_PER_HOUR_MAX


def may_try(tried: Pace, now: int) -> bool:
    return tried.within(now, HOUR_MICROSECONDS) < TRIES_PER_HOUR_MAX


def called(owner: str) -> str:
    """Return an owner as people read it: `@ann:example.org on Matrix`, `the terminal`, `ann`."""
    rest = owner.removeprefix(PERSON_PREFIX)
    channel, _, identity = rest.partition(":")
    if identity and channel in PLATFORMS:
        return f"{identity} on {PLATFORMS[channel]}"
    return "the terminal" if owner == ADMIN else rest


def begun_in(source: str) -> str:
    return "in the terminal" if source == "cli" else f"on {PLATFORMS.get(source, source)}"


def quote_id(message_id: str, chat: str) -> str:
    """Return the id of the notice that shows a message elsewhere: one for each chat."""
    names = f"{message_id}\n{chat}".encode()
    return f"elsewhere-{hashlib.sha256(names).hexdigest()[:32]}"


def quoted(words: Wording, chat: str, text: str, files: int = 0) -> str:
    """Return what is shown, elsewhere and in these words, of what the same person said in a chat, or the terminal."""
    channel = chat.partition(":")[0]
    where = words.said_elsewhere.format(where=PLATFORMS.get(channel, channel)) if chat else words.said_at_terminal
    shown = text if len(text) <= QUOTED_CHARACTERS_MAX else shorten(text, QUOTED_CHARACTERS_MAX)
    lines = [*shown.splitlines(), *([words.said_files.format(count=files)] if files else [])]
    return "\n".join([where, *(f"> {line}" for line in lines)])


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
        server = identity.partition(":")[2]
        if self.name(identity) in self._listed.names or self._listed.accounts & {identity, f"*:{server}"}:
            return Standing.LISTED
        return Standing.ROOM if parse_key(chat).place in self._listed.accounts else Standing.UNLISTED

    def standpoint(self, identity: str, chat: str, grant: Grant, *, is_direct: bool) -> Standpoint:
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
    return next((person_owner("", "", name) for name, person in people.items() if person.terminal), ADMIN)


class How(StrEnum):
    """By what somebody asked for a turn."""

    MESSAGE = "message"
    RETRY = "retry"
    COMPACT = "compact"
    STEERING = "steering"
    RECOVERY = "recovery"
    """They asked for a turn that a crash ended, and this one goes on with it, or repeats it."""


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who asked for a turn: what the platform calls them (or `person:NAME` at the terminal), where, and how.

    Budgets come from this alone, rights from this and from who said what the turn answers (`conversation.needed_of`). A
    message without an author adds nobody.
    """

    person: str
    chat: str = ""
    how: How = How.MESSAGE

    @property
    def place(self) -> tuple[str, str]:
        """Who it is, and in which chat they asked."""
        return (self.person, self.chat)


def joined(before: tuple[By, ...], more: tuple[By, ...]) -> tuple[By, ...]:
    return tuple(dict.fromkeys((*before, *more)))


def recovered(by: tuple[By, ...]) -> tuple[By, ...]:
    """Return who asked for a turn that repeats a lost one, or goes on with it: the same people."""
    again = tuple(By(person=each.person, chat=each.chat, how=How.RECOVERY) for each in by)
    return joined(by, again)


def is_terminal_author(author: str) -> bool:
    return author.startswith(PERSON_PREFIX)


def asker_owner(person: str, chat: str) -> str:
    """Return under whose name what somebody asks for is counted; at the terminal that is the author itself."""
    return person if is_terminal_author(person) else person_owner(chat.partition(":")[0], person)
