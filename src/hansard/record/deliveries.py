"""Deliveries: posts and edits on a channel, and the outbox of what waits to be shown.

Entries: delivery.created, .moved, message.delivered. Tables: delivery, outbox. SQL: deliveries.sql.
Invariants: a delivery is recorded as sending before the platform is called; a receipt, once known, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from hansard.domain.chats import chats_of, parts_of
from hansard.domain.deliveries import DELIVERY_MOVES, Backlog, Delivery, DeliveryState, Operation, OutboxItem
from hansard.domain.ids import HOME_JOURNAL, check_entry_id, delivery_prefix, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, READ_ROWS_MAX, REASON_CHARACTERS_MAX
from hansard.domain.messages import Message
from hansard.domain.text import INTEGER_MAX, clean_name, clean_struct, clean_text, read_state
from hansard.errors import IdConflict, InvalidInput, NotFound, WrongState
from hansard.journal.backend import Reads
from hansard.journal.concepts import ENCODER, Body, Concept, EntryPlace, IsAlive, Table
from hansard.journal.entries import Journal
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction
from hansard.record import Namespace
from hansard.record.messages.entries import SHOWN_ROLES, MessageAdded, MessageOpened
from hansard.record.messages.operations import read_message
from hansard.record.sessions import find_session, session_journal

DELIVERIES = Concept(
    "deliveries",
    "hansard.record",
    tables=(
        Table(name="delivery", order="id"),
        Table(name="outbox", columns="journal, message_id, chat, seq, follows", order="seq, message_id, chat"),
    ),
)
SQL = DELIVERIES.queries

RETRIED = "retried"
"""The outcome of a message that a person wants to be tried again."""

OUTCOMES = frozenset({"shown", "empty", "set_aside", "dropped", RETRIED})
"""What can become of a message in a chat."""


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


@DELIVERIES.projects(MessageAdded, MessageOpened, MessageDelivered, DeliveryCreated, DeliveryMoved)
def project_delivery(place: EntryPlace, body: Body) -> None:
    match body:
        case MessageAdded():
            # A reply or a notice is shown in its chat, or where the running turn is shown. A notice with an author is a
            # command, as a person wrote it: it is on the platform already. What came by an import was said elsewhere:
            # nobody is shown it because it is here now.
            if not body.imported and not body.author and body.role in SHOWN_ROLES:
                if body.chat:
                    place.run(SQL.add_outbox, (place.journal, place.entry_id, body.chat, place.seq, int(body.follows)))
                else:
                    place.run(SQL.add_outbox_of_running, (place.journal, place.entry_id, place.seq))
        case MessageOpened():
            # A reply is shown where its turn is shown.
            place.run(SQL.add_outbox_of_turn, (place.journal, body.turn_id, place.entry_id, place.seq))
        case MessageDelivered():
            if body.outcome == RETRIED:
                place.run(SQL.add_outbox, (place.journal, body.message_id, body.chat, place.seq, 0))
            else:
                place.run(SQL.drop_outbox, (place.journal, body.message_id, body.chat))
        case DeliveryCreated():
            place.run(SQL.insert_delivery, (place.journal, *msgspec.structs.astuple(body)))
        case DeliveryMoved():
            moved = (body.state, body.owner, body.receipt, body.reason)
            place.run(SQL.move_delivery, (*moved, place.journal, body.delivery_id, body.mark, body.end_bytes))


def journal_of(tx: Transaction, session_id: str) -> Journal:
    """Return a session's journal, or the home's: people without a session are told things, too."""
    if session_id == HOME_JOURNAL:
        home = tx.find_journal(HOME_JOURNAL)
        if home is not None:
            return home
    return session_journal(tx, session_id)[0]


def create_delivery(tx: Transaction, delivery: Delivery) -> Delivery:
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
        raise NotFound(f"there is no message {delivery.message_id} in session {delivery.session_id}")
    entry_id = f"~delivery:{delivery.id}"
    if tx.find_same(journal, entry_id, body, ENCODER.encode(body)) is None:
        tx.add(journal, entry_id, body)
    created = find_delivery(tx, delivery.session_id, delivery.id)
    if created is None:
        raise IdConflict(f"delivery {delivery.id} belongs to the session that {delivery.session_id} was forked from")
    return created


def find_delivery(tx: Transaction, session_id: str, delivery_id: str) -> Delivery | None:
    row = tx.row(SQL.find_delivery, (journal_of(tx, session_id).key, delivery_id))
    return None if row is None else delivery_value(session_id, row)


def move_delivery(
    tx: Transaction,
    session_id: str,
    delivery_id: str,
    state: DeliveryState,
    *,
    token: str,
    owner: str = "",
    receipt: str = "",
    reason: str = "",
    mark: str = "",
    end_bytes: int = 0,
) -> Delivery:
    """Move a delivery; an ended session accepts this too (rule 19)."""
    journal = journal_of(tx, session_id)
    now = find_delivery(tx, session_id, delivery_id)
    if now is None:
        raise NotFound(f"there is no delivery {delivery_id} in session {session_id}")
    if tx.find(journal, f"~moved:{token}") is not None:
        return now
    if state not in DELIVERY_MOVES[now.state]:
        raise WrongState(f"delivery {delivery_id} is {now.state}: it cannot become {state}")
    body = DeliveryMoved(
        delivery_id=delivery_id,
        state=state,
        owner=owner if state == DeliveryState.SENDING else "",
        receipt=receipt,
        reason=reason,
        mark=mark,
        end_bytes=end_bytes,
    )
    tx.add(journal, f"~moved:{token}", body)
    return delivery_value(session_id, tx.row(SQL.find_delivery, (journal.key, delivery_id)))


def begin_delivery(tx: Transaction, delivery: Delivery, owner: str, token: str) -> Delivery:
    """Create a delivery, unless it is there, and say that it is on its way, marked or not: a commit before the call."""
    known = find_tried(tx, delivery) or create_delivery(tx, delivery)
    return move_delivery(
        tx,
        delivery.session_id,
        delivery.id,
        DeliveryState.SENDING,
        token=token,
        owner=owner,
        mark="" if known.mark == delivery.mark else delivery.mark,
        end_bytes=0 if known.end_bytes == delivery.end_bytes else delivery.end_bytes,
    )


def find_tried(tx: Transaction, delivery: Delivery) -> Delivery | None:
    """Return words that were tried before, as they are recorded now.

    Their stretch may go further than when they were created: it can grow as long as they were surely not shown.
    """
    may_be_known = delivery.attempts and not delivery.file
    known = find_delivery(tx, delivery.session_id, delivery.id) if may_be_known else None
    if known is None:
        return None
    asked = (delivery.channel, delivery.target, delivery.message_id, delivery.operation, delivery.start_bytes)
    is_same = asked == (known.channel, known.target, known.message_id, known.operation, known.start_bytes)
    may_grow = known.state is DeliveryState.PENDING and known.end_bytes <= delivery.end_bytes
    return known if is_same and (may_grow or known.end_bytes == delivery.end_bytes) else None


def finish_message(
    tx: Transaction, session_id: str, message_id: str, chat: str, *, outcome: str, reason: str, token: str
) -> bool:
    """Say that a message needs no further delivery in a chat, or, `retried`, that it does; return whether that is news.

    An ended session accepts this too. A message that does not wait is finished already.
    """
    journal = journal_of(tx, session_id)
    waits = tx.row(SQL.find_outbox, (journal.key, message_id, chat)) is not None
    if waits == (outcome == RETRIED):
        return False
    if tx.find(journal, message_id) is None:
        raise NotFound(f"there is no message {message_id} in session {session_id}")
    body = MessageDelivered(message_id=message_id, chat=chat, outcome=outcome, reason=reason)
    tx.add(journal, f"~delivered:{token}", body)
    return True


@DELIVERIES.recovers(SQL.sending_deliveries)
def end_lost_delivery(sending: tuple[Any, ...], is_alive: IsAlive) -> Callable[[Transaction], object]:
    """Mark what a dead process was sending as unknown: it may have been shown."""
    session_id, delivery_id, _ = sending
    token = new_id()

    def end(tx: Transaction) -> None:
        delivery = find_delivery(tx, session_id, delivery_id)
        if delivery is not None and delivery.state == DeliveryState.SENDING and not is_alive(delivery.owner):
            reason = f"its sender {delivery.owner} is gone"
            move_delivery(tx, session_id, delivery.id, DeliveryState.UNKNOWN, reason=reason, token=token)

    return end


@contextmanager
def keep_outbox_order(reads: Reads, run: Callable[..., object]) -> Iterator[None]:
    """Messages that wait to be shown keep their numbers, which give the messages of several sessions their order."""
    order = reads.rows(SQL.outbox_order)
    yield
    for place in order:
        run(SQL.restore_outbox_number, place)


DELIVERIES.refold = keep_outbox_order


ROW_FIELDS = tuple(name for name in Delivery.__struct_fields__ if name != "session_id")


def delivery_value(session_id: str, row: tuple[Any, ...]) -> Delivery:
    return msgspec.convert({**dict(zip(ROW_FIELDS, row, strict=True)), "session_id": session_id}, Delivery)


def check_delivery(delivery: Delivery) -> Delivery:
    check_entry_id(delivery.id)
    cleaned = clean_struct(delivery)
    if not 0 <= delivery.start_bytes <= delivery.end_bytes <= INTEGER_MAX:
        raise InvalidInput(f"a delivery of the bytes {delivery.start_bytes} to {delivery.end_bytes}")
    if not 0 <= delivery.file <= INTEGER_MAX:
        raise InvalidInput(f"a delivery of file {delivery.file}")
    return cleaned


def list_message_deliveries(snapshot: Reads, session_id: str, message_id: str, chat: str) -> list[Delivery]:
    """Return the deliveries of a message in a chat, in their order: their ids begin alike, and sort."""
    prefix = delivery_prefix(message_id, chat)
    journal = snapshot.row(JOURNAL.read_journal, (session_id,))
    rows = snapshot.rows(SQL.deliveries_between, (journal[0], prefix, f"{prefix}~")) if journal else []
    return [delivery_value(session_id, row) for row in rows]


class Deliveries(Namespace):
    """`record.deliveries`: what waits to be shown in chats, and what becomes of it.

    What is shown is read from here, after it is durable. On crash: what was on its way is unknown, and whoever
    delivers next settles it.
    """

    async def create(self, delivery: Delivery) -> Delivery:
        """Record that a message is to be shown on a channel; the same delivery again changes nothing."""
        cleaned = check_delivery(delivery)
        return await self._caller.write(lambda tx: create_delivery(tx, cleaned))

    async def begin(self, delivery: Delivery) -> Delivery:
        """Record a delivery, unless it is there, and that it is on its way: one commit, before the call."""
        cleaned, owner, token = check_delivery(delivery), self._caller.store.owner, new_id()
        return await self._caller.write(lambda tx: begin_delivery(tx, cleaned, owner, token))

    async def move(
        self, session_id: str, delivery_id: str, state: DeliveryState | str, *, receipt: str = "", reason: str = ""
    ) -> Delivery:
        """Move a delivery to another state, by the table of allowed moves."""
        move = partial(
            move_delivery,
            session_id=session_id,
            delivery_id=delivery_id,
            state=read_state(DeliveryState, state),
            owner=self._caller.store.owner,
            receipt=clean_text(receipt)[:NAME_CHARACTERS_MAX],
            reason=clean_text(reason)[:REASON_CHARACTERS_MAX],
            token=new_id(),
        )
        return await self._caller.write(move, ending=True)

    async def list_of_message(self, session_id: str, message_id: str, chat: str) -> list[Delivery]:
        return await self._caller.read(lambda snapshot: list_message_deliveries(snapshot, session_id, message_id, chat))

    async def list_of_chat(self, chat: str) -> list[Delivery]:
        """Return everything that was sent to a chat and to its threads. It looks at all deliveries: for audits."""
        found: list[Delivery] = []
        while True:
            last = (found[-1].session_id, found[-1].id) if found else ("", "")
            bindings = (chat, *parts_of(chat), *last, READ_ROWS_MAX)
            rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.deliveries_to, bindings))  # noqa: B023
            found += [delivery_value(row[0], row[1:]) for row in rows]
            if len(rows) < READ_ROWS_MAX:
                return found

    async def load_message(self, session_id: str, message_id: str, chat: str) -> tuple[Message, list[Delivery]]:
        """Return a message as it stands, and its deliveries in a chat, of one moment."""
        return await self._caller.read(
            lambda snapshot: (
                read_message(snapshot, session_id, message_id),
                list_message_deliveries(snapshot, session_id, message_id, chat),
            )
        )

    async def read_time(self, delivery: Delivery) -> int:
        """Return when a delivery was recorded, in microseconds of the wall clock."""

        def read(snapshot: Reads) -> int:
            journal = snapshot.row(JOURNAL.read_journal, (delivery.session_id,))
            row = snapshot.row(JOURNAL.find_entry, (journal[0], f"~delivery:{delivery.id}")) if journal else None
            return 0 if row is None else int(row[3])

        return await self._caller.read(read)

    async def list_waiting(self, channel: str, *, after: int = 0, limit: int = READ_ROWS_MAX) -> list[OutboxItem]:
        """Return what waits to be shown in a channel's chats, the oldest first, a page after a number."""
        bindings = (after, *chats_of(channel), max(0, min(limit, READ_ROWS_MAX)))
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.list_outbox, bindings))
        named = [dict(zip(OutboxItem.__struct_fields__, row, strict=True)) for row in rows]
        return msgspec.convert(named, list[OutboxItem], strict=False)  # the flags are numbers in the database

    async def count_waiting(self, channel: str) -> Backlog:
        def read(snapshot: Reads) -> Backlog:
            messages, oldest = snapshot.row(SQL.count_outbox, chats_of(channel))
            states = dict(snapshot.rows(SQL.count_deliveries, (channel,)))
            return Backlog(messages=messages, oldest_at_microseconds=oldest, deliveries=states)

        return await self._caller.read(read)

    async def finish_message(
        self, session_id: str, message_id: str, chat: str, outcome: str = "shown", reason: str = ""
    ) -> bool:
        """Say what became of a message in a chat; return whether it waited there. `retried` lets it wait again."""
        if outcome not in OUTCOMES:
            raise InvalidInput(f"{outcome!r} is none of {', '.join(sorted(OUTCOMES))}")
        finish = partial(
            finish_message,
            session_id=session_id,
            message_id=message_id,
            chat=clean_name(chat, "a chat", NAME_CHARACTERS_MAX),
            outcome=outcome,
            reason=clean_text(reason)[:REASON_CHARACTERS_MAX],
            token=new_id(),
        )
        return await self._caller.write(finish, ending=True)

    async def list(
        self,
        *,
        session_id: str | None = None,
        state: DeliveryState | str | None = None,
        channel: str | None = None,
        limit: int = READ_ROWS_MAX,
        after: Delivery | None = None,
    ) -> list[Delivery]:
        """Return deliveries, by session and id; `after` is the last one of the page before."""
        wanted = None if state is None else read_state(DeliveryState, state)

        def read(snapshot: Reads) -> list[Delivery]:
            start, last = (0, ""), INTEGER_MAX
            if session_id is not None:
                last = find_session(snapshot, session_id).journal
                start = (last, "")
            if after is not None:
                start = max(start, (find_session(snapshot, after.session_id).journal, after.id))
            rows = snapshot.rows(SQL.list_deliveries, (*start, last, wanted, channel, limit))
            return [delivery_value(row[0], row[1:]) for row in rows]

        return await self._caller.read(read)
