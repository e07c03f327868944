"""Events of platforms: the receipts that let each be taken once (L2), the cursor, and what is not simply said.

Entries (home journal): intake.accepted, .held, cursor.moved. Tables: intake, held, cursor. SQL: intake.sql.
Here are events that are held, passed over, or change what was said, and the ends of commands; arrivals.py has what is
said. Each event is one commit with all that it means, and the platform's cursor.
Invariants: events that wait to become readable never exceed their bounds, in the record and so in the memory of the
channel that tries them again; people change their own words only.
On crash: an event is there with all that it means, or it comes again.
"""

from __future__ import annotations

import msgspec

from hansard.domain.access import DAY_MICROSECONDS, Action, may, may_see
from hansard.domain.arrivals import ArrivalOutcome, Origin, RouteChange
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import MIB
from hansard.domain.messages import Message, Role, Text
from hansard.domain.notices import Wording
from hansard.domain.sessions import SessionState, TurnInfo
from hansard.errors import NotFound
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, home_journal
from hansard.record.access import grant_of
from hansard.record.budgets import count_used
from hansard.record.messages.entries import Entry, MessageAdded, MessageEdited, MessageRetracted
from hansard.record.messages.operations import append, entry_of, offer
from hansard.record.people import add_at_home, list_due, read_circle
from hansard.record.routes import find_route, move_chat, tell_at_home, tell_in_chat
from hansard.record.sessions import reopen_session, session_journal
from hansard.record.turns.entries import TURNS, turn_value

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

HELD_MAX = 500
HELD_BYTES_MAX = 8 * MIB
"""Events that wait to become readable on one account, in all. The channel holds all of them in memory."""
PERSON_HELD_MAX = 50
PERSON_HELD_BYTES_MAX = 1 * MIB
"""Those of one person: a tenth, so that one person's events leave room for others'."""
HELD_DAYS_MAX = 7
"""How long a key may take to come: a device that was off for a week may still send it."""
DROPPED_MAX = 50
"""Events that one commit gives up: a commit has to stay short."""
COUNTED_REASONS = frozenset({"fork"})
"""Commands that begin a session; `/new` is an arrival of its own."""


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


@INTAKE.projects(CursorMoved, IntakeAccepted, IntakeHeld)
def project_intake(place: EntryPlace, body: Body) -> None:
    match body:
        case CursorMoved():
            place.run(SQL.put_cursor, (body.channel, body.account, body.value))
        case IntakeAccepted():
            place.run(SQL.insert_intake, (body.channel, body.account, body.event_id, place.seq))
            place.run(SQL.drop_held, (body.channel, body.account, body.event_id))
        case IntakeHeld():
            event = (body.channel, body.account, body.event_id, body.chat, place.seq)
            place.run(SQL.insert_held, (*event, body.identity, len(body.raw.encode()), place.at))


# Values.


class Received(msgspec.Struct, frozen=True, kw_only=True):
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


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an inbound event. `duplicate`: it was received before, and this is what it became then."""

    entries: tuple[Entry, ...]
    turns: tuple[TurnInfo, ...]
    duplicate: bool
    waits: bool = False
    """Whether another turn ran in a session of these at that moment, so that the new one has to wait."""


# Receipts and cursors.


def find_receipt(tx: Transaction, origin: Origin) -> IntakeAccepted | None:
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
        return Received(outcome=ArrivalOutcome.KNOWN)
    session_id, message_id = receipt.entries[0]
    turn_id = receipt.turns[0][1] if receipt.turns else ""
    return Received(outcome=ArrivalOutcome.KNOWN, session_id=session_id, message_id=message_id, turn_id=turn_id)


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
    return Accepted(entries=tuple(entries), turns=tuple(turns), duplicate=True)


def mark_received(
    tx: Transaction,
    event: tuple[str, str, str],
    entries: tuple[tuple[str, str], ...] = (),
    turns: tuple[tuple[str, str], ...] = (),
) -> None:
    channel, account, event_id = event
    body = IntakeAccepted(channel=channel, account=account, event_id=event_id, entries=entries, turns=turns)
    add_at_home(tx, "intake", body)


def move_cursor(tx: Transaction, channel: str, account: str, value: str) -> None:
    """Note how far a platform's stream was received; an empty value says nothing."""
    if value and tx.row(SQL.find_cursor, (channel, account)) != (value,):
        add_at_home(tx, "cursor", CursorMoved(channel=channel, account=account, value=value))


def tell(tx: Transaction, session_id: str, chat: str, text: str, id: str = "") -> Entry:
    """Tell people in a chat, or at the terminal, something about a session."""
    return append(tx, session_id, offer(Message.notice(text, id=id or None, chat=chat)))


def tell_once(tx: Transaction, session_id: str, chat: str, text: str, why: str) -> None:
    """Tell people why nothing is done about what they said: once, until something is answered again."""
    journal, _ = session_journal(tx, session_id)
    (fence,) = tx.row(TURNS.queries.last_fence, (journal.key,))
    tx.add_once(journal, f"~{why}:{fence}", MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))


def pass_event(tx: Transaction, origin: Origin, text: str, *, at_home: bool) -> None:
    """Keep nothing of an event. It waits no longer to become readable; what is told about it is told once."""
    is_new = bool(origin.event_id) and tx.row(SQL.find_intake, origin.event) is None
    if is_new and (text or tx.row(SQL.find_held, origin.event) is not None):
        mark_received(tx, origin.event)
        if text and at_home:
            tell_at_home(tx, origin.chat, text)
        elif text:
            tell_in_chat(tx, origin.chat, text)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)


# Events that cannot be read yet.


def hold_event(tx: Transaction, origin: Origin, raw: str, words: Wording, *, tells: bool) -> bool:
    """Keep an event that cannot be read yet, if its sender may talk; return whether it is kept, now or before."""
    kept = tx.row(SQL.find_held, origin.event) is not None
    received = tx.row(SQL.find_intake, origin.event) is not None
    allowed = may(Action.TALK, origin.standing, grant_of(tx, origin.channel, origin.identity))
    if not kept and not received and allowed and has_room(tx, origin, len(raw.encode())):
        first = tx.row(SQL.find_held_in_chat, (origin.channel, origin.account, origin.chat)) is None
        body = IntakeHeld(
            channel=origin.channel,
            account=origin.account,
            event_id=origin.event_id,
            chat=origin.chat,
            raw=raw,
            identity=origin.identity,
        )
        add_at_home(tx, "held", body)
        if first and tells:
            tell_in_chat(tx, origin.chat, words.unreadable)
        kept = True
    move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return kept


def has_room(tx: Transaction, origin: Origin, size_bytes: int) -> bool:
    """Return whether another event of this person can be kept, once those are given up that have waited too long."""
    drop_old(tx, origin.channel, origin.account)
    count, count_bytes, own, own_bytes = tx.row(SQL.count_held, (origin.channel, origin.account, origin.identity))
    return bool(
        count < HELD_MAX
        and count_bytes + size_bytes <= HELD_BYTES_MAX
        and own < PERSON_HELD_MAX
        and own_bytes + size_bytes <= PERSON_HELD_BYTES_MAX
    )


def drop_old(tx: Transaction, channel: str, account: str) -> int:
    """Give up events that have waited too long, some of them; return how many."""
    since = tx.clock.now_microseconds() - HELD_DAYS_MAX * DAY_MICROSECONDS
    rows = tx.rows(SQL.list_old_held, (channel, account, since, DROPPED_MAX))
    for (event_id,) in rows:
        mark_received(tx, (channel, account, event_id))
    return len(rows)


# Changes of what was said.


def changed_message(tx: Transaction, origin: Origin, about: str) -> tuple[str, str, MessageAdded] | None:
    """Return the message that a change is about: its session, its id, and what was said."""
    receipt = find_receipt(tx, msgspec.structs.replace(origin, event_id=about))
    if receipt is None or not receipt.entries:
        return None
    session_id, message_id = receipt.entries[0]
    body = tx.find_body(session_journal(tx, session_id)[0], message_id, MessageAdded)
    return None if body is None else (session_id, message_id, body)


def may_change(tx: Transaction, origin: Origin, said: MessageAdded, body: Body) -> bool:
    """Return whether a change counts. People edit their own words only; who may delete is the platform's business."""
    if isinstance(body, MessageRetracted):
        return True
    is_own = said.author == origin.identity
    return is_own and may(Action.CHANGE, origin.standing, grant_of(tx, origin.channel, origin.identity))


def change_message(
    tx: Transaction, origin: Origin, about: str, body: MessageEdited | MessageRetracted
) -> Received | None:
    """Record that somebody edited or deleted what was said in another event; None when that is not known here.

    An ended session accepts this too: it is about what was said in it.
    """
    receipt = find_receipt(tx, origin)
    changed = changed_message(tx, origin, about)
    if receipt is not None:
        received = read_receipt(receipt)
    elif changed is None:
        return None
    elif may_change(tx, origin, changed[2], body):
        session_id, message_id, _ = changed
        journal, _ = session_journal(tx, session_id)
        entry_id = f"~changed:{journal.head_seq + 1}"
        tx.add(journal, entry_id, msgspec.structs.replace(body, message_id=message_id))
        mark_received(tx, origin.event, ((session_id, entry_id),))
        received = Received(outcome=ArrivalOutcome.TAKEN, session_id=session_id, message_id=message_id)
    else:
        received = Received(outcome=ArrivalOutcome.REFUSED)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return received


# The end of a command.


def reply_event(origin: Origin) -> tuple[str, str, str]:
    """Return under which event the reply to a command counts as received: there is one."""
    return origin.channel, origin.account, f"{origin.event_id}:reply"


def is_concluded(tx: Transaction, origin: Origin) -> bool:
    return tx.row(SQL.find_intake, reply_event(origin)) is not None


def conclude(tx: Transaction, origin: Origin, session_id: str, reply: Message, reason: str) -> None:
    """End a command: the chat leads where it led to, and the reply, if there is one, is recorded there.

    `reason`: why the chat leads elsewhere; empty: it stays where it is.
    """
    journal, row = session_journal(tx, session_id)
    if reason and not may_see(origin.owner, row.owner, read_circle(tx, origin.owner)):
        raise NotFound(f"there is no session {session_id}")
    if not is_concluded(tx, origin):
        route = find_route(tx, origin.key)
        if reason and (route is None or route.session_id != session_id):
            move_chat(tx, origin, session_id, reason, 0 if route is None else route.generation)
        entries: tuple[tuple[str, str], ...] = ()
        if reply.text and tx.find(journal, reply.id) is None:
            if row.state == SessionState.ENDED:
                reopen_session(tx, session_id)
            append(tx, session_id, offer(reply))
            entries = ((session_id, reply.id),)
        if reason in COUNTED_REASONS:
            count_used(tx, origin.person, sessions=1)
        mark_received(tx, reply_event(origin), entries)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)


# Reads.


def find_cursor(snapshot: Reads, channel: str, account: str) -> str | None:
    row = snapshot.row(SQL.find_cursor, (channel, account))
    return None if row is None else row[0]


def read_held(snapshot: Reads, channel: str, account: str) -> list[IntakeHeld]:
    return list_due(snapshot, IntakeHeld, SQL.list_held, (channel, account), (HELD_MAX,))


def list_received(
    snapshot: Reads, channel: str, account: str, event_ids: list[str]
) -> dict[str, list[tuple[str, str]]]:
    home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    found = {}
    for event_id in event_ids:
        row = snapshot.row(SQL.find_intake, (channel, account, event_id))
        if row is not None:
            (data,) = snapshot.row(JOURNAL.entry_by_key, ((home[0] << 32) + row[0],))
            body = snapshot.schema.decode_body("intake.accepted", 1, data)
            found[event_id] = list(body.entries) if isinstance(body, IntakeAccepted) else []
    return found
