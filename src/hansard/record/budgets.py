"""Budgets: what a day took, and whether another turn may begin. Quotas: what one person may bring in an hour.

Entries: budgets have none, they fold messages and turns; quota.used (home journal). Tables: turn_person, and `pace`
(people.py). SQL: budgets.sql.
Invariants: whether a turn may begin is decided in the commit that begins it; a person is all accounts that are linked;
a refusal of what is over a quota is told once an hour.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from hansard.domain.access import HOUR_MICROSECONDS
from hansard.domain.arrivals import IntakeRules
from hansard.domain.budgets import (
    EVERYBODY,
    Brought,
    Budget,
    BudgetState,
    Quota,
    Spent,
    day_end,
    day_start,
    pace_name,
    reached,
    refusal,
    standing,
)
from hansard.domain.chats import person_owner
from hansard.domain.notices import Wording
from hansard.domain.people import By, asker_owner
from hansard.domain.sessions import TurnState
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, home_journal
from hansard.record import Namespace
from hansard.record.messages.entries import MessageAdded, is_spoken
from hansard.record.people import add_at_home, count_pace, read_circle, read_pace
from hansard.record.routes import tell_at_home
from hansard.record.turns.entries import TurnEnded, TurnStarted, TurnUsed

BUDGETS = Concept("budgets", "hansard.record", tables=(Table(name="turn_person", order="turn_id, person"),))
SQL = BUDGETS.queries

QUOTAS = Concept("quotas")


@BUDGETS.projects(TurnStarted)
def count_turn(place: EntryPlace, body: TurnStarted) -> None:
    """Who asked for a turn, and so whose day it counts to.

    One that nobody asked for counts to its session's owner. One that answers nobody, and that nobody asked for, counts
    to those whom the turn before it answered. So does one that began before it was recorded who asks.
    """
    counted = (place.journal, body.turn_id, place.at, int(not body.purpose and not body.refused))
    if body.by is not None and not body.purpose:
        place.run(SQL.drop_turn_persons, (place.journal,))
    for person in sorted({asker_owner(*each.place) for each in body.by or ()}):
        place.run(SQL.count_turn_person, (*counted, person))
    if body.by is not None and not body.purpose:
        place.run(SQL.take_turn_owner, counted)
    elif not body.purpose:
        place.run(SQL.take_turn_persons, counted)
    place.run(SQL.repeat_turn_persons, counted)
    place.run(SQL.take_turn_owner, counted)
    place.run(SQL.take_turn_everybody, counted)


@BUDGETS.projects(MessageAdded, TurnUsed, TurnEnded)
def project_turn_person(place: EntryPlace, body: Body) -> None:
    match body:
        case MessageAdded():
            # Whoever speaks to the agent in a chat is answered by the next turn.
            if is_spoken(body) and body.chat:
                person = person_owner(body.chat.partition(":")[0], body.author)
                place.run(SQL.add_turn_person, (place.journal, person))
        case TurnUsed(usage=used):
            figures = (used.input_tokens, used.output_tokens, used.cost_micros or 0)
            place.run(SQL.use_turn_person, (place.journal, body.turn_id, *figures))
        case TurnEnded():
            # A turn that asked no model is not counted.
            if body.state in {TurnState.COMPLETED, TurnState.FAILED}:
                place.run(SQL.spare_turn_persons, (place.journal, body.turn_id))


class BudgetCheck(NamedTuple):
    """Whether a turn may begin; when a limit is reached, what people are told, and which it is."""

    standing: BudgetState = BudgetState.FREE
    told: str = ""
    reached: str = ""


def spent_by(reading: Transaction | Reads, identities: Iterable[str], since: int) -> Spent:
    total = Spent()
    for identity in identities:
        row = reading.row(SQL.spent_since, (identity, since))
        total = total.plus(Spent(**dict(zip(Spent.__struct_fields__, row, strict=True))))
    return total


def judge(tx: Transaction, by: tuple[By, ...], owner: str, budget: Budget) -> BudgetCheck:
    """Return whether a turn may begin that these people ask for; one that nobody asks for is the session owner's."""
    now = tx.clock.now_microseconds()
    since, end = day_start(now, budget.time_zone), day_end(now, budget.time_zone)
    people = {asker_owner(*each.place) for each in by} or {owner}
    circles = {read_circle(tx, person) for person in people}
    looks = [(budget.person, spent_by(tx, circle, since), False) for circle in sorted(circles)]
    looks.append((budget.together, spent_by(tx, (EVERYBODY,), since), True))
    found = [(standing(allowance, spent), allowance, spent, together) for allowance, spent, together in looks]
    for state, allowance, spent, together in found:
        if state is BudgetState.REACHED:
            what = reached(allowance, spent)
            return BudgetCheck(state, refusal(what, end, together=together), what)
    return BudgetCheck(BudgetState.NEAR if any(state is BudgetState.NEAR for state, *_ in found) else BudgetState.FREE)


class Day(NamedTuple):
    """What the present day took, for somebody and for everybody."""

    person: Spent
    together: Spent


class Budgets(Namespace):
    """What was used, by whom, since a day began."""

    async def day(self, person: str, budget: Budget) -> Day:
        """Return what the present day took for a person, under all their names, and for everybody together."""
        since = day_start(self._caller.store.clock.now_microseconds(), budget.time_zone)

        def read(snapshot: Reads) -> Day:
            own = spent_by(snapshot, read_circle(snapshot, person), since)
            return Day(own, spent_by(snapshot, (EVERYBODY,), since))

        return await self._caller.read(read)

    async def reached(self, session_id: str, turn_id: str, budget: Budget) -> str:
        """Return which limit of the day is reached while a turn runs; empty when none is.

        Turns are not counted here: this one has begun.
        """
        since = day_start(self._caller.store.clock.now_microseconds(), budget.time_zone)

        def read(snapshot: Reads) -> str:
            journal = snapshot.row(JOURNAL.read_journal, (session_id,))
            rows = snapshot.rows(SQL.list_turn_persons, (journal[0], turn_id)) if journal is not None else []
            circles = {read_circle(snapshot, person) for (person,) in rows}
            looks = [(budget.person, circle) for circle in sorted(circles)]
            looks.append((budget.together, (EVERYBODY,)))
            found = (reached(of._replace(turns=None), spent_by(snapshot, names, since)) for of, names in looks)
            return next((what for what in found if what), "")

        return await self._caller.read(read)


# What one person brings in an hour: files, bytes, sessions.


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
            count_pace(place, pace_name(brought, body.person), count)


def brought_by(reads: Reads, brought: Brought, person: str, now: int) -> int:
    """Return how much a person brought in the hour that is open, under all accounts that are theirs."""
    paces = [read_pace(reads, pace_name(brought, owner)) for owner in {person, *read_circle(reads, person)}]
    return sum(pace.within(now, HOUR_MICROSECONDS) for pace in paces)


def allows(tx: Transaction, rules: IntakeRules, brought: Brought, person: str, more: int = 1) -> bool:
    return rules.quota.allows(brought, brought_by(tx, brought, person, tx.clock.now_microseconds()), more)


def count_used(tx: Transaction, person: str, *, files: int = 0, sessions: int = 0) -> None:
    add_at_home(tx, "quota", QuotaUsed(person=person, files=files, sessions=sessions))


def tell_over(tx: Transaction, words: Wording, brought: Brought, person: str, chat: str) -> None:
    """Tell a person that the hour's limit is reached: once an hour, however often it is."""
    hour = tx.clock.now_microseconds() // HOUR_MICROSECONDS
    key = hashlib.sha256(f"{brought}\n{person}\n{hour}".encode()).hexdigest()[:32]
    if chat and tx.find(home_journal(tx), f"over-{key}") is None:
        tell_at_home(tx, chat, getattr(words, f"over_{brought}"), f"over-{key}")


class Quotas(Namespace):
    """Files, bytes and sessions that people brought in an hour."""

    async def bytes_left(self, person: str, quota: Quota) -> int | None:
        """Return how many bytes a person may still bring in this hour; None: there is no limit."""
        return quota.left(Brought.BYTES, await self._spent(Brought.BYTES, person))

    async def may_begin_session(self, person: str, quota: Quota) -> bool:
        return quota.allows(Brought.SESSIONS, await self._spent(Brought.SESSIONS, person))

    async def _spent(self, brought: Brought, person: str) -> int:
        now = self._caller.store.clock.now_microseconds()
        return await self._caller.read(lambda snapshot: brought_by(snapshot, brought, person, now))
