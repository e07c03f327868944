"""Events that cannot be read yet: kept for people who may talk, a bounded number of each, and not for ever.

Reads: held, intake, access. Writes: intake.held, and intake.accepted for what has waited too long.
Invariants: what is kept never exceeds the bounds, in the record and so in the memory of whoever tries it again.
On crash: an event is kept, or comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.access import DAY_MICROSECONDS, Action, may
from hansard.domain.limits import MIB
from hansard.journal.reading import home_journal
from hansard.record.access import grant_of
from hansard.record.intake.events import INTAKE, IntakeHeld, move_cursor
from hansard.record.intake.receive import mark_received
from hansard.record.routes import tell_in_chat

if TYPE_CHECKING:
    from hansard.domain.arrivals import HeldEvent
    from hansard.domain.notices import Wording
    from hansard.journal.transaction import Transaction

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


def hold_event(tx: Transaction, held: HeldEvent, words: Wording) -> bool:
    """Keep an event that cannot be read yet, if its sender may talk; return whether it is kept, now or before."""
    event = (held.channel, held.account, held.event_id)
    kept = tx.row(INTAKE.queries.find_held, event) is not None
    received = tx.row(INTAKE.queries.find_intake, event) is not None
    allowed = may(Action.TALK, held.standing, grant_of(tx, held.channel, held.identity))
    if not kept and not received and allowed and has_room(tx, held):
        first = tx.row(INTAKE.queries.find_held_in_chat, (held.channel, held.account, held.chat)) is None
        home = home_journal(tx)
        body = IntakeHeld(
            channel=held.channel,
            account=held.account,
            event_id=held.event_id,
            chat=held.chat,
            raw=held.raw,
            identity=held.identity,
        )
        tx.add(home, f"~held:{home.head_seq + 1}", body)
        if first and held.tells:
            tell_in_chat(tx, held.chat, words.unreadable)
        kept = True
    move_cursor(tx, held.channel, held.account, held.cursor)
    return kept


def has_room(tx: Transaction, held: HeldEvent) -> bool:
    """Return whether another event of this person can be kept, once those are given up that have waited too long."""
    drop_old(tx, held.channel, held.account)
    size = len(held.raw.encode())
    count, count_bytes, own, own_bytes = tx.row(INTAKE.queries.count_held, (held.channel, held.account, held.identity))
    return bool(
        count < HELD_MAX
        and count_bytes + size <= HELD_BYTES_MAX
        and own < PERSON_HELD_MAX
        and own_bytes + size <= PERSON_HELD_BYTES_MAX
    )


def drop_old(tx: Transaction, channel: str, account: str) -> int:
    """Give up events that have waited too long, some of them; return how many."""
    since = tx.clock.now_microseconds() - HELD_DAYS_MAX * DAY_MICROSECONDS
    rows = tx.rows(INTAKE.queries.list_old_held, (channel, account, since, DROPPED_MAX))
    for (event_id,) in rows:
        mark_received(tx, channel, account, event_id)
    return len(rows)
