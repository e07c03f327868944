"""Events of platforms: accepted once, with what they say and the platform's cursor in one commit (L2).

Entries (home journal): intake.accepted, .held, cursor.moved. Tables: intake, held, cursor. SQL: intake.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.deliveries import Cursor, Intake
from hansard.domain.ids import HOME_JOURNAL, new_id
from hansard.domain.limits import UNIT_ENTRIES_MAX
from hansard.domain.messages import Message, Role, join_own_text
from hansard.domain.questions import read_words
from hansard.domain.settings import Busy
from hansard.domain.text import clean_struct
from hansard.domain.turns import TurnState
from hansard.errors import TooLarge
from hansard.journal.concepts import ENCODER, Body, Concept, EntryPlace, Table
from hansard.journal.reading import SQL as JOURNAL
from hansard.journal.reading import home_journal
from hansard.record.conversation import askers_of
from hansard.record.messages import operations as messages
from hansard.record.messages.entries import Entry, MessageAdded
from hansard.record.messages.fold import added_message
from hansard.record.messages.operations import Offered, add_message, append, entry_of, offer
from hansard.record.questions import GivenAnswer, judge, record_answer
from hansard.record.routes import tell_followers
from hansard.record.sessions import session_journal
from hansard.record.turns.entries import TURNS, find_turn, turn_value
from hansard.record.turns.operations import meet_running_turn, queue_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.domain.deliveries import Cursor, Intake
    from hansard.domain.notices import Wording
    from hansard.domain.turns import By, TurnInfo
    from hansard.journal.backend import Reads
    from hansard.journal.concepts import IsAlive
    from hansard.journal.reading import Journal
    from hansard.journal.transaction import Transaction

INTAKE = Concept(
    "intake",
    "hansard.record",
    tables=(
        Table(name="cursor", order="channel, account", of_home=True),
        Table(name="intake", order="channel, account, event_id", of_home=True),
        Table(name="held", order="channel, account, event_id", of_home=True),
    ),
)

SQL = INTAKE.queries


@INTAKE.entry("cursor.moved")
class CursorMoved(Body, frozen=True):
    """A platform's stream was received up to here."""

    channel: str
    account: str
    value: str


@INTAKE.entry("intake.accepted")
class IntakeAccepted(Body, frozen=True):
    """A platform's event was received. It is never taken in again."""

    channel: str
    account: str
    event_id: str
    entries: tuple[tuple[str, str], ...] = ()
    turns: tuple[tuple[str, str], ...] = ()


@INTAKE.entry("intake.held")
class IntakeHeld(Body, frozen=True):
    """An event came that cannot be read yet, as its keys are missing. It is kept whole, and tried again."""

    channel: str
    account: str
    event_id: str
    chat: str
    raw: str
    identity: str = ""


@INTAKE.projects(CursorMoved)
def project_cursor_moved(place: EntryPlace, body: CursorMoved) -> None:
    place.run(SQL.put_cursor, (body.channel, body.account, body.value))


@INTAKE.projects(IntakeAccepted)
def project_intake_accepted(place: EntryPlace, body: IntakeAccepted) -> None:
    place.run(SQL.insert_intake, (body.channel, body.account, body.event_id, place.seq))
    place.run(SQL.drop_held, (body.channel, body.account, body.event_id))


@INTAKE.projects(IntakeHeld)
def project_intake_held(place: EntryPlace, body: IntakeHeld) -> None:
    event = (body.channel, body.account, body.event_id, body.chat, place.seq)
    place.run(SQL.insert_held, (*event, body.identity, len(body.raw.encode()), place.at))


class Accepted(NamedTuple):
    """What became of an inbound event. `duplicate`: it was received before, and this is what it became then."""

    entries: tuple[Entry, ...]
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


def is_said(entry: Entry) -> bool:
    """Return whether an entry is what a person said."""
    return isinstance(entry.body, MessageAdded) and entry.body.role == Role.USER


def askers_in(entries: tuple[Entry, ...], session_id: str) -> tuple[By, ...]:
    """Return who asks for a turn of a session by what they said."""
    own = [(entry, entry.body) for entry in entries if entry.session_id == session_id]
    said = [added_message(entry.id, 0, body) for entry, body in own if isinstance(body, MessageAdded)]
    return askers_of(said)


def runs(tx: Transaction, session_id: str, is_alive: IsAlive) -> bool:
    """Return whether a turn runs in a session, in a process that lives."""
    journal, _ = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    return running is not None and is_alive(running.owner)


def accept(tx: Transaction, inbound: Inbound, is_alive: IsAlive, words: Wording) -> Accepted:
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
            tell_followers(tx, session_id, said, words)
            meet_running_turn(tx, session_id, said, inbound.busy, is_alive, words=words)
        turns = tuple(queue_turn(tx, each, new_id(), by=askers_in(entries, each)) for each in sessions)
        waits = any(runs(tx, session_id, is_alive) for session_id in sessions)
        accepted = Accepted(entries, turns, duplicate=False, waits=waits)
    if intake is not None and before is None:
        body = IntakeAccepted(
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


def take_answer(tx: Transaction, session_id: str, offered: Offered) -> Entry | None:
    """Record a message that answers the question of the turn that runs, as an answer; None when it is none.

    It is a notice of the person: the model is not given it. The same message again is the same answer.
    """
    body = offered.body
    given = read_words(join_own_text(body.parts)) if body.role is Role.USER and not body.chat else None
    if given is None:
        return None
    journal, row = session_journal(tx, session_id)
    notice = MessageAdded(role=Role.NOTICE, parts=body.parts, said_at=body.said_at, author=body.author or row.owner)
    found = tx.find(journal, offered.id)
    if found is not None:
        is_same = found.kind == "message.added" and found.body == ENCODER.encode(notice)
        return entry_of(session_id, offered.id, found, notice) if is_same else None
    reply = GivenAnswer(given, body.author, "", body.author or row.owner, session_id=session_id)
    judged = judge(tx, reply)
    if not judged.is_answer:
        return None
    entry = add_message(tx, journal, Offered(offered.id, notice, ENCODER.encode(notice)))
    if judged.question is not None:
        record_answer(tx, reply, judged.question, offered.id)
    else:
        append(tx, session_id, offer(Message.notice(judged.told)))
    return entry


def _received_before(tx: Transaction, home: Journal, seq: int) -> Accepted:
    (data,) = tx.row(JOURNAL.entry_by_key, (home.entry_key(seq),))
    body = tx.schema.decode_body("intake.accepted", 1, data)
    if not isinstance(body, IntakeAccepted):
        raise TypeError(body)
    entries = []
    for session_id, entry_id in body.entries:
        journal, _ = session_journal(tx, session_id)
        found = tx.find(journal, entry_id)
        if found is not None:
            decoded = tx.decode(found)
            entries.append(entry_of(session_id, entry_id, found, decoded))
    turns = []
    for session_id, turn_id in body.turns:
        journal, _ = session_journal(tx, session_id)
        turns.append(turn_value(session_id, tx.row(TURNS.queries.find_turn, (journal.key, turn_id))))
    return Accepted(tuple(entries), tuple(turns), duplicate=True)


def move_cursor(tx: Transaction, channel: str, account: str, value: str) -> None:
    """Note how far a platform's stream was received; an empty value says nothing."""
    if value and tx.row(SQL.find_cursor, (channel, account)) != (value,):
        home = home_journal(tx)
        moved = CursorMoved(channel=channel, account=account, value=value)
        tx.add(home, f"~cursor:{home.head_seq + 1}", moved)


def describe_inbound(
    entries: Sequence[tuple[str, Message]],
    intake: Intake | None,
    cursor: Cursor | None,
    busy: Busy,
    *,
    queue_turn: bool,
    answers: bool = False,
) -> Inbound:
    """Check and clean an inbound event."""
    if len(entries) > UNIT_ENTRIES_MAX:
        message = f"{len(entries)} entries in one call; the limit is {UNIT_ENTRIES_MAX}"
        raise TooLarge(message)
    offered = tuple((session_id, messages.offer(each)) for session_id, each in entries)
    cleaned_intake = clean_struct(intake) if intake else None
    cleaned_cursor = clean_struct(cursor) if cursor else None
    return Inbound(offered, cleaned_intake, cleaned_cursor, queue_turn, busy, answers)


def find_cursor(snapshot: Reads, channel: str, account: str) -> str | None:
    """Return how far a platform's stream was received, or None."""
    row = snapshot.row(SQL.find_cursor, (channel, account))
    return None if row is None else row[0]


def list_received(
    snapshot: Reads, channel: str, account: str, event_ids: list[str]
) -> dict[str, list[tuple[str, str]]]:
    """Return what platform events became, of those that were received: (session, entry) pairs."""
    home = snapshot.row(JOURNAL.read_journal, (HOME_JOURNAL,))
    found = {}
    for event_id in event_ids:
        row = snapshot.row(SQL.find_intake, (channel, account, event_id))
        if row is not None:
            (data,) = snapshot.row(JOURNAL.entry_by_key, ((home[0] << 32) + row[0],))
            body = snapshot.schema.decode_body("intake.accepted", 1, data)
            found[event_id] = list(body.entries) if isinstance(body, IntakeAccepted) else []
    return found
