"""Who may do what: pure rules over what the settings and the record say of somebody.

Nobody may talk to the agent until allowed: by name, by server or by room in the settings, or by a code that the admin
approved. What the admin revoked stays revoked, whatever the settings say.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from hansard.domain.ids import ALPHABET
from hansard.domain.ranks import Rank
from hansard.domain.settings import Pairing

CODE_CHARACTERS: Final = 8
"""Of an alphabet of 30: nobody guesses one of 656 thousand million in the tries that there are."""

CODE_GROUP_CHARACTERS: Final = 4

SECOND_MICROSECONDS: Final = 1_000_000
HOUR_MICROSECONDS: Final = 3600 * SECOND_MICROSECONDS
DAY_MICROSECONDS: Final = 24 * HOUR_MICROSECONDS


class Standing(StrEnum):
    """What the settings say of somebody in a chat."""

    LISTED = "listed"
    """The person is on the list, by name or by server."""
    ROOM = "room"
    """The room is on the list, not the person."""
    UNLISTED = "unlisted"


class Grant(StrEnum):
    """What the record says of somebody."""

    NONE = "none"
    ASKED = "asked"
    ALLOWED = "allowed"
    REVOKED = "revoked"


class Action(StrEnum):
    """What somebody may want."""

    TALK = "talk"
    COMMAND = "command"
    CHANGE = "change"
    """Edit or delete what they themselves had said."""
    BE_OBSERVED = "be_observed"
    """Have what they say to others recorded, where that is set."""
    INVITE = "invite"
    """Bring the agent into a chat."""
    ASK = "ask"
    """Be shown a code for the admin."""


MAY: Final = {
    Rank.ADMIN: frozenset({Action.TALK, Action.COMMAND, Action.CHANGE, Action.BE_OBSERVED, Action.INVITE}),
    Rank.MEMBER: frozenset({Action.TALK, Action.COMMAND, Action.CHANGE, Action.BE_OBSERVED, Action.INVITE}),
    Rank.GUEST: frozenset({Action.TALK, Action.COMMAND, Action.CHANGE, Action.BE_OBSERVED}),
    Rank.STRANGER: frozenset({Action.ASK}),
    Rank.BARRED: frozenset(),
}
"""The whole of it. What is not in here is denied."""


def rank(standing: Standing, grant: Grant) -> Rank:
    """Return what somebody is, here."""
    if grant is Grant.REVOKED:
        return Rank.BARRED
    if standing is Standing.LISTED or grant is Grant.ALLOWED:
        return Rank.MEMBER
    return Rank.GUEST if standing is Standing.ROOM else Rank.STRANGER


def rank_of(standing: Standing, grant: Grant, *, is_admin: bool) -> Rank:
    """Return what somebody is who may be the admin. The admin's other accounts have to be allowed like anybody's."""
    found = rank(standing, grant)
    return Rank.ADMIN if is_admin and found in {Rank.MEMBER, Rank.GUEST} else found


def may(action: Action, standing: Standing, grant: Grant) -> bool:
    """Return whether somebody may do something."""
    return action in MAY[rank(standing, grant)]


def may_see(owner: str, session_owner: str, circle: tuple[str, ...] = ()) -> bool:
    """Return whether a conversation of one owner may lead to a session: to that owner's own, or the same person's."""
    return session_owner == owner or session_owner in circle


def is_same_owner(session_owner: str, owner: str, own: str) -> bool:
    """Return whether a chat's session may go on. `own` is what a person is called as long as nobody linked them."""
    return session_owner == owner or (session_owner == own and owner.startswith("person:"))


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What the record knows of one person's access. Times are in microseconds since 1970."""

    channel: str
    identity: str
    state: Grant = Grant.NONE
    code: str = ""
    """The code that they were shown, until it is used."""
    expires_at: int = 0
    chat: str = ""
    """Where they were shown it."""
    changed_at: int = 0
    by: str = ""
    asked_since: int = 0
    asked_count: int = 0
    """Codes that they were shown since then, within a day."""

    def is_waiting(self, now: int) -> bool:
        """Return whether the code can be approved."""
        return self.state is Grant.ASKED and bool(self.code) and now < self.expires_at


class Pace(NamedTuple):
    """How often something happened since a moment; a new window begins when this one is over."""

    since: int = 0
    times: int = 0

    def within(self, now: int, window: int) -> int:
        """Return how often it happened in the window that is open now. A clock that was set back opens a new one."""
        return self.times if self.since <= now < self.since + window else 0


def stranger_source(channel: str, identity: str, chat: str = "") -> str:
    """Return where a stranger comes from: their server, or, where people have none, the chat in which they ask."""
    server = identity.partition(":")[2]
    return f"{channel} {server or chat or identity}"


def may_be_shown_code(known: Access | None, asked: Pace, near: Pace, pairing: Pairing, now: int) -> bool:
    """Return whether a stranger is shown a code now: one at a time, a few a day, and not too many strangers at once.

    `asked` counts the codes of everybody, `near` those of the same source.
    """
    if not pairing.enabled or asked.within(now, HOUR_MICROSECONDS) >= pairing.codes_per_hour_max:
        return False
    if near.within(now, HOUR_MICROSECONDS) >= pairing.source_codes_per_hour_max:
        return False
    if known is None:
        return True
    own = Pace(known.asked_since, known.asked_count)
    return not known.is_waiting(now) and own.within(now, DAY_MICROSECONDS) < pairing.person_codes_per_day_max


def may_try_code(tried: Pace, pairing: Pairing, now: int) -> bool:
    """Return whether another code may be tried: only so many wrong ones an hour."""
    return tried.within(now, HOUR_MICROSECONDS) < pairing.tries_per_hour_max


def new_code() -> str:
    """Return a code that nobody can guess."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS))


def written_code(code: str) -> str:
    """Return a code as people read it: `k3v9-qd7m`."""
    return "-".join(code[start : start + CODE_GROUP_CHARACTERS] for start in range(0, len(code), CODE_GROUP_CHARACTERS))


def read_code(text: str) -> str:
    """Return a code as somebody typed it, in the form in which it is kept."""
    return "".join(sign for sign in text.lower() if sign.isalnum())
