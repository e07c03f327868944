"""What a day took, as the rest of Hansard asks for it: `record.books.ledger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.budgets import EVERYBODY, Budget, Spent, day_start, reached
from hansard.record.operations.following import read_circle
from hansard.record.operations.ledger import last_askers, next_askers, spent_by
from hansard.record.sqlite.queries import SQL
from hansard.record.views import find_turn, read_session

if TYPE_CHECKING:
    from hansard.domain.turns import TurnInfo
    from hansard.record.calls import Caller
    from hansard.record.reading import Snapshot


class Day(NamedTuple):
    """What the present day took, for somebody and for everybody."""

    person: Spent
    together: Spent


class Ledger:
    """What was used, by whom, since a day began."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.ledger`."""
        self._caller = caller

    async def day(self, person: str, budget: Budget) -> Day:
        """Return what the present day took for a person, under all their names, and for everybody together."""
        since = day_start(self._caller.store.clock.now_microseconds(), budget.time_zone)

        def read(snapshot: Snapshot) -> Day:
            own = spent_by(snapshot, read_circle(snapshot.rows, person), since)
            return Day(own, spent_by(snapshot, (EVERYBODY,), since))

        return await self._caller.read(read)

    async def find_turn(self, name: str) -> TurnInfo | None:
        """Return the turn that an id, or a unique beginning of one, names, in whichever session; None for none."""
        return await self._caller.read(lambda snapshot: find_turn(snapshot, name))

    async def askers(self, session_id: str) -> tuple[str, ...]:
        """Return who asks for the next turn of a session, or asked for the last: each person by one of their names."""

        def read(snapshot: Snapshot) -> tuple[str, ...]:
            row = snapshot.row(SQL.read_journal, (session_id,))
            owner = read_session(snapshot, session_id).owner
            people = next_askers(snapshot.rows, row[0]) or last_askers(snapshot.rows, row[0]) or {owner}
            return tuple(sorted({read_circle(snapshot.rows, person)[0] for person in people}))

        return await self._caller.read(read)

    async def reached(self, session_id: str, turn_id: str, budget: Budget) -> str:
        """Return which limit of the day is reached while a turn runs; empty when none is.

        Turns are not counted here: this one has begun.
        """
        since = day_start(self._caller.store.clock.now_microseconds(), budget.time_zone)

        def read(snapshot: Snapshot) -> str:
            journal = snapshot.row(SQL.read_journal, (session_id,))
            rows = snapshot.rows(SQL.list_turn_persons, (journal[0], turn_id)) if journal is not None else []
            circles = {read_circle(snapshot.rows, person) for (person,) in rows}
            looks = [(budget.person, circle) for circle in sorted(circles)]
            looks.append((budget.together, (EVERYBODY,)))
            found = (reached(of._replace(turns=None), spent_by(snapshot, names, since)) for of, names in looks)
            return next((what for what in found if what), "")

        return await self._caller.read(read)
