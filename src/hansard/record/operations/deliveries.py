"""Deliveries: created with a message, then moved from state to state by the table of allowed moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.deliveries import DELIVERY_MOVES, Delivery, DeliveryState, Operation
from hansard.domain.ids import HOME_JOURNAL
from hansard.errors import IdConflict, NotFound, WrongState
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.record.journals import Journal
    from hansard.record.transaction import Transaction


RETRIED = "retried"
"""The outcome of a message that a person wants to be tried again."""


def delivery_value(session_id: str, row: tuple[str, ...]) -> Delivery:
    """Return the delivery of a row."""
    (
        delivery_id,
        channel,
        target,
        message_id,
        operation,
        start_bytes,
        end_bytes,
        file,
        state,
        attempts,
        owner,
        receipt,
        reason,
        mark,
    ) = row
    return Delivery(
        id=delivery_id,
        session_id=session_id,
        channel=channel,
        target=target,
        message_id=message_id,
        operation=Operation(operation),
        start_bytes=int(start_bytes),
        end_bytes=int(end_bytes),
        file=int(file),
        state=DeliveryState(state),
        attempts=int(attempts),
        owner=owner,
        receipt=receipt,
        reason=reason,
        mark=mark,
    )


def journal_of(tx: Transaction, session_id: str) -> Journal:
    """Return a session's journal, or the home's: people without a session are told things, too."""
    if session_id == HOME_JOURNAL:
        home = tx.find_journal(HOME_JOURNAL)
        if home is not None:
            return home
    return tx.session(session_id)[0]


def create_delivery(tx: Transaction, delivery: Delivery) -> Delivery:
    """Record that something is to be shown; the same delivery again changes nothing."""
    journal = journal_of(tx, delivery.session_id)
    body = e.DeliveryCreated(
        delivery_id=delivery.id,
        channel=delivery.channel,
        target=delivery.target,
        message_id=delivery.message_id,
        operation=delivery.operation,
        start_bytes=delivery.start_bytes,
        end_bytes=delivery.end_bytes,
        file=delivery.file,
    )
    if tx.find(journal, delivery.message_id) is None:
        message = f"there is no message {delivery.message_id} in session {delivery.session_id}"
        raise NotFound(message)
    entry_id = f"~delivery:{delivery.id}"
    if tx.find_same(journal, entry_id, body, e.ENCODER.encode(body)) is None:
        tx.add(journal, entry_id, body)
    row = tx.row(SQL.find_delivery, (journal.key, delivery.id))
    if row is None:
        message = f"delivery {delivery.id} belongs to the session that {delivery.session_id} was forked from"
        raise IdConflict(message)
    return delivery_value(delivery.session_id, row)


class DeliveryMove(NamedTuple):
    """A change of state, by whoever sends it."""

    session_id: str
    delivery_id: str
    state: DeliveryState
    owner: str = ""
    receipt: str = ""
    reason: str = ""
    operation_id: str = ""
    mark: str = ""
    end_bytes: int = 0


def move_delivery(tx: Transaction, move: DeliveryMove) -> Delivery:
    """Move a delivery; an ended session accepts this too (rule 19)."""
    journal = journal_of(tx, move.session_id)
    row = tx.row(SQL.find_delivery, (journal.key, move.delivery_id))
    if row is None:
        message = f"there is no delivery {move.delivery_id} in session {move.session_id}"
        raise NotFound(message)
    now = delivery_value(move.session_id, row)
    entry_id = f"~moved:{move.operation_id}"
    if tx.find(journal, entry_id) is not None:
        return now
    if move.state not in DELIVERY_MOVES[now.state]:
        message = f"delivery {move.delivery_id} is {now.state}: it cannot become {move.state}"
        raise WrongState(message)
    body = e.DeliveryMoved(
        delivery_id=move.delivery_id,
        state=move.state,
        owner=move.owner if move.state == DeliveryState.SENDING else "",
        receipt=move.receipt,
        reason=move.reason,
        mark=move.mark,
        end_bytes=move.end_bytes,
    )
    tx.add(journal, entry_id, body)
    return delivery_value(move.session_id, tx.row(SQL.find_delivery, (journal.key, move.delivery_id)))


def begin_delivery(tx: Transaction, delivery: Delivery, owner: str, operation_id: str) -> Delivery:
    """Create a delivery, unless it is there, and say that it is on its way, marked or not: a commit before the call."""
    known = find_waiting(tx, delivery) or create_delivery(tx, delivery)
    move = DeliveryMove(
        delivery.session_id,
        delivery.id,
        DeliveryState.SENDING,
        owner,
        operation_id=operation_id,
        mark="" if known.mark == delivery.mark else delivery.mark,
        end_bytes=0 if known.end_bytes == delivery.end_bytes else delivery.end_bytes,
    )
    return move_delivery(tx, move)


def find_waiting(tx: Transaction, delivery: Delivery) -> Delivery | None:
    """Return words that were tried and surely not shown: their stretch may go further than when it was created."""
    if not delivery.attempts or delivery.file:
        return None
    row = tx.row(SQL.find_delivery, (journal_of(tx, delivery.session_id).key, delivery.id))
    known = delivery_value(delivery.session_id, row) if row is not None else None
    if known is None or known.state is not DeliveryState.PENDING:
        return None
    asked = (delivery.channel, delivery.target, delivery.message_id, delivery.operation, delivery.start_bytes)
    is_same = asked == (known.channel, known.target, known.message_id, known.operation, known.start_bytes)
    return known if is_same and known.end_bytes <= delivery.end_bytes else None


class Settling(NamedTuple):
    """What became of a message in a chat."""

    session_id: str
    message_id: str
    chat: str
    outcome: str
    reason: str
    operation_id: str


def settle_message(tx: Transaction, settling: Settling) -> bool:
    """Say that a message needs no further delivery in a chat, or, `retried`, that it does; return whether that is news.

    An ended session accepts this too. What does not wait is settled already.
    """
    journal = journal_of(tx, settling.session_id)
    waits = tx.row(SQL.find_outbox, (journal.key, settling.message_id, settling.chat)) is not None
    if waits == (settling.outcome == RETRIED):
        return False
    if tx.find(journal, settling.message_id) is None:
        message = f"there is no message {settling.message_id} in session {settling.session_id}"
        raise NotFound(message)
    body = e.MessageDelivered(
        message_id=settling.message_id, chat=settling.chat, outcome=settling.outcome, reason=settling.reason
    )
    tx.add(journal, f"~delivered:{settling.operation_id}", body)
    return True


class DeadDelivery(NamedTuple):
    """A delivery that was on its way when its sender died."""

    session_id: str
    delivery_id: str
    operation_id: str


def settle_dead_delivery(tx: Transaction, dead: DeadDelivery, is_alive: Callable[[str], bool]) -> bool:
    """Mark what a dead process was sending as unknown: it may have been shown."""
    journal = journal_of(tx, dead.session_id)
    row = tx.row(SQL.find_delivery, (journal.key, dead.delivery_id))
    if row is None:
        return False
    delivery = delivery_value(dead.session_id, row)
    if delivery.state != DeliveryState.SENDING or is_alive(delivery.owner):
        return False
    reason = f"its sender {delivery.owner} is gone"
    move = DeliveryMove(
        dead.session_id, delivery.id, DeliveryState.UNKNOWN, reason=reason, operation_id=dead.operation_id
    )
    move_delivery(tx, move)
    return True
