"""Who may do what: pure rules over what the settings and the record say of somebody.

Nobody may talk to the agent until allowed: by name, by server or by room in the settings, or by a code that the admin
approved. What the admin revoked stays revoked, whatever the settings say.

Which rank may give which command, and where, stands in one table: every cell is tested and shown in the documents. A
rank is what somebody is in one place. A deed is a command, or one of two things that a command does: `model` shows the
model, `model NAME` changes it. What is not in the table is denied.

    allowed    it is done
    own only   it is done as far as it concerns the person's own: see OWN_MEANS
    denied     it is not done, and the person is told so
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from hansard.domain.chats import parse_owner
from hansard.domain.ids import random_letters
from hansard.domain.settings import Pairing


class Rank(StrEnum):
    """What somebody is."""

    BARRED = "barred"
    """Gets no answer at all."""
    STRANGER = "stranger"
    """May ask to be allowed."""
    GUEST = "guest"
    """May talk in this room, because everybody in it may."""
    MEMBER = "member"
    """May talk anywhere."""
    ADMIN = "admin"
    """Runs this Hansard: has its shell, or is the person of `[people.NAME] terminal = true`, by any identity that the
    settings give to that name. A link by a code makes nobody admin.
    """


class Where(StrEnum):
    """Where a command is given."""

    DIRECT = "direct"
    """A chat with one person."""
    ROOM = "room"
    THREAD = "thread"
    """Of a room: it belongs to the room."""
    TERMINAL = "terminal"
    """`hansard`, and what is typed there."""
    SHELL = "shell"
    """`hansard COMMAND`."""


class Right(StrEnum):
    """One cell of the table."""

    ALLOWED = "allowed"
    OWN = "own only"
    DENIED = "denied"


class Standpoint(NamedTuple):
    """Who somebody is, and where they speak."""

    rank: Rank = Rank.STRANGER
    where: Where = Where.ROOM


AT_THE_TERMINAL: Final = Standpoint(Rank.ADMIN, Where.TERMINAL)


class RankRow(NamedTuple):
    """One command's cells. A thread is as its room; strangers and the barred have nothing."""

    guest_direct: Right
    guest_room: Right
    direct: Right
    """Members and the admin."""
    room: Right
    terminal: Right
    """The admin: nobody else has the terminal."""


_A, _O, _D = Right.ALLOWED, Right.OWN, Right.DENIED

_CELLS: Final = {
    "help": (_A, _A, _A, _A, _A),
    "status": (_A, _A, _A, _A, _A),
    "usage": (_A, _A, _A, _A, _A),
    "sessions": (_O, _O, _O, _O, _O),
    "search": (_O, _O, _O, _O, _O),
    "resume": (_A, _O, _A, _A, _A),
    "new": (_A, _O, _A, _A, _A),
    "fork": (_A, _O, _A, _A, _A),
    "title": (_A, _A, _A, _A, _A),
    "title TEXT": (_A, _O, _A, _A, _A),
    "undo": (_A, _O, _A, _A, _A),
    "retry": (_A, _O, _A, _A, _A),
    "stop": (_A, _O, _A, _A, _A),
    "queue": (_A, _A, _A, _A, _A),
    "steer": (_A, _O, _A, _A, _A),
    "busy": (_A, _A, _A, _A, _A),
    "busy MODE": (_A, _O, _A, _A, _A),
    "compact": (_A, _O, _A, _A, _A),
    "model": (_A, _A, _A, _A, _A),
    "model NAME": (_D, _D, _A, _A, _A),
    "why": (_A, _O, _A, _A, _A),
    "yes": (_O, _O, _O, _O, _O),
    "no": (_O, _O, _O, _O, _O),
    "file": (_D, _D, _D, _D, _A),
    "memory": (_A, _A, _A, _A, _A),
    "memory CHANGE": (_A, _O, _A, _A, _A),
    "link": (_A, _D, _A, _D, _A),
    "unlink": (_A, _D, _A, _D, _A),
}
ROWS: Final = {command: RankRow._make(cells) for command, cells in _CELLS.items()}
"""Every command of chats and the terminal, without its stroke."""

CHANGES: Final = {"title": "title TEXT", "busy": "busy MODE", "model": "model NAME", "memory": "memory CHANGE"}
"""Commands that show something when they stand alone, and what they are with an argument."""

SHELL: Final = (
    "audit",
    "config",
    "deliveries",
    "explain",
    "export",
    "gateway",
    "import",
    "memory",
    "models",
    "pair",
    "people",
    "permissions",
    "search",
    "sessions",
    "verify",
)
"""`hansard COMMAND`. Whoever can run it, and read the home, is the admin; it sees every owner's sessions."""

OWN_MEANS: Final = {
    "sessions": "this person's sessions; in a room the room's, or with `per_person` this person's in that room",
    "search": "the sessions that /sessions lists, and /resume opens",
    "undo": "the person's own words, and answers that nobody else asked for",
    "retry": "an answer that nobody else asked for",
    "stop": "answers that nobody else asked for",
    "steer": "an answer that nobody else asked for",
    "why": "turns that this person asked for",
    "yes": "questions that were put to this person",
    "no": "questions that were put to this person",
}
"""What `own only` means. Of all other commands: only where the session is this person's alone, not a room's."""

SESSION_DEEDS: Final = frozenset(deed for deed, row in ROWS.items() if _O in row and deed not in OWN_MEANS)
"""Deeds that change a session for everybody in it. `own only`: allowed where the session is one person's."""


def shell_deed(command: str) -> str:
    """Return what a command of the shell is called in the table."""
    return f"hansard {command}"


def make_table() -> dict[tuple[Rank, Where, str], Right]:
    """Return every cell that is not denied for being absent."""
    table = {(Rank.ADMIN, Where.SHELL, shell_deed(command)): Right.ALLOWED for command in SHELL}
    for deed, row in ROWS.items():
        table[Rank.ADMIN, Where.TERMINAL, deed] = row.terminal
        table[Rank.GUEST, Where.DIRECT, deed] = row.guest_direct
        for where in (Where.ROOM, Where.THREAD):
            table[Rank.GUEST, where, deed] = row.guest_room
        for rank in (Rank.MEMBER, Rank.ADMIN):
            table[rank, Where.DIRECT, deed] = row.direct
            table[rank, Where.ROOM, deed] = table[rank, Where.THREAD, deed] = row.room
    return table


TABLE: Final = make_table()
DEEDS: Final = (*ROWS, *(shell_deed(command) for command in SHELL))


def right(standpoint: Standpoint, deed: str) -> Right:
    return TABLE.get((*standpoint, deed), Right.DENIED)


def deed_of(command: str, argument: str) -> str:
    return CHANGES.get(command, command) if argument else command


def is_shared(owner: str) -> bool:
    """Return whether sessions of an owner are several people's: a room's, not those of one person in it."""
    room = parse_owner(owner)
    return room is not None and not room.person


def is_denied(standpoint: Standpoint, owner: str, deed: str) -> bool:
    found = right(standpoint, deed)
    return found is Right.DENIED or (found is Right.OWN and deed in SESSION_DEEDS and is_shared(owner))


def refusal(deed: str, standpoint: Standpoint) -> str:
    """Return what somebody is told whose command is not carried out."""
    command = f"/{deed}"
    if right(standpoint, deed) is Right.OWN:
        return f"{command} changes this session for everybody in it. Guests of a room may not do that; members may."
    if standpoint.where in {Where.ROOM, Where.THREAD} and right(standpoint._replace(where=Where.DIRECT), deed) != _D:
        return f"{command} is not for rooms. Say it in a direct chat with me."
    if standpoint.rank is Rank.GUEST:
        return f"Guests may not use {command}. Write to me in a direct chat for a code: with it the admin can let you."
    return f"You may not use {command} here."


CODE_CHARACTERS: Final = 8
"""Of an alphabet of 30: nobody guesses one of 656 thousand million in the tries that there are."""

CODE_GROUP_CHARACTERS: Final = 4

MINUTE_MICROSECONDS: Final = 60_000_000
HOUR_MICROSECONDS: Final = 60 * MINUTE_MICROSECONDS
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


def may_show_pairing_code(known: Access | None, asked: Pace, near: Pace, pairing: Pairing, now: int) -> bool:
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
    return random_letters(CODE_CHARACTERS)


def written_code(code: str) -> str:
    """Return a code as people read it: `k3v9-qd7m`."""
    return "-".join(code[start : start + CODE_GROUP_CHARACTERS] for start in range(0, len(code), CODE_GROUP_CHARACTERS))


def read_code(text: str) -> str:
    """Return a code as somebody typed it, in the form in which it is kept."""
    return "".join(sign for sign in text.lower() if sign.isalnum())
