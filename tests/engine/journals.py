"""Journals out of thin air: any entries in any order, as no engine would ever write them but an import may."""

from __future__ import annotations

from collections.abc import Iterable

import hypothesis.strategies as st
from msgspec.structs import replace

from hansard.domain.messages import File, Part, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import Said
from hansard.domain.sessions import TURN_ENDS, Link
from hansard.engine.context import render
from hansard.journal.concepts import Body
from hansard.record.conversation import Conversation
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
)
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionCreated
from hansard.record.turns.entries import TurnContinued, TurnEnded, TurnQueued, TurnStarted, TurnSteered, TurnStopping

SESSION = "any"

TEXTS = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "[Hansard: go on.]", "(no reply)"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
)
CALL_IDS = st.sampled_from(
    ["", " ", "c1", "c2", "call_0", "call_1", "call_2", "call_3", "not valid!", "é", "x" * 65, "call_1\n"]
)
"""Few, so that they meet; some that no provider accepts, some that look like those that the engine makes itself."""

TURN_IDS = st.sampled_from(["t1", "t2", "t3"])
MESSAGE_IDS = st.sampled_from([f"m{number}" for number in range(12)])

CALLS = st.builds(
    ToolCall, id=CALL_IDS, name=st.sampled_from(["echo", "slow"]), arguments=st.sampled_from(["", "{}", "{", "[]"])
)
RESULTS = st.builds(ToolResult, call_id=CALL_IDS, text=TEXTS, outcome=st.sampled_from(ToolOutcome))
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(Text),
    st.builds(Reasoning, text=TEXTS),
    CALLS,
    RESULTS,
    st.builds(File, blob=st.just("b"), name=TEXTS, size_bytes=st.integers(0, 9)),
)


def parts(*strategies: st.SearchStrategy[Part]) -> st.SearchStrategy[tuple[Part, ...]]:
    """A few parts of these kinds."""
    return st.lists(st.one_of(*strategies), max_size=4).map(tuple)


ENDED = st.sampled_from([Status.COMPLETE, Status.INTERRUPTED])

BODIES: st.SearchStrategy[Body] = st.one_of(
    st.builds(MessageAdded, role=st.just(Role.USER), parts=parts(TEXTS.map(Text)), author=TEXTS),
    st.builds(
        MessageAdded,
        role=st.just(Role.USER),
        parts=parts(TEXTS.map(Text)),
        author=st.just("@a:h"),
        chat=st.just("c"),
        event_id=st.just("$1"),
        observed=st.booleans(),
    ),
    st.builds(MessageEdited, message_id=MESSAGE_IDS, parts=parts(TEXTS.map(Text))),
    st.builds(MessageRetracted, message_id=MESSAGE_IDS),
    st.builds(MessageAdded, role=st.just(Role.ASSISTANT), parts=parts(TEXTS.map(Text), CALLS), status=ENDED),
    st.builds(MessageAdded, role=st.just(Role.TOOL), parts=parts(RESULTS)),
    st.builds(MessageAdded, role=st.sampled_from(Role), parts=parts(PARTS), status=ENDED),
    st.builds(MessageOpened, turn_id=TURN_IDS),
    st.builds(MessageSealed, message_id=MESSAGE_IDS, status=ENDED, parts=parts(TEXTS.map(Text), CALLS)),
    st.builds(MessagesUndone, message_ids=st.lists(MESSAGE_IDS, max_size=4).map(tuple)),
    st.builds(MessagesRestored, message_ids=st.lists(MESSAGE_IDS, max_size=4).map(tuple)),
    st.builds(TurnQueued, turn_id=TURN_IDS),
    st.builds(TurnStarted, turn_id=TURN_IDS, owner=st.just("o")),
    st.builds(TurnSteered, turn_id=TURN_IDS, message_id=MESSAGE_IDS),
    st.builds(TurnStopping, turn_id=TURN_IDS),
    st.builds(TurnContinued, turn_id=TURN_IDS, message_id=MESSAGE_IDS),
    st.builds(TurnEnded, turn_id=TURN_IDS, state=st.sampled_from(sorted(TURN_ENDS)), reason=TEXTS),
    st.builds(SessionCreated, source=st.just("s"), owner=st.just("o"), link=st.just(Link.FORK)),
    st.builds(
        SessionCreated,
        source=st.just("s"),
        owner=st.sampled_from(["person:a", "room:r"]),
        link=st.just(Link.RESET),
        reason=st.sampled_from(["", "new", "idle", "unheard of"]),
    ),
)

Journal = list[tuple[str, Body]]


@st.composite
def steps(draw: st.DrawFn) -> Journal:
    """Words, a message that calls tools and their results, as a turn would leave them; some of it may be missing."""
    opened, turn_id, calls = draw(MESSAGE_IDS), draw(TURN_IDS), draw(st.lists(CALLS, min_size=1, max_size=3))
    answered = [replace(draw(RESULTS), call_id=each.id) for each in calls]
    said = MessageAdded(role=Role.USER, parts=(Text(draw(TEXTS)),))
    sealed = MessageSealed(message_id=opened, status=draw(ENDED), parts=(Text(draw(TEXTS)), *calls))
    results = [MessageAdded(role=Role.TOOL, parts=(result,)) for result in draw(st.permutations(answered))]
    whole: Journal = [
        (draw(MESSAGE_IDS), said),
        ("~start", TurnStarted(turn_id=turn_id, owner="o")),
        (opened, MessageOpened(turn_id=turn_id)),
        ("~seal", sealed),
        *((draw(MESSAGE_IDS), result) for result in results),
        ("~end", TurnEnded(turn_id=turn_id, state=draw(st.sampled_from(sorted(TURN_ENDS))))),
    ]
    missing = draw(st.sets(st.integers(0, len(whole) - 1), max_size=2))
    return [entry for position, entry in enumerate(whole) if position not in missing]


JOURNALS: st.SearchStrategy[Journal] = st.lists(
    st.one_of(st.tuples(MESSAGE_IDS, BODIES).map(lambda entry: [entry]), steps()), min_size=3, max_size=12
).map(lambda found: [entry for entries in found for entry in entries])


def entries_of(bodies: Iterable[tuple[str, Body]]) -> list[Entry]:
    """Bodies as a journal, under the ids that they were given."""
    return [
        Entry(id=id, session_id=SESSION, seq=seq, kind=SCHEMA.by_body[type(body)].name, body=body)
        for seq, (id, body) in enumerate(bodies, 1)
    ]


def contexts(entries: Iterable[Entry]) -> Iterable[list[Said]]:
    """The context of every beginning of a journal, the empty one included."""
    conversation = Conversation()
    yield render(conversation.placed, conversation.ends)
    for entry in entries:
        conversation.add(entry)
        yield render(conversation.placed, conversation.ends)
