"""`record.intake`: what is said, and events that are held, passed over, changed or concluded.

Reads: intake, held, cursor. Writes: each event in one commit with all that it means, and the platform's cursor (L2).
Invariants: events that wait to become readable never exceed their bounds, in the record and so in the memory of the
channel that tries them again; people change their own words only.
On crash: an event is there with all that it means, or it comes again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hansard.domain.access import DAY_MICROSECONDS, Action, may, may_see
from hansard.domain.arrivals import Arrival, ArrivalKind, ArrivalOutcome, IntakeRules, Origin
from hansard.domain.chats import check_sender, parse_key
from hansard.domain.ids import HOME_JOURNAL, new_id, new_session_id
from hansard.domain.limits import MIB, NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX, UNIT_ENTRIES_MAX
from hansard.domain.messages import Message, Text
from hansard.domain.sessions import SessionState
from hansard.domain.text import clean_name, clean_struct, clean_text
from hansard.errors import NotFound, TooLarge
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import home_journal
from hansard.record.access import grant_of
from hansard.record.intake.events import (
    SQL,
    IntakeAccepted,
    IntakeHeld,
    Received,
    find_receipt,
    lead_to,
    mark_received,
    move_cursor,
    read_receipt,
)
from hansard.record.intake.receive import Receiving, accept, receive
from hansard.record.messages.entries import MessageAdded, MessageEdited, MessageRetracted
from hansard.record.messages.operations import append, check_blobs, offer
from hansard.record.people import read_circle
from hansard.record.quotas import count_used
from hansard.record.routes import ROUTES, find_route, tell_at_home, tell_in_chat
from hansard.record.sessions import reopen_session, session_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hansard.domain.arrivals import Cursor, Intake
    from hansard.domain.notices import Wording
    from hansard.domain.settings import Busy
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.concepts import Body
    from hansard.journal.transaction import Transaction
    from hansard.record.intake.events import Accepted

Result = TypeVar("Result")

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
        home = home_journal(tx)
        body = IntakeHeld(
            channel=origin.channel,
            account=origin.account,
            event_id=origin.event_id,
            chat=origin.chat,
            raw=raw,
            identity=origin.identity,
        )
        tx.add(home, f"~held:{home.head_seq + 1}", body)
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
    entry = tx.find(session_journal(tx, session_id)[0], message_id)
    body = tx.decode(entry) if entry is not None else None
    return (session_id, message_id, body) if isinstance(body, MessageAdded) else None


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
        received = Received(ArrivalOutcome.TAKEN, session_id, message_id)
    else:
        received = Received(ArrivalOutcome.REFUSED)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return received


# The end of a command.


def reply_event(origin: Origin) -> tuple[str, str, str]:
    """Return under which event the reply to a command counts as received: there is one."""
    return origin.channel, origin.account, f"{origin.event_id}:reply"


def is_concluded(tx: Transaction, origin: Origin) -> bool:
    """Return whether the command of an event came to its end."""
    return tx.row(SQL.find_intake, reply_event(origin)) is not None


def conclude(tx: Transaction, origin: Origin, session_id: str, reply: Message, reason: str) -> None:
    """End a command: the chat leads where it led to, and the reply, if there is one, is recorded there.

    `reason`: why the chat leads elsewhere; empty: it stays where it is.
    """
    journal, row = session_journal(tx, session_id)
    if reason and not may_see(origin.owner, row.owner, read_circle(tx, origin.owner)):
        message = f"there is no session {session_id}"
        raise NotFound(message)
    if not is_concluded(tx, origin):
        route = find_route(tx, origin.key)
        if reason and (route is None or route.session_id != session_id):
            lead_to(tx, origin, session_id, reason, 0 if route is None else route.generation)
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
    """Return how far a platform's stream was received, or None."""
    row = snapshot.row(SQL.find_cursor, (channel, account))
    return None if row is None else row[0]


def read_held(snapshot: Reads, channel: str, account: str) -> list[IntakeHeld]:
    """Return the events that wait to become readable, the oldest first."""
    home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    rows = snapshot.rows(SQL.list_held, (channel, account, home[0], HELD_MAX)) if home is not None else []
    bodies = [snapshot.schema.decode_body("intake.held", 1, data) for (data,) in rows]
    return [body for body in bodies if isinstance(body, IntakeHeld)]


def list_received(
    snapshot: Reads, channel: str, account: str, event_ids: list[str]
) -> dict[str, list[tuple[str, str]]]:
    """Return what platform events became, of those that were received: (session, entry) pairs."""
    home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    found = {}
    for event_id in event_ids:
        row = snapshot.row(SQL.find_intake, (channel, account, event_id))
        if row is not None:
            (data,) = snapshot.row(JOURNAL.entry_by_key, ((home[0] << 32) + row[0],))
            body = snapshot.schema.decode_body("intake.accepted", 1, data)
            found[event_id] = list(body.entries) if isinstance(body, IntakeAccepted) else []
    return found


# API.


def check_names(*names: str) -> None:
    """Refuse what is empty, too long or unprintable where a platform's names and ids belong."""
    for name in names:
        clean_name(name, "a name of a platform", NAME_CHARACTERS_MAX)


class RecordIntake:
    """Events of platforms, and what becomes of them: each call is one commit."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        self._caller, self._words = caller, words

    async def receive(self, arrival: Arrival, rules: IntakeRules = IntakeRules()) -> Received:  # noqa: B008
        """Take in what was said: route, due reset, message, turn, receipt and cursor in one commit."""
        if arrival.origin.key:
            check_names(*arrival.origin.event, arrival.origin.identity, arrival.origin.owner)
            check_sender(arrival.origin.identity)
            parse_key(arrival.origin.key)
            parse_key(arrival.origin.chat)
        if arrival.title is not None:
            clean_name(arrival.title, "a title", TITLE_CHARACTERS_MAX)
        return await self._write(arrival, rules, receive)

    async def accept(
        self,
        said: Sequence[tuple[str, Message]],
        intake: Intake | None,
        cursor: Cursor | None,
        busy: Busy,
        *,
        asks: bool,
    ) -> Accepted:
        """See `Record.accept`."""
        if len(said) > UNIT_ENTRIES_MAX:
            message = f"{len(said)} entries in one call; the limit is {UNIT_ENTRIES_MAX}"
            raise TooLarge(message)
        named = clean_struct(intake) if intake is not None else None
        moved = clean_struct(cursor) if cursor is not None else None
        origin = Origin(channel=named.channel, account=named.account, event_id=named.event_id) if named else Origin()
        kind = ArrivalKind.ASK if asks else ArrivalKind.KEPT
        arrival = Arrival(origin=origin, said=tuple(said), kind=kind, busy=busy)
        return await self._write(arrival, IntakeRules(), lambda at: accept(at, moved))

    async def _write(self, arrival: Arrival, rules: IntakeRules, operation: Callable[[Receiving], Result]) -> Result:
        said = tuple((session_id, offer(message)) for session_id, message in arrival.said)
        await check_blobs(self._caller, *(offered for _, offered in said))
        store, words = self._caller.store, self._words()
        fresh = arrival.new_ids or (new_session_id(store.clock.now_microseconds()), new_id())
        return await self._caller.write(
            lambda tx: operation(Receiving(tx, arrival, said, rules, store.is_alive, words, fresh)),
            cost=sum(len(offered.data) for _, offered in said),
        )

    async def edit_message(self, origin: Origin, about: str, text: str) -> Received | None:
        """Record that somebody edited what they said in another event; None when that is not in the record."""
        body = MessageEdited(message_id="", parts=(Text(clean_text(text)),), event_id=origin.event_id)
        return await self._change(origin, about, body, len(text))

    async def retract_message(self, origin: Origin, about: str) -> Received | None:
        """Record that somebody deleted what they said in another event; None when that is not in the record."""
        return await self._change(origin, about, MessageRetracted(message_id="", event_id=origin.event_id), 0)

    async def _change(
        self, origin: Origin, about: str, body: MessageEdited | MessageRetracted, cost: int
    ) -> Received | None:
        check_names(*origin.event, about)
        return await self._caller.write(lambda tx: change_message(tx, origin, about, body), cost=cost)

    async def hold_event(self, origin: Origin, raw: str, *, tells: bool = False) -> bool:
        """Keep an event that cannot be read yet, for when its keys come; return whether it is kept.

        `tells`: people in the chat are told that something could not be read, once, until it is.
        """
        check_names(*origin.event, origin.chat)
        cleaned, words = clean_text(raw), self._words()
        operation = partial(hold_event, origin=origin, raw=cleaned, words=words, tells=tells)
        return await self._caller.write(operation, cost=len(raw))

    async def list_held(self, channel: str, account: str) -> list[str]:
        """Return the events that wait to become readable, as they came, the oldest first; none that is too old."""
        while await self._caller.write(lambda tx: drop_old(tx, channel, account)) == DROPPED_MAX:
            pass
        return [body.raw for body in await self._held(channel, account)]

    async def list_held_ids(self, channel: str, account: str) -> list[str]:
        """Return the ids of those events."""
        return [body.event_id for body in await self._held(channel, account)]

    async def _held(self, channel: str, account: str) -> list[IntakeHeld]:
        return await self._caller.read(lambda snapshot: read_held(snapshot, channel, account))

    async def pass_event(self, origin: Origin, text: str = "", *, at_home: bool = False) -> None:
        """Keep nothing of an event; move the cursor, and tell its chat a text about it, once.

        `at_home`: the chat's session cannot be written, so that the text is recorded in the home journal.
        """
        await self._caller.write(lambda tx: pass_event(tx, origin, text, at_home=at_home))

    async def is_concluded(self, origin: Origin) -> bool:
        """Return whether the command that came in an event has its reply."""
        return await self._caller.write(lambda tx: is_concluded(tx, origin))

    async def conclude(self, origin: Origin, session_id: str, reply: Message, reason: str = "") -> None:
        """End a command: record its reply where the chat then is, and lead it there for a `reason`."""
        await self._caller.write(lambda tx: conclude(tx, origin, session_id, reply, reason))

    async def cursor(self, channel: str, account: str) -> str | None:
        """Return how far a platform's stream was received, or None."""
        return await self._caller.read(lambda snapshot: find_cursor(snapshot, channel, account))

    async def list_received(self, channel: str, account: str, event_ids: list[str]) -> dict[str, list[tuple[str, str]]]:
        """Return what platform events became, of those that were received: (session, entry) pairs."""
        return await self._caller.read(lambda snapshot: list_received(snapshot, channel, account, [*event_ids]))

    async def busy_session(self, key: str) -> str:
        """Return the session that a key leads to, if a turn runs or waits in it; otherwise nothing."""
        row = await self._caller.read(lambda snapshot: snapshot.row(ROUTES.queries.find_busy_session, (key,)))
        return "" if row is None else str(row[0])
