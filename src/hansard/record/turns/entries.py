"""The entries of turns, their projection, and who asks for turns. The order of fields is hashed: it never changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hansard.domain.budgets import Usage
from hansard.domain.people import By, How, asker_owner, joined, recovered
from hansard.domain.permissions import CallVerdict, Reason
from hansard.domain.sessions import TurnInfo, TurnState
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.entries import Journal
from hansard.journal.transaction import Transaction
from hansard.record.messages.entries import MessageAdded, is_spoken

TURNS = Concept(
    "turns",
    "hansard.record",
    tables=(
        Table(name="turn", order="id"),
        Table(name="turn_chat", order="turn_id, chat"),
        Table(name="turn_by", order="turn_id, person, chat, how"),
    ),
)
SQL = TURNS.queries


@TURNS.entry("turn.queued")
class TurnQueued(Body, frozen=True):
    """A turn waits to run. `chats`: where it is to be shown, besides the chats in which its messages were said.

    `followers`: chats of the same person that lead to the session, where it is shown as long as they do.
    """

    turn_id: str
    chats: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()
    by: tuple[By, ...] | None = None
    """Who asked for it. None: it was queued before that was recorded."""


@TURNS.entry("turn.asked")
class TurnAsked(Body, frozen=True):
    """More people ask for a turn that waits, or steer the one that runs. Their rights count from here on, too."""

    turn_id: str
    by: tuple[By, ...]


@TURNS.entry("turn.started")
class TurnStarted(Body, frozen=True):
    """A turn holds the session; its fence is the seq of this entry. With a `purpose` it answers nobody."""

    turn_id: str
    owner: str
    purpose: str = ""
    refused: bool = False
    """Whether a limit of the day ends it at once: it is not counted."""
    by: tuple[By, ...] | None = None
    """Everybody who asked for it. None: it began before that was recorded, and the authors it answers count."""


@TURNS.entry("turn.stopping")
class TurnStopping(Body, frozen=True):
    """Somebody asks the running turn to stop; its holder does so."""

    turn_id: str
    reason: str = ""


@TURNS.entry("turn.steered")
class TurnSteered(Body, frozen=True):
    """A message goes into the running turn, with its next results, instead of waiting for the turn after it.

    `chat` is where it was said: the turn is shown there, too, from now on.
    """

    turn_id: str
    message_id: str
    chat: str = ""


@TURNS.entry("turn.continued")
class TurnContinued(Body, frozen=True):
    """The model is asked to go on where a broken connection, or a crash, cut it. `note`: what it is told, if any."""

    turn_id: str
    message_id: str
    note: str = ""


@TURNS.entry("turn.used")
class TurnUsed(Body, frozen=True):
    """What one request of a turn took."""

    turn_id: str
    model: str
    usage: Usage = Usage()
    purpose: str = ""
    """Empty: the answer. Otherwise what else was asked for: `title`, `transcription`."""


@TURNS.entry("turn.ended")
class TurnEnded(Body, frozen=True):
    """A turn is over."""

    turn_id: str
    state: TurnState
    reason: str = ""


@TURNS.entry("tool.decided")
class ToolDecided(Body, frozen=True):
    """What becomes of a call, by the rules and askers of that moment, with a reason for each asker."""

    turn_id: str
    call_id: str
    tool: str
    verdict: CallVerdict
    reasons: tuple[Reason, ...] = ()


@TURNS.projects(TurnQueued, TurnAsked, TurnStarted)
def project_turn_askers(place: EntryPlace, body: TurnQueued | TurnAsked | TurnStarted) -> None:
    match body:
        case TurnQueued():
            place.run(SQL.put_turn, (place.journal, body.turn_id, TurnState.QUEUED, place.seq, "", ""))
            for follows, chats in enumerate((body.chats, body.followers)):
                for chat in chats:
                    place.run(SQL.add_turn_chat, (place.journal, "", chat, follows))
        case TurnStarted():
            running = (TurnState.RUNNING, place.seq, body.owner, body.purpose)
            place.run(SQL.put_turn, (place.journal, body.turn_id, *running))
            # What waits to be answered goes on waiting while a turn runs that answers nobody.
            if not body.purpose:
                place.run(SQL.take_turn_chats, (place.journal, body.turn_id))
                if body.by is None:
                    place.run(SQL.take_turn_by, (place.journal, body.turn_id))
                place.run(SQL.drop_next_by, (place.journal,))
        case TurnAsked():
            pass  # more people ask for a turn, and nothing else
    for each in body.by or ():
        place.run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


@TURNS.projects(MessageAdded, TurnSteered, TurnEnded)
def project_turn(place: EntryPlace, body: Body) -> None:
    match body:
        case MessageAdded():
            # What a person says to the agent is answered by the next turn, in the chat where it was said.
            if is_spoken(body):
                place.run(SQL.add_turn_by, (place.journal, "", body.author, body.chat, How.MESSAGE))
                if body.chat:
                    place.run(SQL.add_turn_chat, (place.journal, "", body.chat, 0))
        case TurnSteered():
            # The turn that runs is shown there, too; so is the next one, which answers if this one never comes to it.
            if body.chat:
                place.run(SQL.add_turn_chat, (place.journal, body.turn_id, body.chat, 0))
        case TurnEnded():
            place.run(SQL.end_turn, (body.state, body.reason, place.journal, body.turn_id))
            if body.state == TurnState.LOST:
                place.run(SQL.leave_turn_chats, (place.journal, body.turn_id))
            place.run(SQL.drop_turn_chats, (place.journal, body.turn_id))


def turn_value(session_id: str, row: tuple[Any, ...]) -> TurnInfo:
    turn_id, state, fence, owner, reason = row
    return TurnInfo(id=turn_id, session_id=session_id, state=TurnState(state), fence=fence, owner=owner, reason=reason)


def find_turn(tx: Transaction, journal: Journal, state: TurnState) -> TurnInfo | None:
    row = tx.row(SQL.find_turn_in_state, (journal.key, state))
    return None if row is None else turn_value(journal.id, row)


def answers_nobody(tx: Transaction, journal: Journal) -> bool:
    """Return whether the turn that runs answers nobody: it makes way by itself, and nobody waits for its end."""
    return tx.row(SQL.find_turn_of_purpose, (journal.key,)) is not None


def end_queued(tx: Transaction, journal: Journal, reason: str) -> TurnInfo | None:
    waiting = find_turn(tx, journal, TurnState.QUEUED)
    if waiting is not None:
        ended = TurnEnded(turn_id=waiting.id, state=TurnState.INTERRUPTED, reason=reason)
        tx.add(journal, f"~ended:{waiting.id}", ended)
    return waiting


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
    queued = tx.find_body(journal, f"~queued:{lost_id}", TurnQueued)
    return None if not by and queued is not None and queued.by is None else by


def turn_askers(tx: Transaction, journal: Journal, turn_id: str) -> set[str]:
    return {asker_owner(*each.place) for each in read_by(tx, journal, turn_id)}


def is_asked_by(asked: set[str], owners: Collection[str]) -> bool:
    """Return whether only these owners asked. Without owners it is always so."""
    return not owners or (bool(asked) and asked <= {*owners})


def next_askers(reads: Reads, journal: int) -> set[str]:
    """Return the owners who ask for the next turn of a session; none when nobody does."""
    return {asker_owner(person, chat) for person, chat in reads.rows(SQL.list_next_by, (journal,))}


def last_askers(reads: Reads, journal: int) -> set[str]:
    return {asker_owner(person, chat) for person, chat in reads.rows(SQL.list_last_by, (journal,))}


def add_usage(before: Usage | None, more: Usage) -> Usage:
    """Return the sum; the cost of a sum is known when any of it is."""
    if before is None:
        return more
    costs = [usage.cost_micros for usage in (before, more) if usage.cost_micros is not None]
    return Usage(
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cache_read_tokens=before.cache_read_tokens + more.cache_read_tokens,
        cache_write_tokens=before.cache_write_tokens + more.cache_write_tokens,
        cost_micros=sum(costs) if costs else None,
    )
