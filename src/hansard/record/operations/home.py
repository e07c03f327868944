"""Facts of the home journal: routes, cursors, intake."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.conversation import askers_of
from hansard.domain.ids import HOME_JOURNAL, new_id
from hansard.domain.messages import Message, Role, join_own_text
from hansard.domain.questions import read_words
from hansard.domain.sessions import Link, Parent, Route
from hansard.domain.settings import Busy
from hansard.domain.transcript import said_message
from hansard.domain.turns import TurnState
from hansard.errors import NotFound, WrongState
from hansard.record.operations.following import tell_followers
from hansard.record.operations.messages import Offered, add_message, append, entry_value, offer
from hansard.record.operations.questions import Reply, judge, record_answer
from hansard.record.operations.sessions import NewSession, create_session, end_session
from hansard.record.operations.talk import meet_running_turn
from hansard.record.operations.turns import find_turn, queue_turn, turn_value
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.deliveries import Cursor, Intake
    from hansard.domain.turns import By, TurnInfo
    from hansard.record.journals import Journal
    from hansard.record.operations.turns import IsAlive
    from hansard.record.transaction import Transaction


class Accepted(NamedTuple):
    """What became of an inbound event. `duplicate`: it was received before, and this is what it became then."""

    entries: tuple[e.Entry, ...]
    turns: tuple[TurnInfo, ...]
    duplicate: bool
    waits: bool = False
    """Whether another turn ran in a session of these at that moment, so that the new one has to wait."""


class Inbound(NamedTuple):
    """What a channel hands in, to be committed together."""

    entries: tuple[tuple[str, Offered], ...]
    intake: Intake | None
    cursor: Cursor | None
    queue_turn: bool
    busy: Busy = Busy.QUEUE
    answers: bool = False
    """Whether a message may answer the question that waits in its session: it is typed by the person who sees it."""


def home_journal(tx: Transaction, database_id: str = "", *, rebuilt: bool = False) -> Journal:
    """Return the home journal; a new database makes itself known in it."""
    journal = tx.find_journal(HOME_JOURNAL) or tx.create_journal(HOME_JOURNAL)
    if database_id and tx.find(journal, f"~database:{database_id}") is None:
        body = e.DatabaseCreated(database_id=database_id, rebuilt=rebuilt)
        tx.add(journal, f"~database:{database_id}", body)
    return journal


def is_said(entry: e.Entry) -> bool:
    """Return whether an entry is what a person said."""
    return isinstance(entry.body, e.MessageAdded) and entry.body.role == Role.USER


def askers_in(entries: tuple[e.Entry, ...], session_id: str) -> tuple[By, ...]:
    """Return who asks for a turn of a session by what they said."""
    own = [(entry, entry.body) for entry in entries if entry.session_id == session_id]
    said = [said_message(entry.id, 0, body) for entry, body in own if isinstance(body, e.MessageAdded)]
    return askers_of(said)


def runs(tx: Transaction, session_id: str, is_alive: IsAlive) -> bool:
    """Return whether a turn runs in a session, in a process that lives."""
    journal, _ = tx.session(session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    return running is not None and is_alive(running.owner)


def accept(tx: Transaction, inbound: Inbound, is_alive: IsAlive) -> Accepted:
    """Record an inbound event, what it says, the turn that it asks for, and the platform's cursor: one commit (L2)."""
    home = home_journal(tx)
    intake, cursor = inbound.intake, inbound.cursor
    before = tx.row(SQL.find_intake, (intake.channel, intake.account, intake.event_id)) if intake else None
    if before is not None:
        accepted = _received_before(tx, home, before[0])
    else:
        answered = [take_answer(tx, *each) if inbound.answers else None for each in inbound.entries]
        entries = tuple(answer or append(tx, *each) for answer, each in zip(answered, inbound.entries, strict=True))
        said_in = [entry.session_id for entry, answer in zip(entries, answered, strict=True) if answer is None]
        sessions = dict.fromkeys(said_in) if inbound.queue_turn else {}
        for session_id in sessions:
            said = tuple(entry.id for entry in entries if entry.session_id == session_id and is_said(entry))
            tell_followers(tx, session_id, said)
            meet_running_turn(tx, session_id, said, inbound.busy, is_alive)
        turns = tuple(queue_turn(tx, each, new_id(), by=askers_in(entries, each)) for each in sessions)
        waits = any(runs(tx, session_id, is_alive) for session_id in sessions)
        accepted = Accepted(entries, turns, duplicate=False, waits=waits)
    if intake is not None and before is None:
        body = e.IntakeAccepted(
            channel=intake.channel,
            account=intake.account,
            event_id=intake.event_id,
            entries=tuple((entry.session_id, entry.id) for entry in accepted.entries),
            turns=tuple((turn.session_id, turn.id) for turn in accepted.turns),
        )
        tx.add(home, f"~intake:{home.head_seq + 1}", body)
    if cursor is not None:
        move_cursor(tx, cursor.channel, cursor.account, cursor.value)
    return accepted


def take_answer(tx: Transaction, session_id: str, offered: Offered) -> e.Entry | None:
    """Record a message that answers the question of the turn that runs, as an answer; None when it is none.

    It is a notice of the person: the model is not given it. The same message again is the same answer.
    """
    body = offered.body
    given = read_words(join_own_text(body.parts)) if body.role is Role.USER and not body.chat else None
    if given is None:
        return None
    journal, row = tx.session(session_id)
    notice = e.MessageAdded(role=Role.NOTICE, parts=body.parts, said_at=body.said_at, author=body.author or row.owner)
    found = tx.find(journal, offered.id)
    if found is not None:
        is_same = found.kind == "message.added" and found.body == e.ENCODER.encode(notice)
        return entry_value(session_id, offered.id, found, notice) if is_same else None
    reply = Reply(given, body.author, "", body.author or row.owner, session_id=session_id)
    judged = judge(tx, reply)
    if not judged.is_answer:
        return None
    entry = add_message(tx, journal, Offered(offered.id, notice, e.ENCODER.encode(notice)))
    if judged.question is not None:
        record_answer(tx, reply, judged.question, offered.id)
    else:
        append(tx, session_id, offer(Message.notice(judged.told)))
    return entry


def _received_before(tx: Transaction, home: Journal, seq: int) -> Accepted:
    (data,) = tx.row(SQL.entry_by_key, (home.entry_key(seq),))
    body = e.decode_body("intake.accepted", 1, data)
    if not isinstance(body, e.IntakeAccepted):
        raise TypeError(body)
    entries = []
    for session_id, entry_id in body.entries:
        journal, _ = tx.session(session_id)
        found = tx.find(journal, entry_id)
        if found is not None:
            decoded = e.decode_body(found.kind, found.version, found.body)
            entries.append(entry_value(session_id, entry_id, found, decoded))
    turns = []
    for session_id, turn_id in body.turns:
        journal, _ = tx.session(session_id)
        turns.append(turn_value(session_id, tx.row(SQL.find_turn, (journal.key, turn_id))))
    return Accepted(tuple(entries), tuple(turns), duplicate=True)


def move_cursor(tx: Transaction, channel: str, account: str, value: str) -> None:
    """Note how far a platform's stream was received; an empty value says nothing."""
    if value and tx.row(SQL.find_cursor, (channel, account)) != (value,):
        home = home_journal(tx)
        moved = e.CursorMoved(channel=channel, account=account, value=value)
        tx.add(home, f"~cursor:{home.head_seq + 1}", moved)


def find_route(tx: Transaction, key: str) -> Route | None:
    """Return where a session key leads, or None."""
    row = tx.row(SQL.find_route, (key,))
    return None if row is None else Route(key=row[0], session_id=row[1], generation=row[2], reason=row[3])


class RouteMove(NamedTuple):
    """Where a session key is to lead. `expect` is the generation that the caller decided on.

    `owner` and `identity`: whose chat it is; it follows the session if it is a person's.
    """

    key: str
    session_id: str
    reason: str
    expect: int | None
    operation_id: str
    owner: str = ""
    identity: str = ""


def move_route(tx: Transaction, move: RouteMove) -> Route:
    """Move a route and bump its generation; refused when somebody else moved it first."""
    home = home_journal(tx)
    done = tx.find(home, f"~route:{move.operation_id}")
    if done is not None:
        body = e.decode_body(done.kind, done.version, done.body)
        if isinstance(body, e.RouteMoved):
            return Route(key=body.key, session_id=body.session_id, generation=body.generation, reason=body.reason)
    tx.session(move.session_id)
    now = find_route(tx, move.key)
    generation = now.generation if now is not None else 0
    if move.expect is not None and move.expect != generation:
        message = f"route {move.key} is at generation {generation}, not {move.expect}"
        raise WrongState(message)
    body = e.RouteMoved(
        key=move.key,
        session_id=move.session_id,
        generation=generation + 1,
        reason=move.reason,
        owner=move.owner,
        identity=move.identity,
    )
    tx.add(home, f"~route:{move.operation_id}", body)
    return Route(key=move.key, session_id=move.session_id, generation=generation + 1, reason=move.reason)


def reset_route(tx: Transaction, key: str, new: NewSession, reason: str, operation_id: str) -> Route:
    """End the session that a key leads to, begin its successor, and move the route: one commit."""
    home = home_journal(tx)
    now = find_route(tx, key)
    if tx.find(home, f"~route:{operation_id}") is not None and now is not None:
        return now
    if now is None:
        message = f"no route {key}"
        raise NotFound(message)
    parent = Parent(session_id=now.session_id, link=Link.RESET)
    child = create_session(tx, new._replace(parent=parent))
    end_session(tx, now.session_id, reason)
    move = RouteMove(key, child.id, reason, now.generation, operation_id)
    return move_route(tx, move)
