"""What a day took, and whether another turn may begin: decided in the commit that begins it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.budgets import EVERYBODY, Budget, Spent, Standing, day_end, day_start, reached, refusal, standing
from hansard.domain.chats import asker_owner
from hansard.record.operations.following import read_circle
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.domain.turns import By
    from hansard.record.operations.following import Rows
    from hansard.record.reading import Snapshot
    from hansard.record.transaction import Transaction


class Judgement(NamedTuple):
    """Whether a turn may begin; when a limit is reached, what people are told, and which it is."""

    standing: Standing = Standing.FREE
    told: str = ""
    reached: str = ""


def spent_by(reading: Transaction | Snapshot, identities: Iterable[str], since: int) -> Spent:
    """Return what was used under these names since a moment."""
    total = Spent()
    for identity in identities:
        total = total.plus(Spent(*reading.row(SQL.spent_since, (identity, since))))
    return total


def next_askers(rows: Rows, journal: int) -> set[str]:
    """Return the owners who ask for the next turn of a session; none when nobody does."""
    return {asker_owner(person, chat) for person, chat in rows(SQL.list_next_by, (journal,))}


def last_askers(rows: Rows, journal: int) -> set[str]:
    """Return the owners who asked for the last turn of a session."""
    return {asker_owner(person, chat) for person, chat in rows(SQL.list_last_by, (journal,))}


def judge(tx: Transaction, by: tuple[By, ...], owner: str, budget: Budget) -> Judgement:
    """Return whether a turn may begin that these people ask for; one that nobody asks for is the session owner's."""
    now = tx.clock.now_microseconds()
    since, end = day_start(now, budget.time_zone), day_end(now, budget.time_zone)
    people = {asker_owner(*each.place) for each in by} or {owner}
    circles = {read_circle(tx.rows, person) for person in people}
    looks = [(budget.person, spent_by(tx, circle, since), False) for circle in sorted(circles)]
    looks.append((budget.together, spent_by(tx, (EVERYBODY,), since), True))
    found = [(standing(allowance, spent), allowance, spent, together) for allowance, spent, together in looks]
    for state, allowance, spent, together in found:
        if state is Standing.REACHED:
            what = reached(allowance, spent)
            return Judgement(state, refusal(what, end, together=together), what)
    return Judgement(Standing.NEAR if any(state is Standing.NEAR for state, *_ in found) else Standing.FREE)
