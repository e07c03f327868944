"""Questions about tool calls: asked in a turn, answered by a message, a command, or by nobody in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.entries_agent import QuestionAnswered, QuestionAsked
from hansard.domain.messages import Role, join_own_text
from hansard.domain.questions import Answered, answer_of
from hansard.domain.turns import TurnState
from hansard.record.operations.messages import Offered, add_message
from hansard.record.operations.turns import Lease, check_fence, find_turn

if TYPE_CHECKING:
    from hansard.record.journals import Journal
    from hansard.record.transaction import Transaction


class Open(NamedTuple):
    """A question that waits for its answer."""

    number: int
    body: QuestionAsked


def question_id(turn_id: str, number: int) -> str:
    """Return the id of a turn's question: the first, the second."""
    return f"~question:{turn_id}:{number}"


def answer_id(turn_id: str, number: int) -> str:
    """Return the id of the answer: there is one."""
    return f"~answer:{turn_id}:{number}"


def last_question(tx: Transaction, journal: Journal, turn_id: str) -> Open | None:
    """Return the last question of a turn, answered or not."""
    number, body = 0, None
    while (found := tx.find(journal, question_id(turn_id, number + 1))) is not None:
        number += 1
        body = e.decode_body(found.kind, found.version, found.body)
    return Open(number, body) if isinstance(body, QuestionAsked) else None


def open_question(tx: Transaction, journal: Journal, turn_id: str) -> Open | None:
    """Return the question that a turn waits for."""
    last = last_question(tx, journal, turn_id)
    if last is None or tx.find(journal, answer_id(turn_id, last.number)) is not None:
        return None
    return last


class Asking(NamedTuple):
    """A question: the notice that asks it, and about which call."""

    notice: Offered
    call_id: str
    people: tuple[tuple[str, str], ...]


def ask(tx: Transaction, lease: Lease, asking: Asking) -> int:
    """Ask: the notice that people see and the fact that the turn waits, in one commit. Return the question's number."""
    journal, _ = tx.session(lease.session_id)
    last = last_question(tx, journal, lease.turn_id)
    if last is not None and last.body.message_id == asking.notice.id:
        return last.number
    check_fence(tx, lease)
    add_message(tx, journal, asking.notice)
    number = 1 if last is None else last.number + 1
    body = QuestionAsked(
        turn_id=lease.turn_id, call_id=asking.call_id, message_id=asking.notice.id, people=asking.people
    )
    tx.add(journal, question_id(lease.turn_id, number), body)
    return number


def settle(tx: Transaction, lease: Lease, number: int, reason: str) -> Answered:
    """End a question that nobody answered in time as a no; an answer that came first counts."""
    journal, _ = tx.session(lease.session_id)
    found = tx.find(journal, answer_id(lease.turn_id, number))
    body = e.decode_body(found.kind, found.version, found.body) if found is not None else None
    if isinstance(body, QuestionAnswered):
        return Answered(yes=body.yes, by=body.by, reason=body.reason)
    check_fence(tx, lease)
    last = last_question(tx, journal, lease.turn_id)
    call_id = last.body.call_id if last is not None else ""
    answer = QuestionAnswered(turn_id=lease.turn_id, call_id=call_id, yes=False, reason=reason)
    tx.add(journal, answer_id(lease.turn_id, number), answer)
    return Answered(yes=False, reason=reason)


class Reply(NamedTuple):
    """What somebody answers, where; `message_id` when it was said in a message."""

    yes: bool
    author: str
    chat: str
    by: str
    message_id: str = ""


def reply(tx: Transaction, session_id: str, given: Reply) -> bool:
    """Answer the question that waits in a session, if this person may, in this chat; return whether it was answered."""
    journal, _ = tx.session(session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    waiting = open_question(tx, journal, running.id) if running is not None else None
    if running is None or waiting is None or (given.author, given.chat) not in waiting.body.people:
        return False
    answered = QuestionAnswered(
        turn_id=running.id, call_id=waiting.body.call_id, yes=given.yes, by=given.by, message_id=given.message_id
    )
    tx.add(journal, answer_id(running.id, waiting.number), answered)
    return True


def waits(tx: Transaction, session_id: str, author: str, chat: str) -> bool:
    """Return whether a turn waits for an answer of this person, in this chat."""
    journal, _ = tx.session(session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    waiting = open_question(tx, journal, running.id) if running is not None else None
    return waiting is not None and (author, chat) in waiting.body.people


def take_answers(tx: Transaction, session_id: str, message_ids: tuple[str, ...], account: str = "") -> tuple[str, ...]:
    """Take messages that say yes or no as the answer that a turn waits for; return those that are something else.

    An answer goes into the running turn, with the results, so that the model reads it there and not once more.
    """
    journal, row = tx.session(session_id)
    others = []
    for message_id in message_ids:
        running = find_turn(tx, journal, TurnState.RUNNING)
        found = tx.find(journal, message_id) if running is not None else None
        body = e.decode_body(found.kind, found.version, found.body) if found is not None else None
        is_said = isinstance(body, e.MessageAdded) and body.role == Role.USER
        said = answer_of(join_own_text(body.parts), account) if is_said and isinstance(body, e.MessageAdded) else None
        if running is None or said is None or not isinstance(body, e.MessageAdded):
            others.append(message_id)
            continue
        given = Reply(said, body.author, body.chat, body.author or row.owner, message_id)
        if not reply(tx, session_id, given):
            others.append(message_id)
        elif tx.find(journal, f"~steer:{message_id}") is None:
            chat = body.chat if body.author else ""
            tx.add(journal, f"~steer:{message_id}", e.TurnSteered(turn_id=running.id, message_id=message_id, chat=chat))
    return tuple(others)
