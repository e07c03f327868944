"""Turns as they are read: by session, by state, by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.domain.turns import TurnInfo, TurnState
from hansard.record.sessions import find_session
from hansard.record.turns.entries import TURNS

if TYPE_CHECKING:
    from hansard.journal.backend import Reads
    from hansard.journal.reading import Journal
    from hansard.journal.transaction import Transaction


def list_turns(snapshot: Reads, session_id: str) -> list[TurnInfo]:
    """Return a session's turns, oldest first."""
    session = find_session(snapshot, session_id)
    return [turn_value(session_id, row) for row in snapshot.rows(TURNS.queries.list_turns, (session.journal,))]


def queued_turns(snapshot: Reads) -> list[TurnInfo]:
    """Return the turns that wait to run, in every session, oldest first within each."""
    return [turn_value(row[0], row[1:]) for row in snapshot.rows(TURNS.queries.queued_turns)]


def find_turn_by_name(snapshot: Reads, name: str) -> TurnInfo | None:
    """Return the turn that an id, or a unique beginning of one, names; None for none, or for several."""
    rows = snapshot.rows(TURNS.queries.find_turns_by_id, (name,)) if name else []
    exact = [row for row in rows if row[1] == name] or rows
    return turn_value(exact[0][0], exact[0][1:]) if len(exact) == 1 else None


def turn_value(session_id: str, row: tuple[Any, ...]) -> TurnInfo:
    """Return the turn of a row."""
    turn_id, state, fence, owner, reason = row
    return TurnInfo(id=turn_id, session_id=session_id, state=TurnState(state), fence=fence, owner=owner, reason=reason)


def find_turn(tx: Transaction, journal: Journal, state: TurnState) -> TurnInfo | None:
    """Return the running or the queued turn of a session."""
    row = tx.row(TURNS.queries.find_turn_in_state, (journal.key, state))
    return None if row is None else turn_value(journal.id, row)
