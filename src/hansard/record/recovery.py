"""Turns that a crash ended, queued to go on: `record.books.recovery`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.entries import TurnQueued
from hansard.domain.turns import RESUMED_SUFFIX, TurnInfo, TurnState
from hansard.record.operations.turns import find_turn, inherited_by, turn_value
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.record.calls import Caller
    from hansard.record.transaction import Transaction

AGE_MICROSECONDS_MAX = 24 * 3600 * 1_000_000
"""What was lost longer ago is left alone: nobody waits for it any more."""

TURNS_MAX = 100
"""Turns that are taken up at one start."""


class Recovery:
    """What was lost and may go on."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.books.recovery`."""
        self._caller = caller

    async def lost(self) -> list[tuple[str, str]]:
        """Return the open sessions whose last turn was lost lately, each with that turn."""
        since = self._caller.store.clock.now_microseconds() - AGE_MICROSECONDS_MAX
        return await self._caller.read(lambda snapshot: snapshot.rows(SQL.lost_turns, (since, TURNS_MAX)))

    async def queue(self, session_id: str, lost_id: str, chats: Sequence[str]) -> TurnInfo | None:
        """Queue the turn that goes on with a lost one, once; None when somebody has gone on already."""
        return await self._caller.write(lambda tx: queue_resumption(tx, session_id, lost_id, tuple(chats)))


def queue_resumption(tx: Transaction, session_id: str, lost_id: str, chats: tuple[str, ...]) -> TurnInfo | None:
    """Queue a turn that goes on, unless one runs or waits, or this one was taken up before."""
    journal, _ = tx.session(session_id)
    turn_id = f"{lost_id}{RESUMED_SUFFIX}"
    if any(find_turn(tx, journal, state) is not None for state in (TurnState.QUEUED, TurnState.RUNNING)):
        return None
    if lost_id.endswith(RESUMED_SUFFIX) or tx.find(journal, f"~queued:{turn_id}") is not None:
        return None
    by = inherited_by(tx, journal, lost_id)
    tx.add(journal, f"~queued:{turn_id}", TurnQueued(turn_id=turn_id, chats=chats, by=by))
    return turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn_id)))
