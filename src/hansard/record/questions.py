"""Questions about tool calls: asked in a turn, shown to people, answered by one of them, or by nobody in time.

Entries: question.asked, .shown, .answered, .guessed. Table: question. SQL: questions.sql.
Invariants: an answer is judged in the commit that records it; it counts only from a person whom the question names, in
the chat that it names, after the whole question was shown there, and once.
On crash: a question whose turn is gone is answered by nobody.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from hansard.domain import questions as q
from hansard.domain.access import HOUR_MICROSECONDS
from hansard.domain.chats import person_owner
from hansard.domain.deliveries import DeliveryState
from hansard.domain.ids import delivery_prefix
from hansard.domain.messages import File, Role, join_text
from hansard.domain.questions import Answered, Given, Scope
from hansard.domain.sessions import TurnState
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.entries import Journal
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction
from hansard.record import Namespace
from hansard.record.deliveries import DeliveryMoved, list_message_deliveries
from hansard.record.messages.entries import MessageAdded
from hansard.record.messages.operations import Offered, add_message
from hansard.record.people import add_at_home, count_pace, read_pace
from hansard.record.permissions import grant
from hansard.record.sessions import session_journal
from hansard.record.turns.entries import TurnEnded, find_turn
from hansard.record.turns.operations import Lease, check_fence

QUESTIONS = Concept("questions", "hansard.record", tables=(Table(name="question", order="turn_id, author, chat"),))
SQL = QUESTIONS.queries


@QUESTIONS.entry("question.asked")
class QuestionAsked(Body, frozen=True):
    """A turn waits for a yes before it runs a call. `message_id` is the notice that asks.

    `people`: who may answer, and in which chat; both are empty at the terminal. `call_hash` is of the exact call,
    `scopes` are the answers that are offered. Questions of older versions have neither.
    """

    turn_id: str
    call_id: str
    message_id: str
    people: tuple[tuple[str, str], ...]
    tool: str = ""
    call_hash: str = ""
    code: str = ""
    scopes: tuple[str, ...] = ()


@QUESTIONS.entry("question.shown")
class QuestionShown(Body, frozen=True):
    """The terminal has drawn a question. In chats its delivery says so."""

    turn_id: str
    message_id: str


@QUESTIONS.entry("question.answered")
class QuestionAnswered(Body, frozen=True):
    """A question is over. `by` is who answered, in `message_id`; empty when nobody did in time.

    `number` counts the questions of the turn. `author` and `chat` are the person's, as the question named them.
    """

    turn_id: str
    call_id: str
    yes: bool
    by: str = ""
    message_id: str = ""
    reason: str = ""
    scope: str = ""
    number: int = 0
    tool: str = ""
    call_hash: str = ""
    author: str = ""
    chat: str = ""


@QUESTIONS.entry("question.guessed")
class QuestionGuessed(Body, frozen=True):
    """Somebody gave a code that fits no question which waits for them."""

    person: str
    chat: str = ""


@QUESTIONS.projects(TurnEnded, QuestionAsked, QuestionAnswered, QuestionGuessed)
def project_question(place: EntryPlace, body: Body) -> None:
    match body:
        case TurnEnded() | QuestionAnswered():
            place.run(SQL.drop_question, (place.journal, body.turn_id))
        case QuestionAsked():
            for author, chat in body.people:
                place.run(
                    SQL.add_question,
                    (place.journal, body.turn_id, author, chat, body.message_id, " ".join(body.scopes)),
                )
        case QuestionGuessed():
            count_pace(place, guess_name(body.person))


SINCE_ENTRIES_MAX = 10_000
"""Entries after a question that are looked through; a plain yes after more than that answers nothing."""


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for its answer."""

    session_id: str
    number: int
    body: QuestionAsked
    seq: int


def question_id(turn_id: str, number: int) -> str:
    return f"~question:{turn_id}:{number}"


def answer_id(turn_id: str, number: int) -> str:
    return f"~answer:{turn_id}:{number}"


def last_question(tx: Transaction, journal: Journal, turn_id: str) -> Open | None:
    last = None
    number = 1
    while (found := tx.find(journal, question_id(turn_id, number))) is not None:
        body = tx.decode(found)
        if isinstance(body, QuestionAsked):
            last = Open(session_id=journal.id, number=number, body=body, seq=found.seq)
        number += 1
    return last


def open_question(tx: Transaction, journal: Journal, turn_id: str) -> Open | None:
    last = last_question(tx, journal, turn_id)
    if last is None or tx.find(journal, answer_id(turn_id, last.number)) is not None:
        return None
    return last


def ask(tx: Transaction, lease: Lease, notice: Offered, asked: QuestionAsked) -> int:
    """Ask: the notice that people see and the fact that the turn waits, in one commit. Return the question's number."""
    journal, _ = session_journal(tx, lease.session_id)
    last = last_question(tx, journal, lease.turn_id)
    if last is not None and last.body.message_id == notice.id:
        return last.number
    check_fence(tx, journal, lease)
    add_message(tx, journal, notice)
    number = 1 if last is None else last.number + 1
    tx.add(journal, question_id(lease.turn_id, number), asked)
    return number


def note_shown(tx: Transaction, session_id: str, message_id: str) -> None:
    journal, _ = session_journal(tx, session_id)
    running = find_turn(tx, journal, TurnState.RUNNING)
    waiting = open_question(tx, journal, running.id) if running is not None else None
    if waiting is None or waiting.body.message_id != message_id or tx.find(journal, f"~shown:{message_id}"):
        return
    tx.add(journal, f"~shown:{message_id}", QuestionShown(turn_id=waiting.body.turn_id, message_id=message_id))


def settle_question(tx: Transaction, lease: Lease, number: int, reason: str) -> Answered:
    """End a question that nobody answered in time as a no; an answer that came first counts."""
    journal, _ = session_journal(tx, lease.session_id)
    answered = tx.find_body(journal, answer_id(lease.turn_id, number), QuestionAnswered)
    if answered is not None:
        return answered_value(answered)
    check_fence(tx, journal, lease)
    last = last_question(tx, journal, lease.turn_id)
    call_id = last.body.call_id if last is not None else ""
    answer = QuestionAnswered(turn_id=lease.turn_id, call_id=call_id, yes=False, reason=reason, number=number)
    tx.add(journal, answer_id(lease.turn_id, number), answer)
    return Answered(yes=False, reason=reason)


def answered_value(body: QuestionAnswered) -> Answered:
    return Answered(yes=body.yes, by=body.by, reason=body.reason, call_hash=body.call_hash)


# Answers: which words are a plain yes or no, and when one counts.


YES: Final = frozenset({"yes", "y", "yes please", "ok", "okay", "allow", "ja", "oui", "si", "sí", "👍", "once"})
NO: Final = frozenset({"no", "n", "no thanks", "deny", "nein", "non", "nope", "👎"})
SESSION: Final = frozenset({"session", "yes session", "for this session", "yes for this session"})
ALWAYS: Final = frozenset({"always", "yes always"})
"""Words that answer, on their own, whatever their case and the point after them. Anything else is something else."""

WORDS_CHARACTERS_MAX: Final = 24
"""A longer text is not looked at: it says something else."""

NO_AND_WHY: Final = re.compile(r"\s*(?:no|nein|non)\s*[,:;]\s*(?P<reason>\S.*)", re.IGNORECASE | re.DOTALL)
"""A no with a reason: `no, use the other file`."""

REASON_CHARACTERS_MAX: Final = 2000
"""Of a reason that the model is given."""


@cache
def address_of(account: str) -> re.Pattern[str]:
    """Return how a message begins that names the agent: by its account, or by the first part of it."""
    name = account.removeprefix("@")
    names = {name, name.partition(":")[0]}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"\s*@?(?:{either})(?:\s*[:,]\s*|\s+)", re.IGNORECASE)


def read_words(text: str, account: str = "") -> Given | None:
    """Return the answer that a text is, maybe to the agent by its name; None when it says something else."""
    if account:
        text = address_of(account).sub("", text, count=1) if address_of(account).match(text) else text
    why = NO_AND_WHY.fullmatch(text)
    if why is not None:
        return Given(scope=Scope.NO, reason=why["reason"].strip()[:REASON_CHARACTERS_MAX])
    if len(text) > WORDS_CHARACTERS_MAX:
        return None
    words = " ".join(text.lower().replace(",", " ").split()).strip(" .!")
    meant = ((YES, Scope.ONCE), (NO, Scope.NO), (SESSION, Scope.SESSION), (ALWAYS, Scope.ALWAYS))
    return next((Given(scope=scope) for known, scope in meant if words in known), None)


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody answers, where. `session_id`: at the terminal, the session that it is said in."""

    given: Given
    author: str
    chat: str
    by: str
    is_direct: bool = True
    session_id: str = ""
    said_at: int = 0
    """By the platform's clock; 0: nobody knows."""


class Judged(NamedTuple):
    """What an answer is: to a question; to none, with what the person is told; or no answer at all."""

    question: Open | None = None
    told: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether it was meant as an answer, counted or not. Then it is no message to the agent."""
        return self.question is not None or bool(self.told)


def judge(tx: Transaction, reply: GivenAnswer) -> Judged:
    """Return which question an answer counts for, now. A plain word that fits none says something else."""
    found, told = find_meant(tx, reply)
    if len(found) == 1 and not told:
        return judge_one(tx, reply, found[0])
    return Judged(told=told or (q.WHICH_OF_TWO if found else ""))


def find_meant(tx: Transaction, reply: GivenAnswer) -> tuple[list[Open], str]:
    """Return the questions that an answer may mean; or what the person is told when it names none that waits."""
    given = reply.given
    waiting = waiting_for(tx, reply)
    if given.about:
        found = [each for each in waiting if given.about in receipts(tx, each, reply.chat)]
        return found, q.NOTHING_WAITS if not found and is_of_others(tx, reply) else ""
    if not given.code:
        if not waiting:
            return [], "" if given.is_plain else q.NOTHING_WAITS
        return waiting, "" if reply.is_direct else q.WHICH_IN_ROOM
    tried = read_pace(tx, guess_name(guesser(reply)))
    if tried.within(tx.clock.now_microseconds(), HOUR_MICROSECONDS) >= GUESSES_PER_HOUR_MAX:
        return [], q.TOO_MANY_GUESSES
    found = [each for each in waiting if each.body.code == given.code]
    if not found:
        add_at_home(tx, "guessed", QuestionGuessed(person=guesser(reply), chat=reply.chat))
    return found, "" if found else q.NO_SUCH_QUESTION


def judge_one(tx: Transaction, reply: GivenAnswer, question: Open) -> Judged:
    given = reply.given
    is_named = bool(given.about or given.code) or not given.is_plain
    if not is_shown(tx, question, reply.chat):
        return Judged(told=q.NOT_DELIVERED if is_named else "")
    if not is_named and not is_next(tx, question, reply):
        return Judged()
    if not (given.about or given.code) and is_said_before(reply.said_at, shown_at(tx, question, reply.chat)):
        return Judged(told=q.SAID_BEFORE)
    if given.scope in {Scope.SESSION, Scope.ALWAYS} and given.scope not in question.body.scopes:
        return Judged(told=q.NOT_OFFERED[given.scope])
    return Judged(question)


def record_answer(tx: Transaction, reply: GivenAnswer, question: Open, message_id: str = "") -> str:
    """Record an answer that counts; return what the person is told about it. A command has no message."""
    journal, _ = session_journal(tx, question.session_id)
    body, given = question.body, reply.given
    answered = QuestionAnswered(
        turn_id=body.turn_id,
        call_id=body.call_id,
        yes=given.yes,
        by=reply.by,
        message_id=message_id,
        reason=given.reason,
        scope=given.scope,
        number=question.number,
        tool=body.tool,
        call_hash=body.call_hash,
        author=reply.author,
        chat=reply.chat,
    )
    tx.add(journal, answer_id(body.turn_id, question.number), answered)
    if given.scope in {Scope.SESSION, Scope.ALWAYS}:
        session_id = question.session_id if given.scope is Scope.SESSION else ""
        grant(tx, tool=answered.tool, person=reply.author, place=reply.chat, session_id=session_id, by=answered.by)
    return q.TAKEN[given.scope]


def waiting_for(tx: Transaction, reply: GivenAnswer) -> list[Open]:
    """Return the questions that wait for an answer of a person in a chat, or at the terminal in a session."""
    if not reply.chat:
        journal, _ = session_journal(tx, reply.session_id)
        running = find_turn(tx, journal, TurnState.RUNNING)
        waiting = open_question(tx, journal, running.id) if running is not None else None
        return [waiting] if waiting is not None and (reply.author, "") in waiting.body.people else []
    found = read_open(tx, tx.rows(SQL.list_questions, (reply.author, reply.chat)))
    return [each for each in found if (reply.author, reply.chat) in each.body.people]


def read_open(tx: Transaction, rows: list[tuple[str, str]]) -> list[Open]:
    """Return the questions that turns wait for, of (session, turn) pairs."""
    found = [open_question(tx, session_journal(tx, session_id)[0], turn_id) for session_id, turn_id in rows]
    return [each for each in found if each is not None]


def is_of_others(tx: Transaction, reply: GivenAnswer) -> bool:
    """Return whether somebody answers a question that was put to another person. It counts for nothing."""
    others = read_open(tx, tx.rows(SQL.list_chat_questions, (reply.chat,)))
    return any(reply.given.about in receipts(tx, each, reply.chat) for each in others)


def receipts(tx: Transaction, question: Open, chat: str) -> set[str]:
    sent = list_message_deliveries(tx, question.session_id, question.body.message_id, chat)
    return {each.receipt for each in sent if each.receipt}


def is_shown(tx: Transaction, question: Open, chat: str) -> bool:
    """Return whether people were shown the whole question: every word and every file is sent, or was drawn."""
    journal, _ = session_journal(tx, question.session_id)
    body = tx.find_body(journal, question.body.message_id, MessageAdded)
    if body is None:
        return False
    files = sum(isinstance(part, File) for part in body.parts)
    if not chat:
        return not files and tx.find(journal, f"~shown:{question.body.message_id}") is not None
    sent = list_message_deliveries(tx, question.session_id, question.body.message_id, chat)
    if any(each.state is not DeliveryState.SENT for each in sent):
        return False
    words = max((each.end_bytes for each in sent if not each.file), default=0)
    return words == len(join_text(body.parts).encode()) and len({each.file for each in sent} - {0}) == files


def entries_since(tx: Transaction, question: Open) -> list[tuple[Any, ...]]:
    journal, _ = session_journal(tx, question.session_id)
    bounds = (journal.entry_key(question.seq), journal.entry_key(journal.head_seq))
    return tx.rows(JOURNAL.read_entries, (*bounds, SINCE_ENTRIES_MAX))


def shown_at(tx: Transaction, question: Open, chat: str) -> int:
    """Return when the whole question was shown in a chat, by this machine's clock."""
    prefix = delivery_prefix(question.body.message_id, chat)
    last = 0
    for _, _, kind, version, _, at, data in entries_since(tx, question):
        body = tx.schema.decode_body(kind, version, data) if kind == "delivery.moved" else None
        if isinstance(body, DeliveryMoved) and body.state is DeliveryState.SENT and body.delivery_id.startswith(prefix):
            last = max(last, at)
    return last


def is_said_before(said_at: int, shown_at: int) -> bool:
    """Return whether something was said before a question was shown; both in microseconds, 0 where nobody knows.

    Platforms count in milliseconds, some in whole seconds: it may have been said at the end of that time. Their clock
    is not this machine's. Where the two differ, an answer has to be given once more, or with its code.
    """
    unit = 1_000_000 if said_at % 1_000_000 == 0 else 1_000
    return said_at > 0 and said_at + unit <= shown_at


def is_next(tx: Transaction, question: Open, reply: GivenAnswer) -> bool:
    """Return whether a person has said nothing else to the agent since the question was shown to them."""
    rows = entries_since(tx, question)
    prefix = delivery_prefix(question.body.message_id, reply.chat)
    has_spoken = len(rows) == SINCE_ENTRIES_MAX
    for _, _, kind, version, _, _, data in rows:
        if kind not in {"message.added", "delivery.moved", "question.shown"}:
            continue
        body = tx.schema.decode_body(kind, version, data)
        if isinstance(body, MessageAdded):
            is_theirs = (body.author, body.chat) == (reply.author, reply.chat)
            has_spoken = has_spoken or (is_theirs and body.role is Role.USER and not body.observed)
        elif isinstance(body, QuestionShown) or (
            isinstance(body, DeliveryMoved) and body.delivery_id.startswith(prefix)
        ):
            has_spoken = False
    return not has_spoken


GUESSES_PER_HOUR_MAX: Final = 10
"""Codes that fit no question, by one person in an hour; after them no code of that person is looked at."""


def guess_name(person: str) -> str:
    return f"question guessed {person}"


def guesser(reply: GivenAnswer) -> str:
    """Return under which name a person's wrong codes are recorded."""
    return person_owner(reply.chat.partition(":")[0], reply.author) if reply.chat else reply.by


def reply_at_terminal(tx: Transaction, reply: GivenAnswer) -> str:
    """Answer by a command at the terminal; return what the person is told."""
    judged = judge(tx, reply)
    if judged.question is None:
        return judged.told or q.NOTHING_WAITS
    return record_answer(tx, reply, judged.question)


class Questions(Namespace):
    """What turns wait for. A turn itself asks by `Turn.ask`; answers in chats come in by `record.intake`."""

    async def note_shown(self, session_id: str, message_id: str) -> None:
        """Note that the terminal has drawn the question that waits in a session. From now on it can be answered."""
        await self._caller.write(lambda tx: note_shown(tx, session_id, message_id))

    async def answer(self, session_id: str, given: Given, *, author: str = "", by: str = "") -> str:
        """Answer the question that waits in a session, at the terminal; return what the person is told."""
        reply = GivenAnswer(given=given, author=author, chat="", by=by or author, session_id=session_id)
        return await self._caller.write(lambda tx: reply_at_terminal(tx, reply))

    async def scopes(self, message_id: str, chat: str) -> tuple[Scope, ...]:
        """Return the answers that are offered beside a message in a chat; none when it asks nothing there."""
        row = await self._caller.read(lambda snapshot: snapshot.row(SQL.find_scopes, (message_id, chat)))
        return tuple(Scope(each) for each in row[0].split()) if row is not None else ()
