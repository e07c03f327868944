"""What people do to a conversation: stop and steer its turns, take messages back, set it up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain import entries as e
from hansard.domain.chats import asker_owner
from hansard.domain.settings import Busy
from hansard.domain.turns import By, How, TurnInfo, TurnState
from hansard.errors import LeaseHeld, NotFound
from hansard.record.operations.ledger import next_askers
from hansard.record.operations.turns import add_askers, close_lost, end_queued, find_turn, is_chore, read_by, turn_value
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Collection

    from hansard.record.journals import Journal
    from hansard.record.operations.turns import IsAlive
    from hansard.record.transaction import Transaction


def stop_turns(
    tx: Transaction, session_id: str, reason: str, is_alive: IsAlive, *, queued: bool, asked_by: Collection[str] = ()
) -> list[TurnInfo]:
    """Ask the running turn to stop, and end the queued one where that is meant too; return those that it concerns.

    A turn whose owner is dead cannot be asked: it is ended as lost. `asked_by`: only turns that these owners, who are
    one person, asked for, and nobody else.
    """
    journal, _ = tx.session(session_id)
    close_lost(tx, session_id, is_alive)
    stopped = []
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None and is_asked_by(turn_askers(tx, journal, running.id), asked_by):
        stopped.append(running)
        if tx.find(journal, f"~stop:{running.id}") is None:
            tx.add(journal, f"~stop:{running.id}", e.TurnStopping(turn_id=running.id, reason=reason))
    may_end = queued and is_asked_by(next_askers(tx.rows, journal.key), asked_by)
    waiting = end_queued(tx, journal, reason) if may_end else None
    if waiting is not None:
        stopped.append(waiting)
    return [turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn.id))) for turn in stopped]


def turn_askers(tx: Transaction, journal: Journal, turn_id: str) -> set[str]:
    """Return the owners who asked for a turn."""
    return {asker_owner(*each.place) for each in read_by(tx, journal, turn_id)}


def is_asked_by(asked: set[str], owners: Collection[str]) -> bool:
    """Return whether only these owners asked. Without owners it is always so."""
    return not owners or (bool(asked) and asked <= {*owners})


def meet_running_turn(
    tx: Transaction, session_id: str, message_ids: tuple[str, ...], busy: Busy, is_alive: IsAlive
) -> None:
    """Say what new messages mean for the turn that runs: it is interrupted, or steered, or goes on.

    A turn that answers nobody is neither interrupted nor steered: it sees by itself that somebody waits.
    """
    journal, _ = tx.session(session_id)
    if is_chore(tx, journal):
        return
    if busy is Busy.INTERRUPT:
        stop_turns(tx, session_id, "a new message came", is_alive, queued=False)
    elif busy is Busy.STEER:
        running = find_turn(tx, journal, TurnState.RUNNING)
        for message_id in message_ids if running is not None else ():
            if running is not None and tx.find(journal, f"~steer:{message_id}") is None:
                person, chat = said_in(tx, journal, message_id)
                steered = e.TurnSteered(turn_id=running.id, message_id=message_id, chat=chat)
                tx.add(journal, f"~steer:{message_id}", steered)
                if person:
                    by = By(person=person, chat=chat, how=How.STEERING)
                    add_askers(tx, journal, running.id, (by,))


def said_in(tx: Transaction, journal: Journal, message_id: str) -> tuple[str, str]:
    """Return who said a message, and in which chat; both are empty when nobody knows."""
    found = tx.find(journal, message_id)
    body = e.decode_body(found.kind, found.version, found.body) if found is not None else None
    return (body.author, body.chat) if isinstance(body, e.MessageAdded) and body.author else ("", "")


def undo(tx: Transaction, session_id: str, undone: e.MessagesUndone | e.MessagesRestored, token: str) -> None:
    """Take messages back, or let them be there again. A running turn builds on them, so it has to end first."""
    if not undone.message_ids:
        return
    journal, _ = tx.session(session_id)
    entry_id = f"~undo:{token}" if isinstance(undone, e.MessagesUndone) else f"~restore:{token}"
    if tx.find(journal, entry_id) is not None:
        return
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None:
        message = f"turn {running.id} of {running.owner} runs in session {session_id}"
        raise LeaseHeld(message, running.owner)
    for message_id in undone.message_ids:
        if tx.find(journal, message_id) is None:
            message = f"there is no message {message_id} in session {session_id}"
            raise NotFound(message)
    tx.add(journal, entry_id, undone)


def freeze(tx: Transaction, session_id: str, frozen: e.SessionFrozen) -> e.SessionFrozen:
    """Fix what the model is told in this session; what was fixed first stays, and is returned."""
    journal, _ = tx.session(session_id)
    found = tx.find(journal, "~frozen")
    if found is not None:
        body = e.decode_body(found.kind, found.version, found.body)
        return body if isinstance(body, e.SessionFrozen) else frozen
    tx.add(journal, "~frozen", frozen)
    return frozen


def set_setting(tx: Transaction, session_id: str, setting: e.SessionSet, token: str) -> None:
    """Change a setting of a session."""
    journal, _ = tx.session(session_id)
    if tx.find(journal, f"~set:{token}") is None:
        tx.add(journal, f"~set:{token}", setting)
