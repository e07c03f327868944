"""Recovery: turns whose owner is dead are ended as lost, and what they were to answer may be tried again (L6)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.turns import RESUMED_SUFFIX, TurnState
from hansard.journal.reading import open_stream
from hansard.record.sessions import session_journal
from hansard.record.turns.entries import SQL, TurnQueued
from hansard.record.turns.entries import TURNS as TURNS  # noqa: PLC0414 - whoever has it has recovery, too
from hansard.record.turns.operations import close_lost, inherited_by
from hansard.record.turns.reading import find_turn, turn_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hansard.domain.turns import TurnInfo
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.concepts import IsAlive
    from hansard.journal.reading import Journal
    from hansard.journal.transaction import Transaction

AGE_MICROSECONDS_MAX = 24 * 3600 * 1_000_000
"""What was lost longer ago is left alone: nobody waits for it any more."""

TURNS_MAX = 100
"""Turns that are taken up at one start."""


@TURNS.recovers
def end_lost_turns(reads: Reads, is_alive: IsAlive, words: Wording = ENGLISH) -> list[Callable[[Transaction], object]]:
    """End the turns of dead owners as lost (L6), and tell those who wait in a chat in these words."""
    running = reads.rows(SQL.running_turns)
    dead = {owner for *_, owner in running if not is_alive(owner)}
    return [
        partial(close_lost, session_id=session_id, is_alive=is_alive, words=words)
        for session_id, _, owner in running
        if owner in dead
    ]


@TURNS.checks_journal
def check_open_message(reads: Reads, journal: Journal) -> Iterator[tuple[str, str]]:
    """A message is open only while a turn runs."""
    stream_id = open_stream(reads, journal.id)
    if stream_id is not None and not reads.rows(SQL.find_turn_in_state, (journal.key, "running")):
        yield "turn", f"message {stream_id} is open and no turn runs"


class Recovery:
    """What was lost and may go on."""

    def __init__(self, caller: Caller) -> None:
        """Use `record.recovery`."""
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
    journal, _ = session_journal(tx, session_id)
    turn_id = f"{lost_id}{RESUMED_SUFFIX}"
    if any(find_turn(tx, journal, state) is not None for state in (TurnState.QUEUED, TurnState.RUNNING)):
        return None
    if lost_id.endswith(RESUMED_SUFFIX) or tx.find(journal, f"~queued:{turn_id}") is not None:
        return None
    by = inherited_by(tx, journal, lost_id)
    tx.add(journal, f"~queued:{turn_id}", TurnQueued(turn_id=turn_id, chats=chats, by=by))
    return turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn_id)))
