"""Answers that count for more than one call: `record.books.permissions`.

A permission is this tool, this person, this place; for one session, or until it is revoked. It is granted by the
answer to a question, in the same commit, and lost when the person is barred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.entries_agent import PermissionGranted, PermissionRevoked
from hansard.domain.ids import HOME_JOURNAL
from hansard.errors import NotFound
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.domain.entries_agent import QuestionAnswered
    from hansard.record.calls import Caller
    from hansard.record.transaction import Transaction


class Permission(NamedTuple):
    """What somebody allowed beyond one call. `session_id`: only there; empty: until it is revoked."""

    id: str
    tool: str
    person: str
    place: str
    session_id: str
    granted_at: int
    by: str


def grant(tx: Transaction, answered: QuestionAnswered, session_id: str) -> None:
    """Note, with an answer that counts for more than one call, what it allows."""
    home = tx.find_journal(HOME_JOURNAL) or tx.create_journal(HOME_JOURNAL)
    number = home.head_seq + 1
    granted = PermissionGranted(
        permission_id=f"p{number}",
        tool=answered.tool,
        person=answered.author,
        place=answered.chat,
        session_id=session_id,
        by=answered.by,
    )
    tx.add(home, f"~permission:{number}", granted)


def revoke(tx: Transaction, permission_id: str, by: str) -> Permission:
    """Let a permission count no more."""
    row = tx.row(SQL.find_permission, (permission_id,))
    if row is None:
        message = f"there is no permission {permission_id}"
        raise NotFound(message, "`hansard permissions` lists them.")
    home = tx.find_journal(HOME_JOURNAL) or tx.create_journal(HOME_JOURNAL)
    revoked = PermissionRevoked(permission_id=permission_id, by=by)
    tx.add(home, f"~permission-revoked:{home.head_seq + 1}", revoked)
    return Permission(*row)


class Permissions:
    """What people allowed beyond one call."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.permissions`."""
        self._caller = caller

    async def list(self) -> list[Permission]:
        """Return all that count, the oldest first."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_permissions))
        return [Permission(*row) for row in rows]

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
