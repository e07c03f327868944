"""The fold of a conversation: where each message enters, what waits, what runs, what was used."""

from __future__ import annotations

import pytest

from hansard.domain.budgets import Usage
from hansard.domain.messages import Role, Status, Text, ToolCall, ToolResult
from hansard.domain.requests import ToolSpec
from hansard.domain.sessions import TurnState
from hansard.journal.concepts import Body
from hansard.record.conversation import Conversation, End, last_answer, last_exchange, last_undone
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageOpened,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
)
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionCreated, SessionFrozen, SessionSet
from hansard.record.turns.entries import TurnEnded, TurnQueued, TurnStarted, TurnSteered, TurnUsed, add_usage


class Journal:
    """A journal that grows, and its fold."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.conversation = Conversation()
        self._seq = 0

    def add(self, body: Body, id: str = "") -> None:
        """Add an entry."""
        self._seq += 1
        kind = SCHEMA.by_body[type(body)].name
        entry = Entry(id=id or f"~{self._seq}", session_id="s", seq=self._seq, kind=kind, body=body, at_microseconds=7)
        self.conversation.add(entry)

    def say(self, text: str, role: Role = Role.USER) -> None:
        """Add a message whose id is its text."""
        self.add(MessageAdded(role=role, parts=(Text(text),)), text)

    def start(self, turn_id: str) -> None:
        """Start a turn."""
        self.add(TurnStarted(turn_id=turn_id, owner="o"))

    def end(self, turn_id: str, state: TurnState = TurnState.COMPLETED, reason: str = "") -> None:
        """End a turn."""
        self.add(TurnEnded(turn_id=turn_id, state=state, reason=reason))

    def reply(self, text: str, turn_id: str, *call_ids: str) -> None:
        """Open and seal a reply whose id is its text."""
        self.add(MessageOpened(turn_id=turn_id), text)
        calls = tuple(ToolCall(id=id, name="echo") for id in call_ids)
        self.add(MessageSealed(message_id=text, status=Status.COMPLETE, parts=(Text(text), *calls)))

    def result(self, call_id: str, text: str) -> None:
        """Add a result whose id is its text."""
        self.add(MessageAdded(role=Role.TOOL, parts=(ToolResult(call_id=call_id, text=text),)), text)

    @property
    def placed(self) -> list[tuple[str, str]]:
        """The messages that the model was given or gave, each with its turn."""
        return [(placed.message.text, placed.turn_id) for placed in self.conversation.placed]

    @property
    def waiting(self) -> list[str]:
        """What waits."""
        return [placed.message.text for placed in self.conversation.waiting]


@pytest.fixture
def journal() -> Journal:
    """An empty journal."""
    return Journal()


def test_words_wait_until_a_turn_begins(journal: Journal) -> None:
    """What was said before a turn enters with its start, in order; what is said during it waits for the next."""
    journal.say("a")
    journal.say("b")
    assert (journal.placed, journal.waiting) == ([], ["a", "b"])
    journal.start("t1")
    journal.say("c")
    journal.reply("r", "t1")
    assert (journal.placed, journal.waiting) == ([("a", "t1"), ("b", "t1"), ("r", "t1")], ["c"])
    journal.end("t1")
    assert journal.waiting == ["c"]
    journal.start("t2")
    assert journal.placed[-1] == ("c", "t2")


def test_what_steers_enters_with_the_last_result_of_a_step(journal: Journal) -> None:
    """Not with the first of two results, and not what was queued."""
    journal.say("a")
    journal.start("t1")
    journal.say("queued")
    journal.reply("calls", "t1", "c1", "c2")
    journal.say("steered")
    journal.add(TurnSteered(turn_id="t1", message_id="steered"))
    journal.result("c1", "one")
    assert journal.waiting == ["queued", "steered"]
    journal.result("c2", "two")
    assert journal.waiting == ["queued"]
    assert [text for text, _ in journal.placed] == ["a", "calls", "one", "two", "steered"]
    assert journal.placed[-1] == ("steered", "t1")


def test_what_steers_while_nothing_runs_is_said_like_the_rest(journal: Journal) -> None:
    """A turn that ended before the results of a step came: what steered it enters with the next turn, in order."""
    journal.say("a")
    journal.start("t1")
    journal.reply("calls", "t1", "c1")
    journal.say("queued")
    journal.say("steered")
    journal.add(TurnSteered(turn_id="t1", message_id="steered"))
    journal.end("t1", TurnState.LOST)
    journal.result("c1", "late")
    assert journal.waiting == ["queued", "steered"]
    journal.start("t2")
    assert journal.placed[-2:] == [("queued", "t2"), ("steered", "t2")]


def test_imported_messages_stand_in_their_order(journal: Journal) -> None:
    """Outside of turns, what the model said takes in what people said before it."""
    journal.say("q1")
    journal.say("a1", Role.ASSISTANT)
    journal.say("q2")
    journal.say("a2", Role.ASSISTANT)
    journal.say("q3")
    assert journal.placed == [("q1", ""), ("a1", ""), ("q2", ""), ("a2", "")]
    assert journal.waiting == ["q3"]


def test_notices_are_not_part_of_it(journal: Journal) -> None:
    """What Hansard tells people is not told to the model; what a system says is."""
    journal.say("notice", Role.NOTICE)
    journal.say("system", Role.SYSTEM)
    assert journal.waiting == ["system"]


def test_a_reply_is_open_until_it_is_sealed(journal: Journal) -> None:
    """An open message has its place from its opening on, its words from its seal on."""
    journal.say("a")
    journal.start("t1")
    journal.add(MessageOpened(turn_id="t1"), "r")
    (_, opened) = journal.conversation.placed
    assert (opened.message.status, opened.message.parts) == (Status.OPEN, ())
    journal.add(MessageSealed(message_id="r", status=Status.INTERRUPTED, parts=(Text("half"),)))
    (_, sealed) = journal.conversation.placed
    assert (sealed.message.status, sealed.message.text, sealed.seq) == (Status.INTERRUPTED, "half", opened.seq)


@pytest.mark.loss("D19")
def test_undone_messages_leave(journal: Journal) -> None:
    """Those that the model was given, and those that wait."""
    journal.say("a")
    journal.start("t1")
    journal.reply("r", "t1")
    journal.end("t1")
    journal.say("b")
    journal.add(MessagesUndone(message_ids=("r", "b", "unknown")))
    assert (journal.placed, journal.waiting) == ([("a", "t1")], [])


@pytest.mark.loss("D19")
def test_restored_messages_come_back_to_their_places(journal: Journal) -> None:
    """Between those that stayed, with their turn and with the seal that came meanwhile; what waited waits again."""
    journal.say("a")
    journal.start("t1")
    journal.add(MessageOpened(turn_id="t1"), "r")
    journal.say("b")
    journal.add(MessagesUndone(message_ids=("r", "a", "b")))
    journal.add(MessageSealed(message_id="r", status=Status.COMPLETE, parts=(Text("r"),)))
    journal.end("t1")
    journal.add(MessagesRestored(message_ids=("r", "b", "unknown")))
    assert (journal.placed, journal.waiting) == ([("r", "t1")], ["b"])
    journal.start("t2")
    journal.reply("s", "t2")
    journal.add(MessagesRestored(message_ids=("a",)))
    assert journal.placed == [("a", "t1"), ("r", "t1"), ("b", "t2"), ("s", "t2")]
    assert journal.conversation.undone == {}


def test_the_last_word_on_a_message_counts(journal: Journal) -> None:
    """Undone, restored and undone again is undone."""
    journal.say("a")
    for kind in (MessagesUndone, MessagesRestored, MessagesUndone):
        journal.add(kind(message_ids=("a",)))
    assert journal.waiting == []


def test_what_was_taken_back_last(journal: Journal) -> None:
    """One time of taking back after the other can be undone, the latest first; what was restored is left out."""
    for text in "abcd":
        journal.say(text)
    assert last_undone(journal.conversation) == []
    journal.add(MessagesUndone(message_ids=("c", "d")))
    journal.add(MessagesUndone(message_ids=("d", "b")))
    assert last_undone(journal.conversation) == ["b"]
    assert last_undone(journal.conversation, 2) == ["c", "d", "b"]
    journal.add(MessagesRestored(message_ids=("b", "c")))
    assert last_undone(journal.conversation, 5) == ["d"]


def test_somebody_waits_for_the_model_when_the_last_word_is_not_its_own(journal: Journal) -> None:
    """True for words and for results, false for its own words, however they ended, and for nothing at all."""
    seen = [journal.conversation.wants_reply]
    journal.say("a")
    seen.append(journal.conversation.wants_reply)
    journal.start("t1")
    seen.append(journal.conversation.wants_reply)
    journal.reply("calls", "t1", "c1")
    seen.append(journal.conversation.wants_reply)
    journal.result("c1", "one")
    seen.append(journal.conversation.wants_reply)
    journal.reply("done", "t1")
    seen.append(journal.conversation.wants_reply)
    assert seen == [False, False, True, False, True, False]


def test_what_runs_and_what_is_queued(journal: Journal) -> None:
    """A queued turn becomes the running one, and an ended one neither; how it ended stays."""
    journal.add(TurnQueued(turn_id="t1"))
    assert (journal.conversation.queued, journal.conversation.running) == ("t1", "")
    journal.start("t1")
    assert (journal.conversation.queued, journal.conversation.running) == ("", "t1")
    journal.add(TurnQueued(turn_id="t2"))
    journal.end("t1", TurnState.FAILED, "why")
    assert (journal.conversation.queued, journal.conversation.running) == ("t2", "")
    journal.end("t2", TurnState.INTERRUPTED)
    assert (journal.conversation.queued, journal.conversation.running) == ("", "")
    assert journal.conversation.ends == {
        "t1": End(TurnState.FAILED, "why"),
        "t2": End(TurnState.INTERRUPTED, ""),
    }


def test_a_fork_does_not_run_its_parents_turns(journal: Journal) -> None:
    """What ran and what waited in the parent is none of the child's business; the words are."""
    journal.say("a")
    journal.start("t1")
    journal.add(TurnQueued(turn_id="t2"))
    journal.say("b")
    journal.add(SessionCreated(source="s", owner="o"))
    assert (journal.conversation.queued, journal.conversation.running) == ("", "")
    assert (journal.placed, journal.waiting) == ([("a", "t1")], ["b"])


def test_an_entry_counts_once(journal: Journal) -> None:
    """The same entry again, or an older one, changes nothing."""
    body = MessageAdded(role=Role.USER, parts=(Text("a"),))
    entry = Entry(id="a", session_id="s", seq=5, kind="message.added", body=body)
    for _ in range(3):
        journal.conversation.add(entry)
    journal.conversation.add(Entry(id="b", session_id="s", seq=4, kind="message.added", body=body))
    assert (journal.waiting, journal.conversation.seq) == (["a"], 5)


def test_times_and_authors_come_with_the_words(journal: Journal) -> None:
    """The time is that of the event where it is known, else that of the entry."""
    journal.add(MessageAdded(role=Role.USER, parts=(), said_at=3, author="Ann"), "m1")
    journal.add(MessageAdded(role=Role.USER, parts=()), "m2")
    first, second = (placed.message for placed in journal.conversation.waiting)
    assert (first.at_microseconds, first.author) == (3, "Ann")
    assert (second.at_microseconds, second.author) == (7, "")


def test_what_was_frozen_first_stays_and_settings_change(journal: Journal) -> None:
    """The first frozen prompt counts; of settings, the last."""
    first = SessionFrozen(system="one", tools=(ToolSpec(name="echo", description="d"),))
    journal.add(first)
    journal.add(SessionFrozen(system="two"))
    journal.add(SessionSet(name="busy", value="queue"))
    journal.add(SessionSet(name="busy", value="steer"))
    assert journal.conversation.frozen == first
    assert journal.conversation.settings == {"busy": "steer"}


def test_usage_is_summed_by_model(journal: Journal) -> None:
    """Each request counts once, under the model that it was made to."""
    one = Usage(input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost_micros=5)
    journal.add(TurnUsed(turn_id="t1", model="a", usage=one))
    journal.add(TurnUsed(turn_id="t1", model="a", usage=one))
    journal.add(TurnUsed(turn_id="t2", model="b", usage=Usage(input_tokens=9)))
    assert journal.conversation.requests == 3
    assert journal.conversation.usage == {
        "a": Usage(input_tokens=2, output_tokens=4, cache_read_tokens=6, cache_write_tokens=8, cost_micros=10),
        "b": Usage(input_tokens=9),
    }


@pytest.mark.parametrize(
    ("before", "more", "cost"),
    [(None, None, None), (None, 3, 3), (3, None, 3), (0, 0, 0), (2, 3, 5)],
)
def test_a_cost_is_known_when_any_of_it_is(before: int | None, more: int | None, cost: int | None) -> None:
    """Unknown and unknown is unknown; zero is a price."""
    assert add_usage(Usage(cost_micros=before), Usage(cost_micros=more)).cost_micros == cost


def test_the_first_usage_is_the_sum() -> None:
    """Nothing before it adds nothing."""
    used = Usage(input_tokens=1, cost_micros=None)
    assert add_usage(None, used) == used


def test_exchanges_are_counted_from_the_end(journal: Journal) -> None:
    """An exchange is what people said in a row, and all that came of it; more than there are is all of them."""
    journal.say("q1")
    journal.start("t1")
    journal.reply("calls", "t1", "c1")
    journal.result("c1", "one")
    journal.reply("a1", "t1")
    journal.end("t1")
    journal.say("q2")
    journal.say("q2 more")
    journal.start("t2")
    journal.reply("a2", "t2")
    journal.end("t2")

    def taken(count: int) -> list[str]:
        return [placed.message.text for placed in last_exchange(journal.conversation, count)]

    assert taken(1) == ["q2", "q2 more", "a2"]
    assert taken(2) == taken(9) == ["q1", "calls", "one", "a1", "q2", "q2 more", "a2"]
    journal.say("q3")
    assert taken(1) == ["q3"]
    assert taken(2) == ["q2", "q2 more", "a2", "q3"]


def test_without_words_there_is_no_exchange(journal: Journal) -> None:
    """Neither in an empty conversation nor in one that only the model spoke in."""
    assert last_exchange(journal.conversation) == []
    journal.say("a", Role.ASSISTANT)
    assert last_exchange(journal.conversation) == []


def test_the_last_answer_is_what_came_after_the_last_words(journal: Journal) -> None:
    """Calls and results belong to it; what waits does not; without an answer it is empty."""
    journal.say("q1")
    journal.start("t1")
    assert last_answer(journal.conversation) == []
    journal.reply("calls", "t1", "c1")
    journal.result("c1", "one")
    journal.reply("a1", "t1")
    journal.say("q2")
    assert [placed.message.text for placed in last_answer(journal.conversation)] == ["calls", "one", "a1"]
