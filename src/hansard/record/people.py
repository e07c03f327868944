"""People: which accounts are one person. The settings declare it, codes link and unlink.

Entries (home journal): people.declared, person.linked, .unlinked, link.shown, .tried, .voided, identity.confirmed.
Tables: person, link_code. SQL: people.sql. Reading a circle: circles.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.access import (
    HOUR_MICROSECONDS,
    Access,
    Grant,
    new_code,
    read_code,
)
from hansard.domain.chats import identity_of
from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.people import CIRCLE_MAX, CODE_MINUTES, Circle, Code, is_person, may_be_shown, may_try, named
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput, NotFound
from hansard.journal.concepts import Body, EntryPlace
from hansard.journal.reading import home_journal
from hansard.record.access import (
    ACCESS,
    MINUTE_MICROSECONDS,
    access_value,
    grant_of,
    read_pace,
    tell_in_chat,
)
from hansard.record.circles import PEOPLE as PEOPLE  # noqa: PLC0414 - the concept of this module
from hansard.record.circles import read_circle
from hansard.record.pace import PACE
from hansard.record.routes import ROUTES
from hansard.record.turns.operations import stop_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hansard.domain.notices import Wording
    from hansard.domain.settings import Person
    from hansard.domain.turns import TurnInfo
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.transaction import Transaction

SQL = PEOPLE.queries


@PEOPLE.entry("people.declared")
class PeopleDeclared(Body, frozen=True):
    """Whom config.toml makes one person, by name: all of it, in place of what was declared before."""

    people: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    by: str = ""
    """The user of this machine whose process loaded it."""


@PEOPLE.entry("person.linked")
class PersonLinked(Body, frozen=True):
    """Two owners, with all whom each was linked to, are one person from now on. `code`: the one that was entered."""

    owners: tuple[str, str]
    by: str = ""
    code: str = ""


@PEOPLE.entry("person.unlinked")
class PersonUnlinked(Body, frozen=True):
    """Owners are linked to nobody any more. Whom they were linked to stay one person among themselves."""

    owners: tuple[str, ...]
    by: str = ""


@PEOPLE.entry("link.shown")
class LinkShown(Body, frozen=True):
    """A person was shown a one-time code, to be entered where they are called something else. It replaces an older."""

    owner: str
    code: str
    expires_at: int
    identity: str = ""
    chat: str = ""


@PEOPLE.entry("link.tried")
class LinkTried(Body, frozen=True):
    """Somebody entered a code that was shown to nobody, or no longer counts. The code is not kept."""

    owner: str


@PEOPLE.entry("link.voided")
class LinkVoided(Body, frozen=True):
    """A code counts no longer: others could read where it was said."""

    owner: str


@PEOPLE.entry("identity.confirmed")
class IdentityConfirmed(Body, frozen=True):
    """A person's changed identity on a platform is theirs, somebody says. `key`: the new one; empty: they have none."""

    channel: str
    identity: str
    key: str
    by: str = ""


@PEOPLE.projects(PeopleDeclared)
def project_people_declared(place: EntryPlace, body: PeopleDeclared) -> None:
    place.run(SQL.drop_named)
    for name, owners in body.people.items():
        for owner in owners:
            place.run(SQL.add_person, (owner, f"named:{name}"))


@PEOPLE.projects(PersonLinked)
def project_person_linked(place: EntryPlace, body: PersonLinked) -> None:
    circle = f"linked:{place.seq}"
    for owner in body.owners:
        place.run(SQL.join_linked, (circle, owner))
        place.run(SQL.add_person, (owner, circle))
        place.run(SQL.drop_link_code, (owner,))


@PEOPLE.projects(PersonUnlinked)
def project_person_unlinked(place: EntryPlace, body: PersonUnlinked) -> None:
    for owner in body.owners:
        place.run(SQL.leave_linked, (owner,))
    place.run(SQL.drop_lonely)


@PEOPLE.projects(LinkShown)
def project_link_shown(place: EntryPlace, body: LinkShown) -> None:
    place.run(SQL.put_link_code, (body.owner, body.code, body.expires_at, body.identity, body.chat))
    place.run(PACE.queries.add_pace, (f"link shown {body.owner}", place.at, HOUR_MICROSECONDS, 1))


@PEOPLE.projects(LinkTried)
def project_link_tried(place: EntryPlace, body: LinkTried) -> None:
    place.run(PACE.queries.add_pace, (f"link tried {body.owner}", place.at, HOUR_MICROSECONDS, 1))


@PEOPLE.projects(LinkVoided)
def project_link_voided(place: EntryPlace, body: LinkVoided) -> None:
    place.run(SQL.drop_link_code, (body.owner,))


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


class CodeCheck(NamedTuple):
    """Whose code it is; None with why it does not count."""

    code: Code | None
    refusal: str = ""


def enter_code(tx: Transaction, entered: Entered) -> CodeCheck:
    """Make whoever was shown a code and whoever enters it one person. A code counts once; wrong ones are counted."""
    home = home_journal(tx)
    done = tx.find(home, f"~link:{entered.operation_id}")
    if done is not None:
        body = tx.decode(done)
        owner = body.owners[0] if isinstance(body, PersonLinked) else ""
        return CodeCheck(Code(owner=owner, code=entered.code, expires_at=0))
    now = tx.clock.now_microseconds()
    if not may_try(read_pace(tx, f"link tried {entered.owner}"), now):
        return CodeCheck(None, TOO_MANY_TRIES)
    row = tx.row(SQL.find_link_code, (entered.code,)) if entered.code else None
    code = None if row is None else Code(owner=row[0], code=row[1], expires_at=row[2], identity=row[3], chat=row[4])
    if code is None or not code.is_good(now) or is_barred(tx, code.owner):
        if tx.find(home, f"~link-tried:{entered.operation_id}") is None:
            tx.add(home, f"~link-tried:{entered.operation_id}", LinkTried(owner=entered.owner))
        return CodeCheck(None, NO_SUCH_CODE)
    refusal = why_not(tx, code.owner, entered.owner)
    if refusal or entered.looks:
        return CodeCheck(code if not refusal else None, refusal)
    linked = PersonLinked(owners=(code.owner, entered.owner), by=entered.owner, code=code.code)
    tx.add(home, f"~link:{entered.operation_id}", linked)
    if code.chat and entered.told:
        tell_in_chat(tx, code.chat, entered.told)
    return CodeCheck(code)


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


def check_known(found: CodeCheck) -> Code:
    """Return whose code it was; NotFound says why it does not count."""
    if found.code is None:
        raise NotFound(found.refusal)
    return found.code


class Follower(NamedTuple):
    """Whose chat leads to a session, what the platform calls them, and what the record says of their access."""

    owner: str
    identity: str
    grant: Grant


class PeopleBook:
    """Circles of owners who are one person, and the codes by which people join them."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        """Use `record.people`."""
        self._caller, self._words = caller, words

    async def circle(self, owner: str) -> tuple[str, ...]:
        """Return everybody who is one person with an owner, that owner included."""
        return await self._caller.read(lambda snapshot: read_circle(snapshot.rows, owner))

    async def list(self) -> list[Circle]:
        """Return all circles: those with a name are config.toml's, the others were linked."""
        circles: dict[str, list[str]] = {}
        for circle, owner in await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_people)):
            circles.setdefault(circle, []).append(owner)
        return [
            Circle(circle.removeprefix(NAMED) if circle.startswith(NAMED) else "", tuple(owners))
            for circle, owners in circles.items()
        ]

    async def declare(self, people: Mapping[str, Person], *, by: str = "") -> bool:
        """Say whom the settings make one person; return whether that is news. Nothing is written when it is not."""
        wanted = named(people)
        if {each.name: frozenset(each.owners) for each in await self.list() if each.name} == {
            name: frozenset(owners) for name, owners in wanted.items()
        }:
            return False
        return await self._caller.write(lambda tx: declare(tx, wanted, by))

    async def show_code(self, owner: str, *, identity: str = "", chat: str = "") -> Code:
        """Return a new code for a person, to be entered where they are called something else."""
        check_person(owner)
        return await self._caller.write(lambda tx: show_code(tx, owner, identity, chat))

    async def look_at_code(self, code: str, owner: str) -> Code:
        """Return whose code it is that somebody would enter. It counts afterwards as before; wrong ones are counted."""
        check_person(owner)
        entered = Entered(read_code(code), owner, new_id(), looks=True)
        return check_known(await self._caller.write(lambda tx: enter_code(tx, entered)))

    async def enter_code(self, code: str, owner: str, *, told: str = "") -> Code:
        """Make whoever was shown a code and whoever enters it one person; `told` is said where it was shown."""
        check_person(owner)
        entered = Entered(read_code(code), owner, new_id(), told)
        return check_known(await self._caller.write(lambda tx: enter_code(tx, entered)))

    async def void_code(self, code: str) -> None:
        """Let a code count no longer: it was said where others could read it."""
        await self._caller.write(lambda tx: void_code(tx, read_code(code)))

    async def link(self, one: str, other: str, *, by: str = "admin") -> bool:
        """Make two owners one person, as the admin says; return whether that is news."""
        linked, token = PersonLinked(owners=(check_person(one), check_person(other)), by=by), new_id()
        return await self._caller.write(lambda tx: link(tx, linked, token))

    async def unlink(self, owner: str, *, by: str = "admin") -> Parted:
        """Part an owner from all whom they were linked to; what config.toml says of them stays."""
        check_person(owner)
        token = new_id()
        return await self._caller.write(lambda tx: unlink(tx, owner, by, token))

    async def confirm_identity(self, channel: str, identity: str, key: str, *, by: str = "admin") -> None:
        """Record that somebody says that a person's changed identity is theirs; the channel goes by its own copy."""
        body = IdentityConfirmed(channel=channel, identity=identity, key=key, by=by)
        token = new_id()
        await self._caller.write(lambda tx: confirm_identity(tx, body, token))

    async def follower(self, session_id: str, chat: str) -> Follower | None:
        """Return whose chat follows a session now, or None: it leads elsewhere, or is no longer the same person's."""

        def read(snapshot: Reads) -> Follower | None:
            row = snapshot.row(ROUTES.queries.find_follower, (chat, session_id))
            if row is None or row[0] not in read_circle(snapshot.rows, row[2]):
                return None
            access = snapshot.row(ACCESS.queries.find_access, (chat.partition(":")[0], row[1]))
            known = Access(channel="", identity="") if access is None else access_value(access)
            return Follower(row[0], row[1], known.state)

        return await self._caller.read(read)

    async def stop_own_turns(self, owner: str, session_id: str, reason: str) -> tuple[TurnInfo, ...]:
        """Stop the turns of a session that run or wait, and that this person asked for and nobody else."""
        check_person(owner)
        is_alive, words = self._caller.store.is_alive, self._words()

        def stop(tx: Transaction) -> list[TurnInfo]:
            owners = read_circle(tx.rows, owner)
            return stop_turns(tx, session_id, reason, is_alive, words=words, queued=True, asked_by=owners)

        return tuple(await self._caller.write(stop))

    async def others_follow(self, session_id: str, chat: str) -> bool:
        """Return whether another chat of a person leads to a session."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(ROUTES.queries.list_followers, (session_id,)))
        return any(key != chat for key, _ in rows)


def check_person(owner: str) -> str:
    """Return the name of a person; refuse a room, which is nobody's other self."""
    if not is_person(clean_name(owner, "an owner", NAME_CHARACTERS_MAX)):
        message = f"{owner[:80]!r} is no person"
        raise InvalidInput(message)
    return owner
