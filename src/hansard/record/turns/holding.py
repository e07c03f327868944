"""A turn and its replies, as the engine uses them, and `record.turns`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import deque
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Self

import msgspec

from hansard.domain.budgets import Usage
from hansard.domain.chats import chats_of
from hansard.domain.ids import check_entry_id, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX, REPLY_BYTES_MAX
from hansard.domain.messages import Message, Part, Reasoning, Text, clean_part
from hansard.domain.sessions import TurnInfo, TurnState
from hansard.domain.text import clean_text, split_pending_surrogate
from hansard.errors import HansardError, IdConflict, InvalidInput, LeaseHeld, LimitReached, OutcomeUnknown, TooLarge
from hansard.journal.follow import notified
from hansard.journal.queue import Item, ItemState
from hansard.record import TellingNamespace, questions
from hansard.record.conversation import SessionCompacted
from hansard.record.messages.entries import PART_KINDS, Entry, FileTranscribed, join_chunks
from hansard.record.messages.operations import check_blobs, offer
from hansard.record.people import read_circle
from hansard.record.questions import QuestionAsked
from hansard.record.sessions import find_session
from hansard.record.turns.entries import SQL, ToolDecided, TurnContinued, TurnUsed, last_askers, next_askers, turn_value
from hansard.record.turns.operations import (
    Lease,
    PendingFacts,
    ReplyText,
    StreamPiece,
    append_in_turn,
    close_lost,
    end_turn,
    note_decision,
    open_message,
    queue_resumption,
    queue_turn,
    release_claim,
    seal_message,
    stop_turns,
    write_chunk,
)
from hansard.tasks import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from hansard.domain.people import By
    from hansard.domain.questions import Answered
    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.transaction import Transaction

HOLDER_LOOK_SECONDS = 0.25
"""Interval between claims when no commit wakes the waiter: the holder may have died, or the day's limit have room."""

GATHER_SECONDS = 0.02
"""A reply's pieces are written at most this often: words come faster than an eye can follow, and each commit costs."""

LOST_AGE_MICROSECONDS_MAX = 24 * 3600 * 1_000_000
"""What was lost longer ago is left alone: nobody waits for it any more."""

RESUMED_TURNS_MAX = 100
"""Turns that are taken up at one start."""


class Turn:
    """One run of the agent. It holds its session by a fence until it ends."""

    def __init__(self, caller: Caller, claimed: TurnInfo) -> None:
        self._caller = caller
        self._lease = Lease(claimed.session_id, claimed.id, claimed.fence)
        self.kept = PendingFacts()
        """What is to be recorded with the next thing this turn does."""
        self._calling_id = ""
        self._results: tuple[Message, ...] = ()
        self._notices: tuple[Message, ...] = ()
        self._end: tuple[TurnState, str] | None = None
        self.model = ""
        """The model that was asked last."""
        self.id = claimed.id
        self.session_id = claimed.session_id
        self.fence = claimed.fence

    async def append(self, message: Message) -> Entry:
        """Append a whole message of this turn; durable when it returns."""
        offered = offer(message)
        await check_blobs(self._caller, offered)
        kept = self.kept
        entry = await self._caller.write(
            lambda tx: append_in_turn(tx, self._lease, offered, kept), cost=len(offered.data)
        )
        self.wrote(kept)
        return entry

    def reply(self, *, id: str | None = None) -> Reply:
        """Return a message to be streamed: `async with turn.reply() as reply: await reply.write(…)`."""
        return Reply(self, self._caller, self._lease, new_id() if id is None else check_entry_id(id))

    def abandon(self, message_id: str) -> None:
        """A reply was left by an exception: it is sealed as interrupted with the next thing this turn does."""
        self.kept = self.kept._replace(abandoned=self.kept.abandoned | {message_id})

    def take_up(self, message_id: str) -> None:
        """A reply that was left before it said anything, or whose opening was in doubt, is said after all."""
        self.kept = self.kept._replace(abandoned=self.kept.abandoned - {message_id})

    def add_usage(self, model: str, usage: Usage) -> None:
        """Note what a request took; recorded with the next thing this turn does."""
        used = TurnUsed(turn_id=self.id, model=clean_text(model)[:NAME_CHARACTERS_MAX], usage=usage)
        self.kept = self.kept._replace(facts=(*self.kept.facts, (f"~used:{new_id()}", used)))

    def transcribe(self, transcribed: FileTranscribed, usage: Usage) -> None:
        """Note what a voice note says and what that took; recorded with the next thing this turn does."""
        key = hashlib.sha256(f"{transcribed.message_id}\n{transcribed.blob}".encode()).hexdigest()[:32]
        model = clean_text(transcribed.model)[:NAME_CHARACTERS_MAX]
        used = TurnUsed(turn_id=self.id, model=model, usage=usage, purpose="transcription")
        cleaned = msgspec.structs.replace(transcribed, text=clean_text(transcribed.text), model=model)
        facts = ((f"~transcript:{key}", cleaned), (f"~used:{new_id()}", used))
        self.kept = self.kept._replace(facts=(*self.kept.facts, *facts[: 2 if usage != Usage() else 1]))

    def go_on(self, message_id: str, note: str = "") -> None:
        """Note that the model is asked to go on where this message was cut; recorded with the next thing."""
        fact = TurnContinued(turn_id=self.id, message_id=message_id, note=note)
        self.kept = self.kept._replace(facts=(*self.kept.facts, (f"~continued:{message_id}", fact)))

    def compact(self, compacted: SessionCompacted) -> None:
        """Note a summary of what was said; recorded with the next thing, at the latest with the turn's end."""
        self.kept = self.kept._replace(facts=(*self.kept.facts, (f"~compacted:{self.id}", compacted)))

    def settle_calls(self, message_id: str, results: Sequence[Message]) -> None:
        """Let these be recorded with the turn's end, where their ids are not there: results of a message's calls."""
        self._calling_id, self._results = message_id, tuple(results)

    def tell(self, text: str, chat: str = "") -> None:
        """Let a notice be recorded with the turn's end, to be shown in a chat, or wherever the turn is."""
        self._notices = (*self._notices, Message.notice(text, chat=chat))

    def wrote(self, kept: PendingFacts) -> None:
        """What was kept is recorded; what came since is not."""
        self.kept = PendingFacts(self.kept.abandoned, self.kept.facts[len(kept.facts) :])

    async def note_decision(self, decided: ToolDecided) -> None:
        """Record what becomes of a call and why, before anything does."""
        token = new_id()
        await self._caller.write(lambda tx: note_decision(tx, self._lease, decided, token))

    async def ask(self, notice: Message, asked: QuestionAsked) -> int:
        """Ask people about a call, and let the turn wait for it; return the question's number in this turn."""
        offered = offer(notice)
        await check_blobs(self._caller, offered)
        body = msgspec.structs.replace(asked, turn_id=self.id, message_id=notice.id)
        return await self._caller.write(
            lambda tx: questions.ask(tx, self._lease, offered, body), cost=len(offered.data)
        )

    async def settle_question(self, number: int, reason: str) -> Answered:
        """End a question that nobody answered; return the answer, if it came after all."""
        return await self._caller.write(lambda tx: questions.settle_question(tx, self._lease, number, reason))

    def fail(self, reason: str) -> None:
        """Let the turn end as failed, without an exception."""
        self._end = (TurnState.FAILED, reason)

    @property
    def failed(self) -> str:
        """Why the turn is to end as failed; empty when it is not."""
        return self._end[1] if self._end is not None and self._end[0] is TurnState.FAILED else ""

    def interrupt(self, reason: str) -> None:
        """Let the turn end as interrupted, without an exception."""
        self._end = (TurnState.INTERRUPTED, reason)

    async def end(self, error: BaseException | None) -> TurnInfo:
        state, reason = self._end or (TurnState.COMPLETED, "")
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            state, reason = TurnState.INTERRUPTED, reason or "cancelled"
        elif error is not None:
            state, reason = TurnState.FAILED, f"{type(error).__name__}: {error}"
        reason = clean_text(reason)[:REASON_CHARACTERS_MAX]
        results = tuple(offer(message) for message in self._results)
        notices = tuple(offer(message) for message in self._notices)
        end = partial(
            end_turn,
            lease=self._lease,
            state=state,
            reason=reason,
            kept=self.kept,
            calling_id=self._calling_id,
            results=results,
            notices=notices,
        )
        cost = len(reason) + sum(len(offered.data) for offered in (*results, *notices))
        return await self._caller.write(end, cost=cost, ending=True)


@contextlib.asynccontextmanager
async def hold_session(
    caller: Caller, session_id: str, turn_id: str, claim: partial[TurnInfo], wait_seconds: float
) -> AsyncIterator[Turn]:
    """Hold a session for one turn. Leaving ends it, whatever happened."""
    release = partial(release_claim, session_id=session_id, turn_id=turn_id)
    turn = Turn(caller, await wait_for_turn(caller, session_id, claim, release, wait_seconds))
    try:
        yield turn
    except BaseException as error:
        await turn.end(error)
        raise
    else:
        await turn.end(None)


async def wait_for_turn(
    caller: Caller, session_id: str, claim: partial[TurnInfo], release: partial[None], wait_seconds: float
) -> TurnInfo:
    """Claim a turn; wait for the one that runs, no longer than told."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_seconds
    changed = asyncio.Event()
    with notified(caller.store.followers, changed, session_id) if wait_seconds else contextlib.nullcontext():
        while True:
            changed.clear()
            try:
                return await try_to_claim(caller, claim, release)
            except LeaseHeld:
                if loop.time() >= deadline:
                    raise
            await wait_until(changed, min(deadline, loop.time() + HOLDER_LOOK_SECONDS))


async def try_to_claim(caller: Caller, claim: partial[TurnInfo], release: partial[None]) -> TurnInfo:
    try:
        claimed = await caller.write(claim)
    except (asyncio.CancelledError, OutcomeUnknown):
        # The claim may have been written all the same: a turn that nobody runs must not hold the session.
        with contextlib.suppress(HansardError):
            await caller.write(release, ending=True)
        raise
    if claimed.state is TurnState.QUEUED:
        raise LeaseHeld("the day's limit is near: other turns have to end first")
    if claimed.state is TurnState.FAILED:
        raise LimitReached(claimed.reason)
    return claimed


class Reply:
    """An assistant's message while it is being said."""

    def __init__(self, turn: Turn, caller: Caller, lease: Lease, message_id: str) -> None:
        self.id = message_id
        self._turn = turn
        self._caller = caller
        self._lease = lease
        self._pieces: deque[StreamPiece] = deque()
        self._item: Item | None = None
        self._rung_at = 0.0
        self._end_bytes = 0
        self._hash = hashlib.sha256()
        self._half = ""
        self._half_part = "text"
        self._parts: list[Part] = []
        self._said: list[tuple[str, str]] = []
        self._is_escaped = False
        self._arranged: tuple[Part, ...] = ()
        self._error: BaseException | None = None

    async def __aenter__(self) -> Self:
        """Open the message, durably: whatever is said from now on has a place."""
        kept = self._turn.kept
        try:
            await self._caller.write(lambda tx: open_message(tx, self._lease, self.id, kept))
            self._turn.wrote(kept)
            self._turn.take_up(self.id)
        except BaseException:
            self._turn.abandon(self.id)
            raise
        return self

    async def write(self, text: str, *, part: str = "text") -> None:
        """Queue a piece of text. It is shown once it is durable; an earlier piece's failure is raised here."""
        if not isinstance(text, str):
            raise InvalidInput(f"a reply streams text, not {type(text).__name__}")
        if part not in PART_KINDS:
            raise InvalidInput(f"a reply streams {' or '.join(PART_KINDS)}, not {part!r}")
        if self._error is not None:
            raise self._error
        if self._half and part != self._half_part:
            self._queue(self._half, self._half_part)
            self._half = ""
        whole, self._half = split_pending_surrogate(self._half + text)
        self._half_part = part
        self._queue(whole, part)
        if self._caller.crowded():
            await self._caller.room()

    def add(self, part: Part) -> None:
        """Add a part that is not streamed, such as a tool call; it is recorded with the seal."""
        if isinstance(part, Text | Reasoning):
            raise InvalidInput("text and reasoning are streamed: reply.write(…)")
        self._parts.append(clean_part(part))

    def arrange(self, parts: Sequence[Part]) -> None:
        """Give all of it once more, in the parts that the provider gave it; counts if it says what was streamed."""
        self._arranged = tuple(clean_part(part) for part in parts)

    def _queue(self, said: str, part: str) -> None:
        text = clean_text(said)
        self._is_escaped = self._is_escaped or text is not said
        self._said.append((part, said))
        data = text.encode()
        size = len(data)
        if not size:
            return
        if self._end_bytes + size > REPLY_BYTES_MAX:
            why = f"a reply of more than {REPLY_BYTES_MAX} bytes; what came before is recorded"
            raise TooLarge(why, "Ask for a shorter answer, or for the rest of it in a new message.")
        self._hash.update(data)
        self._pieces.append(StreamPiece(message_id=self.id, start=self._end_bytes, part=part, text=text))
        self._end_bytes += size
        if self._item is None or self._item.state is not ItemState.QUEUED:
            self._submit(size)

    def _submit(self, size: int) -> None:
        taken: list[StreamPiece] = []

        def write_pieces(tx: Transaction) -> None:
            while self._pieces:
                taken.append(self._pieces.popleft())
            for piece in join_pieces(taken):
                write_chunk(tx, self._lease, piece)

        self._item = Item(write_pieces, self._written, cost=size)
        self._caller.queue.submit(self._item, ring=False)
        self._rung_at = max(self._caller.now(), self._rung_at + GATHER_SECONDS)
        self._caller.ring_for_stream(self._rung_at)

    def _written(self, item: Item) -> None:
        if item.error is not None:
            self._error = item.error

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Seal the message as complete. Left by an exception, the turn's next commit seals it as interrupted."""
        if error is not None:
            self._turn.abandon(self.id)
            return
        try:
            if self._half:
                self._queue(self._half, self._half_part)
                self._half = ""
            if self._is_escaped and not self._arranged:
                # Chunks are text only; what they could not carry is recorded beside the text with the seal.
                self._arranged = (*(clean_part(part) for part in join_chunks(self._said)), *self._parts)
            if self._error is not None:
                raise self._error
            said = ReplyText(
                message_id=self.id, text_hash=self._hash.digest(), more=tuple(self._parts), arranged=self._arranged
            )
            await self._caller.write(lambda tx: seal_message(tx, self._lease, said), cost=self._end_bytes)
        except BaseException as wrong:
            self._turn.abandon(self.id)
            if isinstance(wrong, IdConflict) and self._error is not None:
                raise self._error from None  # a piece was refused in the same commit: that is why the text differs
            raise


def join_pieces(pieces: list[StreamPiece]) -> list[StreamPiece]:
    """Return pieces that follow each other as one, so that a burst of tokens is one row."""
    if len(pieces) <= 1:
        return pieces
    joined: list[StreamPiece] = []
    for part, run in groupby(pieces, key=lambda piece: piece.part):
        first, *others = run
        text = "".join([first.text, *(piece.text for piece in others)])
        joined.append(StreamPiece(message_id=first.message_id, start=first.start, part=part, text=text))
    return joined


class Turns(TellingNamespace):
    """`record.turns`: turns that wait, run or ended."""

    async def list_queued(self, channel: str = "") -> list[TurnInfo]:
        """Return the turns that wait to run: in every session, or those to be shown in a channel's chats."""
        query, bindings = (SQL.queued_turns_of_chats, chats_of(channel)) if channel else (SQL.queued_turns, ())
        rows = await self._caller.read(lambda snapshot: snapshot.rows(query, bindings))
        return [turn_value(row[0], row[1:]) for row in rows]

    async def find(self, name: str) -> TurnInfo | None:
        """Return the turn that an id, or a unique beginning of one, names; None for none, or for several."""
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.find_turns_by_id, (name,))) if name else []
        exact = [row for row in rows if row[1] == name] or rows
        return turn_value(exact[0][0], exact[0][1:]) if len(exact) == 1 else None

    async def list_askers(self, session_id: str) -> tuple[str, ...]:
        """Return who asks for the next turn of a session, or asked for the last: each person by one of their names."""

        def read(snapshot: Reads) -> tuple[str, ...]:
            session = find_session(snapshot, session_id)
            asked = next_askers(snapshot, session.journal) or last_askers(snapshot, session.journal)
            return tuple(sorted({read_circle(snapshot, person)[0] for person in asked or {session.owner}}))

        return await self._caller.read(read)

    async def queue(self, session_id: str, *, chat: str = "", by: Sequence[By] = ()) -> TurnInfo:
        """Queue a turn, to be shown in a chat as well. `by`: who asks for it. A turn that waits already is returned."""
        turn_id = new_id()
        return await self._caller.write(lambda tx: queue_turn(tx, session_id, turn_id, chat, tuple(by)))

    async def stop(self, session_id: str, reason: str, *, queued: bool = False, asked_by: str = "") -> list[TurnInfo]:
        """Ask the running turn to stop, in whichever process it runs; `queued` ends the one that waits as well.

        `asked_by`: only turns that this person asked for, and nobody else.
        """
        cleaned, words = clean_text(reason)[:REASON_CHARACTERS_MAX], self._words()
        is_alive = self._caller.store.is_alive

        def stop(tx: Transaction) -> list[TurnInfo]:
            owners = read_circle(tx, asked_by) if asked_by else ()
            return stop_turns(tx, session_id, cleaned, is_alive, words=words, queued=queued, asked_by=owners)

        return await self._caller.write(stop)

    async def list_running_chats(self, channel: str) -> list[str]:
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.running_chats, chats_of(channel)))
        return [chat for (chat,) in rows]

    async def list_writing_chats(self, channel: str) -> list[str]:
        """Return a channel's chats in which a turn answers somebody, but those whose process is gone."""
        is_alive = self._caller.store.is_alive

        def read(snapshot: Reads) -> list[str]:
            rows = snapshot.rows(SQL.writing_chats, chats_of(channel))
            living = {owner for owner in {owner for _, owner in rows} if is_alive(owner)}
            return list(dict.fromkeys(chat for chat, owner in rows if owner in living))

        return await self._caller.read(read)

    async def end_lost(self, channel: str) -> list[str]:
        """End the turns that a dead process was showing in a channel's chats, as lost; return their sessions."""
        is_alive = self._caller.store.is_alive
        rows = await self._caller.read(lambda snapshot: snapshot.rows(SQL.running_turns_of_chats, chats_of(channel)))
        dead = [session_id for session_id, owner in rows if not is_alive(owner)]
        close = partial(close_lost, is_alive=is_alive, words=self._words())
        return [
            session_id
            for session_id in dead
            if await self._caller.write(partial(close, session_id=session_id), ending=True)
        ]

    async def list_lost(self) -> list[tuple[str, str]]:
        """Return the open sessions whose last turn was lost lately, each with that turn."""
        since = self._caller.store.clock.now_microseconds() - LOST_AGE_MICROSECONDS_MAX
        return await self._caller.read(lambda snapshot: snapshot.rows(SQL.lost_turns, (since, RESUMED_TURNS_MAX)))

    async def queue_resumption(self, session_id: str, lost_id: str, chats: Sequence[str]) -> TurnInfo | None:
        """Queue the turn that goes on with a lost one, once; None when somebody has gone on already."""
        return await self._caller.write(lambda tx: queue_resumption(tx, session_id, lost_id, tuple(chats)))

    async def list(self, session_id: str) -> list[TurnInfo]:
        def read(snapshot: Reads) -> list[TurnInfo]:
            rows = snapshot.rows(SQL.list_turns, (find_session(snapshot, session_id).journal,))
            return [turn_value(session_id, row) for row in rows]

        return await self._caller.read(read)
