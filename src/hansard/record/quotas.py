"""What is left of a person's hour, as intake asks for it: `record.books.quotas`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.quotas import Brought
from hansard.record.operations.quotas import spent_by

if TYPE_CHECKING:
    from hansard.domain.quotas import Quota
    from hansard.record.calls import Caller


class Quotas:
    """Files, bytes and sessions that people brought in an hour."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.quotas`."""
        self._caller = caller

    async def bytes_left(self, person: str, quota: Quota) -> int | None:
        """Return how many bytes a person may still bring in this hour; None: there is no limit."""
        return quota.left(Brought.BYTES, await self._spent(Brought.BYTES, person))

    async def may_begin_session(self, person: str, quota: Quota) -> bool:
        """Return whether a person may begin another session in this hour."""
        return quota.allows(Brought.SESSIONS, await self._spent(Brought.SESSIONS, person))

    async def _spent(self, brought: Brought, person: str) -> int:
        now = self._caller.store.clock.now_microseconds()
        return await self._caller.read(lambda snapshot: spent_by(snapshot.rows, brought, person, now))
