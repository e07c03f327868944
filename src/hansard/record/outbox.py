"""What waits to be shown in chats, and what becomes of it: the record as delivery uses it.

Reads: outbox, deliveries, messages, turns. Writes: deliveries and their moves, `message.delivered`.
Invariants: what is shown is read from here, after it is durable; a delivery is recorded as on its way before the call.
On crash: what was on its way is unknown, and whoever delivers next settles it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.chats import grammar_of
from hansard.domain.ids import HOME_JOURNAL, delivery_prefix, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, READ_ROWS_MAX, REASON_CHARACTERS_MAX
from hansard.domain.messages import Message
from hansard.domain.text import clean_name, clean_text
from hansard.errors import InvalidInput, NotFound
from hansard.journal.reading import SQL as JOURNAL
from hansard.journal.reading import known_lineage, read_lineage, read_page
from hansard.record.deliveries import (
    DELIVERIES,
    RETRIED,
    Settling,
    begin_delivery,
    check_delivery,
    delivery_value,
    settle_message,
)
from hansard.record.entries import Entry
from hansard.record.messages.entries import MessageAdded, MessageOpened, MessageSealed
from hansard.record.messages.fold import added_message, join_chunks, opened_message, sealed_message
from hansard.record.messages.reading import entry, find_in
from hansard.record.turns.entries import TURNS
from hansard.record.turns.operations import close_lost
from hansard.record.turns.reading import turn_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.domain.deliveries import Delivery
    from hansard.domain.messages import Part
    from hansard.domain.notices import Wording
    from hansard.domain.turns import TurnInfo
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller

OUTCOMES = frozenset({"shown", "empty", "set_aside", "dropped", RETRIED})
"""What can become of a message in a chat."""


class OutboxItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is to be shown in a chat. Numbers grow; they are good for asking what came since."""

    number: int
    session_id: str
    """`~home` for what people without a session are told."""
    message_id: str
    chat: str
    seq: int
    is_open: bool
    follows: bool = False
    """Whether the chat only follows the session: it is shown there if it still does."""


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a channel waits to be shown."""

    messages: int = 0
    oldest_at_microseconds: int = 0
    deliveries: dict[str, int] = {}
    """By state, those that are not sent."""


class Names(NamedTuple):
    """A range of names: from the first up to, and without, the end."""

    first: str
    end: str


def chats_of(channel: str) -> Names:
    """Return the range of a channel's chats: `matrix:` and whatever follows."""
    return Names(f"{channel}:", f"{channel};")


def parts_of(chat: str) -> Names:
    """Return the range of a chat's threads, or topics."""
    part = grammar_of(chat.partition(":")[0]).part
    return Names(f"{chat}:{part}:", f"{chat}:{part};")


class Outbox:
    """The outbox of a record, as the dispatchers of channels use it: `record.outbox`."""

    def __init__(self, caller: Caller, words: Callable[[], Wording]) -> None:
        """Read and write through the record's caller."""
        self._caller, self._words = caller, words

    async def waiting(self, channel: str, *, after: int = 0, limit: int = READ_ROWS_MAX) -> list[OutboxItem]:
        """Return what waits to be shown in a channel's chats, the oldest first, a page after a number."""
        bounded = max(0, min(limit, READ_ROWS_MAX))
        bindings = (after, *chats_of(channel), bounded)
        rows = await self._caller.read(lambda snapshot: snapshot.rows(DELIVERIES.queries.list_outbox, bindings))
        return [
            OutboxItem(
                number=number,
                session_id=session_id,
                message_id=message_id,
                chat=chat,
                seq=seq,
                is_open=bool(is_open),
                follows=bool(follows),
            )
            for number, session_id, message_id, chat, seq, is_open, follows in rows
        ]

    async def backlog(self, channel: str) -> Backlog:
        """Return how much waits, for the health of a channel."""

        def read(snapshot: Reads) -> Backlog:
            messages, oldest = snapshot.row(DELIVERIES.queries.count_outbox, chats_of(channel))
            states = dict(snapshot.rows(DELIVERIES.queries.count_deliveries, (channel,)))
            return Backlog(messages=messages, oldest_at_microseconds=oldest, deliveries=states)

        return await self._caller.read(read)

    async def settle_message(
        self, session_id: str, message_id: str, chat: str, outcome: str = "shown", reason: str = ""
    ) -> bool:
        """Say what became of a message in a chat; return whether it waited there. `retried` lets it wait again."""
        if outcome not in OUTCOMES:
            message = f"{outcome!r} is none of {', '.join(sorted(OUTCOMES))}"
            raise InvalidInput(message)
        named = clean_name(chat, "a chat", NAME_CHARACTERS_MAX)
        cleaned = clean_text(reason)[:REASON_CHARACTERS_MAX]
        settling = Settling(session_id, message_id, named, outcome, cleaned, new_id())
        return await self._caller.write(lambda tx: settle_message(tx, settling), ending=True)

    async def begin(self, delivery: Delivery) -> Delivery:
        """Record a delivery, unless it is there, and that it is on its way: one commit, before the call."""
        cleaned, operation_id = check_delivery(delivery), new_id()
        owner = self._caller.store.owner
        return await self._caller.write(lambda tx: begin_delivery(tx, cleaned, owner, operation_id))

    async def deliveries_of(self, session_id: str, message_id: str, chat: str) -> list[Delivery]:
        """Return the deliveries of a message in a chat, in their order."""
        return await self._caller.read(lambda snapshot: read_deliveries(snapshot, session_id, message_id, chat))

    async def load(self, session_id: str, message_id: str, chat: str) -> tuple[Message, list[Delivery]]:
        """Return a message as it stands, and its deliveries in a chat, of one moment."""
        return await self._caller.read(
            lambda snapshot: (
                read_message(snapshot, session_id, message_id),
                read_deliveries(snapshot, session_id, message_id, chat),
            )
        )

    async def deliveries_to(self, chat: str) -> list[Delivery]:
        """Return everything that was sent to a chat and to its threads. It looks at all deliveries: for audits."""
        found: list[Delivery] = []
        while True:
            last = (found[-1].session_id, found[-1].id) if found else ("", "")
            bindings = (chat, *parts_of(chat), *last, READ_ROWS_MAX)
            rows = await self._caller.read(lambda snapshot: snapshot.rows(DELIVERIES.queries.deliveries_to, bindings))  # noqa: B023
            found += [delivery_value(row[0], row[1:]) for row in rows]
            if len(rows) < READ_ROWS_MAX:
                return found

    async def created_at(self, delivery: Delivery) -> int:
        """Return when a delivery was recorded, in microseconds of the wall clock."""

        def read(snapshot: Reads) -> int:
            journal = snapshot.row(JOURNAL.read_journal, (delivery.session_id,))
            row = snapshot.row(JOURNAL.find_entry, (journal[0], f"~delivery:{delivery.id}")) if journal else None
            return 0 if row is None else int(row[3])

        return await self._caller.read(read)

    async def read_message(self, session_id: str, message_id: str) -> Message:
        """Return a message as it stands, an open one with its text so far, undone or not."""
        return await self._caller.read(lambda snapshot: read_message(snapshot, session_id, message_id))

    async def told_at_home(self, after: int = 0) -> list[tuple[int, Message]]:
        """Return notices that were told where there was no session, with their numbers: some that come after one.

        Empty when there are no more. The home journal has much else, so some pages of it are passed over.
        """
        while True:
            read = partial(read_page, journal_id=HOME_JOURNAL, after=after, limit=READ_ROWS_MAX)
            rows = await self._caller.read(read)
            found = [
                (seq, added_message(entry_id, at, body))
                for seq, entry_id, _, _, at, body in rows
                if isinstance(body, MessageAdded)
            ]
            if found or not rows:
                return found
            after = rows[-1][0]

    async def home_entries(self, after: int = 0) -> list[Entry]:
        """Return entries of the home journal after a seq, a page at a time."""
        rows = await self._caller.read(partial(read_page, journal_id=HOME_JOURNAL, after=after, limit=READ_ROWS_MAX))
        return [entry("", seq, entry_id, kind, at, body) for seq, entry_id, kind, _, at, body in rows]

    async def running_chats(self, channel: str) -> list[str]:
        """Return a channel's chats in which a running turn is shown."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(TURNS.queries.running_chats, chats_of(channel)))
        return [chat for (chat,) in rows]

    async def writing_chats(self, channel: str) -> list[str]:
        """Return a channel's chats in which a turn answers somebody, but those whose process is gone."""
        is_alive = self._caller.store.is_alive

        def read(snapshot: Reads) -> list[str]:
            rows = snapshot.rows(TURNS.queries.writing_chats, chats_of(channel))
            living = {owner for owner in {owner for _, owner in rows} if is_alive(owner)}
            return list(dict.fromkeys(chat for chat, owner in rows if owner in living))

        return await self._caller.read(read)

    async def end_lost(self, channel: str) -> list[str]:
        """End the turns that a dead process was showing in a channel's chats, as lost; return their sessions."""
        is_alive = self._caller.store.is_alive
        rows = await self._caller.read(
            lambda snapshot: snapshot.rows(TURNS.queries.running_turns_of_chats, chats_of(channel))
        )
        dead = [session_id for session_id, owner in rows if not is_alive(owner)]
        close = partial(close_lost, is_alive=is_alive, words=self._words())
        return [
            session_id
            for session_id in dead
            if await self._caller.write(partial(close, session_id=session_id), ending=True)
        ]

    async def queued_turns(self, channel: str) -> list[TurnInfo]:
        """Return the turns that wait to run and are to be shown in a channel's chats."""
        rows = await self._caller.read(
            lambda snapshot: snapshot.rows(TURNS.queries.queued_turns_of_chats, chats_of(channel))
        )
        return [turn_value(row[0], row[1:]) for row in rows]


def read_deliveries(snapshot: Reads, session_id: str, message_id: str, chat: str) -> list[Delivery]:
    """Return the deliveries of a message in a chat, in their order: their ids begin alike, and sort."""
    prefix = delivery_prefix(message_id, chat)
    journal = snapshot.row(JOURNAL.read_journal, (session_id,))
    rows = snapshot.rows(DELIVERIES.queries.deliveries_between, (journal[0], prefix, f"{prefix}~")) if journal else []
    return [delivery_value(session_id, row) for row in rows]


def read_message(snapshot: Reads, session_id: str, message_id: str) -> Message:
    """Return a message of a session or of the home, a fork's inherited ones included."""
    stretches = known_lineage(snapshot, session_id)
    found = find_in(snapshot, stretches, message_id)
    if found is not None:
        journal, (_, kind, version, at, data) = found
        body = snapshot.schema.decode_body(kind, version, data)
        if isinstance(body, MessageAdded):
            return added_message(message_id, at, body)
        if isinstance(body, MessageOpened):
            # The seal of a message that was open where a fork begins is the fork's own, and says interrupted (rule 19).
            sealed = find_in(snapshot, stretches, f"~seal:{message_id}")
            if sealed is None:
                return opened_message(message_id, at, body, open_parts(snapshot, journal, message_id))
            _, kind, version, _, data = sealed[1]
            seal = snapshot.schema.decode_body(kind, version, data)
            if isinstance(seal, MessageSealed):
                return sealed_message(opened_message(message_id, at, body), seal)
    read_lineage(snapshot, session_id)  # when a part of it is missing, the message may have been there
    message = f"there is no message {message_id} in session {session_id}"
    raise NotFound(message)


def open_parts(snapshot: Reads, journal: int, message_id: str) -> tuple[Part, ...]:
    """Return what an open message says so far."""
    rows = snapshot.rows(JOURNAL.read_chunks, (journal,))
    return join_chunks((part, text.decode()) for _, open_id, part, text in rows if open_id == message_id)
