"""`Record`: everything that the rest of Hansard, and anyone else, may do with a record."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from hansard.domain.budgets import Budget
from hansard.domain.deliveries import Cursor, Delivery, DeliveryState, Intake
from hansard.domain.ids import new_id
from hansard.domain.limits import (
    PATIENCE_SECONDS,
    READ_ROWS_MAX,
    REASON_CHARACTERS_MAX,
    TITLE_CHARACTERS_MAX,
)
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.sessions import Parent, SessionState
from hansard.domain.settings import Busy
from hansard.domain.text import clean_name, clean_text
from hansard.errors import RecordReadOnly
from hansard.journal.calls import Caller, open_journals
from hansard.journal.follow import PageReader, Position, notified
from hansard.journal.sqlite.readonly import AnyStore
from hansard.journal.store import Store, Wiring
from hansard.journal.verify import Report, verify_record
from hansard.record import deliveries, forks, routes, sessions
from hansard.record.access import AccessBook
from hansard.record.budgets import Budgets
from hansard.record.cleaning import one_of
from hansard.record.conversation import Conversation
from hansard.record.conversations import Conversations
from hansard.record.deliveries import check_delivery, describe_delivery_move
from hansard.record.fetches import FileFetches
from hansard.record.forks import describe_fork
from hansard.record.intake import events as home_ops
from hansard.record.intake.api import RecordIntake
from hansard.record.intake.events import describe_inbound
from hansard.record.invitations import Invitations
from hansard.record.memory import Memory
from hansard.record.messages import operations as messages
from hansard.record.messages import reading as views
from hansard.record.messages.entries import MessagesRestored, MessagesUndone
from hansard.record.messages.operations import Imports, check_blobs
from hansard.record.outbox import Outbox
from hansard.record.people import PeopleBook
from hansard.record.permissions import Permissions
from hansard.record.questions import Questions
from hansard.record.quotas import Quotas
from hansard.record.routes import describe_route_move
from hansard.record.schema import SCHEMA
from hansard.record.search.asking import Hit, describe_search, search
from hansard.record.search.index import search_index
from hansard.record.sessions import SessionFrozen, describe_session, describe_setting
from hansard.record.titles import Titles
from hansard.record.turns import operations as turns
from hansard.record.turns import reading as turn_reading
from hansard.record.turns.holding import hold_session
from hansard.record.turns.recovery import TURNS, Recovery, end_lost_turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from hansard.domain.messages import Message
    from hansard.domain.sessions import Route, Session
    from hansard.domain.turns import By, TurnInfo
    from hansard.journal.progress import Progress
    from hansard.record.entries import Chunk, Entry
    from hansard.record.search.asking import Filters
    from hansard.record.turns.holding import Turn


def writable(store: AnyStore) -> Store:
    """Return a store that can be written to."""
    if isinstance(store, Store) and not store.is_read_only:
        return store
    raise RecordReadOnly("this record was opened for reading only")


class Record:
    """An open record: `async with Record.open(home) as record`."""

    def __init__(self, caller: Caller, words: Wording = ENGLISH) -> None:
        """Use `Record.open`."""
        self._caller = caller
        self.home = caller.store.source
        self.is_read_only = caller.store.is_read_only
        self.note = caller.store.note  # what is special about a record that was opened for reading only
        self._pages = PageReader(caller, views.SHAPES)
        self._conversations = Conversations()
        self.words = words
        self.intake = RecordIntake(caller, lambda: self.words)
        self.outbox = Outbox(caller, lambda: self.words)
        self.imports = Imports(caller)
        self.access = AccessBook(caller, lambda: self.words)
        self.memory, self.budgets, self.quotas = Memory(caller), Budgets(caller), Quotas(caller)
        self.questions, self.permissions, self.titles = Questions(caller), Permissions(caller), Titles(caller)
        self.recovery, self.fetches = Recovery(caller), FileFetches(caller)
        self.invitations = Invitations(caller, lambda: self.words)
        self.people = PeopleBook(caller, lambda: self.words)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        path: str | Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        read_only: bool = False,
        wiring: Wiring | None = None,
        words: Wording = ENGLISH,
        progress: Callable[[Progress], None] | None = None,
    ) -> AsyncIterator[Record]:
        """Open a home, creating it; recover whatever a crash left. `progress` hears how far a long recovery is.

        With `read_only`, nothing in the home is written or waited for, and writing calls raise `RecordReadOnly`.
        """
        wired = (wiring or Wiring())._replace(recoveries={TURNS.name: partial(end_lost_turns, words=words)})
        async with open_journals(
            path, SCHEMA, wiring=wired, patience_seconds=patience_seconds, progress=progress, read_only=read_only
        ) as caller:
            yield cls(caller, words)

    def use_words(self, words: Wording) -> None:
        """Tell notices in these words from now on."""
        self.words = words

    @property
    def trouble(self) -> str:
        """Why the record cannot be written just now; empty when all is well."""
        return self._caller.store.writer.describe_trouble()

    @property
    def store(self) -> Store:
        """The parts below, for simulators: `store.writer.step()`."""
        return writable(self._caller.store)

    async def create_session(
        self,
        *,
        id: str | None = None,
        source: str,
        owner: str = "person:admin",
        title: str | None = None,
        parent: str | Parent | None = None,
    ) -> Session:
        """Create a session. With an id that exists, return it and fill its empty fields only."""
        new = describe_session(id, source, owner, title, parent, now=self._now())
        return await self._caller.write(lambda tx: sessions.create_session(tx, new))

    def _now(self) -> int:
        return self._caller.store.clock.now_microseconds()

    async def session(self, session_id: str) -> Session:
        """Return a session by its id."""
        return await self._caller.read(lambda snapshot: sessions.read_session(snapshot, session_id))

    async def sessions(
        self,
        *,
        owner: str | None = None,
        source: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        archived: bool | None = None,
    ) -> list[Session]:
        """Return all sessions or `limit` of them, latest activity first; `before` is the last id of the page before."""
        wanted = sessions.SessionFilter(owner, source, one_of(SessionState, state), before, limit, archived)
        return await self._caller.read(lambda snapshot: sessions.list_sessions(snapshot, wanted))

    async def first_words(self, session_ids: Sequence[str]) -> dict[str, str]:
        """Return the first that a person said in each of these sessions, as far as it stands near the beginning."""
        parts = [session_ids[start : start + READ_ROWS_MAX] for start in range(0, len(session_ids), READ_ROWS_MAX)]
        found = [await self._caller.read(partial(views.first_words, session_ids=part)) for part in parts]
        return {session_id: words for each in found for session_id, words in each.items()}

    async def resolve(self, text: str, *, owner: str | None = None) -> Session:
        """Return the session that an id, a unique beginning of one, or a title names; of one owner, if that is said."""
        return await self._caller.read(lambda snapshot: sessions.resolve(snapshot, text, owner))

    async def set_title(self, session_id: str, title: str) -> Session:
        """Give a session a title."""
        cleaned = clean_name(title, "a title", TITLE_CHARACTERS_MAX)
        return await self._caller.write(lambda tx: sessions.set_title(tx, session_id, cleaned))

    async def end_session(self, session_id: str, reason: str) -> Session:
        """End a session; the first reason stays."""
        cleaned = clean_text(reason)[:REASON_CHARACTERS_MAX]
        return await self._caller.write(lambda tx: sessions.end_session(tx, session_id, cleaned), ending=True)

    async def archive_session(self, session_id: str) -> Session:
        """Leave a session out of lists that do not ask for it. Nothing else changes."""
        return await self._caller.write(lambda tx: sessions.archive_session(tx, session_id, archived=True))

    async def unarchive_session(self, session_id: str) -> Session:
        """Have a session in lists again."""
        return await self._caller.write(lambda tx: sessions.archive_session(tx, session_id, archived=False))

    async def reopen_session(self, session_id: str) -> Session:
        """Let an ended session take new words."""
        return await self._caller.write(lambda tx: sessions.reopen_session(tx, session_id))

    async def fork(
        self, session_id: str, at: int | None = None, *, id: str | None = None, title: str | None = None
    ) -> Session:
        """Return a new session that shares the entries of this one up to `at`, or all of them."""
        new = describe_fork(session_id, at, id, title, now=self._now())
        return await self._caller.write(lambda tx: forks.fork(tx, new))

    async def append(self, session_id: str, message: Message) -> Entry:
        """Append a message. It is durable when this returns; a repeat of the same id returns the first."""
        offered = messages.offer(message)
        await check_blobs(self._caller, offered)
        return await self._caller.write(lambda tx: messages.append(tx, session_id, offered), cost=len(offered.data))

    async def accept(
        self,
        entries: Sequence[tuple[str, Message]] = (),
        intake: Intake | None = None,
        cursor: Cursor | None = None,
        queue_turn: bool = False,  # noqa: FBT001, FBT002 - the shape of the design
        busy: Busy = Busy.QUEUE,
        *,
        answers: bool = False,
    ) -> home_ops.Accepted:
        """Record an inbound event with what it says, the turn it asks for and the platform's cursor: one commit.

        `busy` says what becomes of a turn that runs meanwhile. `answers`: a plain yes or no answers what it asks.
        """
        inbound = describe_inbound(entries, intake, cursor, busy, queue_turn=queue_turn, answers=answers)
        await check_blobs(self._caller, *(each for _, each in inbound.entries))
        cost = sum(len(each.data) for _, each in inbound.entries)
        is_alive, words = self._caller.store.is_alive, self.words
        return await self._caller.write(lambda tx: home_ops.accept(tx, inbound, is_alive, words), cost=cost)

    async def load_transcript(self, session_id: str) -> list[Message]:
        """Return every message of a session, in order, an open one with its text so far."""
        return await views.load_transcript(self._caller, session_id)

    async def read_entries(self, session_id: str, after: int = 0, limit: int = READ_ROWS_MAX) -> list[Entry]:
        """Return entries after a seq, a page at a time."""
        bounded = max(0, min(limit, READ_ROWS_MAX))
        return await self._caller.read(lambda snapshot: views.read_entries(snapshot, session_id, after, bounded))

    async def search(self, query: str, *, limit: int = 20, context: int = 0, **filters: Unpack[Filters]) -> list[Hit]:
        """Return messages that match, the best first, each with its neighbours; the rule is in docs/use/search.md."""
        wanted = describe_search(query, limit, context, filters)
        store = self._caller.store
        now = store.clock.now_microseconds()
        return await self._caller.search(lambda: search(search_index(store), store.readers, wanted, now))

    async def conversation(self, session_id: str) -> Conversation:
        """Return what the conversation stands at: a fold that is kept, and grown by what came since."""
        return await self._conversations.read(session_id, self.read_entries)

    def follow(
        self, session_id: str, after: str | int = 0, *, chunks: bool = True
    ) -> AsyncGenerator[Entry | Chunk, None]:
        """Yield committed entries and chunks from a position on, and then live, without end."""
        return self._pages.follow(session_id, Position.parse(after), chunks=chunks)

    def notify(self, event: asyncio.Event, session_id: str | None = None) -> AbstractContextManager[None]:
        """Set an event whenever anything is committed, or anything of one session, by whichever process."""
        return notified(self._caller.store.followers, event, session_id)

    def turn(
        self,
        session_id: str,
        *,
        wait_seconds: float = 0,
        waiting: str | None = None,
        purpose: str = "",
        budget: Budget | None = None,
        by: Sequence[By] = (),
    ) -> AbstractAsyncContextManager[Turn]:
        """Hold a session for one turn: its queued one, or a new one. Leaving ends the turn, whatever happened.

        `waiting`: only a queued one, of this id or (empty) any. `purpose`: a new one. LimitReached by the `budget`.
        """
        return hold_session(self._caller, self.words, session_id, wait_seconds, waiting, purpose, budget, tuple(by))

    async def queue_turn(self, session_id: str, *, chat: str = "", by: Sequence[By] = ()) -> TurnInfo:
        """Queue a turn, to be shown in a chat as well. `by`: who asks for it. A turn that waits already is returned."""
        turn_id = new_id()
        return await self._caller.write(lambda tx: turns.queue_turn(tx, session_id, turn_id, chat, tuple(by)))

    async def stop_turns(self, session_id: str, reason: str, *, queued: bool = False) -> list[TurnInfo]:
        """Ask the running turn to stop, in whichever process it runs; `queued` ends the one that waits as well."""
        cleaned, is_alive = clean_text(reason)[:REASON_CHARACTERS_MAX], self._caller.store.is_alive
        stop = partial(turns.stop_turns, is_alive=is_alive, words=self.words, queued=queued)
        return await self._caller.write(lambda tx: stop(tx, session_id, cleaned))

    async def undo(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Take messages back: they leave the transcript and the context, and stay in the record."""
        undone, token = MessagesUndone(message_ids=tuple(message_ids)), new_id()
        await self._caller.write(lambda tx: messages.undo(tx, session_id, undone, token))

    async def restore(self, session_id: str, message_ids: Sequence[str]) -> None:
        """Let messages that were taken back be there again, each at its old place in transcript and context."""
        restored, token = MessagesRestored(message_ids=tuple(message_ids)), new_id()
        await self._caller.write(lambda tx: messages.undo(tx, session_id, restored, token))

    async def freeze(self, session_id: str, frozen: SessionFrozen) -> SessionFrozen:
        """Fix what the model is told in this session; what was fixed first stays, and is returned."""
        cleaned = msgspec.structs.replace(frozen, system=clean_text(frozen.system))
        return await self._caller.write(lambda tx: sessions.freeze(tx, session_id, cleaned))

    async def set_setting(self, session_id: str, name: str, value: str) -> None:
        """Change a setting of a session."""
        setting, token = describe_setting(name, value), new_id()
        await self._caller.write(lambda tx: sessions.set_setting(tx, session_id, setting, token))

    async def turns(self, session_id: str) -> list[TurnInfo]:
        """Return a session's turns, oldest first."""
        return await self._caller.read(lambda snapshot: turn_reading.list_turns(snapshot, session_id))

    async def queued_turns(self) -> list[TurnInfo]:
        """Return the turns that wait to run, in every session."""
        return await self._caller.read(turn_reading.queued_turns)

    async def route(self, key: str) -> Route | None:
        """Return where a session key leads, or None."""
        return await self._caller.read(lambda snapshot: routes.find_route(snapshot, key))

    async def move_route(self, key: str, session_id: str, *, reason: str = "", expect: int | None = None) -> Route:
        """Let a session key lead to a session; with `expect`, only if nobody moved it since that generation."""
        move = describe_route_move(key, session_id, reason, expect)
        return await self._caller.write(lambda tx: routes.move_route(tx, move))

    async def reset_route(
        self, key: str, *, source: str, owner: str = "person:admin", title: str | None = None, reason: str = "reset"
    ) -> Route:
        """End the session that a key leads to, begin a linked successor, and move the route: one commit."""
        new = describe_session(None, source, owner, title, None, now=self._now())
        cleaned, operation_id = clean_text(reason)[:REASON_CHARACTERS_MAX], new_id()
        return await self._caller.write(lambda tx: routes.reset_route(tx, key, new, cleaned, operation_id))

    async def create_delivery(self, delivery: Delivery) -> Delivery:
        """Record that a message is to be shown on a channel; the same delivery again changes nothing."""
        cleaned = check_delivery(delivery)
        return await self._caller.write(lambda tx: deliveries.create_delivery(tx, cleaned))

    async def move_delivery(
        self, session_id: str, delivery_id: str, state: DeliveryState | str, *, receipt: str = "", reason: str = ""
    ) -> Delivery:
        """Move a delivery to another state, by the table of allowed moves."""
        move = describe_delivery_move(session_id, delivery_id, state, receipt, reason, self._caller.store.owner)
        return await self._caller.write(lambda tx: deliveries.move_delivery(tx, move), ending=True)

    async def deliveries(
        self,
        *,
        session_id: str | None = None,
        state: DeliveryState | str | None = None,
        channel: str | None = None,
        limit: int = READ_ROWS_MAX,
        after: Delivery | None = None,
    ) -> list[Delivery]:
        """Return deliveries, by session and id; `after` is the last one of the page before."""
        wanted = deliveries.DeliveryFilter(session_id, one_of(DeliveryState, state), channel, limit, after)
        return await self._caller.read(lambda snapshot: deliveries.list_deliveries(snapshot, wanted))

    async def put_blob(self, data: bytes) -> str:
        """Store an attachment durably and return its digest."""
        self._caller.check_writable()
        return await self._caller.run(self._caller.store.blobs.put, data)

    async def read_blob(self, digest: str) -> bytes:
        """Return an attachment."""
        return await self._caller.run(self._caller.store.blobs.get, digest)

    async def verify(self) -> Report:
        """Compare both legs, the chains and the projections; the record stays in use meanwhile."""
        return await self._caller.run(verify_record, self._caller.store)
