"""What one person brought in an hour: counted in the home journal, and refused beyond the limits.

Reads: pace, person. Writes: quota.used; a notice when something is refused, once an hour.
Invariants: a person is all accounts that are linked; the count is a fold of the home journal.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hansard.domain.access import HOUR_MICROSECONDS, Pace
from hansard.domain.entries_intake import QuotaUsed
from hansard.domain.quotas import Brought, pace_name
from hansard.record.operations.access import tell_at_home
from hansard.record.operations.following import read_circle
from hansard.record.operations.home import home_journal
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.arrivals import Rules
    from hansard.record.operations.following import Rows
    from hansard.record.transaction import Transaction


def spent_by(rows: Rows, brought: Brought, person: str, now: int) -> int:
    """Return how much a person brought in the hour that is open, under all accounts that are theirs."""
    names = [pace_name(brought, owner) for owner in {person, *read_circle(rows, person)}]
    paces = [Pace(*row) for name in names for row in rows(SQL.find_pace, (name,))]
    return sum(pace.within(now, HOUR_MICROSECONDS) for pace in paces)


def allows(tx: Transaction, rules: Rules, brought: Brought, person: str, more: int = 1) -> bool:
    """Return whether a person may bring so much more now."""
    return rules.quota.allows(brought, spent_by(tx.rows, brought, person, tx.clock.now_microseconds()), more)


def count_used(tx: Transaction, person: str, *, files: int = 0, sessions: int = 0) -> None:
    """Note what a person brought."""
    home = home_journal(tx)
    tx.add(home, f"~quota:{home.head_seq + 1}", QuotaUsed(person=person, files=files, sessions=sessions))


def tell_over(tx: Transaction, rules: Rules, brought: Brought, person: str, chat: str) -> None:
    """Tell a person that the hour's limit is reached: once an hour, however often it is."""
    hour = tx.clock.now_microseconds() // HOUR_MICROSECONDS
    key = hashlib.sha256(f"{brought}\n{person}\n{hour}".encode()).hexdigest()[:32]
    if chat and tx.find(home_journal(tx), f"over-{key}") is None:
        tell_at_home(tx, chat, rules.words.over(brought), f"over-{key}")
