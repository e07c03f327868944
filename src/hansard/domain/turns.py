"""Turns: one run of the agent, from its trigger to its end."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

RESUMED_SUFFIX: Final = "-resumed"
"""How the id of a turn ends that goes on with a lost one, whose id stands before it."""


class How(StrEnum):
    """By what somebody asked for a turn."""

    MESSAGE = "message"
    RETRY = "retry"
    COMPACT = "compact"
    STEERING = "steering"
    RECOVERY = "recovery"
    """They asked for a turn that a crash ended, and this one goes on with it, or repeats it."""


class By(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody who asked for a turn: what the platform calls them (or `person:NAME` at the terminal), where, and how.

    Budgets come from this alone, rights from this and from who said what the turn answers (`askers.needed_of`). A
    message without an author adds nobody.
    """

    person: str
    chat: str = ""
    how: How = How.MESSAGE

    @property
    def place(self) -> tuple[str, str]:
        """Who it is, and in which chat they asked."""
        return (self.person, self.chat)


def joined(before: tuple[By, ...], more: tuple[By, ...]) -> tuple[By, ...]:
    """Return all who asked, each once."""
    return tuple(dict.fromkeys((*before, *more)))


def recovered(by: tuple[By, ...]) -> tuple[By, ...]:
    """Return who asked for a turn that repeats a lost one, or goes on with it: the same people."""
    again = tuple(By(person=each.person, chat=each.chat, how=How.RECOVERY) for each in by)
    return joined(by, again)


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
