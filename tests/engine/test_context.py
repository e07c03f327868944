"""The context is valid for the strictest provider, whatever the journal holds (L8), and says what is missing."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from hansard.domain.messages import File, Message, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import AssistantSaid, Said, ToolSpec, ToolsSaid, UserSaid
from hansard.domain.sessions import TurnState
from hansard.engine import prompts
from hansard.engine.context import data_of, render
from hansard.engine.requests import build_request
from hansard.journal.concepts import Body
from hansard.record.conversation import Conversation
from hansard.record.messages.entries import MessageAdded, MessagesRestored, MessagesUndone
from hansard.record.sessions import SessionFrozen
from hansard.record.turns.entries import TurnEnded, TurnStarted
from tests.engine.journals import JOURNALS, MESSAGE_IDS, contexts, entries_of
from tests.engine.validator import assert_begins, assert_valid, problems


def imported(*messages: Message) -> list[Said]:
    """The context of messages that were appended outside of any turn; the last may still wait, so a turn begins."""
    bodies: list[tuple[str, Body]] = [
        (
            message.id,
            MessageAdded(role=message.role, parts=message.parts, status=message.status, author=message.author),
        )
        for message in messages
    ]
    conversation = Conversation()
    for entry in entries_of([*bodies, ("~start", TurnStarted(turn_id="t", owner="o"))]):
        conversation.add(entry)
    found = render(conversation.placed, conversation.ends)
    assert_valid(found)
    return found


def calling(*ids: str, text: str = "") -> Message:
    """A message of the model that calls tools."""
    return Message.make(Role.ASSISTANT, [Text(text), *(ToolCall(id=id, name="echo") for id in ids)])


@pytest.mark.loss("C1", "C2", "C3")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JOURNALS)
def test_every_beginning_of_every_journal_gives_a_valid_context(journal: list[tuple[str, Body]]) -> None:
    """Entries in any order, with ids that meet, orphans, cuts and blanks: what a model would be told is valid (L8)."""
    for context in contexts(entries_of(journal)):
        assert_valid(context)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JOURNALS)
def test_a_context_is_a_function_of_the_entries_alone(journal: list[tuple[str, Body]]) -> None:
    """Folded in one go, step by step, or with entries given twice: the same context."""
    entries = entries_of(journal)
    stepwise = list(contexts(entries))[-1]
    again = Conversation()
    for entry in entries:
        again.add(entry)
        for earlier in entries[: entry.seq]:
            again.add(earlier)
    assert render(again.placed, again.ends) == stepwise
    assert render(again.placed, again.ends) == stepwise


def test_the_validator_finds_what_it_is_for() -> None:
    """Each rule refuses what breaks it: a validator that lets all pass would prove nothing."""
    user, said = UserSaid("u"), AssistantSaid("a")
    calls = AssistantSaid("", (ToolCall(id="c1", name="echo"),))
    results = ToolsSaid((ToolResult(call_id="c1", text="r"),))
    assert_valid([user])
    assert_valid([user, calls, results, UserSaid("more"), said, user])
    broken: list[list[Said]] = [
        [],
        [said, user],
        [results],
        [user, said],
        [user, user],
        [user, said, said, user],
        [user, calls, user],
        [user, calls, user, results],
        [user, said, results],
        [user, calls, ToolsSaid((*results.results, *results.results))],
        [user, calls, ToolsSaid(())],
        [user, calls, results, calls, results],
        [user, AssistantSaid("", (ToolCall(id="c!", name="x"),)), ToolsSaid((ToolResult(call_id="c!", text="r"),))],
        [user, AssistantSaid(""), user],
        [user, AssistantSaid(" ", calls.calls), results],
        [user, calls, ToolsSaid((ToolResult(call_id="c1", text=" "),))],
        [UserSaid(" ")],
        [UserSaid("\0")],
        [UserSaid("\ud800")],
    ]
    for messages in broken:
        assert list(problems(messages)), messages


def test_an_empty_conversation_asks_the_model_to_begin() -> None:
    """Nothing was said at all: there is still something to answer."""
    assert render([], {}) == [UserSaid(prompts.BEGIN)]


def test_the_models_words_first() -> None:
    """A journal that begins with the model, as imports may: a note stands where a person would have spoken."""
    assert imported(Message.assistant("Welcome."), Message.user("hi")) == [
        UserSaid(prompts.BEGIN),
        AssistantSaid("Welcome."),
        UserSaid("hi"),
    ]


def test_two_messages_of_the_model_in_a_row() -> None:
    """A note stands between them."""
    assert imported(Message.user("hi"), Message.assistant("One."), Message.assistant("Two."), Message.user("so?")) == [
        UserSaid("hi"),
        AssistantSaid("One."),
        UserSaid(prompts.GO_ON),
        AssistantSaid("Two."),
        UserSaid("so?"),
    ]


@pytest.mark.loss("C1")
def test_a_result_without_its_call_is_told_with_the_next_words() -> None:
    """An orphan is neither sent as a result nor lost: it is a note in front of what is said next."""
    orphan = Message.tool("gone", "42", id="r1")
    *_, last = imported(Message.user("hi"), Message.assistant("One."), orphan, Message.user("so?"))
    assert last == UserSaid(f"[Hansard: a tool's result without its call:\n{data_of('42', 'r1')}\n]\n\nso?")


@pytest.mark.loss("C1", "C3")
def test_a_call_without_its_result_in_the_middle_of_a_long_history() -> None:
    """Any pair of 200 messages may be broken: the rest is as it was, and the gap is said."""
    whole: list[Message] = []
    for number in range(50):
        whole += [
            Message.user(f"q{number}"),
            calling(f"c{number}"),
            Message.tool(f"c{number}", f"r{number}"),
            Message.assistant(f"a{number}"),
        ]
    whole.append(Message.user("last"))
    expected = imported(*whole)
    for broken in range(2, 200, 37 * 4):
        assert whole[broken].role is Role.TOOL
        found = imported(*whole[:broken], *whole[broken + 1 :])
        differing = [position for position, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b]
        assert differing == [broken]
        assert "outcome unknown" in str(found[broken])


def test_results_go_to_their_calls_in_the_order_of_the_calls() -> None:
    """Results that came in another order, in one message or in several, stand as the calls do."""
    _, _, results, *_ = imported(
        Message.user("hi"),
        calling("a", "b", "c"),
        Message.tool("c", "3"),
        Message.make(Role.TOOL, [ToolResult(call_id="b", text="2"), ToolResult(call_id="a", text="1")]),
        Message.user("so?"),
    )
    assert isinstance(results, ToolsSaid)
    assert [(result.call_id, result.text) for result in results.results] == [("a", "1"), ("b", "2"), ("c", "3")]


@pytest.mark.parametrize(
    "ids",
    [
        ("call_1", "call_1"),
        ("call_0", "!", "call_0", "call_1"),
        ("!", "call_0", "call_0"),
        ("", "", ""),
        ("x" * 65, "y" * 65),
    ],
)
def test_ids_become_valid_and_different_and_results_find_them(ids: tuple[str, ...]) -> None:
    """Ids that no provider accepts, ids used twice, ids that look like invented ones: each call keeps its result."""
    rounds = [
        each
        for number, id in enumerate(ids)
        for each in (calling(id, text=f"step {number}"), Message.tool(id, f"{number}"))
    ]
    found = imported(Message.user("hi"), *rounds, Message.user("so?"))
    results = [said.results[0].text for said in found if isinstance(said, ToolsSaid)]
    assert results == [str(number) for number in range(len(ids))]


def test_valid_ids_stay_as_they_are() -> None:
    """An id is changed only where it must be: it may mean something to the provider."""
    found = imported(Message.user("hi"), calling("toolu_01-X"), Message.tool("toolu_01-X", "r"), Message.user("so?"))
    assert isinstance(found[1], AssistantSaid)
    assert found[1].calls[0].id == "toolu_01-X"


def test_what_is_not_said_to_a_model() -> None:
    """Notices, reasoning and messages without a word leave no trace in the context."""
    assert imported(
        Message.user("hi"),
        Message.notice("Hansard says"),
        Message.make(Role.ASSISTANT, [Reasoning(text="I think")]),
        Message.make(Role.ASSISTANT, [Text(" \n")]),
        Message.make(Role.ASSISTANT, [Reasoning(text="I think"), Text("Hello.")]),
        Message.user("so?"),
    ) == [UserSaid("hi"), AssistantSaid("Hello."), UserSaid("so?")]


def test_who_speaks_and_what_is_attached() -> None:
    """An author stands before the words; a file is described; a message without words is said to have none."""
    file = File(blob="b", name="plan.pdf", media_type="application/pdf", size_bytes=7)
    (said,) = imported(
        Message.user("hello", author="Ann"),
        Message.make(Role.USER, [Text("look"), file]),
        Message.user(""),
        Message.system("Be brief."),
    )
    assert said == UserSaid(
        "Ann says:\n> hello\n\nlook\n[Hansard: a file: plan.pdf, application/pdf, 7 bytes]\n\n(no text)\n\n"
        f"{prompts.INSTRUCTION} says:\n> Be brief."
    )


def test_an_imported_message_that_was_interrupted_says_so() -> None:
    """The status of a message is told whichever way it came into the record."""
    cut = Message.make(Role.ASSISTANT, "Half", status=Status.INTERRUPTED)
    *_, last = imported(Message.user("hi"), cut, Message.user("so?"))
    assert last == UserSaid(f"{prompts.reply_interrupted('')}\n\nso?")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TurnState.INTERRUPTED, "was interrupted before you replied (why it\u00b7ended)"),
        (TurnState.FAILED, "failed before you replied (why it\u00b7ended)"),
        (TurnState.LOST, "was lost before you replied, because the program stopped (why it\u00b7ended)"),
        (TurnState.COMPLETED, "got no reply (why it\u00b7ended)"),
        (None, "got no reply."),
    ],
)
def test_a_turn_without_a_word_is_told_by_how_it_ended(state: TurnState | None, words: str) -> None:
    """The next words begin with what became of the turn before, its reason on one line; roles alternate."""
    bodies: list[tuple[str, Body]] = [
        ("m1", MessageAdded(role=Role.USER, parts=(Text("hi"),))),
        ("s1", TurnStarted(turn_id="t1", owner="o")),
        ("m2", MessageAdded(role=Role.USER, parts=(Text("so?"),))),
        ("s2", TurnStarted(turn_id="t2", owner="o")),
    ]
    if state is not None:
        bodies.insert(2, ("e1", TurnEnded(turn_id="t1", state=state, reason="why it\u00b7ended\n" * 40)))
    found = list(contexts(entries_of(bodies)))[-1]
    assert found[:2] == [UserSaid("hi"), AssistantSaid(prompts.NO_REPLY)]
    assert isinstance(found[2], UserSaid)
    note, said = found[2].text.split("\n\n")
    assert said == "so?"
    assert words.rstrip(")").rstrip(".") in note
    assert len(note) < 300


@pytest.mark.loss("D19")
def test_what_was_undone_is_not_told() -> None:
    """Undone messages leave the context, the results of undone calls and calls of undone results included."""
    bodies: list[tuple[str, Body]] = [
        ("m1", MessageAdded(role=Role.USER, parts=(Text("alpha"),))),
        ("m2", MessageAdded(role=Role.ASSISTANT, parts=(Text("beta"), ToolCall(id="c", name="echo")))),
        ("m3", MessageAdded(role=Role.TOOL, parts=(ToolResult(call_id="c", text="gamma"),))),
        ("m4", MessageAdded(role=Role.ASSISTANT, parts=(Text("delta"),))),
    ]
    ids = [id for id, _ in bodies]
    for count in range(len(ids) + 1):
        for gone in itertools.combinations(ids, count):
            undone = MessagesUndone(message_ids=gone)
            found = list(contexts(entries_of([*bodies, ("~undo", undone)])))[-1]
            assert_valid(found)
            texts = ("alpha", "beta", "gamma", "delta")
            for id, text in zip(ids, texts, strict=True):
                if id in gone:
                    assert text not in str(found)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(JOURNALS, st.sets(MESSAGE_IDS), st.data())
def test_what_was_restored_is_told_as_if_it_had_never_been_undone(
    journal: list[tuple[str, Body]], ids: set[str], data: st.DataObject
) -> None:
    """Messages taken back at any point and restored at any later one: the context is the one without both."""
    plain = [entry for entry in journal if not isinstance(entry[1], MessagesUndone | MessagesRestored)]
    restored_at = data.draw(st.integers(0, len(plain)))
    undone_at = data.draw(st.integers(0, restored_at))
    told = [
        *plain[:undone_at],
        ("~undo", MessagesUndone(message_ids=tuple(ids))),
        *plain[undone_at:restored_at],
        ("~restore", MessagesRestored(message_ids=tuple(ids))),
        *plain[restored_at:],
    ]
    assert list(contexts(entries_of(told)))[-1] == list(contexts(entries_of(plain)))[-1]


def test_a_request_is_what_was_frozen_and_what_was_said() -> None:
    """System prompt and tools come from the session, whatever is configured by now."""
    frozen = SessionFrozen(system="Be brief.", tools=(ToolSpec(name="echo", description="d"),))
    request = build_request(Conversation(), frozen, 5)
    assert (request.system, request.tools, request.output_tokens_max) == ("Be brief.", frozen.tools, 5)
    assert request.messages == (UserSaid(prompts.BEGIN),)


def test_outcomes_reach_the_model_as_they_are() -> None:
    """An error stays an error, unknown stays unknown: the adapter tells the provider."""
    found = imported(
        Message.user("hi"), calling("a"), Message.tool("a", "broken", outcome=ToolOutcome.ERROR), Message.user("so?")
    )
    assert found[2] == ToolsSaid((ToolResult(call_id="a", text="broken", outcome=ToolOutcome.ERROR),))
    assert_begins(found[:2], found)
