"""What a person says: recorded on receipt, with the turn that is to answer it.

Reads: nothing. Writes: the message, the queued turn and what becomes of the running one, in one commit (L2).
Invariants: whoever is told that a message was taken finds it in the record.
On crash: the message and its queued turn are there, or neither is and nobody was told otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import Message
from hansard.domain.settings import Busy
from hansard.errors import OutcomeUnknown, SessionEnded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.record.api import Record

ATTEMPTS_MAX = 2
"""Tries while nobody knows whether a message was written; each waits as long as the record's patience."""

REOPENED = "This session had ended; it is open again."


class Spoken(NamedTuple):
    """What was said is recorded: the position before it, and the turn that answers it.

    `waits`: another turn ran at that moment. There is no turn when it answered a question of the one that runs.
    """

    after: str
    turn_id: str
    waits: bool = False


async def speak(
    record: Record, session_id: str, messages: Sequence[Message], busy: Busy, *, answers: bool = False
) -> Spoken:
    """Record messages and ask for a turn. An ended session is reopened.

    `answers`: whoever speaks sees the session, so that a plain yes answers what its turn asks.
    """
    try:
        return await _accept(record, session_id, messages, busy, answers=answers)
    except SessionEnded:
        await record.reopen_session(session_id)
    return await _accept(record, session_id, [Message.notice(REOPENED), *messages], busy, answers=answers)


async def _accept(record: Record, session_id: str, messages: Sequence[Message], busy: Busy, *, answers: bool) -> Spoken:
    """Record it, once: whether it was written after all is settled by repeating the same ids (L7)."""
    said = [(session_id, message) for message in messages]
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            accepted = await record.accept(said, queue_turn=True, busy=busy, answers=answers)
            break
        except OutcomeUnknown:
            continue
    else:
        accepted = await record.accept(said, queue_turn=True, busy=busy, answers=answers)
    turn_id = accepted.turns[0].id if accepted.turns else ""
    return Spoken(str(accepted.entries[0].seq - 1), turn_id, accepted.waits)


async def busy_of(record: Record, session_id: str, otherwise: Busy) -> Busy:
    """Return what this session does with messages that come while a turn runs."""
    setting = (await record.conversation(session_id)).settings.get("busy", "")
    return Busy(setting) if setting in set(Busy) else otherwise
