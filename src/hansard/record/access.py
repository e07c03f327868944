"""Who may talk: the record as the admin uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.access import Access, read_code
from hansard.domain.entries import AccessChanged
from hansard.domain.entries_people import RulesDeclared
from hansard.domain.ids import HOME_JOURNAL, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.domain.permissions import digest_of
from hansard.domain.settings import Pairing
from hansard.domain.text import clean_name
from hansard.errors import NotFound
from hansard.record.operations import access as operations
from hansard.record.sqlite.queries import SQL
from hansard.record.views import ALL_ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hansard.domain.permissions import ToolRule
    from hansard.record.calls import Caller
    from hansard.record.reading import Snapshot


class AccessBook:
    """Who asked to talk, who may, and who may no longer."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.access`."""
        self._caller = caller

    async def list(self, channel: str | None = None) -> list[Access]:
        """Return everybody whose access is known, the latest change first."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_access, (channel, ALL_ROWS)))
        return [operations.access_value(row) for row in rows]

    async def declare_rules(self, rules: Iterable[ToolRule], *, by: str = "") -> bool:
        """Record the rules of tools that a process loaded; return whether they are news. If not, nothing is written."""
        table = tuple(rules)
        declared = RulesDeclared(digest=digest_of(table), rules=tuple(str(each) for each in table), by=by)

        def read(snapshot: Snapshot) -> str:
            home = snapshot.row(SQL.read_journal, (HOME_JOURNAL,))
            return operations.last_rules(snapshot.rows, home[0])[1] if home is not None else ""

        if await self._caller.read(read) == declared.digest:
            return False
        return await self._caller.write(lambda tx: operations.declare_rules(tx, declared))

    async def find(self, channel: str, identity: str) -> Access:
        """Return what is known of somebody; of a stranger, that nothing is."""

        def read(snapshot: Snapshot) -> Access:
            row = snapshot.row(SQL.find_access, (channel, identity))
            return Access(channel=channel, identity=identity) if row is None else operations.access_value(row)

        return await self._caller.read(read)

    async def approve(
        self,
        code: str,
        *,
        by: str = "admin",
        welcome: Callable[[str], str] = lambda _channel: "",
        pairing: Pairing | None = None,
    ) -> Access:
        """Allow whoever was shown this code; `welcome` of the channel is said to them. NotFound when none waits."""
        approval = operations.Approval(
            read_code(code), clean_name(by, "a name", NAME_CHARACTERS_MAX), welcome, pairing or Pairing(), new_id()
        )
        approved = await self._caller.write(lambda tx: operations.approve(tx, approval))
        if approved.access is None:
            raise NotFound(approved.refusal)
        return approved.access

    async def allow(self, channel: str, identity: str, *, by: str = "admin") -> Access:
        """Allow somebody by name."""
        changed = AccessChanged(
            channel=clean_name(channel, "a channel", NAME_CHARACTERS_MAX),
            identity=clean_name(identity, "a person", NAME_CHARACTERS_MAX),
            allowed=True,
            by=clean_name(by, "a name", NAME_CHARACTERS_MAX),
        )
        operation_id = new_id()
        return await self._caller.write(lambda tx: operations.change(tx, changed, operation_id))

    async def revoke(
        self, channel: str, identity: str, *, also: Iterable[tuple[str, str]] = (), by: str = "admin"
    ) -> tuple[Access, ...]:
        """Bar a person, whatever the settings say: on this account, on those that are linked to it, and on `also`.

        Turns that this person asked for and nobody else are stopped. What they said stays.
        """
        accounts = tuple(
            (clean_name(where, "a channel", NAME_CHARACTERS_MAX), clean_name(who, "a person", NAME_CHARACTERS_MAX))
            for where, who in ((channel, identity), *also)
        )
        barring = operations.Barring(accounts, clean_name(by, "a name", NAME_CHARACTERS_MAX), new_id())
        is_alive = self._caller.store.is_alive
        return await self._caller.write(lambda tx: operations.bar_person(tx, barring, is_alive))
