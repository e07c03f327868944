"""Which rank may give which command, and where: one table, of which every cell is tested and shown in the documents.

A rank is what somebody is in one place (`hansard.domain.access` says how it is found). A deed is a command, or one of
two things that a command does: `model` shows the model, `model NAME` changes it. What is not in the table is denied.

    allowed    it is done
    own only   it is done as far as it concerns the person's own: see OWN_MEANS
    denied     it is not done, and the person is told so
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from hansard.domain.chats import parse_owner


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

ROWS: Final = {
    "help": RankRow(_A, _A, _A, _A, _A),
    "status": RankRow(_A, _A, _A, _A, _A),
    "usage": RankRow(_A, _A, _A, _A, _A),
    "sessions": RankRow(_O, _O, _O, _O, _O),
    "search": RankRow(_O, _O, _O, _O, _O),
    "resume": RankRow(_A, _O, _A, _A, _A),
    "new": RankRow(_A, _O, _A, _A, _A),
    "fork": RankRow(_A, _O, _A, _A, _A),
    "title": RankRow(_A, _A, _A, _A, _A),
    "title TEXT": RankRow(_A, _O, _A, _A, _A),
    "undo": RankRow(_A, _O, _A, _A, _A),
    "retry": RankRow(_A, _O, _A, _A, _A),
    "stop": RankRow(_A, _O, _A, _A, _A),
    "queue": RankRow(_A, _A, _A, _A, _A),
    "steer": RankRow(_A, _O, _A, _A, _A),
    "busy": RankRow(_A, _A, _A, _A, _A),
    "busy MODE": RankRow(_A, _O, _A, _A, _A),
    "compact": RankRow(_A, _O, _A, _A, _A),
    "model": RankRow(_A, _A, _A, _A, _A),
    "model NAME": RankRow(_D, _D, _A, _A, _A),
    "why": RankRow(_A, _O, _A, _A, _A),
    "yes": RankRow(_O, _O, _O, _O, _O),
    "no": RankRow(_O, _O, _O, _O, _O),
    "file": RankRow(_D, _D, _D, _D, _A),
    "memory": RankRow(_A, _A, _A, _A, _A),
    "memory CHANGE": RankRow(_A, _O, _A, _A, _A),
    "link": RankRow(_A, _D, _A, _D, _A),
    "unlink": RankRow(_A, _D, _A, _D, _A),
}
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
    """Return whether somebody may do something where they are."""
    return TABLE.get((*standpoint, deed), Right.DENIED)


def deed_of(command: str, argument: str) -> str:
    """Return what a command is in the table."""
    return CHANGES.get(command, command) if argument else command


def is_shared(owner: str) -> bool:
    """Return whether sessions of an owner are several people's: a room's, not those of one person in it."""
    room = parse_owner(owner)
    return room is not None and not room.person


def is_denied(standpoint: Standpoint, owner: str, deed: str) -> bool:
    """Return whether somebody may not do something at all in a session of an owner."""
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
