"""One person, several places: circles of owners, and the codes by which people join them.

A session belongs for ever to the owner under whom it was begun. Who may see it follows the **circle** of that owner:
all the owners who are one person now, because config.toml says so or because the person linked them. Joining and
parting change the circles, and no session.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hansard.domain.access import HOUR_MICROSECONDS, Pace
from hansard.domain.chats import PERSON_PREFIX, grammar_of, is_channel, person_owner
from hansard.domain.text import shorten
from hansard.errors import InvalidInput

if TYPE_CHECKING:
    from hansard.domain.notices import Wording
    from hansard.domain.settings import Person

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
        """Return whether it can still be entered."""
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
    """Return all the owners that a person of the settings is."""
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
    message = f"{text[:80]!r} is no person's name: write {forms}"
    raise InvalidInput(message)


def is_person(owner: str) -> bool:
    """Return whether an owner is a person, and not a room."""
    return owner.startswith(PERSON_PREFIX)


def may_be_shown(shown: Pace, now: int) -> bool:
    """Return whether a person is shown another code."""
    return shown.within(now, HOUR_MICROSECONDS) < CODES_PER_HOUR_MAX


def may_try(tried: Pace, now: int) -> bool:
    """Return whether a person may enter another code."""
    return tried.within(now, HOUR_MICROSECONDS) < TRIES_PER_HOUR_MAX


def called(owner: str) -> str:
    """Return an owner as people read it: `@ann:example.org on Matrix`, `the terminal`, `ann`."""
    rest = owner.removeprefix(PERSON_PREFIX)
    channel, _, identity = rest.partition(":")
    if identity and channel in PLATFORMS:
        return f"{identity} on {PLATFORMS[channel]}"
    return "the terminal" if owner == ADMIN else rest


def begun_in(source: str) -> str:
    """Return where a session was begun, as people read it."""
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
