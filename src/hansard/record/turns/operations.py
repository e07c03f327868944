"""Turns: claim under a fence, stream, stop and steer, end. What a dead owner left is closed as lost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec

from hansard.domain.budgets import Budget, BudgetState
from hansard.domain.messages import Part, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.people import By, How, joined
from hansard.domain.sessions import RESUMED_SUFFIX, TURN_ENDS, SessionState, TurnInfo, TurnState
from hansard.domain.settings import Busy
from hansard.errors import IdConflict, InvalidInput, NotFound, StaleLease
from hansard.journal.backend import Reads
from hansard.journal.causes import explain_holding
from hansard.journal.concepts import ENCODER, Body, IsAlive
from hansard.journal.entries import SEQ_BITS, Journal, Stretch
from hansard.journal.transaction import Transaction, open_stream
from hansard.record.budgets import BudgetCheck, judge
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageOpened,
    MessageSealed,
    is_spoken,
    join_chunks,
    read_fold,
    same_words,
    streamed_pieces,
)
from hansard.record.messages.operations import Offered, add_message, entry_of
from hansard.record.routes import list_turn_followers
from hansard.record.sessions import SessionRow, check_open, read_memo, session_journal
from hansard.record.turns.entries import (
    SQL,
    TURNS,
    ToolDecided,
    TurnEnded,
    TurnQueued,
    TurnStarted,
    TurnSteered,
    TurnStopping,
    add_askers,
    answers_nobody,
    end_queued,
    find_turn,
    inherited_by,
    is_asked_by,
    next_askers,
    read_by,
    turn_askers,
    turn_value,
)


class Lease(NamedTuple):
    """What a turn shows with each write."""

    session_id: str
    turn_id: str
    fence: int


def read_next_by(tx: Transaction, journal: Journal) -> tuple[By, ...]:
    """Return who said what the next turn answers. A person whose messages were all undone does not ask for it."""
    by = read_by(tx, journal, "")
    (started,) = tx.row(SQL.last_start, (journal.key,))
    waiting = Stretch((journal.key << SEQ_BITS) + started, (journal.key << SEQ_BITS) + journal.head_seq)
    undone = read_fold(tx, [waiting]).undone if by else {}
    if not undone:
        return by
    rows = tx.rows(SQL.said_since_start, waiting)
    said = [tx.schema.decode_body(*row[1:]) for row in rows if row[0] not in undone]
    standing = {(body.author, body.chat) for body in said if isinstance(body, MessageAdded) and is_spoken(body)}
    return tuple(each for each in by if each.how is not How.MESSAGE or each.place in standing)


def queue_turn(tx: Transaction, session_id: str, turn_id: str, chat: str = "", by: tuple[By, ...] = ()) -> TurnInfo:
    """Queue a turn; when one waits already, it will see everything that has come since, and is returned.

    `by`: who asks for it. Whoever joins a turn that waits is noted with it.
    """
    journal, row = session_journal(tx, session_id)
    waiting = find_turn(tx, journal, TurnState.QUEUED)
    if waiting is not None:
        add_askers(tx, journal, waiting.id, by)
        return waiting
    check_open(row)
    followers = list_turn_followers(tx, session_id, chat)
    body = TurnQueued(turn_id=turn_id, chats=(chat,) if chat else (), followers=followers, by=joined((), by))
    queued = tx.add(journal, f"~queued:{turn_id}", body)
    return TurnInfo(id=turn_id, session_id=session_id, state=TurnState.QUEUED, fence=queued.seq)


def claim_turn(
    tx: Transaction,
    session_id: str,
    turn_id: str,
    owner: str,
    *,
    waiting: str | None = None,
    purpose: str = "",
    budget: Budget | None = None,
    by: tuple[By, ...] = (),
    is_alive: IsAlive,
    words: Wording,
) -> TurnInfo:
    """Start the session's queued turn, or a new one. The seq of the start entry is the fence.

    `waiting`: the id of the one that waits, "" whichever does, None a new one too. `by`: who asks for a turn with a
    purpose, which answers nobody.
    """
    journal, row = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None and running.owner == owner and tx.find(journal, f"~claim:{turn_id}") is not None:
        return running
    if running is not None and is_alive(running.owner):
        raise explain_holding(f"turn {running.id} runs in session {session_id}", running.owner)
    check_open(row)
    close_lost(tx, session_id, is_alive, words)
    queued = None if purpose else find_turn(tx, journal, TurnState.QUEUED)
    if waiting is not None and (queued is None or waiting not in {"", queued.id}):
        raise NotFound(f"no turn {waiting} waits in session {session_id}")
    started_id = queued.id if queued is not None else turn_id
    if not purpose:
        # Also whoever said what is answered, though it asked for no turn: what came too late, or was left by a stop.
        by = joined(read_by(tx, journal, started_id), read_next_by(tx, journal))
    if budget is not None and not purpose:
        judgement = judge(tx, by, row.owner, budget)
        if judgement.standing is BudgetState.REACHED:
            return refuse_turn(tx, journal, turn_id, TurnStarted(turn_id=started_id, owner=owner, by=by), judgement)
        if judgement.standing is BudgetState.NEAR:
            return TurnInfo(id=started_id, session_id=session_id, state=TurnState.QUEUED)
    body = TurnStarted(turn_id=started_id, owner=owner, purpose=purpose, by=by)
    started = tx.add(journal, f"~claim:{turn_id}", body)
    return TurnInfo(id=started_id, session_id=session_id, state=TurnState.RUNNING, fence=started.seq, owner=owner)


def refuse_turn(
    tx: Transaction, journal: Journal, claim_id: str, started: TurnStarted, judgement: BudgetCheck
) -> TurnInfo:
    """End a turn at a limit of the day before it asks anything; people are told where it would have been shown."""
    turn_id, owner = started.turn_id, started.owner
    tx.add(journal, f"~claim:{claim_id}", msgspec.structs.replace(started, refused=True))
    tx.add(journal, f"~refused:{turn_id}", MessageAdded(role=Role.NOTICE, parts=(Text(judgement.told),)))
    reason = f"limit of the day: {judgement.reached}"
    tx.add(journal, f"~ended:{turn_id}", TurnEnded(turn_id=turn_id, state=TurnState.FAILED, reason=reason))
    return TurnInfo(id=turn_id, session_id=journal.id, state=TurnState.FAILED, owner=owner, reason=reason)


def release_claim(tx: Transaction, session_id: str, turn_id: str) -> None:
    """End a turn that was claimed while its caller was going away, so that nobody waits for it."""
    journal, _ = session_journal(tx, session_id)
    claimed = tx.find(journal, f"~claim:{turn_id}")
    running = find_turn(tx, journal, TurnState.RUNNING)
    if claimed is not None and running is not None and running.fence == claimed.seq:
        reason = "its caller was cancelled while it started"
        ended = TurnEnded(turn_id=running.id, state=TurnState.INTERRUPTED, reason=reason)
        tx.add(journal, f"~ended:{running.id}", ended)


def interrupt_message(tx: Transaction, journal: Journal, message_id: str) -> None:
    """Finish the open message with the words that it has."""
    parts = join_chunks(tx.open_pieces(journal))
    sealed = MessageSealed(message_id=message_id, status=Status.INTERRUPTED, parts=parts)
    tx.seal(journal, f"~seal:{message_id}", sealed)


def check_fence(tx: Transaction, journal: Journal, lease: Lease) -> None:
    """Refuse the write of a turn that does not hold the session any more, and name who does."""
    memo = read_memo(journal)
    if memo.running is None:
        memo.running = tx.row(SQL.find_turn_in_state, (journal.key, TurnState.RUNNING)) or ()
    holder = memo.running
    if not holder or (holder[0], holder[2]) != (lease.turn_id, lease.fence):
        running = turn_value(journal.id, holder) if holder else None
        now = f"turn {running.id} of {running.owner} does" if running is not None else "no turn does"
        message = f"turn {lease.turn_id} does not hold session {lease.session_id} any more: {now}"
        raise StaleLease(message, running.owner if running is not None else "")


class PendingFacts(NamedTuple):
    """What a turn has to record with the next thing that it does: messages to seal, and facts about its requests."""

    abandoned: frozenset[str] = frozenset()
    facts: tuple[tuple[str, Body], ...] = ()


def append_in_turn(tx: Transaction, lease: Lease, offered: Offered, kept: PendingFacts) -> Entry:
    journal, _ = session_journal(tx, lease.session_id)
    found = tx.find_same(journal, offered.id, offered.body, offered.data)
    if found is not None:
        return entry_of(journal.id, offered.id, found, offered.body)
    check_fence(tx, journal, lease)
    _write_kept(tx, journal, kept)
    return add_message(tx, journal, offered)


def note_decision(tx: Transaction, lease: Lease, decided: ToolDecided, token: str) -> None:
    journal, _ = session_journal(tx, lease.session_id)
    if tx.find(journal, f"~decided:{token}") is None:
        check_fence(tx, journal, lease)
        tx.add(journal, f"~decided:{token}", decided)


def open_message(tx: Transaction, lease: Lease, message_id: str, kept: PendingFacts) -> None:
    journal, row = session_journal(tx, lease.session_id)
    body = MessageOpened(turn_id=lease.turn_id)
    data = ENCODER.encode(body)
    is_repeat = tx.find_same(journal, message_id, body, data) is not None
    check_fence(tx, journal, lease)
    if is_repeat and (row.open_message != message_id or tx.open_pieces(journal)):
        raise IdConflict(f"{message_id!r} in {journal.id} is another reply of this turn")
    _write_kept(tx, journal, kept._replace(abandoned=kept.abandoned - {message_id}))
    if is_repeat:
        return
    _, row = session_journal(tx, lease.session_id)
    if row.open_message is not None:
        raise InvalidInput(f"message {row.open_message} of session {journal.id} is still open")
    tx.add(journal, message_id, body, data)


def _write_kept(tx: Transaction, journal: Journal, kept: PendingFacts) -> None:
    """Seal a message that its writer left by an exception, and note what was used, with whatever the turn does next."""
    _, row = session_journal(tx, journal.id)
    if row.open_message is not None and row.open_message in kept.abandoned:
        interrupt_message(tx, journal, row.open_message)
    for entry_id, fact in kept.facts:
        tx.add_once(journal, entry_id, fact)


class StreamPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of an open message."""

    message_id: str
    start: int
    part: str
    text: str


def write_chunk(tx: Transaction, lease: Lease, piece: StreamPiece) -> None:
    """Append a chunk to the open message; one that is there already is skipped."""
    journal, row = session_journal(tx, lease.session_id, look=False)
    if row.open_message != piece.message_id and tx.find(journal, f"~seal:{piece.message_id}") is not None:
        own = find_turn(tx, journal, TurnState.RUNNING)
        if own is not None and own.fence == lease.fence:
            return
    check_fence(tx, journal, lease)
    tx.add_chunk(journal, piece.message_id, piece.start, piece.part, piece.text)


class ReplyText(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply said, as its writer knows it: compared with what the record has, before it is called complete."""

    message_id: str
    text_hash: bytes
    more: tuple[Part, ...]
    arranged: tuple[Part, ...] = ()
    """The same words and all of `more`, in the parts that the provider gave them, signatures included."""


def seal_message(tx: Transaction, lease: Lease, said: ReplyText) -> None:
    """Finish a streamed message. The same seal again changes nothing; another text under its id is an error."""
    journal, _ = session_journal(tx, lease.session_id)
    sealed = tx.find_body(journal, f"~seal:{said.message_id}", MessageSealed)
    if sealed is not None:
        own = tx.row(SQL.find_turn, (journal.key, lease.turn_id))
        if own is not None and own[1] != TurnState.LOST:
            check_said(said, streamed_pieces(sealed.parts))
            return
    check_fence(tx, journal, lease)
    pieces = tx.open_pieces(journal)
    check_said(said, pieces)
    is_arranged = said.arranged and same_words(said.arranged, pieces)
    parts = said.arranged if is_arranged else join_chunks(pieces) + said.more
    complete = MessageSealed(message_id=said.message_id, status=Status.COMPLETE, parts=parts)
    tx.seal(journal, f"~seal:{said.message_id}", complete)


def check_said(said: ReplyText, pieces: list[tuple[str, str]]) -> None:
    """Refuse to call a message complete whose recorded text is not what was said."""
    if hashlib.sha256("".join(text for _, text in pieces).encode()).digest() != said.text_hash:
        raise IdConflict(f"message {said.message_id} was recorded before with another text")


def _sealed_calls(tx: Transaction, journal: Journal, message_id: str) -> set[str]:
    sealed = tx.find_body(journal, f"~seal:{message_id}", MessageSealed) if message_id else None
    return {part.id for part in sealed.parts if isinstance(part, ToolCall)} if sealed is not None else set()


def end_turn(
    tx: Transaction,
    lease: Lease,
    *,
    state: TurnState,
    reason: str,
    kept: PendingFacts,
    calling_id: str,
    results: tuple[Offered, ...],
    notices: tuple[Offered, ...],
) -> TurnInfo:
    """End a turn, and with it whatever message is open, in one commit. An ended session accepts this too.

    `results` belong to the calls of the message `calling_id`: they are recorded if it was sealed with these calls.
    """
    if state not in TURN_ENDS:
        raise InvalidInput(f"a turn does not end as {state}")
    journal, session = session_journal(tx, lease.session_id)
    row = tx.row(SQL.find_turn, (journal.key, lease.turn_id))
    if row is not None and row[1] == state and row[2] == lease.fence:
        return turn_value(journal.id, row)
    check_fence(tx, journal, lease)
    if session.open_message is not None:
        interrupt_message(tx, journal, session.open_message)
    _write_kept(tx, journal, kept)
    calls = _sealed_calls(tx, journal, calling_id)
    settled = [
        each for each in results if calls & {part.call_id for part in each.body.parts if isinstance(part, ToolResult)}
    ]
    for offered in (*settled, *notices):
        if tx.find(journal, offered.id) is None:
            add_message(tx, journal, offered)
    ended = TurnEnded(turn_id=lease.turn_id, state=state, reason=reason)
    tx.add(journal, f"~ended:{lease.turn_id}", ended)
    return turn_value(journal.id, tx.row(SQL.find_turn, (journal.key, lease.turn_id)))


def stop_turns(
    tx: Transaction,
    session_id: str,
    reason: str,
    is_alive: IsAlive,
    *,
    words: Wording,
    queued: bool,
    asked_by: Collection[str] = (),
) -> list[TurnInfo]:
    """Ask the running turn to stop, and end the queued one where that is meant too; return those that it concerns.

    A turn whose owner is dead cannot be asked: it is ended as lost. `asked_by`: only turns that these owners, who are
    one person, asked for, and nobody else.
    """
    journal, _ = session_journal(tx, session_id)
    close_lost(tx, session_id, is_alive, words)
    stopped = []
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None and is_asked_by(turn_askers(tx, journal, running.id), asked_by):
        stopped.append(running)
        tx.add_once(journal, f"~stop:{running.id}", TurnStopping(turn_id=running.id, reason=reason))
    may_end = queued and is_asked_by(next_askers(tx, journal.key), asked_by)
    waiting = end_queued(tx, journal, reason) if may_end else None
    if waiting is not None:
        stopped.append(waiting)
    return [turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn.id))) for turn in stopped]


def meet_running_turn(
    tx: Transaction, session_id: str, message_ids: tuple[str, ...], busy: Busy, is_alive: IsAlive, *, words: Wording
) -> None:
    """Say what new messages mean for the turn that runs: it is interrupted, or steered, or goes on.

    A turn that answers nobody is neither interrupted nor steered: it sees by itself that somebody waits.
    """
    journal, _ = session_journal(tx, session_id)
    if answers_nobody(tx, journal):
        return
    if busy is Busy.INTERRUPT:
        stop_turns(tx, session_id, "a new message came", is_alive, words=words, queued=False)
    elif busy is Busy.STEER:
        running = find_turn(tx, journal, TurnState.RUNNING)
        for message_id in message_ids if running is not None else ():
            if running is not None and tx.find(journal, f"~steer:{message_id}") is None:
                person, chat = said_in(tx, journal, message_id)
                steered = TurnSteered(turn_id=running.id, message_id=message_id, chat=chat)
                tx.add(journal, f"~steer:{message_id}", steered)
                if person:
                    by = By(person=person, chat=chat, how=How.STEERING)
                    add_askers(tx, journal, running.id, (by,))


def said_in(tx: Transaction, journal: Journal, message_id: str) -> tuple[str, str]:
    """Return who said a message, and in which chat; both are empty when nobody knows."""
    body = tx.find_body(journal, message_id, MessageAdded)
    return (body.author, body.chat) if body is not None and body.author else ("", "")


def close_lost(tx: Transaction, session_id: str, is_alive: IsAlive, words: Wording) -> bool:
    """End a turn whose owner is dead, as what it is: its text sealed as interrupted, the turn lost (L6)."""
    journal, row = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is None or is_alive(running.owner):
        return False
    if row.open_message is not None:
        interrupt_message(tx, journal, row.open_message)
    shown = tx.rows(SQL.list_turn_chats, (journal.key, running.id))
    chats = tuple(chat for chat, follows in shown if not follows)
    waits = find_turn(tx, journal, TurnState.QUEUED) is not None
    again = bool(chats) and not waits and may_run_again(tx, journal, row, running)
    if chats and not waits and not again:
        told = MessageAdded(role=Role.NOTICE, parts=(Text(words.recovered),))
        tx.add(journal, f"~lost:{running.id}", told)
    reason = f"its owner {running.owner} is gone"
    tx.add(journal, f"~ended:{running.id}", TurnEnded(turn_id=running.id, state=TurnState.LOST, reason=reason))
    if again:
        again_id = f"{running.id}-again"
        followers = tuple(chat for chat, follows in shown if follows)
        by = inherited_by(tx, journal, running.id)
        queued = TurnQueued(turn_id=again_id, chats=chats, followers=followers, by=by)
        tx.add(journal, f"~queued:{again_id}", queued)
    return True


def may_run_again(tx: Transaction, journal: Journal, row: SessionRow, running: TurnInfo) -> bool:
    """Return whether a turn that was lost before it said anything is to be tried again, for those who wait in a chat.

    Once: a turn that takes its process down each time is not repeated for ever.
    """
    if row.state == SessionState.ENDED:
        return False
    said = tx.row(SQL.said_since, (journal.entry_key(running.fence), journal.entry_key(journal.head_seq)))
    return said is None and tx.row(SQL.lost_since_end, (journal.key,))[0] == 0


@TURNS.recovers(SQL.running_turns)
def end_lost_turn(
    turn: tuple[Any, ...], is_alive: IsAlive, words: Wording = ENGLISH
) -> Callable[[Transaction], object]:
    """End the turn of a dead owner as lost (L6), and tell those who wait in a chat in these words."""
    return partial(close_lost, session_id=turn[0], is_alive=is_alive, words=words)


def check_open_message(reads: Reads, journal: Journal) -> Iterator[tuple[str, str]]:
    """A message is open only while a turn runs."""
    stream_id = open_stream(reads, journal.id)
    if stream_id is not None and not reads.rows(SQL.find_turn_in_state, (journal.key, "running")):
        yield "turn", f"message {stream_id} is open and no turn runs"


TURNS.check_journal = check_open_message


def queue_resumption(tx: Transaction, session_id: str, lost_id: str, chats: tuple[str, ...]) -> TurnInfo | None:
    """Queue a turn that goes on, unless one runs or waits, or this one was taken up before."""
    journal, _ = session_journal(tx, session_id)
    turn_id = f"{lost_id}{RESUMED_SUFFIX}"
    if any(find_turn(tx, journal, state) is not None for state in (TurnState.QUEUED, TurnState.RUNNING)):
        return None
    if lost_id.endswith(RESUMED_SUFFIX) or tx.find(journal, f"~queued:{turn_id}") is not None:
        return None
    by = inherited_by(tx, journal, lost_id)
    tx.add(journal, f"~queued:{turn_id}", TurnQueued(turn_id=turn_id, chats=chats, by=by))
    return turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn_id)))
