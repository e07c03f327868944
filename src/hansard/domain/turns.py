"""Turns: one run of the agent, from its trigger to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

RESUMED_SUFFIX: Final = "-resumed"
"""How the id of a turn ends that goes on with a lost one, whose id stands before it."""


class TurnState(StrEnum):
    """How far a turn got."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    LOST = "lost"


TURN_ENDS = frozenset({TurnState.COMPLETED, TurnState.INTERRUPTED, TurnState.FAILED, TurnState.LOST})

TURN_MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.QUEUED: frozenset({TurnState.RUNNING, TurnState.INTERRUPTED}),
    TurnState.RUNNING: TURN_ENDS,
    TurnState.COMPLETED: frozenset(),
    TurnState.INTERRUPTED: frozenset(),
    TurnState.FAILED: frozenset(),
    TurnState.LOST: frozenset(),
}


class TurnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as the record knows it. The fence is the seq of its start entry, so no rebuild ever reuses one."""

    id: str
    session_id: str
    state: TurnState
    fence: int = 0
    owner: str = ""
    reason: str = ""
