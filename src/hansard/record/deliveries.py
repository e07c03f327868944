"""Deliveries: posts and edits on a channel, and the outbox of what waits to be shown.

Entries: delivery.created, .moved, message.delivered. Tables: delivery, outbox. SQL: deliveries.sql.
Invariants: a delivery is recorded as sending before the platform is called; a receipt, once known, stays.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.deliveries import DELIVERY_MOVES, Delivery, DeliveryState, Operation
from hansard.domain.ids import HOME_JOURNAL, check_entry_id, new_id
from hansard.domain.limits import (
    NAME_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
)
from hansard.domain.text import INTEGER_MAX, clean_text
from hansard.errors import IdConflict, InvalidInput, NotFound, WrongState
from hansard.journal.concepts import ENCODER, Body, Concept, EntryPlace, Table
from hansard.record.cleaning import clean_struct, one_of
from hansard.record.messages.entries import SHOWN_ROLES, MessageAdded, MessageOpened
from hansard.record.sessions import find_session, session_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hansard.journal.backend import Reads
    from hansard.journal.reading import Journal
    from hansard.journal.transaction import Transaction

DELIVERIES = Concept(
    "deliveries",
    "hansard.record",
    tables=(
        Table(name="delivery", order="id"),
        Table(name="outbox", columns="journal, message_id, chat, seq, follows", order="seq, message_id, chat"),
    ),
)
SQL = DELIVERIES.queries


@DELIVERIES.entry("message.delivered")
class MessageDelivered(Body, frozen=True):
    """A message needs no further delivery in a chat: it was shown there, or nobody tries any longer."""

    message_id: str
    chat: str
    outcome: str = "shown"
    """`shown`, `empty` (there was nothing to show), `set_aside` (the chat is gone) or `dropped` (by a person).

    `retried`: a person wants it to be tried again, so it waits for delivery once more.
    """
    reason: str = ""


@DELIVERIES.entry("delivery.created")
class DeliveryCreated(Body, frozen=True):
    """A message, or a stretch of it, or one of its files, is to be shown on a channel."""

    delivery_id: str
    channel: str
    target: str
    message_id: str
    operation: Operation = Operation.POST
    start_bytes: int = 0
    end_bytes: int = 0
    file: int = 0
    """The number of the message's file, from 1; 0: its words."""


@DELIVERIES.entry("delivery.moved")
class DeliveryMoved(Body, frozen=True):
    """A delivery changed its state."""

    delivery_id: str
    state: DeliveryState
    owner: str = ""
    receipt: str = ""
    reason: str = ""
    mark: str = ""  # what is shown above the words from now on, which may be shown twice
    end_bytes: int = 0  # how far its stretch goes from now on, when it was surely not shown before; 0: as it did


@DELIVERIES.projects(MessageAdded)
def project_message_shown(place: EntryPlace, body: MessageAdded) -> None:
    """A reply or a notice is shown in its chat, or where the running turn is shown.

    A notice with an author is a command, as a person wrote it: it is on the platform already. What came by an import
    was said elsewhere: nobody is shown it because it is here now.
    """
    if not body.imported and not body.author and body.role in SHOWN_ROLES:
        if body.chat:
            place.run(SQL.add_outbox, (place.journal, place.entry_id, body.chat, place.seq, int(body.follows)))
        else:
            place.run(SQL.add_outbox_of_running, (place.journal, place.entry_id, place.seq))


@DELIVERIES.projects(MessageOpened)
def project_reply_shown(place: EntryPlace, body: MessageOpened) -> None:
    """A reply is shown where its turn is shown."""
    place.run(SQL.add_outbox_of_turn, (place.journal, body.turn_id, place.entry_id, place.seq))


@DELIVERIES.projects(MessageDelivered)
def project_message_delivered(place: EntryPlace, body: MessageDelivered) -> None:
    if body.outcome == "retried":
        place.run(SQL.add_outbox, (place.journal, body.message_id, body.chat, place.seq, 0))
    else:
        place.run(SQL.drop_outbox, (place.journal, body.message_id, body.chat))


@DELIVERIES.projects(DeliveryCreated)
def project_delivery_created(place: EntryPlace, body: DeliveryCreated) -> None:
    place.run(
        SQL.insert_delivery,
        (
            place.journal,
            body.delivery_id,
            body.channel,
            body.target,
            body.message_id,
            body.operation,
            body.start_bytes,
            body.end_bytes,
            body.file,
        ),
    )


@DELIVERIES.projects(DeliveryMoved)
def project_delivery_moved(place: EntryPlace, body: DeliveryMoved) -> None:
    place_of = (place.journal, body.delivery_id)
    place.run(
        SQL.move_delivery,
        (body.state, body.owner, body.receipt, body.reason, *place_of, body.mark, body.end_bytes),
    )


RETRIED = "retried"
"""The outcome of a message that a person wants to be tried again."""


def journal_of(tx: Transaction, session_id: str) -> Journal:
    """Return a session's journal, or the home's: people without a session are told things, too."""
    if session_id == HOME_JOURNAL:
        home = tx.find_journal(HOME_JOURNAL)
        if home is not None:
            return home
    return session_journal(tx, session_id)[0]


def create_delivery(tx: Transaction, delivery: Delivery) -> Delivery:
    """Record that something is to be shown; the same delivery again changes nothing."""
    journal = journal_of(tx, delivery.session_id)
    body = DeliveryCreated(
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
    if tx.find_same(journal, entry_id, body, ENCODER.encode(body)) is None:
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
    body = DeliveryMoved(
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
    body = MessageDelivered(
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


@DELIVERIES.recovers
def end_lost_deliveries(reads: Reads, is_alive: Callable[[str], bool]) -> list[Callable[[Transaction], object]]:
    """Mark what dead owners were sending as unknown."""
    sending = reads.rows(SQL.sending_deliveries)
    dead = {owner for *_, owner in sending if not is_alive(owner)}
    return [
        partial(settle_dead_delivery, dead=DeadDelivery(session_id, delivery_id, new_id()), is_alive=is_alive)
        for session_id, delivery_id, owner in sending
        if owner in dead
    ]


@DELIVERIES.refolds
@contextmanager
def keep_outbox_order(reads: Reads, run: Callable[..., object]) -> Iterator[None]:
    """Messages that wait to be shown keep their numbers, which give the messages of several sessions their order."""
    order = reads.rows(SQL.outbox_order)
    yield
    for place in order:
        run(SQL.restore_outbox_number, place)


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


def check_delivery(delivery: Delivery) -> Delivery:
    """Check and clean a delivery."""
    check_entry_id(delivery.id)
    cleaned = clean_struct(delivery)
    if not 0 <= delivery.start_bytes <= delivery.end_bytes <= INTEGER_MAX:
        message = f"a delivery of the bytes {delivery.start_bytes} to {delivery.end_bytes}"
        raise InvalidInput(message)
    if not 0 <= delivery.file <= INTEGER_MAX:
        message = f"a delivery of file {delivery.file}"
        raise InvalidInput(message)
    return cleaned


def describe_delivery_move(  # noqa: PLR0917
    session_id: str, delivery_id: str, state: DeliveryState | str, receipt: str, reason: str, owner: str
) -> DeliveryMove:
    """Check and clean where a delivery goes."""
    return DeliveryMove(
        session_id,
        delivery_id,
        one_of(DeliveryState, state) or DeliveryState.PENDING,
        owner,
        clean_text(receipt)[:NAME_CHARACTERS_MAX],
        clean_text(reason)[:REASON_CHARACTERS_MAX],
        new_id(),
    )


class DeliveryFilter(NamedTuple):
    """Which deliveries to list."""

    session_id: str | None
    state: str | None
    channel: str | None
    limit: int
    after: Delivery | None


def list_deliveries(snapshot: Reads, wanted: DeliveryFilter) -> list[Delivery]:
    """Return deliveries, by session and id."""
    start, last = (0, ""), INTEGER_MAX
    if wanted.session_id is not None:
        last = find_session(snapshot, wanted.session_id).journal
        start = (last, "")
    if wanted.after is not None:
        start = max(start, (find_session(snapshot, wanted.after.session_id).journal, wanted.after.id))
    bindings = (*start, last, wanted.state, wanted.channel, wanted.limit)
    return [delivery_value(row[0], row[1:]) for row in snapshot.rows(SQL.list_deliveries, bindings)]
