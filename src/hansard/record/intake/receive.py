"""An event of a platform, in one commit: who said it, where it leads, what it becomes, how far the stream is received.

Reads: intake, access, route, session, turns. Writes: whatever the event means, and that it was received (L2).
Invariants: an event is taken once; every decision is made on what is in the record at that moment; a turn that runs
or waits is never carried into another session.
On crash: all of it is there, or nothing, and the event comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.domain.access import Action, Rank, is_same_owner, is_shared, may, may_see, rank
from hansard.domain.arrivals import ArrivalKind, ArrivalOutcome, Received, RouteChange
from hansard.domain.budgets import Brought
from hansard.domain.chats import Began, Resting, check_sender, due, person_owner
from hansard.domain.ids import new_id, new_session_id
from hansard.domain.messages import Message, Role, Text, join_own_text
from hansard.domain.people import is_person
from hansard.domain.questions import NOTHING_WAITS
from hansard.domain.sessions import Link, Parent, Session, SessionState
from hansard.domain.settings import Busy
from hansard.domain.turns import By, TurnState
from hansard.errors import NotFound
from hansard.journal.concepts import Body
from hansard.journal.reading import SQL as JOURNAL
from hansard.journal.reading import home_journal
from hansard.record.access import ask, grant_of
from hansard.record.fetches import await_files
from hansard.record.intake.events import INTAKE, IntakeAccepted, move_cursor
from hansard.record.messages.entries import MessageAdded, MessageEdited, MessageRetracted
from hansard.record.messages.operations import Offered, append, offer
from hansard.record.people import read_circle
from hansard.record.questions import GivenAnswer, Judged, judge, record_answer
from hansard.record.quotas import allows, count_used, tell_over
from hansard.record.routes import ROUTES, find_route, move_route, tell_at_home, tell_followers, tell_in_chat
from hansard.record.sessions import create_session, end_session, reopen_session, session_journal
from hansard.record.turns.entries import TURNS, find_turn, is_asked_by, is_chore, turn_askers
from hansard.record.turns.operations import meet_running_turn, queue_turn, stop_turns

if TYPE_CHECKING:
    from hansard.domain.arrivals import Arrival, Conclusion, IntakeRules, MessageChange, Passing
    from hansard.domain.notices import Wording
    from hansard.domain.questions import Given
    from hansard.domain.sessions import Route
    from hansard.journal.concepts import IsAlive
    from hansard.journal.transaction import Transaction

UNANSWERED = frozenset({ArrivalKind.LATE, ArrivalKind.UNVERIFIED})
"""Nothing is done about what was said so, and people are told by the notice of the same name."""
ACTIONS = {
    ArrivalKind.ASK: Action.TALK,
    ArrivalKind.LATE: Action.TALK,
    ArrivalKind.KEPT: Action.TALK,
    ArrivalKind.UNVERIFIED: Action.TALK,
    ArrivalKind.OBSERVED: Action.BE_OBSERVED,
    ArrivalKind.COMMAND: Action.COMMAND,
    ArrivalKind.NEW: Action.COMMAND,
    ArrivalKind.ANSWER: Action.TALK,
}
COUNTED_REASONS = frozenset({"fork"})
"""Commands that begin a session; `/new` is an arrival of its own."""


def receive(
    tx: Transaction, arrival: Arrival, offered: Offered, rules: IntakeRules, is_alive: IsAlive, *, words: Wording
) -> Received:
    """Take an event in."""
    check_sender(arrival.identity)
    event = (arrival.channel, arrival.account, arrival.event_id)
    before = tx.row(INTAKE.queries.find_intake, event)
    if before is not None:
        received = known(tx, before[0])
    elif not may(ACTIONS[arrival.manner], arrival.standing, grant_of(tx, arrival.channel, arrival.identity)):
        received = refuse(tx, arrival, rules, words)
    else:
        received = take_event(tx, arrival, offered, rules, is_alive, words=words)
    move_cursor(tx, arrival.channel, arrival.account, arrival.cursor)
    return received


def known(tx: Transaction, seq: int) -> Received:
    """Return what an event became when it was received before."""
    home = home_journal(tx)
    (data,) = tx.row(JOURNAL.entry_by_key, (home.entry_key(seq),))
    body = tx.schema.decode_body("intake.accepted", 1, data)
    if not isinstance(body, IntakeAccepted) or not body.entries:
        return Received(ArrivalOutcome.KNOWN)
    session_id, message_id = body.entries[0]
    turn_id = body.turns[0][1] if body.turns else ""
    return Received(ArrivalOutcome.KNOWN, session_id, message_id, turn_id)


def refuse(tx: Transaction, arrival: Arrival, rules: IntakeRules, words: Wording) -> Received:
    """Take nothing of what a stranger says; one who speaks to the agent may be shown a code.

    An event that waited to become readable waits no longer.
    """
    if tx.row(INTAKE.queries.find_held, (arrival.channel, arrival.account, arrival.event_id)) is not None:
        mark_received(tx, arrival.channel, arrival.account, arrival.event_id)
    may_ask = may(Action.ASK, arrival.standing, grant_of(tx, arrival.channel, arrival.identity))
    is_silent = arrival.manner in {ArrivalKind.OBSERVED, ArrivalKind.KEPT, ArrivalKind.ANSWER}
    asked = may_ask and not is_silent and ask(tx, arrival.channel, arrival.identity, arrival.chat, rules, words=words)
    return Received(ArrivalOutcome.ASKED if asked else ArrivalOutcome.REFUSED)


def mark_received(  # noqa: PLR0917
    tx: Transaction,
    channel: str,
    account: str,
    event_id: str,
    entries: tuple[tuple[str, str], ...] = (),
    turns: tuple[tuple[str, str], ...] = (),
) -> None:
    """Note that an event was received, and what it became."""
    home = home_journal(tx)
    body = IntakeAccepted(channel=channel, account=account, event_id=event_id, entries=entries, turns=turns)
    tx.add(home, f"~intake:{home.head_seq + 1}", body)


def take_event(
    tx: Transaction, arrival: Arrival, offered: Offered, rules: IntakeRules, is_alive: IsAlive, *, words: Wording
) -> Received:
    """Take in what somebody said who may: the answer to a question, or something else."""
    if arrival.answer is not None and (answered := take_answer(tx, arrival, arrival.answer, rules)) is not None:
        return answered
    if arrival.manner is ArrivalKind.ANSWER:
        if arrival.otherwise is None:
            mark_received(tx, arrival.channel, arrival.account, arrival.event_id)
            return Received(ArrivalOutcome.REFUSED)
        arrival = msgspec.structs.replace(arrival, manner=arrival.otherwise)
    return take_message(tx, arrival, offered, rules, is_alive, words=words)


def take_message(
    tx: Transaction, arrival: Arrival, offered: Offered, rules: IntakeRules, is_alive: IsAlive, *, words: Wording
) -> Received:
    """Record what somebody said who may, where the chat leads, and ask for the turn that is to answer it."""
    person = person_owner(arrival.channel, arrival.identity)
    begins = begins_session(tx, arrival)
    if begins and not allows(tx, rules, Brought.SESSIONS, person):
        tell_over(tx, words, Brought.SESSIONS, person, "" if arrival.manner is ArrivalKind.OBSERVED else arrival.chat)
        return Received(ArrivalOutcome.REFUSED)
    if begins:
        count_used(tx, person, sessions=1)
    session_id, moved = lead(tx, arrival, rules)
    notices = [moved.told(words)] if moved is not None else []
    _, row = session_journal(tx, session_id)
    if row.state == SessionState.ENDED:
        reopen_session(tx, session_id)
        if arrival.manner is not ArrivalKind.NEW:
            notices.append(words.reopened)
    for text in notices:
        tell(tx, session_id, arrival.chat, text)
    entry = append(tx, session_id, offered)
    await_files(tx, arrival, session_id, entry.id, rules, words=words)
    after, said_in = [*arrival.notes], session_id
    if arrival.manner is ArrivalKind.NEW:
        moved = begin_new(tx, arrival, session_id, is_alive, words)
        session_id = moved.new
        after.append(moved.told(words))
    elif arrival.manner in UNANSWERED:
        tell_once(tx, session_id, arrival.chat, getattr(words, arrival.manner), arrival.manner)
    for text in after:
        tell(tx, session_id, arrival.chat, text)
    turn_id = ""
    if arrival.manner is ArrivalKind.ASK:
        tell_followers(tx, session_id, (entry.id,), words)
        busy = busy_of_arrival(tx, arrival, session_id)
        meet_running_turn(tx, session_id, (entry.id,), busy, is_alive, words=words)
        by = (By(person=arrival.identity, chat=arrival.chat),)
        turn_id = queue_turn(tx, session_id, new_id(), by=by).id
    turns = ((session_id, turn_id),) if turn_id else ()
    mark_received(tx, arrival.channel, arrival.account, arrival.event_id, ((said_in, entry.id),), turns)
    return Received(ArrivalOutcome.TAKEN, session_id, entry.id, turn_id, moved)


def take_answer(tx: Transaction, arrival: Arrival, given: Given, rules: IntakeRules) -> Received | None:
    """Record an answer to a question, with what becomes of it; None when it answers none and says something else.

    It is a notice of the person, in the session that asked: the model is not given it.
    """
    said_at = arrival.message.at_microseconds
    who = arrival.identity
    reply = GivenAnswer(given, who, arrival.chat, who, is_direct=arrival.is_direct, said_at=said_at)
    judged = judge(tx, reply)
    if judged.is_answer:
        pass
    elif given.about and arrival.manner is ArrivalKind.ANSWER and not join_own_text(arrival.message.parts):
        judged = Judged(told=NOTHING_WAITS)  # a button of a question that is over
    else:
        return None
    if judged.question is not None:
        session_id = judged.question.session_id
    else:
        session_id, _ = lead(tx, msgspec.structs.replace(arrival, manner=ArrivalKind.ANSWER), rules)
    if session_journal(tx, session_id)[1].state == SessionState.ENDED:
        reopen_session(tx, session_id)
    parts = arrival.message.parts or (Text(f"({given.scope})"),)
    said = msgspec.structs.replace(arrival.message, role=Role.NOTICE, parts=parts, is_observed=False)
    entry = append(tx, session_id, offer(said))
    told = judged.told
    if judged.question is not None:
        told = record_answer(tx, reply, judged.question, entry.id)
    if judged.question is None or not given.is_plain:
        tell(tx, session_id, arrival.chat, told)
    mark_received(tx, arrival.channel, arrival.account, arrival.event_id, ((session_id, entry.id),))
    return Received(ArrivalOutcome.TAKEN, session_id, entry.id)


def busy_of_arrival(tx: Transaction, arrival: Arrival, session_id: str) -> Busy:
    """Return what a message does to the running turn. A guest's waits while the turn is somebody else's."""
    journal, row = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    is_guest = rank(arrival.standing, grant_of(tx, arrival.channel, arrival.identity)) is Rank.GUEST
    if running is None or not is_guest or not is_shared(row.owner):
        return arrival.busy
    own = read_circle(tx, person_owner(arrival.channel, arrival.identity))
    return arrival.busy if is_asked_by(turn_askers(tx, journal, running.id), own) else Busy.QUEUE


def lead(tx: Transaction, arrival: Arrival, rules: IntakeRules) -> tuple[str, RouteChange | None]:
    """Return the session that a chat leads to: a first one, the present one, or, when a reset is due, the next one.

    Who is only overheard, or asks for a new session anyway, is no reason to begin one. But a session never goes on
    among other people than those whom it belongs to.
    """
    route = find_route(tx, arrival.key)
    if route is None:
        return begin(tx, arrival, "first", 0), None
    _, row = session_journal(tx, route.session_id)
    if not may_go_on(tx, arrival, row.owner):
        is_one = is_person(arrival.owner) or not is_shared(arrival.owner)
        began = Began.PARTED if is_one and is_person(row.owner) == is_person(arrival.owner) else Began.OTHERS
        child_id = begin(tx, arrival, began, route.generation)
        return child_id, RouteChange(began, "", child_id)
    if arrival.manner not in {ArrivalKind.ASK, ArrivalKind.LATE}:
        return route.session_id, None
    reason = due(resting(tx, route), rules.resets, tx.clock.now_microseconds())
    return (route.session_id, None) if reason is None else follow_on(tx, arrival, route, reason)


def begins_session(tx: Transaction, arrival: Arrival) -> bool:
    """Return whether somebody begins a session: by `/new`, or where there is none for them. Resets do not count."""
    route = find_route(tx, arrival.key)
    if route is None or arrival.manner is ArrivalKind.NEW:
        return True
    return not may_go_on(tx, arrival, session_journal(tx, route.session_id)[1].owner)


def may_go_on(tx: Transaction, arrival: Arrival, session_owner: str) -> bool:
    """Return whether a chat's session may go on: it is the chat's own, or belongs to the same person."""
    own = person_owner(arrival.channel, arrival.identity)
    return is_same_owner(session_owner, arrival.owner, own) or session_owner in read_circle(tx, arrival.owner)


def begin(tx: Transaction, arrival: Arrival, reason: str, generation: int) -> str:
    """Begin a session that follows none, and let the chat lead to it."""
    child = create_successor(tx, arrival, None, "")
    lead_to(tx, arrival, child.id, reason, generation)
    return child.id


def lead_to(tx: Transaction, arrival: Arrival | Conclusion, session_id: str, reason: str, generation: int) -> None:
    """Let a chat lead to a session; it is noted whose chat it is, as only a person's own follows."""
    identity = arrival.identity if is_person(arrival.owner) else ""
    move_route(
        tx,
        arrival.key,
        session_id,
        reason=reason,
        expect=generation,
        token=new_id(),
        owner=arrival.owner,
        identity=identity,
    )


def resting(tx: Transaction, route: Route) -> Resting:
    """Return what is known of the session that a chat is in."""
    journal, _ = session_journal(tx, route.session_id)
    runs = find_turn(tx, journal, TurnState.RUNNING) is not None and not is_chore(tx, journal)
    has_turn = runs or find_turn(tx, journal, TurnState.QUEUED) is not None
    (led_since,) = tx.row(ROUTES.queries.find_route_age, (route.key,))
    return Resting(journal.messages, journal.active_at, led_since, has_turn)


def create_successor(tx: Transaction, arrival: Arrival, parent: Parent | None, reason: str) -> Session:
    """Create a session that begins in a chat, titled only if it follows another."""
    return create_session(
        tx,
        id=new_session_id(tx.clock.now_microseconds()),
        source=arrival.channel,
        owner=arrival.owner,
        token=new_id(),
        title=(arrival.title or None) if parent else None,
        parent=parent,
        reason=reason,
    )


def follow_on(tx: Transaction, arrival: Arrival, route: Route, reason: Began) -> tuple[str, RouteChange]:
    """Begin the next session of a chat: the old one ends with its reason, and the route moves."""
    parent = Parent(session_id=route.session_id, link=Link.RESET)
    child = create_successor(tx, arrival, parent, reason)
    if not others_lead(tx, route):
        end_session(tx, route.session_id, reason)
    lead_to(tx, arrival, child.id, reason, route.generation)
    return child.id, RouteChange(reason, route.session_id, child.id)


def others_lead(tx: Transaction, route: Route) -> bool:
    """Return whether the same person is in a session elsewhere as well: then it goes on there."""
    return any(key != route.key for key, _ in tx.rows(ROUTES.queries.list_followers, (route.session_id,)))


def begin_new(tx: Transaction, arrival: Arrival, session_id: str, is_alive: IsAlive, words: Wording) -> RouteChange:
    """Begin a new session because somebody asked for one. What runs is interrupted in the session it belongs to."""
    route = find_route(tx, arrival.key)
    if route is None:
        message = f"no route {arrival.key}"
        raise NotFound(message)
    if not others_lead(tx, route):
        stop_turns(tx, session_id, "the session was left by /new", is_alive, words=words, queued=True)
    return follow_on(tx, arrival, route, Began.NEW)[1]


def tell(tx: Transaction, session_id: str, chat: str, text: str) -> None:
    """Tell people in a chat something about a session."""
    append(tx, session_id, offer(Message.notice(text, chat=chat)))


def tell_once(tx: Transaction, session_id: str, chat: str, text: str, why: str) -> None:
    """Tell people why nothing is done about what they said: once, until something is answered again."""
    journal, _ = session_journal(tx, session_id)
    (fence,) = tx.row(TURNS.queries.last_fence, (journal.key,))
    told = f"~{why}:{fence}"
    if tx.find(journal, told) is None:
        tx.add(journal, told, MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))


# What becomes of other events.


def changed_message(tx: Transaction, change: MessageChange) -> tuple[str, str, MessageAdded] | None:
    """Return the message that a change is about: its session, its id, and what was said."""
    before = tx.row(INTAKE.queries.find_intake, (change.channel, change.account, change.about))
    found = known(tx, before[0]) if before is not None else None
    if found is None or not found.message_id:
        return None
    journal, _ = session_journal(tx, found.session_id)
    entry = tx.find(journal, found.message_id)
    body = tx.decode(entry) if entry is not None else None
    return (found.session_id, found.message_id, body) if isinstance(body, MessageAdded) else None


def may_change(tx: Transaction, change: MessageChange, said: MessageAdded, body: Body) -> bool:
    """Return whether a change counts. People edit their own words only; who may delete is the platform's business."""
    if isinstance(body, MessageRetracted):
        return True
    is_own = said.author == change.identity
    return is_own and may(Action.CHANGE, change.standing, grant_of(tx, change.channel, change.identity))


def apply_change(tx: Transaction, change: MessageChange, body: MessageEdited | MessageRetracted) -> Received | None:
    """Record that somebody edited or deleted what was said; None when that is not known here.

    An ended session accepts this too: it is about what was said in it.
    """
    before = tx.row(INTAKE.queries.find_intake, (change.channel, change.account, change.event_id))
    about = changed_message(tx, change)
    if before is not None:
        received = known(tx, before[0])
    elif about is None:
        return None
    elif may_change(tx, change, about[2], body):
        session_id, message_id, _ = about
        journal, _ = session_journal(tx, session_id)
        entry_id = f"~changed:{journal.head_seq + 1}"
        tx.add(journal, entry_id, msgspec.structs.replace(body, message_id=message_id))
        mark_received(tx, change.channel, change.account, change.event_id, ((session_id, entry_id),))
        received = Received(ArrivalOutcome.TAKEN, session_id, message_id)
    else:
        received = Received(ArrivalOutcome.REFUSED)
    move_cursor(tx, change.channel, change.account, change.cursor)
    return received


def pass_event(tx: Transaction, passing: Passing) -> None:
    """Keep nothing of an event. It waits no longer to become readable; what is told about it is told once."""
    event = (passing.channel, passing.account, passing.event_id)
    is_new = bool(passing.event_id) and tx.row(INTAKE.queries.find_intake, event) is None
    if is_new and (passing.text or tx.row(INTAKE.queries.find_held, event) is not None):
        mark_received(tx, *event)
        if passing.text and passing.is_told_at_home:
            tell_at_home(tx, passing.chat, passing.text)
        elif passing.text:
            tell_in_chat(tx, passing.chat, passing.text)
    move_cursor(tx, passing.channel, passing.account, passing.cursor)


def is_concluded(tx: Transaction, channel: str, account: str, event_id: str) -> bool:
    """Return whether a command came to its end."""
    return tx.row(INTAKE.queries.find_intake, (channel, account, reply_event(event_id))) is not None


def reply_event(event_id: str) -> str:
    """Return under which id the reply to a command counts as received: there is one."""
    return f"{event_id}:reply"


def conclude(tx: Transaction, conclusion: Conclusion) -> str:
    """End a command: the chat leads where it led to, and the reply is recorded there. Return that session's id."""
    journal, row = session_journal(tx, conclusion.session_id)
    if conclusion.reason and not may_see(conclusion.owner, row.owner, read_circle(tx, conclusion.owner)):
        message = f"there is no session {conclusion.session_id}"
        raise NotFound(message)
    if not is_concluded(tx, conclusion.channel, conclusion.account, conclusion.event_id):
        route = find_route(tx, conclusion.key)
        if conclusion.reason and (route is None or route.session_id != conclusion.session_id):
            generation = 0 if route is None else route.generation
            lead_to(tx, conclusion, conclusion.session_id, conclusion.reason, generation)
        entries: tuple[tuple[str, str], ...] = ()
        if conclusion.reply and tx.find(journal, conclusion.reply_id) is None:
            if row.state == SessionState.ENDED:
                reopen_session(tx, conclusion.session_id)
            reply = Message.notice(conclusion.reply, id=conclusion.reply_id, chat=conclusion.chat)
            append(tx, conclusion.session_id, offer(reply))
            entries = ((conclusion.session_id, conclusion.reply_id),)
        if conclusion.reason in COUNTED_REASONS:
            count_used(tx, person_owner(conclusion.channel, conclusion.identity), sessions=1)
        mark_received(tx, conclusion.channel, conclusion.account, reply_event(conclusion.event_id), entries)
    move_cursor(tx, conclusion.channel, conclusion.account, conclusion.cursor)
    return conclusion.session_id
