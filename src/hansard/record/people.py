"""Who is one person with whom: the record as intake and the admin use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.access import Access, Grant, read_code
from hansard.domain.entries_people import IdentityConfirmed, PersonLinked
from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.people import Circle, Code, is_person, named
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput
from hansard.record.operations import people as operations
from hansard.record.operations.access import access_value
from hansard.record.operations.following import read_circle
from hansard.record.operations.talk import stop_turns
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hansard.domain.settings import Person
    from hansard.domain.turns import TurnInfo
    from hansard.record.calls import Caller
    from hansard.record.operations.people import Parted
    from hansard.record.reading import Snapshot


class Follower(NamedTuple):
    """Whose chat leads to a session, what the platform calls them, and what the record says of their access."""

    owner: str
    identity: str
    grant: Grant


class PeopleBook:
    """Circles of owners who are one person, and the codes by which people join them."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.people`."""
        self._caller = caller

    async def circle(self, owner: str) -> tuple[str, ...]:
        """Return everybody who is one person with an owner, that owner included."""
        return await self._caller.read(lambda snapshot: read_circle(snapshot.rows, owner))

    async def list(self) -> list[Circle]:
        """Return all circles: those with a name are config.toml's, the others were linked."""
        circles: dict[str, list[str]] = {}
        for circle, owner in await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_people)):
            circles.setdefault(circle, []).append(owner)
        return [
            Circle(circle.removeprefix(operations.NAMED) if circle.startswith(operations.NAMED) else "", tuple(owners))
            for circle, owners in circles.items()
        ]

    async def declare(self, people: Mapping[str, Person], *, by: str = "") -> bool:
        """Say whom the settings make one person; return whether that is news. Nothing is written when it is not."""
        wanted = named(people)
        if {each.name: frozenset(each.owners) for each in await self.list() if each.name} == {
            name: frozenset(owners) for name, owners in wanted.items()
        }:
            return False
        return await self._caller.write(lambda tx: operations.declare(tx, wanted, by))

    async def show_code(self, owner: str, *, identity: str = "", chat: str = "") -> Code:
        """Return a new code for a person, to be entered where they are called something else."""
        check_person(owner)
        return await self._caller.write(lambda tx: operations.show_code(tx, owner, identity, chat))

    async def look_at_code(self, code: str, owner: str) -> Code:
        """Return whose code it is that somebody would enter. It counts afterwards as before; wrong ones are counted."""
        check_person(owner)
        entered = operations.Entered(read_code(code), owner, new_id(), looks=True)
        return operations.check_known(await self._caller.write(lambda tx: operations.enter_code(tx, entered)))

    async def enter_code(self, code: str, owner: str, *, told: str = "") -> Code:
        """Make whoever was shown a code and whoever enters it one person; `told` is said where it was shown."""
        check_person(owner)
        entered = operations.Entered(read_code(code), owner, new_id(), told)
        return operations.check_known(await self._caller.write(lambda tx: operations.enter_code(tx, entered)))

    async def void_code(self, code: str) -> None:
        """Let a code count no longer: it was said where others could read it."""
        await self._caller.write(lambda tx: operations.void_code(tx, read_code(code)))

    async def link(self, one: str, other: str, *, by: str = "admin") -> bool:
        """Make two owners one person, as the admin says; return whether that is news."""
        linked, token = PersonLinked(owners=(check_person(one), check_person(other)), by=by), new_id()
        return await self._caller.write(lambda tx: operations.link(tx, linked, token))

    async def unlink(self, owner: str, *, by: str = "admin") -> Parted:
        """Part an owner from all whom they were linked to; what config.toml says of them stays."""
        check_person(owner)
        token = new_id()
        return await self._caller.write(lambda tx: operations.unlink(tx, owner, by, token))

    async def confirm_identity(self, channel: str, identity: str, key: str, *, by: str = "admin") -> None:
        """Record that somebody says that a person's changed identity is theirs; the channel goes by its own copy."""
        body = IdentityConfirmed(channel=channel, identity=identity, key=key, by=by)
        token = new_id()
        await self._caller.write(lambda tx: operations.confirm_identity(tx, body, token))

    async def follower(self, session_id: str, chat: str) -> Follower | None:
        """Return whose chat follows a session now, or None: it leads elsewhere, or is no longer the same person's."""

        def read(snapshot: Snapshot) -> Follower | None:
            row = snapshot.row(SQL.find_follower, (chat, session_id))
            if row is None or row[0] not in read_circle(snapshot.rows, row[2]):
                return None
            access = snapshot.row(SQL.find_access, (chat.partition(":")[0], row[1]))
            known = Access(channel="", identity="") if access is None else access_value(access)
            return Follower(row[0], row[1], known.state)

        return await self._caller.read(read)

    async def stop_own_turns(self, owner: str, session_id: str, reason: str) -> tuple[TurnInfo, ...]:
        """Stop the turns of a session that run or wait, and that this person asked for and nobody else."""
        check_person(owner)
        is_alive = self._caller.store.is_alive
        stopped = await self._caller.write(
            lambda tx: stop_turns(tx, session_id, reason, is_alive, queued=True, asked_by=read_circle(tx.rows, owner))
        )
        return tuple(stopped)

    async def others_follow(self, session_id: str, chat: str) -> bool:
        """Return whether another chat of a person leads to a session."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_followers, (session_id,)))
        return any(key != chat for key, _ in rows)


def check_person(owner: str) -> str:
    """Return the name of a person; refuse a room, which is nobody's other self."""
    if not is_person(clean_name(owner, "an owner", NAME_CHARACTERS_MAX)):
        message = f"{owner[:80]!r} is no person"
        raise InvalidInput(message)
    return owner
