"""The fold of entries into messages."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hansard.domain.messages import Message, Reasoning, Role, Status, Text, ToolCall
from hansard.journal.concepts import Body
from hansard.record.messages.entries import (
    MessageAdded,
    MessageOpened,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    join_chunks,
    streamed_pieces,
)
from hansard.record.messages.operations import fold_transcript
from hansard.record.sessions import SessionTitled
from hansard.record.turns.entries import TurnStarted

PIECES = st.lists(st.tuples(st.sampled_from(["text", "reasoning"]), st.text(max_size=5)))


def added(entry_id: str, text: str) -> tuple[str, int, Body]:
    """Return the entry of a user's message."""
    return entry_id, 1, MessageAdded(role=Role.USER, parts=(Text(text),))


def test_messages_come_in_the_order_of_their_entries() -> None:
    """Other entries leave no message; times do not order."""
    entries = [
        ("t", 9, SessionTitled(title="x")),
        ("m2", 8, MessageAdded(role=Role.USER, parts=(Text("first"),), said_at=900, author="@ada")),
        ("turn", 7, TurnStarted(turn_id="t1", owner="o")),
        ("m1", 6, MessageAdded(role=Role.NOTICE, parts=(Text("second"),))),
    ]
    found = fold_transcript(entries)
    assert [(message.id, message.text, message.at_microseconds) for message in found] == [
        ("m2", "first", 900),
        ("m1", "second", 6),
    ]
    assert (found[0].author, found[1].role) == ("@ada", Role.NOTICE)


def test_a_streamed_message_stands_where_it_was_opened() -> None:
    """What is said while a message is open comes after it; the seal gives its words and its status."""
    call = ToolCall(id="c", name="n")
    entries = [
        ("r1", 1, MessageOpened(turn_id="t")),
        added("m1", "meanwhile"),
        ("s1", 3, MessageSealed(message_id="r1", status=Status.INTERRUPTED, parts=(Text("half"), call))),
    ]
    reply, other = fold_transcript(entries)
    assert (reply.id, reply.text, reply.status, reply.at_microseconds) == ("r1", "half", Status.INTERRUPTED, 1)
    assert reply.parts == (Text("half"), call)
    assert other.id == "m1"


@pytest.mark.loss("A7")
def test_an_open_message_is_open() -> None:
    """A message without a seal has what was said so far, and never reads as finished."""
    (reply,) = fold_transcript([("r1", 1, MessageOpened(turn_id="t"))], (Text("so far"),))
    assert (reply.text, reply.status) == ("so far", Status.OPEN)


def test_a_second_reply_does_not_take_the_first_ones_place() -> None:
    """Several replies of a turn each keep their own words and place."""
    entries: list[tuple[str, int, Body]] = []
    for name in ("r1", "r2"):
        entries.append((name, 1, MessageOpened(turn_id="t")))
        sealed = MessageSealed(message_id=name, status=Status.COMPLETE, parts=(Text(name),))
        entries.append((f"~seal:{name}", 2, sealed))
    assert [message.text for message in fold_transcript(entries)] == ["r1", "r2"]


@pytest.mark.loss("D19")
def test_restored_messages_are_back_in_their_places() -> None:
    """Of all that was said about a message, the last counts: undone, restored, undone again."""
    said: list[tuple[str, int, Body]] = [(id, 1, MessageAdded(role=Role.USER, parts=(Text(id),))) for id in "abc"]
    entries = [
        *said,
        ("~1", 2, MessagesUndone(message_ids=("a", "b"))),
        ("~2", 3, MessagesRestored(message_ids=("b", "a"))),
        ("~3", 4, MessagesUndone(message_ids=("b",))),
    ]
    assert [message.id for message in fold_transcript(entries)] == ["a", "c"]


@given(PIECES)
def test_chunks_add_up(pieces: list[tuple[str, str]]) -> None:
    """Joined chunks have every byte of each kind, in order, one part for each run of a kind."""
    parts = join_chunks(pieces)
    for kind, part_class in (("text", Text), ("reasoning", Reasoning)):
        said = "".join(text for part, text in pieces if part == kind)
        assert "".join(part.text for part in parts if isinstance(part, part_class)) == said
    assert all(type(one) is not type(two) for one, two in itertools.pairwise(parts))
    assert "".join(text for _, text in streamed_pieces(parts)) == "".join(text for _, text in pieces)


@given(PIECES, st.integers(0, 10))
def test_streamed_pieces_skip_what_was_not_streamed(pieces: list[tuple[str, str]], place: int) -> None:
    """A tool call that was recorded with the seal is not taken for words."""
    parts = list(join_chunks(pieces))
    parts.insert(min(place, len(parts)), ToolCall(id="c", name="n", arguments="words"))
    assert "".join(text for _, text in streamed_pieces(parts)) == "".join(text for _, text in pieces)


def test_a_message_is_its_words() -> None:
    """The text of a message leaves out reasoning and calls, and takes in tool results."""
    spoken = Message.assistant([Reasoning(text="hm"), Text("one "), ToolCall(id="c", name="n"), Text("two")])
    assert spoken.text == "one two"
    assert Message.tool("c", "result").text == "result"
