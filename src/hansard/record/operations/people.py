"""Who is one person with whom: declared by the settings, joined by codes, parted again. Facts of the home journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.access import Grant, new_code
from hansard.domain.chats import identity_of
from hansard.domain.entries_people import (
    IdentityConfirmed,
    LinkShown,
    LinkTried,
    LinkVoided,
    PeopleDeclared,
    PersonLinked,
    PersonUnlinked,
)
from hansard.domain.people import CIRCLE_MAX, CODE_MINUTES, Code, may_be_shown, may_try
from hansard.errors import InvalidInput, NotFound
from hansard.record.operations.access import MINUTE_MICROSECONDS, grant_of, read_pace, tell_in_chat
from hansard.record.operations.following import read_circle
from hansard.record.operations.home import home_journal
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.record.transaction import Transaction

NAMED = "named:"
LINKED = "linked:"

NO_SUCH_CODE = "no such code counts: it was never shown, was used, or its time is over"
TOO_MANY_TRIES = "too many wrong codes were entered: wait an hour"
TOO_MANY_CODES = "too many codes were asked for: wait an hour"


def declare(tx: Transaction, people: dict[str, tuple[str, ...]], by: str = "") -> bool:
    """Say whom the settings make one person; return whether that is news."""
    now: dict[str, set[str]] = {}
    for circle, owner in tx.rows(SQL.list_people):
        if circle.startswith(NAMED):
            now.setdefault(circle.removeprefix(NAMED), set()).add(owner)
    if now == {name: set(owners) for name, owners in people.items()}:
        return False
    home = home_journal(tx)
    tx.add(home, f"~people:{home.head_seq + 1}", PeopleDeclared(people=people, by=by))
    part_named(tx, {owner for owners in people.values() for owner in owners})
    return True


def part_named(tx: Transaction, named: set[str]) -> None:
    """Part people of the settings who had been linked to one another: two names are two people."""
    for owner in sorted(named):
        circle = read_circle(tx.rows, owner)
        if len(names_of(tx, circle)) > 1:
            linked = {each for name, each in tx.rows(SQL.list_people) if name.startswith(LINKED)}
            leaving = tuple(each for each in circle if each in named & linked)
            home = home_journal(tx)
            if leaving:
                tx.add(home, f"~unlink:{home.head_seq + 1}", PersonUnlinked(owners=leaving, by="config.toml"))


def names_of(tx: Transaction, owners: tuple[str, ...]) -> set[str]:
    """Return the names that the settings give to any of these owners."""
    circles = [circle for owner in owners for (circle,) in tx.rows(SQL.list_circles_of, (owner,))]
    return {circle.removeprefix(NAMED) for circle in circles if circle.startswith(NAMED)}


def show_code(tx: Transaction, owner: str, identity: str, chat: str) -> Code:
    """Show a person a new code; it takes the place of one that they were shown before."""
    now = tx.clock.now_microseconds()
    if not may_be_shown(read_pace(tx, f"link shown {owner}"), now):
        raise InvalidInput(TOO_MANY_CODES)
    code = new_code()
    while tx.row(SQL.find_link_code, (code,)) is not None:
        code = new_code()
    expires_at = now + CODE_MINUTES * MINUTE_MICROSECONDS
    shown = Code(owner=owner, code=code, expires_at=expires_at, identity=identity, chat=chat)
    home = home_journal(tx)
    body = LinkShown(owner=owner, code=code, expires_at=expires_at, identity=identity, chat=chat)
    tx.add(home, f"~link-shown:{home.head_seq + 1}", body)
    return shown


def confirm_identity(tx: Transaction, body: IdentityConfirmed, token: str) -> None:
    """Record that a person's changed identity was confirmed. The same again changes nothing."""
    home = home_journal(tx)
    if tx.find(home, f"~identity:{token}") is None:
        tx.add(home, f"~identity:{token}", body)


class Entered(NamedTuple):
    """A code that somebody entered, and what the other side is told when it counts."""

    code: str
    owner: str
    operation_id: str
    told: str = ""
    looks: bool = False
    """Whether only to say whose code it is: it counts afterwards as before."""


class Found(NamedTuple):
    """Whose code it is; None with why it does not count."""

    code: Code | None
    refusal: str = ""


def enter_code(tx: Transaction, entered: Entered) -> Found:
    """Make whoever was shown a code and whoever enters it one person. A code counts once; wrong ones are counted."""
    home = home_journal(tx)
    done = tx.find(home, f"~link:{entered.operation_id}")
    if done is not None:
        body = e.decode_body(done.kind, done.version, done.body)
        owner = body.owners[0] if isinstance(body, PersonLinked) else ""
        return Found(Code(owner=owner, code=entered.code, expires_at=0))
    now = tx.clock.now_microseconds()
    if not may_try(read_pace(tx, f"link tried {entered.owner}"), now):
        return Found(None, TOO_MANY_TRIES)
    row = tx.row(SQL.find_link_code, (entered.code,)) if entered.code else None
    code = None if row is None else Code(owner=row[0], code=row[1], expires_at=row[2], identity=row[3], chat=row[4])
    if code is None or not code.is_good(now) or is_barred(tx, code.owner):
        if tx.find(home, f"~link-tried:{entered.operation_id}") is None:
            tx.add(home, f"~link-tried:{entered.operation_id}", LinkTried(owner=entered.owner))
        return Found(None, NO_SUCH_CODE)
    refusal = why_not(tx, code.owner, entered.owner)
    if refusal or entered.looks:
        return Found(code if not refusal else None, refusal)
    linked = PersonLinked(owners=(code.owner, entered.owner), by=entered.owner, code=code.code)
    tx.add(home, f"~link:{entered.operation_id}", linked)
    if code.chat and entered.told:
        tell_in_chat(tx, code.chat, entered.told)
    return Found(code)


def is_barred(tx: Transaction, owner: str) -> bool:
    """Return whether an account of a person is barred. A code that was shown to it before counts no longer."""
    accounts = [found for each in read_circle(tx.rows, owner) if (found := identity_of(each)) is not None]
    return any(grant_of(tx, *account) is Grant.REVOKED for account in accounts)


def why_not(tx: Transaction, one: str, other: str) -> str:
    """Return why two owners cannot become one person; nothing when they can."""
    first, second = read_circle(tx.rows, one), read_circle(tx.rows, other)
    if one == other:
        return "that code was shown to you here: enter it in your other chat"
    if other in first:
        return "you are one person already"
    if len(names_of(tx, first + second)) > 1:
        return "config.toml says that these are two people"
    if len(first) + len(second) > CIRCLE_MAX:
        return f"one person can be in {CIRCLE_MAX} places at most"
    return ""


def link(tx: Transaction, linked: PersonLinked, operation_id: str) -> bool:
    """Make two owners one person, as the admin says; return whether that is news."""
    home = home_journal(tx)
    one, other = linked.owners
    if tx.find(home, f"~link:{operation_id}") is not None:
        return True
    if other in read_circle(tx.rows, one):
        return False
    refusal = why_not(tx, one, other)
    if refusal:
        raise InvalidInput(refusal)
    tx.add(home, f"~link:{operation_id}", linked)
    return True


class Parted(NamedTuple):
    """With whom somebody was linked until now, and with whom config.toml makes them one person still."""

    left: tuple[str, ...]
    still: tuple[str, ...]


def unlink(tx: Transaction, owner: str, by: str, operation_id: str) -> Parted:
    """Part an owner from all whom they were linked to. What config.toml says of them stays."""
    home = home_journal(tx)
    before = read_circle(tx.rows, owner)
    names = names_of(tx, (owner,))
    rows = tx.rows(SQL.list_people)
    own = tuple(dict.fromkeys([owner, *(each for circle, each in rows if circle.removeprefix(NAMED) in names)]))
    linked = {each for circle, each in rows if circle.startswith(LINKED)}
    leaving = tuple(each for each in own if each in linked)
    if leaving and tx.find(home, f"~unlink:{operation_id}") is None:
        tx.add(home, f"~unlink:{operation_id}", PersonUnlinked(owners=leaving, by=by))
    after = read_circle(tx.rows, owner)
    return Parted(tuple(each for each in before if each not in after), tuple(each for each in after if each != owner))


def void_code(tx: Transaction, code: str) -> None:
    """Let a code count no longer: it was said where others could read it."""
    row = tx.row(SQL.find_link_code, (code,)) if code else None
    if row is not None:
        home = home_journal(tx)
        tx.add(home, f"~link-voided:{home.head_seq + 1}", LinkVoided(owner=row[0]))


def check_known(found: Found) -> Code:
    """Return whose code it was; NotFound says why it does not count."""
    if found.code is None:
        raise NotFound(found.refusal)
    return found.code
