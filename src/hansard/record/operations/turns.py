"""Turns: claim under a fence, stream, end. What a dead owner left is closed as lost."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.domain import entries as e
from hansard.domain.budgets import Budget, Standing
from hansard.domain.entries_agent import TurnAsked
from hansard.domain.messages import Part, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.sessions import SessionState
from hansard.domain.transcript import same_words, streamed_pieces
from hansard.domain.turns import TURN_ENDS, By, How, TurnInfo, TurnState, joined, recovered
from hansard.errors import IdConflict, InvalidInput, LeaseHeld, NotFound, StaleLease
from hansard.record.operations.following import followers_of
from hansard.record.operations.ledger import Judgement, judge
from hansard.record.operations.messages import Offered, add_message, entry_value
from hansard.record.operations.sessions import check_open
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.domain.entries_agent import ToolDecided
    from hansard.record.journals import Journal, SessionRow
    from hansard.record.transaction import Transaction

    IsAlive = Callable[[str], bool]


class Lease(NamedTuple):
    """What a turn shows with each write."""

    session_id: str
    turn_id: str
    fence: int


def turn_value(session_id: str, row: tuple[Any, ...]) -> TurnInfo:
    """Return the turn of a row."""
    turn_id, state, fence, owner, reason = row
    return TurnInfo(id=turn_id, session_id=session_id, state=TurnState(state), fence=fence, owner=owner, reason=reason)


def find_turn(tx: Transaction, journal: Journal, state: TurnState) -> TurnInfo | None:
    """Return the running or the queued turn of a session."""
    row = tx.row(SQL.find_turn_in_state, (journal.key, state))
    return None if row is None else turn_value(journal.id, row)


def is_chore(tx: Transaction, journal: Journal) -> bool:
    """Return whether the turn that runs answers nobody: it makes way by itself, and nobody waits for its end."""
    return tx.row(SQL.find_chore, (journal.key,)) is not None


def read_by(tx: Transaction, journal: Journal, turn_id: str) -> tuple[By, ...]:
    """Return who asked for a turn; turn "" is the next one."""
    rows = tx.rows(SQL.list_turn_by, (journal.key, turn_id))
    return tuple(By(person=person, chat=chat, how=How(how)) for person, chat, how in rows)


def add_askers(tx: Transaction, journal: Journal, turn_id: str, by: tuple[By, ...]) -> None:
    """Note that more people ask for a turn that waits or runs; who asked before is not noted again."""
    before = read_by(tx, journal, turn_id)
    if more := tuple(each for each in joined((), by) if each not in before):
        tx.add(journal, f"~asked:{journal.head_seq + 1}", TurnAsked(turn_id=turn_id, by=more))


def inherited_by(tx: Transaction, journal: Journal, lost_id: str) -> tuple[By, ...] | None:
    """Return who asked for the turn that goes on with a lost one; None when nobody had recorded that."""
    by = recovered(read_by(tx, journal, lost_id))
    queued = tx.find(journal, f"~queued:{lost_id}")
    body = e.decode_body(queued.kind, queued.version, queued.body) if queued is not None else None
    return None if not by and isinstance(body, e.TurnQueued) and body.by is None else by


def queue_turn(tx: Transaction, session_id: str, turn_id: str, chat: str = "", by: tuple[By, ...] = ()) -> TurnInfo:
    """Queue a turn; when one waits already, it will see everything that has come since, and is returned.

    `by`: who asks for it. Whoever joins a turn that waits is noted with it.
    """
    journal, row = tx.session(session_id)
    waiting = find_turn(tx, journal, TurnState.QUEUED)
    if waiting is not None:
        add_askers(tx, journal, waiting.id, by)
        return waiting
    check_open(row)
    followers = followers_of(tx, session_id, chat)
    body = e.TurnQueued(turn_id=turn_id, chats=(chat,) if chat else (), followers=followers, by=joined((), by))
    queued = tx.add(journal, f"~queued:{turn_id}", body)
    return TurnInfo(id=turn_id, session_id=session_id, state=TurnState.QUEUED, fence=queued.seq)


def end_queued(tx: Transaction, journal: Journal, reason: str) -> TurnInfo | None:
    """End a turn before it began; return it."""
    waiting = find_turn(tx, journal, TurnState.QUEUED)
    if waiting is not None:
        ended = e.TurnEnded(turn_id=waiting.id, state=TurnState.INTERRUPTED, reason=reason)
        tx.add(journal, f"~ended:{waiting.id}", ended)
    return waiting


class Claim(NamedTuple):
    """Who wants to run which turn. `waiting`: the id of the one that waits, "" whichever does, None a new one too."""

    session_id: str
    turn_id: str
    owner: str
    waiting: str | None = None
    purpose: str = ""
    budget: Budget = Budget()
    by: tuple[By, ...] = ()
    """Who asks for a turn with a purpose, which answers nobody."""


def claim_turn(tx: Transaction, claim: Claim, is_alive: IsAlive) -> TurnInfo:
    """Start the session's queued turn, or a new one. The seq of the start entry is the fence."""
    session_id, turn_id, owner, _, purpose, budget, by = claim
    journal, row = tx.session(session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is not None and running.owner == owner and tx.find(journal, f"~claim:{turn_id}") is not None:
        return running
    if running is not None and is_alive(running.owner):
        message = f"turn {running.id} of {running.owner} runs in session {session_id}"
        raise LeaseHeld(message, running.owner)
    check_open(row)
    close_lost(tx, session_id, is_alive)
    waiting = None if purpose else find_turn(tx, journal, TurnState.QUEUED)
    if claim.waiting is not None and (waiting is None or claim.waiting not in {"", waiting.id}):
        message = f"no turn {claim.waiting} waits in session {session_id}"
        raise NotFound(message)
    started_id = waiting.id if waiting is not None else turn_id
    if not purpose:
        # Also whoever said what is answered, though it asked for no turn: what came too late, or was left by a stop.
        by = joined(read_by(tx, journal, started_id), read_by(tx, journal, ""))
    if budget.is_set and not purpose:
        judgement = judge(tx, by, row.owner, budget)
        if judgement.standing is Standing.REACHED:
            return refuse_turn(tx, journal, claim._replace(by=by), started_id, judgement)
        if judgement.standing is Standing.NEAR:
            return TurnInfo(id=started_id, session_id=session_id, state=TurnState.QUEUED)
    body = e.TurnStarted(turn_id=started_id, owner=owner, purpose=purpose, by=by)
    started = tx.add(journal, f"~claim:{turn_id}", body)
    return TurnInfo(id=started_id, session_id=session_id, state=TurnState.RUNNING, fence=started.seq, owner=owner)


def refuse_turn(tx: Transaction, journal: Journal, claim: Claim, turn_id: str, judgement: Judgement) -> TurnInfo:
    """End a turn at a limit of the day before it asks anything; people are told where it would have been shown."""
    started = e.TurnStarted(turn_id=turn_id, owner=claim.owner, refused=True, by=claim.by)
    tx.add(journal, f"~claim:{claim.turn_id}", started)
    told = e.MessageAdded(role=Role.NOTICE, parts=(Text(judgement.told),))
    tx.add(journal, f"~refused:{turn_id}", told)
    reason = f"limit of the day: {judgement.reached}"
    tx.add(journal, f"~ended:{turn_id}", e.TurnEnded(turn_id=turn_id, state=TurnState.FAILED, reason=reason))
    return TurnInfo(id=turn_id, session_id=journal.id, state=TurnState.FAILED, owner=claim.owner, reason=reason)


def release_claim(tx: Transaction, session_id: str, turn_id: str) -> None:
    """End a turn that was claimed while its caller was going away, so that nobody waits for it."""
    journal, _ = tx.session(session_id)
    claimed = tx.find(journal, f"~claim:{turn_id}")
    running = find_turn(tx, journal, TurnState.RUNNING)
    if claimed is not None and running is not None and running.fence == claimed.seq:
        reason = "its caller was cancelled while it started"
        ended = e.TurnEnded(turn_id=running.id, state=TurnState.INTERRUPTED, reason=reason)
        tx.add(journal, f"~ended:{running.id}", ended)


def close_lost(tx: Transaction, session_id: str, is_alive: IsAlive) -> bool:
    """End a turn whose owner is dead, as what it is: its text sealed as interrupted, the turn lost (L6)."""
    journal, row = tx.session(session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    if running is None or is_alive(running.owner):
        return False
    if row.open_message is not None:
        tx.seal(journal, row.open_message, Status.INTERRUPTED)
    shown = tx.rows(SQL.list_turn_chats, (journal.key, running.id))
    chats = tuple(chat for chat, follows in shown if not follows)
    waits = find_turn(tx, journal, TurnState.QUEUED) is not None
    again = bool(chats) and not waits and may_run_again(tx, journal, row, running)
    if chats and not waits and not again:
        told = e.MessageAdded(role=Role.NOTICE, parts=(Text(tx.notices_of(chats[0]).recovered),))
        tx.add(journal, f"~lost:{running.id}", told)
    reason = f"its owner {running.owner} is gone"
    tx.add(journal, f"~ended:{running.id}", e.TurnEnded(turn_id=running.id, state=TurnState.LOST, reason=reason))
    if again:
        again_id = f"{running.id}-again"
        followers = tuple(chat for chat, follows in shown if follows)
        by = inherited_by(tx, journal, running.id)
        queued = e.TurnQueued(turn_id=again_id, chats=chats, followers=followers, by=by)
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


def check_fence(tx: Transaction, lease: Lease) -> tuple[Journal, SessionRow]:
    """Refuse the write of a turn that does not hold the session any more, and name who does."""
    journal, row = tx.session(lease.session_id)
    check_holder(tx, journal, lease)
    return journal, row


def _running_row(tx: Transaction, journal: Journal) -> tuple[Any, ...] | None:
    """Return the row of the turn that holds the session; read once for as long as the journal is kept."""
    if journal.running is None:
        journal.running = tx.row(SQL.find_turn_in_state, (journal.key, TurnState.RUNNING)) or ()
    return journal.running or None


def check_holder(tx: Transaction, journal: Journal, lease: Lease) -> None:
    """Refuse a turn that is not the one that runs."""
    holder = _running_row(tx, journal)
    if holder is None or (holder[0], holder[2]) != (lease.turn_id, lease.fence):
        running = turn_value(journal.id, holder) if holder is not None else None
        now = f"turn {running.id} of {running.owner} does" if running is not None else "no turn does"
        message = f"turn {lease.turn_id} does not hold session {lease.session_id} any more: {now}"
        raise StaleLease(message, running.owner if running is not None else "")


class Kept(NamedTuple):
    """What a turn has to record with the next thing that it does: messages to seal, and facts about its requests."""

    abandoned: frozenset[str] = frozenset()
    facts: tuple[tuple[str, e.Body], ...] = ()


def append_in_turn(tx: Transaction, lease: Lease, offered: Offered, kept: Kept = Kept()) -> e.Entry:  # noqa: B008
    """Append a message of the running turn: a tool's result, a notice."""
    journal, _ = tx.session(lease.session_id)
    found = tx.find_same(journal, offered.id, offered.body, offered.data)
    if found is not None:
        return entry_value(journal.id, offered.id, found, offered.body)
    check_fence(tx, lease)
    _write_kept(tx, journal, kept)
    return add_message(tx, journal, offered)


def note_decision(tx: Transaction, lease: Lease, decided: ToolDecided, token: str) -> None:
    """Record what becomes of a call, before anything does."""
    journal, _ = tx.session(lease.session_id)
    if tx.find(journal, f"~decided:{token}") is None:
        check_fence(tx, lease)
        tx.add(journal, f"~decided:{token}", decided)


def open_message(tx: Transaction, lease: Lease, message_id: str, kept: Kept = Kept()) -> None:  # noqa: B008
    """Begin a streamed message."""
    journal, _ = tx.session(lease.session_id)
    body = e.MessageOpened(turn_id=lease.turn_id)
    data = e.ENCODER.encode(body)
    if tx.find_same(journal, message_id, body, data) is not None:
        return
    check_fence(tx, lease)
    _write_kept(tx, journal, kept)
    _, row = tx.session(lease.session_id)
    if row.open_message is not None:
        message = f"message {row.open_message} of session {journal.id} is still open"
        raise InvalidInput(message)
    tx.add(journal, message_id, body, data)


def _write_kept(tx: Transaction, journal: Journal, kept: Kept) -> None:
    """Seal a message that its writer left by an exception, and note what was used, with whatever the turn does next."""
    _, row = tx.session(journal.id)
    if row.open_message is not None and row.open_message in kept.abandoned:
        tx.seal(journal, row.open_message, Status.INTERRUPTED)
    for entry_id, fact in kept.facts:
        if tx.find(journal, entry_id) is None:
            tx.add(journal, entry_id, fact)


class Piece(NamedTuple):
    """A stretch of an open message."""

    message_id: str
    start: int
    part: str
    text: str


def write_chunk(tx: Transaction, lease: Lease, piece: Piece) -> None:
    """Append a chunk to the open message; one that is there already is skipped."""
    journal, row = tx.session(lease.session_id, look=False)
    if row.open_message != piece.message_id and tx.find(journal, f"~seal:{piece.message_id}") is not None:
        own = find_turn(tx, journal, TurnState.RUNNING)
        if own is not None and own.fence == lease.fence:
            return
    check_holder(tx, journal, lease)
    tx.add_chunk(journal, piece.message_id, piece.start, piece.part, piece.text)


class Said(NamedTuple):
    """What a reply said, as its writer knows it: compared with what the record has, before it is called complete."""

    message_id: str
    text_hash: bytes
    more: tuple[Part, ...]
    arranged: tuple[Part, ...] = ()
    """The same words and all of `more`, in the parts that the provider gave them, signatures included."""


def seal_message(tx: Transaction, lease: Lease, said: Said) -> None:
    """Finish a streamed message. The same seal again changes nothing; another text under its id is an error."""
    journal, _ = tx.session(lease.session_id)
    sealed = tx.find(journal, f"~seal:{said.message_id}")
    if sealed is not None:
        own = tx.row(SQL.find_turn, (journal.key, lease.turn_id))
        if own is not None and own[1] != TurnState.LOST:
            body = e.decode_body(sealed.kind, sealed.version, sealed.body)
            pieces = streamed_pieces(body.parts) if isinstance(body, e.MessageSealed) else []
            check_said(said, pieces)
            return
    check_fence(tx, lease)
    pieces = tx.open_pieces(journal)
    check_said(said, pieces)
    if said.arranged and same_words(said.arranged, pieces):
        tx.seal(journal, said.message_id, Status.COMPLETE, said.arranged, [])
    else:
        tx.seal(journal, said.message_id, Status.COMPLETE, said.more, pieces)


def check_said(said: Said, pieces: list[tuple[str, str]]) -> None:
    """Refuse to call a message complete whose recorded text is not what was said."""
    if hashlib.sha256("".join(text for _, text in pieces).encode()).digest() != said.text_hash:
        message = f"message {said.message_id} was recorded before with another text"
        raise IdConflict(message)


class Ending(NamedTuple):
    """How a turn ends, and what is recorded with its end: results for calls that have none, and notices.

    The results belong to the calls of one message; they are recorded if that message was sealed with its calls.
    """

    state: TurnState
    reason: str
    kept: Kept = Kept()
    calling_id: str = ""
    results: tuple[Offered, ...] = ()
    notices: tuple[Offered, ...] = ()


def _sealed_calls(tx: Transaction, journal: Journal, message_id: str) -> set[str]:
    """Return the calls that a message was sealed with."""
    sealed = tx.find(journal, f"~seal:{message_id}") if message_id else None
    body = e.decode_body(sealed.kind, sealed.version, sealed.body) if sealed is not None else None
    return {part.id for part in getattr(body, "parts", ()) if isinstance(part, ToolCall)}


def _answered_calls(offered: Offered) -> set[str]:
    return {part.call_id for part in offered.body.parts if isinstance(part, ToolResult)}


def end_turn(tx: Transaction, lease: Lease, ending: Ending) -> TurnInfo:
    """End a turn, and with it whatever message is open, in one commit. An ended session accepts this too."""
    if ending.state not in TURN_ENDS:
        message = f"a turn does not end as {ending.state}"
        raise InvalidInput(message)
    journal, _ = tx.session(lease.session_id)
    row = tx.row(SQL.find_turn, (journal.key, lease.turn_id))
    if row is not None and row[1] == ending.state and row[2] == lease.fence:
        return turn_value(journal.id, row)
    _, session = check_fence(tx, lease)
    if session.open_message is not None:
        tx.seal(journal, session.open_message, Status.INTERRUPTED)
    _write_kept(tx, journal, ending.kept)
    calls = _sealed_calls(tx, journal, ending.calling_id)
    settled = [offered for offered in ending.results if calls & _answered_calls(offered)]
    for offered in (*settled, *ending.notices):
        if tx.find(journal, offered.id) is None:
            add_message(tx, journal, offered)
    ended = e.TurnEnded(turn_id=lease.turn_id, state=ending.state, reason=ending.reason)
    tx.add(journal, f"~ended:{lease.turn_id}", ended)
    return turn_value(journal.id, tx.row(SQL.find_turn, (journal.key, lease.turn_id)))
