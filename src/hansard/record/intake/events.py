"""Events of platforms: their entries, and the receipts that let each be taken once (L2).

Entries (home journal): intake.accepted, .held, cursor.moved. Tables: intake, held, cursor. SQL: intake.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.arrivals import ArrivalOutcome, Origin, RouteChange
from hansard.domain.ids import new_id
from hansard.domain.messages import Message, Role, Text
from hansard.domain.people import is_person
from hansard.domain.sessions import TurnInfo
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import home_journal
from hansard.record.messages.entries import Entry, MessageAdded
from hansard.record.messages.operations import append, entry_of, offer
from hansard.record.routes import move_route
from hansard.record.sessions import session_journal
from hansard.record.turns.entries import TURNS, turn_value

if TYPE_CHECKING:
    from hansard.journal.transaction import Transaction

INTAKE = Concept(
    "intake",
    "hansard.record",
    tables=(
        Table(name="cursor", order="channel, account", of_home=True),
        Table(name="intake", order="channel, account, event_id", of_home=True),
        Table(name="held", order="channel, account, event_id", of_home=True),
    ),
)

SQL = INTAKE.queries


@INTAKE.entry("cursor.moved")
class CursorMoved(Body, frozen=True):
    """A platform's stream was received up to here."""

    channel: str
    account: str
    value: str


@INTAKE.entry("intake.accepted")
class IntakeAccepted(Body, frozen=True):
    """A platform's event was received. It is never taken in again."""

    channel: str
    account: str
    event_id: str
    entries: tuple[tuple[str, str], ...] = ()
    turns: tuple[tuple[str, str], ...] = ()


@INTAKE.entry("intake.held")
class IntakeHeld(Body, frozen=True):
    """An event came that cannot be read yet, as its keys are missing. It is kept whole, and tried again."""

    channel: str
    account: str
    event_id: str
    chat: str
    raw: str
    identity: str = ""


@INTAKE.projects(CursorMoved)
def project_cursor_moved(place: EntryPlace, body: CursorMoved) -> None:
    place.run(SQL.put_cursor, (body.channel, body.account, body.value))


@INTAKE.projects(IntakeAccepted)
def project_intake_accepted(place: EntryPlace, body: IntakeAccepted) -> None:
    place.run(SQL.insert_intake, (body.channel, body.account, body.event_id, place.seq))
    place.run(SQL.drop_held, (body.channel, body.account, body.event_id))


@INTAKE.projects(IntakeHeld)
def project_intake_held(place: EntryPlace, body: IntakeHeld) -> None:
    event = (body.channel, body.account, body.event_id, body.chat, place.seq)
    place.run(SQL.insert_held, (*event, body.identity, len(body.raw.encode()), place.at))


# Values.


class Received(NamedTuple):
    """What became of an arrival, and the turn that waits to answer it."""

    outcome: ArrivalOutcome
    session_id: str = ""
    """Where the conversation is now."""
    message_id: str = ""
    turn_id: str = ""
    moved: RouteChange | None = None
    entries: tuple[Entry, ...] = ()
    """What was said, as it was recorded now."""
    turns: tuple[TurnInfo, ...] = ()
    waits: bool = False
    """Whether another turn ran at that moment, so that the new one has to wait."""
    told: tuple[Entry, ...] = ()
    """What people were told of it."""


class Accepted(NamedTuple):
    """What became of an inbound event. `duplicate`: it was received before, and this is what it became then."""

    entries: tuple[Entry, ...]
    turns: tuple[TurnInfo, ...]
    duplicate: bool
    waits: bool = False
    """Whether another turn ran in a session of these at that moment, so that the new one has to wait."""


# Receipts and cursors.


def find_receipt(tx: Transaction, origin: Origin) -> IntakeAccepted | None:
    """Return what became of an event that was received before."""
    row = tx.row(SQL.find_intake, origin.event) if origin.event_id else None
    if row is None:
        return None
    (data,) = tx.row(JOURNAL.entry_by_key, (home_journal(tx).entry_key(row[0]),))
    body = tx.schema.decode_body("intake.accepted", 1, data)
    if not isinstance(body, IntakeAccepted):
        raise TypeError(body)
    return body


def read_receipt(receipt: IntakeAccepted) -> Received:
    """Return what an event became when it was received before."""
    if not receipt.entries:
        return Received(ArrivalOutcome.KNOWN)
    session_id, message_id = receipt.entries[0]
    turn_id = receipt.turns[0][1] if receipt.turns else ""
    return Received(ArrivalOutcome.KNOWN, session_id, message_id, turn_id)


def read_accepted(tx: Transaction, receipt: IntakeAccepted) -> Accepted:
    """Return the entries and the turns that an event became when it was received before."""
    entries = []
    for session_id, entry_id in receipt.entries:
        journal, _ = session_journal(tx, session_id)
        found = tx.find(journal, entry_id)
        if found is not None:
            entries.append(entry_of(session_id, entry_id, found, tx.decode(found)))
    turns = []
    for session_id, turn_id in receipt.turns:
        journal, _ = session_journal(tx, session_id)
        turns.append(turn_value(session_id, tx.row(TURNS.queries.find_turn, (journal.key, turn_id))))
    return Accepted(tuple(entries), tuple(turns), duplicate=True)


def mark_received(
    tx: Transaction,
    event: tuple[str, str, str],
    entries: tuple[tuple[str, str], ...] = (),
    turns: tuple[tuple[str, str], ...] = (),
) -> None:
    """Note that an event was received, and what it became."""
    channel, account, event_id = event
    home = home_journal(tx)
    body = IntakeAccepted(channel=channel, account=account, event_id=event_id, entries=entries, turns=turns)
    tx.add(home, f"~intake:{home.head_seq + 1}", body)


def move_cursor(tx: Transaction, channel: str, account: str, value: str) -> None:
    """Note how far a platform's stream was received; an empty value says nothing."""
    if value and tx.row(SQL.find_cursor, (channel, account)) != (value,):
        home = home_journal(tx)
        moved = CursorMoved(channel=channel, account=account, value=value)
        tx.add(home, f"~cursor:{home.head_seq + 1}", moved)


def lead_to(tx: Transaction, origin: Origin, session_id: str, reason: str, generation: int) -> None:
    """Let a chat lead to a session; it is noted whose chat it is, as only a person's own follows."""
    move_route(
        tx,
        origin.key,
        session_id,
        reason=reason,
        expect=generation,
        token=new_id(),
        owner=origin.owner,
        identity=origin.identity if is_person(origin.owner) else "",
    )


def tell(tx: Transaction, session_id: str, chat: str, text: str, id: str = "") -> Entry:
    """Tell people in a chat, or at the terminal, something about a session."""
    return append(tx, session_id, offer(Message.notice(text, id=id or None, chat=chat)))


def tell_once(tx: Transaction, session_id: str, chat: str, text: str, why: str) -> None:
    """Tell people why nothing is done about what they said: once, until something is answered again."""
    journal, _ = session_journal(tx, session_id)
    (fence,) = tx.row(TURNS.queries.last_fence, (journal.key,))
    told = f"~{why}:{fence}"
    if tx.find(journal, told) is None:
        tx.add(journal, told, MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))
