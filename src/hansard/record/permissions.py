"""Permissions: answers to questions that count for more than one call.

Entries (home journal): permission.granted, .revoked, rules.declared. Table: permission. SQL: permissions.sql.
A permission is this tool, this person, this place; for one session, or until it is revoked. It is granted by the
answer to a question, in the same commit, and lost when the person is barred.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.permissions import ToolRule, digest_of
from hansard.errors import NotFound
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, home_journal
from hansard.record import Namespace
from hansard.record.access import AccessChanged
from hansard.record.people import add_at_home

PERMISSIONS = Concept("permissions", "hansard.record", tables=(Table(name="permission", order="id", of_home=True),))
SQL = PERMISSIONS.queries


@PERMISSIONS.entry("permission.granted")
class PermissionGranted(Body, frozen=True):
    """A tool is allowed beyond one call: this tool, this person, this place; only in a session, if one is named."""

    permission_id: str
    tool: str
    person: str
    place: str
    session_id: str = ""
    by: str = ""


@PERMISSIONS.entry("permission.revoked")
class PermissionRevoked(Body, frozen=True):
    """A permission counts no more."""

    permission_id: str
    by: str = ""


@PERMISSIONS.entry("rules.declared")
class RulesDeclared(Body, frozen=True):
    """The rules of `[[tools.rules]]` as a process loaded them, where they differ from those that were loaded before."""

    digest: str
    rules: tuple[str, ...] = ()
    by: str = ""
    """The user of this machine whose process loaded it."""


@PERMISSIONS.projects(AccessChanged, PermissionGranted, PermissionRevoked)
def project_permission(place: EntryPlace, body: Body) -> None:
    match body:
        case AccessChanged():
            # What somebody allowed counts no more when they may not talk.
            if not body.allowed:
                place.run(SQL.drop_permissions_of, (body.identity, f"{body.channel}:", f"{body.channel};"))
        case PermissionGranted():
            allowed = (body.permission_id, body.tool, body.person, body.place, body.session_id)
            place.run(SQL.add_permission, (*allowed, place.seq, place.at, body.by))
        case PermissionRevoked():
            place.run(SQL.drop_permission, (body.permission_id,))


class Permission(NamedTuple):
    """What somebody allowed beyond one call. `session_id`: only there; empty: until it is revoked."""

    id: str
    tool: str
    person: str
    place: str
    session_id: str
    granted_at: int
    by: str


def grant(tx: Transaction, *, tool: str, person: str, place: str, session_id: str, by: str) -> None:
    home = home_journal(tx)
    number = home.head_seq + 1
    granted = PermissionGranted(
        permission_id=f"p{number}", tool=tool, person=person, place=place, session_id=session_id, by=by
    )
    tx.add(home, f"~permission:{number}", granted)


def revoke(tx: Transaction, permission_id: str, by: str) -> Permission:
    row = tx.row(SQL.find_permission, (permission_id,))
    if row is None:
        raise NotFound(f"there is no permission {permission_id}", "`hansard permissions` lists them.")
    add_at_home(tx, "permission-revoked", PermissionRevoked(permission_id=permission_id, by=by))
    return Permission._make(row)


def last_rules(reads: Reads, home: int) -> tuple[int, str]:
    """Return how many times rules were recorded, and the hash of the last ones; empty when there were none."""
    number, digest = 0, ""
    while found := reads.rows(JOURNAL.find_entry, (home, f"~rules:{number + 1}")):
        number += 1
        _, kind, version, _, data = found[0]
        body = reads.schema.decode_body(kind, version, data)
        digest = body.digest if isinstance(body, RulesDeclared) else digest
    return number, digest


def declare_rules(tx: Transaction, declared: RulesDeclared) -> bool:
    home = home_journal(tx)
    number, digest = last_rules(tx, home.key)
    if digest == declared.digest:
        return False
    tx.add(home, f"~rules:{number + 1}", declared)
    return True


class Permissions(Namespace):
    """`record.permissions`: what people allowed beyond one call, and which rules of tools are in force."""

    async def list(self) -> list[Permission]:
        """Return all that count, the oldest first."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_permissions))
        return [Permission._make(row) for row in rows]

    async def granted(
        self, tool: str, session_id: str, places: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        """Return which of some people, each with a chat, need no further yes for a tool, and by which permission."""
        found = {}
        for person, chat in places:
            bindings = (tool, person, chat, session_id)
            row = await self._caller.read(lambda snapshot: snapshot.row(SQL.find_granted, bindings))  # noqa: B023
            if row is not None:
                found[person, chat] = str(row[0])
        return found

    async def revoke(self, permission_id: str, *, by: str = "admin") -> Permission:
        """Let a permission count no more; NotFound when there is none."""
        return await self._caller.write(lambda tx: revoke(tx, permission_id, by))

    async def declare_rules(self, rules: Iterable[ToolRule], *, by: str = "") -> bool:
        """Record the rules of tools that a process loaded; return whether they are news. If not, nothing is written."""
        table = tuple(rules)
        declared = RulesDeclared(digest=digest_of(table), rules=tuple(str(each) for each in table), by=by)

        def read(snapshot: Reads) -> str:
            home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
            return last_rules(snapshot, home[0])[1] if home is not None else ""

        if await self._caller.read(read) == declared.digest:
            return False
        return await self._caller.write(lambda tx: declare_rules(tx, declared))
