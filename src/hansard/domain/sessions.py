"""Sessions, the turns in them, the states of both, and the routes that lead to sessions."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec


class SessionState(StrEnum):
    """Whether a session takes new words."""

    OPEN = "open"
    ENDED = "ended"


SESSION_MOVES: dict[SessionState, frozenset[SessionState]] = {
    SessionState.OPEN: frozenset({SessionState.ENDED}),
    SessionState.ENDED: frozenset({SessionState.OPEN}),
}


class Link(StrEnum):
    """Why a session has a parent."""

    FORK = "fork"
    RESET = "reset"
    IMPORT = "import"


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The session that this one came from. A fork shares the parent's entries up to and including `at`."""

    session_id: str
    link: Link = Link.RESET
    at: int = 0


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation, as it stands now."""

    id: str
    source: str
    owner: str
    title: str | None = None
    state: SessionState = SessionState.OPEN
    end_reason: str | None = None
    parent: Parent | None = None
    created_at_microseconds: int = 0
    active_at_microseconds: int = 0
    messages: int = 0
    head_seq: int = 0
    archived: bool = False

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_at_microseconds / 1_000_000, UTC)

    @property
    def active_at(self) -> datetime:
        return datetime.fromtimestamp(self.active_at_microseconds / 1_000_000, UTC)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a session key leads to. The generation grows by one each time it moves."""

    key: str
    session_id: str
    generation: int
    reason: str = ""


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
