"""People: which accounts are one person. The settings declare it, codes link and unlink.

Entries (home journal): people.declared, person.linked, .unlinked, link.shown, .tried, .voided, identity.confirmed.
Tables: person, link_code, pace. SQL: people.sql, pace.sql.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from hansard.domain.access import HOUR_MICROSECONDS, MINUTE_MICROSECONDS, Pace, new_code, read_code
from hansard.domain.chats import identity_of
from hansard.domain.ids import HOME_JOURNAL, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.people import CIRCLE_MAX, CODE_MINUTES, Circle, Code, is_person, may_show_code, may_try, named
from hansard.domain.settings import Person
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput, NotFound
from hansard.journal.backend import Reads
from hansard.journal.calls import Caller
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, home_journal

PEOPLE = Concept(
    "people",
    "hansard.record",
    tables=(
        Table(name="person", order="owner, circle", of_home=True),
        Table(name="link_code", order="owner", of_home=True),
    ),
)
SQL = PEOPLE.queries

Due = TypeVar("Due", bound=Body)

PACE = Concept("pace", "hansard.record", tables=(Table(name="pace", order="name", of_home=True),))
"""How often something happened within an hour, such as codes that were shown."""


def count_pace(place: EntryPlace, name: str, count: int = 1) -> None:
    place.run(PACE.queries.add_pace, (name, place.at, HOUR_MICROSECONDS, count))


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


@PEOPLE.projects(PeopleDeclared, PersonLinked, PersonUnlinked)
def project_people(place: EntryPlace, body: Body) -> None:
    match body:
        case PeopleDeclared():
            place.run(SQL.drop_named)
            for name, owners in body.people.items():
                for owner in owners:
                    place.run(SQL.add_person, (owner, f"named:{name}"))
        case PersonLinked():
            circle = f"linked:{place.seq}"
            for owner in body.owners:
                place.run(SQL.join_linked, (circle, owner))
                place.run(SQL.add_person, (owner, circle))
                place.run(SQL.drop_link_code, (owner,))
        case PersonUnlinked():
            for owner in body.owners:
                place.run(SQL.leave_linked, (owner,))
            place.run(SQL.drop_lonely)


@PEOPLE.projects(LinkShown, LinkTried, LinkVoided)
def project_code(place: EntryPlace, body: Body) -> None:
    match body:
        case LinkShown():
            place.run(SQL.put_link_code, (body.owner, body.code, body.expires_at, body.identity, body.chat))
            count_pace(place, f"link shown {body.owner}")
        case LinkTried():
            count_pace(place, f"link tried {body.owner}")
        case LinkVoided():
            place.run(SQL.drop_link_code, (body.owner,))


NAMED = "named:"
LINKED = "linked:"


def read_circle(reads: Reads, owner: str) -> tuple[str, ...]:
    """Return everybody who is one person with an owner, that owner included. A room is only itself."""
    return tuple(each for (each,) in reads.rows(SQL.read_circle, (owner,))) if is_person(owner) else (owner,)


def owners_text(reads: Reads, owner: str | None) -> str | None:
    """Return all who are one person with an owner, as queries take them; None: everybody."""
    return None if owner is None else msgspec.json.encode(read_circle(reads, owner)).decode()


def add_at_home(tx: Transaction, name: str, body: Body) -> None:
    """Add an entry to the home journal, under an id that none has yet."""
    home = home_journal(tx)
    tx.add(home, f"~{name}:{home.head_seq + 1}", body)


def list_due(reads: Reads, kind: type[Due], query: str, account: tuple[str, str], limits: tuple[int, ...]) -> list[Due]:
    """Return what an account has to see to: bodies of the home journal. `limits` are the query's last parameters."""
    home = reads.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    rows = reads.rows(query, (*account, home[0], *limits)) if home is not None else []
    bodies = [reads.schema.decode_body(reads.schema.by_body[kind].name, 1, data) for (data,) in rows]
    return [body for body in bodies if isinstance(body, kind)]


def read_pace(reads: Reads, name: str) -> Pace:
    row = reads.row(PACE.queries.find_pace, (name,))
    return Pace() if row is None else Pace(*row)


def declare(tx: Transaction, people: dict[str, tuple[str, ...]], by: str = "") -> bool:
    now: dict[str, set[str]] = {}
    for circle, owner in tx.rows(SQL.list_people):
        if circle.startswith(NAMED):
            now.setdefault(circle.removeprefix(NAMED), set()).add(owner)
    if now == {name: set(owners) for name, owners in people.items()}:
        return False
    add_at_home(tx, "people", PeopleDeclared(people=people, by=by))
    part_named(tx, {owner for owners in people.values() for owner in owners})
    return True


def part_named(tx: Transaction, named: set[str]) -> None:
    """Part people of the settings who had been linked to one another: two names are two people."""
    for owner in sorted(named):
        circle = read_circle(tx, owner)
        if len(names_of(tx, circle)) > 1:
            linked = {each for name, each in tx.rows(SQL.list_people) if name.startswith(LINKED)}
            leaving = tuple(each for each in circle if each in named & linked)
            if leaving:
                add_at_home(tx, "unlink", PersonUnlinked(owners=leaving, by="config.toml"))


def names_of(tx: Transaction, owners: tuple[str, ...]) -> set[str]:
    circles = [circle for owner in owners for (circle,) in tx.rows(SQL.list_circles_of, (owner,))]
    return {circle.removeprefix(NAMED) for circle in circles if circle.startswith(NAMED)}


def show_code(tx: Transaction, owner: str, identity: str, chat: str) -> Code:
    """Show a person a new code; it takes the place of one that they were shown before."""
    now = tx.clock.now_microseconds()
    if not may_show_code(read_pace(tx, f"link shown {owner}"), now):
        raise InvalidInput("too many codes were asked for: wait an hour")
    code = new_code()
    while tx.row(SQL.find_link_code, (code,)) is not None:
        code = new_code()
    expires_at = now + CODE_MINUTES * MINUTE_MICROSECONDS
    body = LinkShown(owner=owner, code=code, expires_at=expires_at, identity=identity, chat=chat)
    add_at_home(tx, "link-shown", body)
    return Code(owner=owner, code=code, expires_at=expires_at, identity=identity, chat=chat)


def check_code(tx: Transaction, code: str, owner: str, token: str) -> Code | str:
    """Return whose code somebody enters, or why it does not count. Wrong ones are counted."""
    home = home_journal(tx)
    now = tx.clock.now_microseconds()
    if not may_try(read_pace(tx, f"link tried {owner}"), now):
        return "too many wrong codes were entered: wait an hour"
    row = tx.row(SQL.find_link_code, (code,)) if code else None
    known = None if row is None else Code(owner=row[0], code=row[1], expires_at=row[2], identity=row[3], chat=row[4])
    if known is None or not known.is_good(now) or is_barred(tx, known.owner):
        tx.add_once(home, f"~link-tried:{token}", LinkTried(owner=owner))
        return "no such code counts: it was never shown, was used, or its time is over"
    return why_not(tx, known.owner, owner) or known


def enter_code(
    tx: Transaction, code: str, owner: str, *, told: str, tell: Callable[[Transaction, str, str], None], token: str
) -> Code | str:
    """Make whoever was shown a code and whoever enters it one person. A code counts once."""
    home = home_journal(tx)
    done = tx.find_body(home, f"~link:{token}", PersonLinked)
    if done is not None:
        return Code(owner=done.owners[0], code=code, expires_at=0)
    checked = check_code(tx, code, owner, token)
    if isinstance(checked, Code):
        tx.add(home, f"~link:{token}", PersonLinked(owners=(checked.owner, owner), by=owner, code=code))
        if checked.chat and told:
            tell(tx, checked.chat, told)
    return checked


def is_barred(tx: Transaction, owner: str) -> bool:
    """Return whether an account of a person is barred. A code that was shown to it before counts no longer."""
    accounts = [found for each in read_circle(tx, owner) if (found := identity_of(each)) is not None]
    return any(tx.row(SQL.find_barred, account) is not None for account in accounts)


def why_not(tx: Transaction, one: str, other: str) -> str:
    """Return why two owners cannot become one person; nothing when they can."""
    first, second = read_circle(tx, one), read_circle(tx, other)
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
    home = home_journal(tx)
    one, other = linked.owners
    if tx.find(home, f"~link:{operation_id}") is not None:
        return True
    if other in read_circle(tx, one):
        return False
    if refusal := why_not(tx, one, other):
        raise InvalidInput(refusal)
    tx.add(home, f"~link:{operation_id}", linked)
    return True


class Parted(NamedTuple):
    """With whom somebody was linked until now, and with whom config.toml makes them one person still."""

    left: tuple[str, ...]
    still: tuple[str, ...]


def unlink(tx: Transaction, owner: str, by: str, operation_id: str) -> Parted:
    home = home_journal(tx)
    before = read_circle(tx, owner)
    names = names_of(tx, (owner,))
    rows = tx.rows(SQL.list_people)
    own = tuple(dict.fromkeys([owner, *(each for circle, each in rows if circle.removeprefix(NAMED) in names)]))
    linked = {each for circle, each in rows if circle.startswith(LINKED)}
    leaving = tuple(each for each in own if each in linked)
    if leaving:
        tx.add_once(home, f"~unlink:{operation_id}", PersonUnlinked(owners=leaving, by=by))
    after = read_circle(tx, owner)
    return Parted(tuple(each for each in before if each not in after), tuple(each for each in after if each != owner))


def void_code(tx: Transaction, code: str) -> None:
    row = tx.row(SQL.find_link_code, (code,)) if code else None
    if row is not None:
        add_at_home(tx, "link-voided", LinkVoided(owner=row[0]))


def check_known(found: Code | str) -> Code:
    """Return whose code it was; NotFound says why it does not count."""
    if isinstance(found, str):
        raise NotFound(found)
    return found


class Circles:
    """`record.people`: owners who are one person, and the codes by which people join them.

    `tell` says something in a chat. It is handed in, because sessions and routes are built on people.
    """

    def __init__(self, caller: Caller, tell: Callable[[Transaction, str, str], None]) -> None:
        self._caller, self._tell = caller, tell

    async def circle(self, owner: str) -> tuple[str, ...]:
        return await self._caller.read(lambda snapshot: read_circle(snapshot, owner))

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
        entered, token = read_code(code), new_id()
        return check_known(await self._caller.write(lambda tx: check_code(tx, entered, owner, token)))

    async def enter_code(self, code: str, owner: str, *, told: str = "") -> Code:
        """Make whoever was shown a code and whoever enters it one person; `told` is said where it was shown."""
        check_person(owner)
        enter = partial(enter_code, code=read_code(code), owner=owner, told=told, tell=self._tell, token=new_id())
        return check_known(await self._caller.write(enter))

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
        await self._caller.write(lambda tx: tx.add_once(home_journal(tx), f"~identity:{token}", body))


def check_person(owner: str) -> str:
    """Return the name of a person; refuse a room, which is nobody's other self."""
    if not is_person(clean_name(owner, "an owner", NAME_CHARACTERS_MAX)):
        raise InvalidInput(f"{owner[:80]!r} is no person")
    return owner
