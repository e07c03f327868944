"""`Record`: everything that the rest of Hansard, and anyone else, may do with a record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Unpack

import msgspec

from hansard.domain.arrivals import Cursor, Intake
from hansard.domain.budgets import Budget
from hansard.domain.ids import check_session_id, new_id, new_session_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, PATIENCE_SECONDS, REASON_CHARACTERS_MAX, TITLE_CHARACTERS_MAX
from hansard.domain.messages import Message
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.people import By
from hansard.domain.sessions import Link, Parent, Session
from hansard.domain.settings import Busy
from hansard.domain.text import clean_name, clean_text
from hansard.errors import InvalidInput
from hansard.journal.calls import Caller, open_journals, read_journals
from hansard.journal.follow import PageReader, Position, notified
from hansard.journal.locks import Progress
from hansard.journal.queue import Latency
from hansard.journal.store import Store, Wiring
from hansard.journal.verify import Report, verify_record
from hansard.record import sessions
from hansard.record.access import AccessList
from hansard.record.budgets import Budgets, Quotas
from hansard.record.conversation import Conversation
from hansard.record.conversation_cache import ConversationCache
from hansard.record.deliveries import Deliveries
from hansard.record.fetches import FileFetches
from hansard.record.forks import fork_session
from hansard.record.intake.arrivals import RecordIntake
from hansard.record.intake.events import Accepted
from hansard.record.invitations import Invitations
from hansard.record.memory import Memory
from hansard.record.messages import operations as messages
from hansard.record.messages.entries import SHAPES, Chunk, Entry
from hansard.record.messages.operations import BlobFiles, Messages, check_blobs
from hansard.record.people import Circles
from hansard.record.permissions import Permissions
from hansard.record.questions import Questions
from hansard.record.routes import Routes, tell_in_chat
from hansard.record.schema import SCHEMA
from hansard.record.search.asking import Filters, Hit, describe_search, search
from hansard.record.search.index import search_index
from hansard.record.sessions import Sessions
from hansard.record.titles import Titles
from hansard.record.turns.entries import TURNS
from hansard.record.turns.holding import Turn, Turns, hold_session
from hansard.record.turns.operations import claim_turn, end_lost_turn


class Record:
    """An open record: `async with Record.open(home) as record`."""

    def __init__(self, caller: Caller, words: Wording = ENGLISH) -> None:
        self._caller = caller
        self.home = caller.store.source
        self.clock = caller.store.clock
        self.is_read_only = caller.store.is_read_only
        self.note = caller.store.note  # what is special about a record that was opened for reading only
        self.words = words

    # Made when they are first used, so that a call passes only the concepts that it needs.
    sessions = cached_property(lambda self: Sessions(self._caller))
    titles = cached_property(lambda self: Titles(self._caller))
    messages = cached_property(lambda self: Messages(self._caller))
    blobs = cached_property(lambda self: BlobFiles(self._caller))
    turns = cached_property(lambda self: Turns(self._caller, lambda: self.words))
    questions = cached_property(lambda self: Questions(self._caller))
    permissions = cached_property(lambda self: Permissions(self._caller))
    intake = cached_property(lambda self: RecordIntake(self._caller, lambda: self.words))
    invitations = cached_property(lambda self: Invitations(self._caller, lambda: self.words))
    fetches = cached_property(lambda self: FileFetches(self._caller))
    routes = cached_property(lambda self: Routes(self._caller))
    deliveries = cached_property(lambda self: Deliveries(self._caller))
    people = cached_property(lambda self: Circles(self._caller, tell_in_chat))
    access = cached_property(lambda self: AccessList(self._caller, lambda: self.words))
    quotas = cached_property(lambda self: Quotas(self._caller))
    budgets = cached_property(lambda self: Budgets(self._caller))
    memory = cached_property(lambda self: Memory(self._caller))
    _conversations = cached_property(lambda self: ConversationCache(self.clock))
    _pages = cached_property(lambda self: PageReader(self._caller, SHAPES))  # all followers share its snapshots

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
        wired = msgspec.structs.replace(
            wiring or Wiring(), recoveries={TURNS.name: partial(end_lost_turn, words=words)}
        )
        async with open_journals(
            path, SCHEMA, wiring=wired, patience_seconds=patience_seconds, progress=progress, read_only=read_only
        ) as caller:
            yield cls(caller, words)

    @classmethod
    @asynccontextmanager
    async def open_in_place(cls, path: str | Path) -> AsyncIterator[Record | None]:
        """Read a home of this user where it lies; only the search index is written, when it is behind.

        None: opening the home for writing would repair something, or tell why it cannot be written.
        """
        async with read_journals(path, SCHEMA) as caller:
            yield None if caller is None else cls(caller)

    def use_words(self, words: Wording) -> None:
        self.words = words

    @property
    def trouble(self) -> str:
        """Why the record, or one log of it, cannot be written just now; empty when all is well."""
        if self.is_read_only:
            return ""
        writer = self.store.writer
        return str(writer.problem or "") or writer.unwritable.describe()

    @property
    def latency(self) -> Latency:
        return self.store.writer.latency

    def check_fit(self) -> None:
        """Raise why this process may not write any more: a newer Hansard migrated the record, or the home is gone."""
        self.store.check_fit()

    @property
    def store(self) -> Store:
        """The parts below, for simulators: `store.writer.step()`."""
        return self._caller.writable

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
        parent = Parent(session_id=parent) if isinstance(parent, str) else parent
        if parent is not None:
            check_session_id(parent.session_id)
            if parent.link == Link.FORK:
                raise InvalidInput("a fork is made by Record.fork, which shares the parent's entries")
        create = partial(
            sessions.create_session,
            id=self._new_id() if id is None else check_session_id(id),
            is_given=id is not None,
            token=new_id(),
            source=clean_name(source, "a source", NAME_CHARACTERS_MAX),
            owner=clean_name(owner, "an owner", NAME_CHARACTERS_MAX),
            title=None if title is None else clean_name(title, "a title", TITLE_CHARACTERS_MAX),
            parent=parent,
        )
        return await self._caller.write(create)

    def _new_id(self) -> str:
        return new_session_id(self._caller.store.clock.now_microseconds())

    async def resolve(self, text: str, *, owner: str | None = None) -> Session:
        """Return the session that an id, a unique beginning of one, or a title names; of one owner, if that is said."""
        return await self._caller.read(lambda snapshot: sessions.resolve(snapshot, text, owner))

    async def set_title(self, session_id: str, title: str) -> Session:
        cleaned = clean_name(title, "a title", TITLE_CHARACTERS_MAX)
        return await self._caller.write(lambda tx: sessions.set_title(tx, session_id, cleaned))

    async def end_session(self, session_id: str, reason: str) -> Session:
        """End a session; the first reason stays."""
        cleaned = clean_text(reason)[:REASON_CHARACTERS_MAX]
        return await self._caller.write(lambda tx: sessions.end_session(tx, session_id, cleaned), ending=True)

    async def reopen_session(self, session_id: str) -> Session:
        """Let an ended session take new words."""
        return await self._caller.write(lambda tx: sessions.reopen_session(tx, session_id))

    async def fork(
        self, session_id: str, at: int | None = None, *, id: str | None = None, title: str | None = None
    ) -> Session:
        """Return a new session that shares the entries of this one up to `at`, or all of them."""
        fork = partial(
            fork_session,
            parent_id=session_id,
            at=at,
            id=self._new_id() if id is None else check_session_id(id),
            is_given=id is not None,
            token=new_id(),
            title=None if title is None else clean_name(title, "a title", TITLE_CHARACTERS_MAX),
        )
        return await self._caller.write(fork)

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
    ) -> Accepted:
        """Record an inbound event with what it says, the turn it asks for and the platform's cursor: one commit.

        `busy` says what becomes of a turn that runs meanwhile.
        """
        return await self.intake.accept(entries, intake, cursor, busy, asks=queue_turn)

    async def load_transcript(self, session_id: str) -> list[Message]:
        """Return every message of a session, in order, an open one with its text so far."""
        return await messages.load_transcript(self._caller, session_id)

    async def search(self, query: str, *, limit: int = 20, context: int = 0, **filters: Unpack[Filters]) -> list[Hit]:
        """Return messages that match, the best first, each with its neighbours; the rule is in docs/use/search.md."""
        wanted = describe_search(query, limit, context, filters)
        store = self._caller.store
        now = store.clock.now_microseconds()
        return await self._caller.search(lambda: search(search_index(store), store.backend, wanted, now))

    async def conversation(self, session_id: str) -> Conversation:
        """Return what the conversation stands at: a fold that is kept, and grown by what came since."""
        return await self._conversations.read(session_id, self.sessions.read_entries)

    def follow(
        self, session_id: str, after: str | int = 0, *, chunks: bool = True
    ) -> AsyncGenerator[Entry | Chunk, None]:
        """Yield committed entries and chunks from a position on, and then live, without end."""
        return self._pages.follow(session_id, Position.parse(after), chunks=chunks)

    def notify(
        self, event: asyncio.Event, session_id: str | None = None, *, chunks: bool = True
    ) -> AbstractContextManager[None]:
        """Set an event whenever anything is committed, or anything of one session, by whichever process.

        Without `chunks`, an open message that grows need not set it.
        """
        return notified(self._caller.store.followers, event, session_id, chunks=chunks)

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
        turn_id = new_id()
        claim = partial(
            claim_turn,
            session_id=session_id,
            turn_id=turn_id,
            owner=self._caller.store.owner,
            waiting=waiting,
            purpose=purpose,
            budget=budget,
            by=tuple(by),
            is_alive=self._caller.store.is_alive,
            words=self.words,
        )
        return hold_session(self._caller, session_id, turn_id, claim, wait_seconds)

    async def verify(self) -> Report:
        """Compare both legs, the chains and the projections; the record stays in use meanwhile."""
        return await self._caller.run(verify_record, self._caller.store)
