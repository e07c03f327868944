"""What is said, in one commit: who said it, where it leads, what it becomes, how far the stream is received.

One operation for chats, the terminal, the API and imports.
Reads: intake, access, route, session, turns. Writes: what the arrival means, and that it was received (L2).
Invariants: an event is taken once; every decision is made on what is in the record at that moment; a turn that runs
or waits is never carried into another session; what is refused leaves nothing behind.
On crash: all of it is there, or nothing, and the event comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.access import Action, Rank, is_same_owner, is_shared, may, rank
from hansard.domain.arrivals import (
    ACTIONS,
    SILENT,
    UNANSWERED,
    Arrival,
    ArrivalKind,
    ArrivalOutcome,
    IntakeRules,
    Origin,
    RouteChange,
)
from hansard.domain.budgets import Brought
from hansard.domain.chats import Began, Resting, due
from hansard.domain.ids import new_id
from hansard.domain.messages import Role, Text, join_own_text
from hansard.domain.notices import ENGLISH
from hansard.domain.people import is_person
from hansard.domain.questions import NOTHING_WAITS
from hansard.domain.sessions import Link, Parent, SessionState, TurnState
from hansard.domain.settings import Busy
from hansard.errors import NotFound
from hansard.journal.concepts import ENCODER
from hansard.record.access import ask, grant_of
from hansard.record.conversation import askers_of
from hansard.record.fetches import await_files
from hansard.record.intake.events import (
    SQL,
    Accepted,
    Received,
    find_receipt,
    lead_to,
    mark_received,
    move_cursor,
    read_accepted,
    read_receipt,
    tell,
    tell_once,
)
from hansard.record.messages.entries import MessageAdded, added_message
from hansard.record.messages.operations import Offered, add_message, append, entry_of
from hansard.record.people import read_circle
from hansard.record.questions import GivenAnswer, Judged, judge, record_answer
from hansard.record.quotas import allows, count_used, tell_over
from hansard.record.routes import ROUTES, find_route, tell_followers
from hansard.record.sessions import create_session, end_session, reopen_session, session_journal
from hansard.record.turns.entries import find_turn, is_asked_by, is_chore, turn_askers
from hansard.record.turns.operations import meet_running_turn, queue_turn, stop_turns

if TYPE_CHECKING:
    from hansard.domain.arrivals import Cursor
    from hansard.domain.notices import Wording
    from hansard.domain.people import By
    from hansard.domain.questions import Given
    from hansard.domain.sessions import Route, Session, TurnInfo
    from hansard.journal.concepts import IsAlive
    from hansard.journal.entries import Journal
    from hansard.journal.transaction import Transaction
    from hansard.record.messages.entries import Entry

Said = tuple[tuple[str, Offered], ...]
"""Messages, each with its session; in a chat the session is empty."""


class Receiving(NamedTuple):
    """An arrival in the transaction that receives it, and what decisions go by."""

    tx: Transaction
    arrival: Arrival
    said: Said
    rules: IntakeRules
    is_alive: IsAlive
    words: Wording
    fresh: tuple[str, str]
    """Ids for a session that `/new` begins and for the notice of it: given before, so that a repeat changes nothing."""

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return self.arrival.origin


def receive(at: Receiving) -> Received:
    """Take in what was said, unless it was received before or its author may not."""
    tx, origin = at.tx, at.origin
    receipt = find_receipt(tx, origin)
    if receipt is not None:
        received = read_receipt(receipt)
    elif not may_arrive(at):
        received = refuse(at)
    else:
        received = take_answer(at) or take_messages(at)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return received


def may_arrive(at: Receiving) -> bool:
    """Return whether somebody may say this in a chat. What names its sessions itself comes from this machine."""
    origin = at.origin
    allowed = ACTIONS[at.arrival.kind]
    return not origin.key or may(allowed, origin.standing, grant_of(at.tx, origin.channel, origin.identity))


def refuse(at: Receiving) -> Received:
    """Take nothing of what a stranger says; one who speaks to the agent may be shown a code.

    An event that waited to become readable waits no longer.
    """
    tx, origin = at.tx, at.origin
    if tx.row(SQL.find_held, origin.event) is not None:
        mark_received(tx, origin.event)
    may_ask = may(Action.ASK, origin.standing, grant_of(tx, origin.channel, origin.identity))
    asked = (
        may_ask
        and at.arrival.kind not in SILENT
        and ask(tx, origin.channel, origin.identity, origin.chat, at.rules, words=at.words)
    )
    return Received(ArrivalOutcome.ASKED if asked else ArrivalOutcome.REFUSED)


def take_messages(at: Receiving) -> Received:
    """Record what was said, where it belongs, and do what its kind asks for."""
    arrival, tx, origin = at.arrival, at.tx, at.origin
    if arrival.kind is ArrivalKind.ANSWER:
        if arrival.otherwise is None:
            mark_received(tx, origin.event)
            return Received(ArrivalOutcome.REFUSED)
        at = at._replace(arrival=msgspec.structs.replace(arrival, kind=arrival.otherwise))
    if origin.key and not count_session(at):
        return Received(ArrivalOutcome.REFUSED)
    session_id, moved = lead(at) if origin.key else (at.said[0][0] if at.said else "", None)
    told, entries = open_sessions(at, session_id, moved), []
    for named, offered in at.said:
        entries.append(append(tx, named or session_id, offered))
    said = tuple(entries)
    if arrival.files:
        await_files(tx, arrival, session_id, said[0].id, at.rules, words=at.words)
    if at.arrival.kind is ArrivalKind.NEW:
        moved = begin_new(at, session_id)
        session_id = moved.new
    elif at.arrival.kind in UNANSWERED:
        tell_once(tx, session_id, origin.chat, getattr(at.words, at.arrival.kind), at.arrival.kind)
    told += [tell(tx, session_id, origin.chat, text) for text in arrival.notes]
    if at.arrival.kind is ArrivalKind.NEW and moved is not None:
        text = arrival.told.format(new=moved.new, old=moved.old) if arrival.told else moved.told(at.words)
        told.append(tell(tx, session_id, origin.chat, text, at.fresh[1]))
    turns = ask_for_turns(at, said) if at.arrival.kind is ArrivalKind.ASK else ()
    if origin.event_id:
        pairs = tuple((entry.session_id, entry.id) for entry in said)
        mark_received(tx, origin.event, pairs, tuple((turn.session_id, turn.id) for turn in turns))
    message_id, turn_id = said[0].id if said else "", turns[0].id if turns else ""
    waits = any(runs(at, turn.session_id) for turn in turns)
    return Received(ArrivalOutcome.TAKEN, session_id, message_id, turn_id, moved, said, turns, waits, tuple(told))


def open_sessions(at: Receiving, session_id: str, moved: RouteChange | None) -> list[Entry]:
    """Open ended sessions again that something is said in; tell people so, and that a chat is in another session."""
    tx, origin = at.tx, at.origin
    notices = [(session_id, moved.told(at.words))] if moved is not None else []
    if origin.key or at.arrival.reopens:
        for each in dict.fromkeys(named or session_id for named, _ in at.said):
            journal, row = session_journal(tx, each)
            if row.state == SessionState.ENDED and not is_left(at, journal):
                reopen_session(tx, each)
                if at.arrival.kind is not ArrivalKind.NEW:
                    notices.append((each, at.words.reopened if origin.chat else ENGLISH.reopened))
    return [tell(tx, each, origin.chat, text) for each, text in notices]


def is_left(at: Receiving, journal: Journal) -> bool:
    """Return whether the same `/new` has ended a session already: a repeat does not open it again."""
    is_new = at.arrival.kind is ArrivalKind.NEW
    return is_new and any(at.tx.find(journal, offered.id) is not None for _, offered in at.said)


# Turns.


def ask_for_turns(at: Receiving, entries: tuple[Entry, ...]) -> tuple[TurnInfo, ...]:
    """Ask for a turn in each session in which something was said; say what that means for the turn that runs there."""
    tx = at.tx
    sessions = dict.fromkeys(entry.session_id for entry in entries)
    for session_id in sessions:
        said = tuple(entry.id for entry in entries if entry.session_id == session_id and is_said(entry))
        tell_followers(tx, session_id, said, at.words)
        busy = busy_of_arrival(at, session_id) if at.origin.key else at.arrival.busy
        meet_running_turn(tx, session_id, said, busy, at.is_alive, words=at.words)
    return tuple(queue_turn(tx, each, new_id(), by=askers_in(entries, each)) for each in sessions)


def is_said(entry: Entry) -> bool:
    """Return whether an entry is what a person said."""
    return isinstance(entry.body, MessageAdded) and entry.body.role == Role.USER


def askers_in(entries: tuple[Entry, ...], session_id: str) -> tuple[By, ...]:
    """Return who asks for a turn of a session by what they said."""
    own = [(entry, entry.body) for entry in entries if entry.session_id == session_id]
    return askers_of([added_message(entry.id, 0, body) for entry, body in own if isinstance(body, MessageAdded)])


def runs(at: Receiving, session_id: str) -> bool:
    """Return whether a turn runs in a session, in a process that lives."""
    running = find_turn(at.tx, session_journal(at.tx, session_id)[0], TurnState.RUNNING)
    return running is not None and at.is_alive(running.owner)


def busy_of_arrival(at: Receiving, session_id: str) -> Busy:
    """Return what a message does to the running turn. A guest's waits while the turn is somebody else's."""
    tx, origin = at.tx, at.origin
    journal, row = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    is_guest = rank(origin.standing, grant_of(tx, origin.channel, origin.identity)) is Rank.GUEST
    if running is None or not is_guest or not is_shared(row.owner):
        return at.arrival.busy
    own = read_circle(tx, origin.person)
    return at.arrival.busy if is_asked_by(turn_askers(tx, journal, running.id), own) else Busy.QUEUE


# Answers.


def take_answer(at: Receiving) -> Received | None:
    """Record an answer to a question, with what becomes of it; None when it answers none and says something else.

    It is a notice of the person, in the session that asked: the model is not given it.
    """
    given, tx, origin = at.arrival.answer, at.tx, at.origin
    if given is None:
        return None
    ((session_id, offered),) = at.said
    judged = judge_arrival(at, given)
    if isinstance(judged, Received):
        return judged
    if not judged.is_answer:
        return None
    if judged.question is not None:
        session_id = judged.question.session_id
    elif origin.key:
        leading = msgspec.structs.replace(at.arrival, kind=ArrivalKind.ANSWER)
        session_id, _ = lead(at._replace(arrival=leading))
    journal, row = session_journal(tx, session_id)
    if origin.key and row.state == SessionState.ENDED:
        reopen_session(tx, session_id)
    said = answer_notice(offered, given, row.owner)
    entry = append(tx, session_id, said) if origin.key else add_message(tx, journal, said)
    told = judged.told
    if judged.question is not None:
        told = record_answer(tx, reply_of(at, given), judged.question, entry.id)
    if judged.question is None or not given.is_plain:
        tell(tx, session_id, origin.chat, told)
    if origin.event_id:
        mark_received(tx, origin.event, ((session_id, entry.id),))
    return Received(ArrivalOutcome.TAKEN, session_id, entry.id, entries=(entry,))


def reply_of(at: Receiving, given: Given) -> GivenAnswer:
    """Return an answer with its author and place. At the terminal no platform says when it was given."""
    origin, (session_id, offered) = at.origin, at.said[0]
    if origin.key:
        said_at = offered.body.said_at
        who = origin.identity
        return GivenAnswer(given, who, origin.chat, who, is_direct=origin.is_direct, said_at=said_at)
    author = offered.body.author
    owner = session_journal(at.tx, session_id)[1].owner
    return GivenAnswer(given, author, "", author or owner, session_id=session_id)


def judge_arrival(at: Receiving, given: Given) -> Judged | Received:
    """Return what an answer is. One that the terminal repeats is what it was at first."""
    session_id, offered = at.said[0]
    if not at.origin.key:
        journal, _ = session_journal(at.tx, session_id)
        found = at.tx.find(journal, offered.id)
        body = at.tx.decode(found) if found is not None else None
        if found is not None and isinstance(body, MessageAdded) and body.role is Role.NOTICE:
            entry = entry_of(session_id, offered.id, found, body)
            return Received(ArrivalOutcome.TAKEN, session_id, entry.id, entries=(entry,))
        if found is not None:
            return Judged()
    judged = judge(at.tx, reply_of(at, given))
    is_button = at.arrival.kind is ArrivalKind.ANSWER and not join_own_text(offered.body.parts)
    if not judged.is_answer and given.about and is_button:
        return Judged(told=NOTHING_WAITS)  # a button of a question that is over
    return judged


def answer_notice(offered: Offered, given: Given, owner: str) -> Offered:
    """Return an answer as it is recorded."""
    parts = offered.body.parts or (Text(f"({given.scope})"),)
    author = offered.body.author or owner
    body = msgspec.structs.replace(offered.body, role=Role.NOTICE, parts=parts, observed=False, author=author)
    return Offered(offered.id, body, ENCODER.encode(body))


# Where a chat leads.


def lead(at: Receiving) -> tuple[str, RouteChange | None]:
    """Return the session that a chat leads to: a first one, the present one, or, when a reset is due, the next one.

    Overheard messages and `/new` do not cause a reset. But a session never goes on among other people than those whom
    it belongs to.
    """
    tx, origin = at.tx, at.origin
    route = find_route(tx, origin.key)
    if route is None:
        return begin(at, "first", 0), None
    _, row = session_journal(tx, route.session_id)
    if not may_go_on(at, row.owner):
        is_one = is_person(origin.owner) or not is_shared(origin.owner)
        began = Began.PARTED if is_one and is_person(row.owner) == is_person(origin.owner) else Began.OTHERS
        child_id = begin(at, began, route.generation)
        return child_id, RouteChange(began, "", child_id)
    if at.arrival.kind not in {ArrivalKind.ASK, ArrivalKind.LATE}:
        return route.session_id, None
    reason = due(resting(tx, route), at.rules.resets, tx.clock.now_microseconds())
    if reason is None:
        return route.session_id, None
    moved = follow_on(at, route.session_id, reason, route)
    return moved.new, moved


def count_session(at: Receiving) -> bool:
    """Return whether a person may begin a session, by `/new` or where there is none for them. Resets do not count."""
    tx, origin = at.tx, at.origin
    route = find_route(tx, origin.key)
    goes_on = route is not None and at.arrival.kind is not ArrivalKind.NEW
    if goes_on and route is not None and may_go_on(at, session_journal(tx, route.session_id)[1].owner):
        return True
    if allows(tx, at.rules, Brought.SESSIONS, origin.person):
        count_used(tx, origin.person, sessions=1)
        return True
    chat = "" if at.arrival.kind is ArrivalKind.OBSERVED else origin.chat
    tell_over(tx, at.words, Brought.SESSIONS, origin.person, chat)
    return False


def may_go_on(at: Receiving, session_owner: str) -> bool:
    """Return whether a chat's session may go on: it is the chat's own, or belongs to the same person."""
    owner = at.origin.owner
    return is_same_owner(session_owner, owner, at.origin.person) or session_owner in read_circle(at.tx, owner)


def begin(at: Receiving, reason: str, generation: int) -> str:
    """Begin a session that follows none, and let the chat lead to it."""
    child = create_successor(at, None, "")
    lead_to(at.tx, at.origin, child.id, reason, generation)
    return child.id


def resting(tx: Transaction, route: Route) -> Resting:
    """Return what is known of the session that a chat is in."""
    journal, _ = session_journal(tx, route.session_id)
    runs = find_turn(tx, journal, TurnState.RUNNING) is not None and not is_chore(tx, journal)
    has_turn = runs or find_turn(tx, journal, TurnState.QUEUED) is not None
    (led_since,) = tx.row(ROUTES.queries.find_route_age, (route.key,))
    return Resting(journal.messages, journal.active_at, led_since, has_turn)


def create_successor(at: Receiving, parent: Parent | None, reason: str) -> Session:
    """Create a session that begins here, titled only if it follows another.

    At the terminal, the message that asked for it tells a repeat.
    """
    return create_session(
        at.tx,
        id=at.fresh[0],
        source=at.origin.channel,
        owner=at.origin.owner,
        token=new_id() if at.origin.key else at.said[0][1].id,
        title=(at.arrival.title or None) if parent else None,
        parent=parent,
        reason=reason,
    )


def follow_on(at: Receiving, session_id: str, reason: Began, route: Route | None) -> RouteChange:
    """Begin the next session: the old one ends with its reason, unless it goes on elsewhere, and the route moves.

    At the terminal there is no route, and the new session has no reason: the model is not told of one.
    """
    parent = Parent(session_id=session_id, link=Link.RESET)
    child = create_successor(at, parent, reason if route is not None else "")
    if not others_lead(at, session_id):
        end_session(at.tx, session_id, reason)
    if route is not None:
        lead_to(at.tx, at.origin, child.id, reason, route.generation)
    return RouteChange(reason, session_id, child.id)


def others_lead(at: Receiving, session_id: str) -> bool:
    """Return whether the same person is in a session elsewhere as well: then it goes on there."""
    return any(key != at.origin.key for key, _ in at.tx.rows(ROUTES.queries.list_followers, (session_id,)))


def begin_new(at: Receiving, session_id: str) -> RouteChange:
    """Begin a new session because somebody asked for one. What runs is interrupted in the session it belongs to."""
    route = find_route(at.tx, at.origin.key) if at.origin.key else None
    if at.origin.key and route is None:
        message = f"no route {at.origin.key}"
        raise NotFound(message)
    if not others_lead(at, session_id):
        stop_turns(at.tx, session_id, "the session was left by /new", at.is_alive, words=at.words, queued=True)
    return follow_on(at, session_id, Began.NEW, route)


def accept(at: Receiving, cursor: Cursor | None) -> Accepted:
    """Receive what names its sessions, and move a cursor, which may be another platform's."""
    receipt = find_receipt(at.tx, at.origin)
    if receipt is None:
        received = receive(at)
        accepted = Accepted(received.entries, received.turns, duplicate=False, waits=received.waits)
    else:
        accepted = read_accepted(at.tx, receipt)
    if cursor is not None:
        move_cursor(at.tx, cursor.channel, cursor.account, cursor.value)
    return accepted
