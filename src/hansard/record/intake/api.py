"""What comes in from chats: the record as intake uses it.

Reads: what cannot be read yet. Writes: events, each in one commit with all that it means (L2).
Invariants: an event is taken once, whoever brings it how often; what is refused leaves nothing behind.
On crash: an event is there with all that it means, or it comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.domain.chats import parse_key
from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.messages import Text
from hansard.domain.text import clean_name, clean_text
from hansard.journal.reading import SQL as JOURNAL
from hansard.record.intake import receive as operations
from hansard.record.intake.events import INTAKE, IntakeHeld, find_cursor, list_received
from hansard.record.intake.held import DROPPED_MAX, HELD_MAX, drop_old, hold_event
from hansard.record.messages.entries import MessageEdited, MessageRetracted
from hansard.record.messages.operations import check_blobs, offer
from hansard.record.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.domain.arrivals import Arrival, Conclusion, HeldEvent, IntakeRules, MessageChange, Passing, Received
    from hansard.domain.notices import Wording
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller


def check_names(*names: str) -> None:
    """Refuse what is empty, too long or unprintable where a platform's names and ids belong."""
    for name in names:
        clean_name(name, "a name of a platform", NAME_CHARACTERS_MAX)


class RecordIntake:
    """Events of platforms, and what becomes of them."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        self._caller, self._words = caller, words

    async def receive(self, arrival: Arrival, rules: IntakeRules) -> Received:
        """Take in what somebody said: route, due reset, message, turn, receipt and cursor in one commit."""
        check_names(arrival.channel, arrival.account, arrival.event_id, arrival.identity, arrival.owner)
        parse_key(arrival.key)
        parse_key(arrival.chat)
        if arrival.title is not None:
            clean_name(arrival.title, "a title", TITLE_CHARACTERS_MAX)
        offered = offer(arrival.message)
        await check_blobs(self._caller, offered)
        is_alive, words = self._caller.store.is_alive, self._words()
        return await self._caller.write(
            lambda tx: operations.receive(tx, arrival, offered, rules, is_alive, words=words), cost=len(offered.data)
        )

    async def edit_message(self, change: MessageChange) -> Received | None:
        """Record that somebody edited what they had said; None, and nothing, when that is not in the record."""
        check_names(change.channel, change.account, change.event_id, change.about)
        parts = (Text(clean_text(change.text)),)
        body = MessageEdited(message_id="", parts=parts, event_id=change.event_id)
        return await self._caller.write(lambda tx: operations.apply_change(tx, change, body), cost=len(change.text))

    async def retract_message(self, change: MessageChange) -> Received | None:
        """Record that somebody deleted what they had said; None, and nothing, when that is not in the record."""
        check_names(change.channel, change.account, change.event_id, change.about)
        body = MessageRetracted(message_id="", event_id=change.event_id)
        return await self._caller.write(lambda tx: operations.apply_change(tx, change, body))

    async def hold_event(self, held: HeldEvent) -> bool:
        """Keep an event that cannot be read yet, for when its keys come; return whether it is kept."""
        check_names(held.channel, held.account, held.event_id, held.chat)
        cleaned = msgspec.structs.replace(held, raw=clean_text(held.raw))
        words = self._words()
        return await self._caller.write(lambda tx: hold_event(tx, cleaned, words), cost=len(held.raw))

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

    async def pass_event(self, passing: Passing) -> None:
        """Keep nothing of an event; move the cursor, and tell what is to be told about it, once."""
        await self._caller.write(lambda tx: operations.pass_event(tx, passing))

    async def is_concluded(self, channel: str, account: str, event_id: str) -> bool:
        """Return whether the command that came in an event has its reply."""
        return await self._caller.write(lambda tx: operations.is_concluded(tx, channel, account, event_id))

    async def conclude(self, conclusion: Conclusion) -> str:
        """End a command: move the route if it led elsewhere, record the reply there; return that session's id."""
        return await self._caller.write(lambda tx: operations.conclude(tx, conclusion))


def read_held(snapshot: Reads, channel: str, account: str) -> list[IntakeHeld]:
    """Return the events that wait to become readable."""
    home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    rows = snapshot.rows(INTAKE.queries.list_held, (channel, account, home[0], HELD_MAX)) if home is not None else []
    bodies = [snapshot.schema.decode_body("intake.held", 1, data) for (data,) in rows]
    return [body for body in bodies if isinstance(body, IntakeHeld)]
