"""Quotas: what one person may bring in an hour. More is refused.

Entries (home journal): quota.used. Counted in the table `pace` (people.py).
Invariants: a person is all accounts that are linked; a refusal is told once an hour.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hansard.domain.access import HOUR_MICROSECONDS, Pace
from hansard.domain.budgets import Brought, pace_name
from hansard.journal.concepts import Body, Concept, EntryPlace
from hansard.journal.transaction import home_journal
from hansard.record.people import PACE, read_circle
from hansard.record.routes import tell_at_home

if TYPE_CHECKING:
    from hansard.domain.arrivals import IntakeRules
    from hansard.domain.budgets import Quota
    from hansard.domain.notices import Wording
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.transaction import Transaction

QUOTAS = Concept("quotas")
SQL = QUOTAS.queries


@QUOTAS.entry("quota.used")
class QuotaUsed(Body, frozen=True):
    """A person brought files, or began sessions. So much of it is allowed in an hour."""

    person: str
    files: int = 0
    sessions: int = 0


@QUOTAS.projects(QuotaUsed)
def project_quota_used(place: EntryPlace, body: QuotaUsed) -> None:
    for brought, count in ((Brought.FILES, body.files), (Brought.SESSIONS, body.sessions)):
        if count:
            place.run(PACE.queries.add_pace, (pace_name(brought, body.person), place.at, HOUR_MICROSECONDS, count))


def spent_by(reads: Reads, brought: Brought, person: str, now: int) -> int:
    """Return how much a person brought in the hour that is open, under all accounts that are theirs."""
    names = [pace_name(brought, owner) for owner in {person, *read_circle(reads, person)}]
    paces = [Pace(*row) for name in names for row in reads.rows(PACE.queries.find_pace, (name,))]
    return sum(pace.within(now, HOUR_MICROSECONDS) for pace in paces)


def allows(tx: Transaction, rules: IntakeRules, brought: Brought, person: str, more: int = 1) -> bool:
    return rules.quota.allows(brought, spent_by(tx, brought, person, tx.clock.now_microseconds()), more)


def count_used(tx: Transaction, person: str, *, files: int = 0, sessions: int = 0) -> None:
    home = home_journal(tx)
    tx.add(home, f"~quota:{home.head_seq + 1}", QuotaUsed(person=person, files=files, sessions=sessions))


def tell_over(tx: Transaction, words: Wording, brought: Brought, person: str, chat: str) -> None:
    """Tell a person that the hour's limit is reached: once an hour, however often it is."""
    hour = tx.clock.now_microseconds() // HOUR_MICROSECONDS
    key = hashlib.sha256(f"{brought}\n{person}\n{hour}".encode()).hexdigest()[:32]
    if chat and tx.find(home_journal(tx), f"over-{key}") is None:
        tell_at_home(tx, chat, getattr(words, f"over_{brought}"), f"over-{key}")


class Quotas:
    """Files, bytes and sessions that people brought in an hour."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def bytes_left(self, person: str, quota: Quota) -> int | None:
        """Return how many bytes a person may still bring in this hour; None: there is no limit."""
        return quota.left(Brought.BYTES, await self._spent(Brought.BYTES, person))

    async def may_begin_session(self, person: str, quota: Quota) -> bool:
        return quota.allows(Brought.SESSIONS, await self._spent(Brought.SESSIONS, person))

    async def _spent(self, brought: Brought, person: str) -> int:
        now = self._caller.store.clock.now_microseconds()
        return await self._caller.read(lambda snapshot: spent_by(snapshot, brought, person, now))
