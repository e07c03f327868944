"""`record.intake`: what arrives, in one commit with who said it, where it leads, what it becomes, and the cursor.

One operation for chats, the terminal, the API and imports.
Reads: intake, access, route, session, turns. Writes: what the arrival means, and that it was received (L2).
Invariants: an event is taken once; every decision is made on what is in the record at that moment; a turn that runs
or waits is never carried into another session; what is refused leaves nothing behind.
On crash: all of it is there, or nothing, and the event comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from hansard.domain.access import Action, Rank, is_shared, may, rank
from hansard.domain.arrivals import (
    ACTIONS,
    SILENT,
    UNANSWERED,
    Arrival,
    ArrivalKind,
    ArrivalOutcome,
    Cursor,
    Intake,
    IntakeRules,
    Origin,
    RouteChange,
)
from hansard.domain.budgets import Brought
from hansard.domain.chats import Began, check_sender, parse_key
from hansard.domain.ids import new_id, new_session_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX, UNIT_ENTRIES_MAX
from hansard.domain.messages import Message, Role, Text, join_own_text
from hansard.domain.notices import ENGLISH, Wording
from hansard.domain.people import By
from hansard.domain.questions import NOTHING_WAITS, Given
from hansard.domain.sessions import SessionState, TurnInfo, TurnState
from hansard.domain.settings import Busy
from hansard.domain.text import clean_name, clean_struct, clean_text
from hansard.errors import TooLarge
from hansard.journal.concepts import ENCODER, IsAlive
from hansard.journal.entries import Journal
from hansard.journal.transaction import Transaction
from hansard.record import TellingNamespace
from hansard.record.access import ask, grant_of
from hansard.record.budgets import allows, count_used, tell_over
from hansard.record.conversation import askers_of
from hansard.record.fetches import await_files
from hansard.record.intake.events import (
    DROPPED_MAX,
    SQL,
    Accepted,
    IntakeHeld,
    Received,
    change_message,
    conclude,
    drop_old,
    find_cursor,
    find_receipt,
    hold_event,
    is_concluded,
    list_received,
    mark_received,
    move_cursor,
    pass_event,
    read_accepted,
    read_held,
    read_receipt,
    tell,
    tell_once,
)
from hansard.record.messages.entries import Entry, MessageAdded, MessageEdited, MessageRetracted, added_message
from hansard.record.messages.operations import Offered, add_message, append, check_blobs, entry_of, offer
from hansard.record.people import read_circle
from hansard.record.questions import GivenAnswer, Judged, judge, record_answer
from hansard.record.routes import (
    ROUTES,
    choose_session,
    find_route,
    has_other_chats,
    may_go_on,
    start_next_session,
    tell_followers,
)
from hansard.record.sessions import reopen_session, session_journal
from hansard.record.turns.entries import find_turn, is_asked_by, turn_askers
from hansard.record.turns.operations import meet_running_turn, queue_turn, stop_turns

Result = TypeVar("Result")

Said = tuple[tuple[str, Offered], ...]
"""Messages, each with its session; in a chat the session is empty."""


class Receiving(msgspec.Struct, frozen=True, kw_only=True):
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
        return self.arrival.origin


def receive(at: Receiving) -> Received:
    """Take in what was said, unless it was received before or its author may not."""
    tx, origin = at.tx, at.origin
    receipt = find_receipt(tx, origin) if origin.event_id else None
    if receipt is not None:
        received = read_receipt(receipt)
    elif not origin.is_local and not may(
        ACTIONS[at.arrival.kind], origin.standing, grant_of(tx, origin.channel, origin.identity)
    ):
        received = refuse(at)
    else:
        received = take_answer(at) or take_messages(at)
    if origin.cursor:
        move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return received


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
    return Received(outcome=ArrivalOutcome.ASKED if asked else ArrivalOutcome.REFUSED)


def take_messages(at: Receiving) -> Received:
    """Record what was said, where it belongs, and do what its kind asks for."""
    arrival, tx, origin = at.arrival, at.tx, at.origin
    if arrival.kind is ArrivalKind.ANSWER:
        if arrival.otherwise is None:
            mark_received(tx, origin.event)
            return Received(outcome=ArrivalOutcome.REFUSED)
        at = msgspec.structs.replace(at, arrival=msgspec.structs.replace(arrival, kind=arrival.otherwise))
    if not origin.is_local and not count_session(at):
        return Received(outcome=ArrivalOutcome.REFUSED)
    session_id, moved = choose_session(tx, at.arrival, at.rules.resets, at.fresh[0])
    told = open_sessions(at, session_id, moved)
    said = tuple(append(tx, named or session_id, offered) for named, offered in at.said)
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
    return Received(
        outcome=ArrivalOutcome.TAKEN,
        session_id=session_id,
        message_id=said[0].id if said else "",
        turn_id=turns[0].id if turns else "",
        moved=moved,
        entries=said,
        turns=turns,
        waits=any(runs(at, turn.session_id) for turn in turns),
        told=tuple(told),
    )


def open_sessions(at: Receiving, session_id: str, moved: RouteChange | None) -> list[Entry]:
    """Open ended sessions again that something is said in; tell people so, and that a chat is in another session."""
    tx, origin = at.tx, at.origin
    notices = [(session_id, moved.told(at.words))] if moved is not None else []
    if not origin.is_local or at.arrival.reopens:
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


def begin_new(at: Receiving, session_id: str) -> RouteChange:
    """Begin a new session because somebody asked for one. What runs is interrupted in the session it belongs to."""
    if not has_other_chats(at.tx, session_id, at.origin.key):
        stop_turns(at.tx, session_id, "the session was left by /new", at.is_alive, words=at.words, queued=True)
    return start_next_session(at.tx, at.arrival, session_id, Began.NEW, at.fresh[0])


def count_session(at: Receiving) -> bool:
    """Return whether a person may begin a session, by `/new` or where there is none for them. Resets do not count."""
    tx, origin = at.tx, at.origin
    route = find_route(tx, origin.key)
    if route is not None and at.arrival.kind is not ArrivalKind.NEW:
        _, row = session_journal(tx, route.session_id)
        if may_go_on(tx, origin, row.owner):
            return True
    if allows(tx, at.rules, Brought.SESSIONS, origin.person):
        count_used(tx, origin.person, sessions=1)
        return True
    chat = "" if at.arrival.kind is ArrivalKind.OBSERVED else origin.chat
    tell_over(tx, at.words, Brought.SESSIONS, origin.person, chat)
    return False


# Turns.


def ask_for_turns(at: Receiving, entries: tuple[Entry, ...]) -> tuple[TurnInfo, ...]:
    """Ask for a turn in each session in which something was said; say what that means for the turn that runs there."""
    tx = at.tx
    sessions = dict.fromkeys(entry.session_id for entry in entries)
    for session_id in sessions:
        said = tuple(entry.id for entry in entries if entry.session_id == session_id and is_said(entry))
        tell_followers(tx, session_id, said, at.words)
        busy = busy_of_arrival(at, session_id) if not at.origin.is_local else at.arrival.busy
        meet_running_turn(tx, session_id, said, busy, at.is_alive, words=at.words)
    return tuple(queue_turn(tx, each, new_id(), by=askers_in(entries, each)) for each in sessions)


def is_said(entry: Entry) -> bool:
    return isinstance(entry.body, MessageAdded) and entry.body.role == Role.USER


def askers_in(entries: tuple[Entry, ...], session_id: str) -> tuple[By, ...]:
    own = [(entry, entry.body) for entry in entries if entry.session_id == session_id]
    return askers_of([added_message(entry.id, 0, body) for entry, body in own if isinstance(body, MessageAdded)])


def runs(at: Receiving, session_id: str) -> bool:
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
    elif not origin.is_local:
        leading = msgspec.structs.replace(at.arrival, kind=ArrivalKind.ANSWER)
        session_id, _ = choose_session(tx, leading, at.rules.resets, at.fresh[0])
    journal, row = session_journal(tx, session_id)
    if not origin.is_local and row.state == SessionState.ENDED:
        reopen_session(tx, session_id)
    said = answer_notice(offered, given, row.owner)
    entry = append(tx, session_id, said) if not origin.is_local else add_message(tx, journal, said)
    told = judged.told
    if judged.question is not None:
        told = record_answer(tx, reply_of(at, given), judged.question, entry.id)
    if judged.question is None or not given.is_plain:
        tell(tx, session_id, origin.chat, told)
    if origin.event_id:
        mark_received(tx, origin.event, ((session_id, entry.id),))
    return Received(outcome=ArrivalOutcome.TAKEN, session_id=session_id, message_id=entry.id, entries=(entry,))


def reply_of(at: Receiving, given: Given) -> GivenAnswer:
    """Return an answer with its author and place. At the terminal no platform says when it was given."""
    origin, (session_id, offered) = at.origin, at.said[0]
    if not origin.is_local:
        return GivenAnswer(
            given=given,
            author=origin.identity,
            chat=origin.chat,
            by=origin.identity,
            is_direct=origin.is_direct,
            said_at=offered.body.said_at,
        )
    author = offered.body.author
    owner = session_journal(at.tx, session_id)[1].owner
    return GivenAnswer(given=given, author=author, chat="", by=author or owner, session_id=session_id)


def judge_arrival(at: Receiving, given: Given) -> Judged | Received:
    """Return what an answer is. One that the terminal repeats is what it was at first."""
    session_id, offered = at.said[0]
    if at.origin.is_local:
        journal, _ = session_journal(at.tx, session_id)
        found = at.tx.find(journal, offered.id)
        body = at.tx.decode(found) if found is not None else None
        if found is not None and isinstance(body, MessageAdded) and body.role is Role.NOTICE:
            entry = entry_of(session_id, offered.id, found, body)
            return Received(outcome=ArrivalOutcome.TAKEN, session_id=session_id, message_id=entry.id, entries=(entry,))
        if found is not None:
            return Judged()
    judged = judge(at.tx, reply_of(at, given))
    is_button = at.arrival.kind is ArrivalKind.ANSWER and not join_own_text(offered.body.parts)
    if not judged.is_answer and given.about and is_button:
        return Judged(told=NOTHING_WAITS)  # a button of a question that is over
    return judged


def answer_notice(offered: Offered, given: Given, owner: str) -> Offered:
    parts = offered.body.parts or (Text(f"({given.scope})"),)
    author = offered.body.author or owner
    body = msgspec.structs.replace(offered.body, role=Role.NOTICE, parts=parts, observed=False, author=author)
    return Offered(offered.id, body, ENCODER.encode(body))


def accept(at: Receiving, cursor: Cursor | None) -> Accepted:
    """Receive what names its sessions, and move a cursor, which may be another platform's."""
    receipt = find_receipt(at.tx, at.origin)
    if receipt is None:
        received = receive(at)
        accepted = Accepted(entries=received.entries, turns=received.turns, duplicate=False, waits=received.waits)
    else:
        accepted = read_accepted(at.tx, receipt)
    if cursor is not None:
        move_cursor(at.tx, cursor.channel, cursor.account, cursor.value)
    return accepted


# API.


def check_names(*names: str) -> None:
    """Refuse what is empty, too long or unprintable where a platform's names and ids belong."""
    for name in names:
        clean_name(name, "a name of a platform", NAME_CHARACTERS_MAX)


class RecordIntake(TellingNamespace):
    """Events of platforms, and what becomes of them: each call is one commit."""

    async def receive(self, arrival: Arrival, rules: IntakeRules = IntakeRules()) -> Received:  # noqa: B008
        """Take in what was said: route, due reset, message, turn, receipt and cursor in one commit."""
        if not arrival.origin.is_local:
            check_names(*arrival.origin.event, arrival.origin.identity, arrival.origin.owner)
            check_sender(arrival.origin.identity)
            parse_key(arrival.origin.key)
            parse_key(arrival.origin.chat)
        if arrival.title is not None:
            clean_name(arrival.title, "a title", TITLE_CHARACTERS_MAX)
        return await self._write(arrival, rules, receive)

    async def accept(
        self,
        said: Sequence[tuple[str, Message]],
        intake: Intake | None,
        cursor: Cursor | None,
        busy: Busy,
        *,
        asks: bool,
    ) -> Accepted:
        if len(said) > UNIT_ENTRIES_MAX:
            raise TooLarge(f"{len(said)} entries in one call; the limit is {UNIT_ENTRIES_MAX}")
        named = clean_struct(intake) if intake is not None else None
        moved = clean_struct(cursor) if cursor is not None else None
        origin = Origin(channel=named.channel, account=named.account, event_id=named.event_id) if named else Origin()
        kind = ArrivalKind.ASK if asks else ArrivalKind.KEPT
        arrival = Arrival(origin=origin, said=tuple(said), kind=kind, busy=busy)
        return await self._write(arrival, IntakeRules(), lambda at: accept(at, moved))

    async def _write(self, arrival: Arrival, rules: IntakeRules, operation: Callable[[Receiving], Result]) -> Result:
        said = tuple((session_id, offer(message)) for session_id, message in arrival.said)
        await check_blobs(self._caller, *(offered for _, offered in said))
        store, words = self._caller.store, self._words()
        fresh = arrival.new_ids or (new_session_id(store.clock.now_microseconds()), new_id())
        receiving = partial(
            Receiving, arrival=arrival, said=said, rules=rules, is_alive=store.is_alive, words=words, fresh=fresh
        )
        return await self._caller.write(
            lambda tx: operation(receiving(tx=tx)),
            cost=sum(len(offered.data) for _, offered in said),
        )

    async def edit_message(self, origin: Origin, about: str, text: str) -> Received | None:
        """Record that somebody edited what they said in another event; None when that is not in the record."""
        body = MessageEdited(message_id="", parts=(Text(clean_text(text)),), event_id=origin.event_id)
        return await self._change(origin, about, body, len(text))

    async def retract_message(self, origin: Origin, about: str) -> Received | None:
        """Record that somebody deleted what they said in another event; None when that is not in the record."""
        return await self._change(origin, about, MessageRetracted(message_id="", event_id=origin.event_id), 0)

    async def _change(
        self, origin: Origin, about: str, body: MessageEdited | MessageRetracted, cost: int
    ) -> Received | None:
        check_names(*origin.event, about)
        return await self._caller.write(lambda tx: change_message(tx, origin, about, body), cost=cost)

    async def hold_event(self, origin: Origin, raw: str, *, tells: bool = False) -> bool:
        """Keep an event that cannot be read yet, for when its keys come; return whether it is kept.

        `tells`: people in the chat are told that something could not be read, once, until it is.
        """
        check_names(*origin.event, origin.chat)
        cleaned, words = clean_text(raw), self._words()
        operation = partial(hold_event, origin=origin, raw=cleaned, words=words, tells=tells)
        return await self._caller.write(operation, cost=len(raw))

    async def list_held(self, channel: str, account: str) -> list[str]:
        """Return the events that wait to become readable, as they came, the oldest first; none that is too old."""
        while await self._caller.write(lambda tx: drop_old(tx, channel, account)) == DROPPED_MAX:
            pass
        return [body.raw for body in await self._held(channel, account)]

    async def list_held_ids(self, channel: str, account: str) -> list[str]:
        return [body.event_id for body in await self._held(channel, account)]

    async def _held(self, channel: str, account: str) -> list[IntakeHeld]:
        return await self._caller.read(lambda snapshot: read_held(snapshot, channel, account))

    async def pass_event(self, origin: Origin, text: str = "", *, at_home: bool = False) -> None:
        """Keep nothing of an event; move the cursor, and tell its chat a text about it, once.

        `at_home`: the chat's session cannot be written, so that the text is recorded in the home journal.
        """
        await self._caller.write(lambda tx: pass_event(tx, origin, text, at_home=at_home))

    async def is_concluded(self, origin: Origin) -> bool:
        return await self._caller.write(lambda tx: is_concluded(tx, origin))

    async def conclude(self, origin: Origin, session_id: str, reply: Message, reason: str = "") -> None:
        """End a command: record its reply where the chat then is, and lead it there for a `reason`."""
        await self._caller.write(lambda tx: conclude(tx, origin, session_id, reply, reason))

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
