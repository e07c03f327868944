"""Entries: bodies that come back as they were, a chain that shows every change, kinds of a newer version."""

from __future__ import annotations

import hashlib
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from hansard.domain.deliveries import DeliveryState
from hansard.domain.messages import File, Reasoning, Role, Status, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.sessions import TurnState
from hansard.errors import RecordTooNew
from hansard.journal.concepts import ENCODER, Body, UnknownBody
from hansard.journal.entries import DIGEST_FORMAT, EntryRow, chain_start, row_digest
from hansard.record.deliveries import DeliveryMoved
from hansard.record.messages.entries import Entry, MessageAdded, MessageOpened, MessageSealed
from hansard.record.schema import SCHEMA
from hansard.record.sessions import SessionCreated
from hansard.record.turns.entries import TurnEnded

WORDS = st.text(st.characters(codec="utf-8"), max_size=10)
PARTS = st.one_of(
    st.builds(Text, WORDS),
    st.builds(Reasoning, text=WORDS, signature=WORDS, model=WORDS),
    st.builds(ToolCall, id=WORDS, name=WORDS, arguments=WORDS),
    st.builds(ToolResult, call_id=WORDS, text=WORDS, outcome=st.sampled_from(ToolOutcome), blob=WORDS),
    st.builds(File, blob=WORDS, name=WORDS, media_type=WORDS, size_bytes=st.integers(0, 2**53)),
)
MESSAGES = st.builds(
    MessageAdded,
    role=st.sampled_from(Role),
    parts=st.lists(PARTS, max_size=4).map(tuple),
    status=st.sampled_from([Status.COMPLETE, Status.INTERRUPTED]),
    said_at=st.integers(0, 2**53),
    author=WORDS,
)
ROW = EntryRow(
    seq=3,
    id="m1",
    kind="message.added",
    version=1,
    ignorable=False,
    at=1_700_000_000_000_000,
    digest_format=DIGEST_FORMAT,
    salt=b"salt",
    digest=b"",
    body=b"{}",
)


@given(MESSAGES)
def test_a_body_comes_back(body: MessageAdded) -> None:
    """What is decoded equals what was encoded, defaults that were left out included."""
    assert SCHEMA.decode_body("message.added", 1, ENCODER.encode(body)) == body


def test_each_kind_has_a_body_of_its_own() -> None:
    """The table of kinds is complete and one to one; names are noun and past participle."""
    bodies = {body for body in Body.__subclasses__() if body.__module__.startswith("hansard.")}
    assert set(SCHEMA.by_body) == bodies - {UnknownBody}
    assert len(SCHEMA.by_body) == len(SCHEMA.kinds) == sum(len(concept.kinds) for concept in SCHEMA.concepts)
    assert all(kind.version >= 1 and name.count(".") == 1 for name, kind in SCHEMA.kinds.items())


def test_the_words_of_an_entry() -> None:
    """Only a whole message has a text; openings and seals have none."""
    bodies: list[tuple[Body, str]] = [
        (MessageAdded(role=Role.USER, parts=(Text("hello"),)), "hello"),
        (MessageOpened(turn_id="t"), ""),
        (MessageSealed(message_id="m", status=Status.COMPLETE, parts=(Text("hello"),)), ""),
        (SessionCreated(source="x", owner="y", title="title"), ""),
    ]
    for body, text in bodies:
        entry = Entry(id="m1", session_id="s1", seq=1, kind=SCHEMA.by_body[type(body)].name, body=body)
        assert entry.text == text


def test_the_digest_covers_everything() -> None:
    """A change of the journal, of the digest before, or of any field of the entry changes the digest."""
    changes: dict[str, Any] = {
        "seq": 4, "id": "m2", "kind": "message.opened", "version": 2,
        "ignorable": True, "at": 5, "salt": b"sal", "body": b"{} ",
    }  # fmt: skip
    assert set(changes) == set(EntryRow._fields) - {"digest", "digest_format"}
    digests = [row_digest("s1", b"p", ROW), row_digest("s1", b"q", ROW), row_digest("s2", b"p", ROW)]
    digests += [row_digest("s1", b"p", ROW._replace(**{name: value})) for name, value in changes.items()]
    assert len(set(digests)) == len(digests)
    assert len(digests[0]) == hashlib.sha256().digest_size


def test_the_digest_is_what_was_written_once() -> None:
    """The formula never changes for this format: a record of today must verify in ten years."""
    head = b"s1\n3\nm1\nmessage.added\n1\n0\n1700000000000000\n"
    expected = hashlib.sha256(b"p" + head + hashlib.sha256(b"salt{}").digest()).digest()
    assert row_digest("s1", b"p", ROW) == expected
    assert chain_start("s1") == hashlib.sha256(b"hansard 1 s1").digest()


@given(st.lists(st.binary(max_size=8), min_size=2, max_size=8), st.data())
def test_a_chain_shows_every_change(bodies: list[bytes], data: st.DataObject) -> None:
    """A changed, dropped or swapped body changes the head of the chain."""

    def head(items: list[bytes]) -> bytes:
        at = chain_start("s1")
        for seq, body in enumerate(items, start=1):
            at = row_digest("s1", at, ROW._replace(seq=seq, salt=b"", body=body))
        return at

    place = data.draw(st.integers(0, len(bodies) - 2))
    dropped = bodies[:place] + bodies[place + 1 :]
    changed = [*bodies[:place], bodies[place] + b"!", *bodies[place + 1 :]]
    swapped = [*bodies[:place], bodies[place + 1], bodies[place], *bodies[place + 2 :]]
    assert head(dropped) != head(bodies)
    assert head(changed) != head(bodies)
    assert head(swapped) != head(bodies) or bodies[place] == bodies[place + 1]


@given(MESSAGES, st.integers(0, 2**53))
def test_the_time_of_an_event_is_a_label(body: MessageAdded, said_at: int) -> None:
    """Two messages that differ in time alone are the same (L3)."""
    later = msgspec.structs.replace(body, said_at=said_at)
    assert SCHEMA.is_same(SCHEMA.kinds["message.added"], 1, ENCODER.encode(body), ENCODER.encode(later))


@given(MESSAGES, MESSAGES)
def test_other_words_are_another_body(one: MessageAdded, two: MessageAdded) -> None:
    """Two messages are the same when everything but their time is."""
    same = msgspec.structs.replace(one, said_at=0) == msgspec.structs.replace(two, said_at=0)
    assert SCHEMA.is_same(SCHEMA.kinds["message.added"], 1, ENCODER.encode(one), ENCODER.encode(two)) == same


def test_sameness_is_of_meaning_not_of_bytes() -> None:
    """The order of keys and spelled-out defaults make no difference; a field does."""
    stored = ENCODER.encode(TurnEnded(turn_id="t", state=TurnState.LOST))
    assert SCHEMA.is_same(SCHEMA.kinds["turn.ended"], 1, stored, b'{"state": "lost", "reason": "", "turn_id": "t"}')
    assert not SCHEMA.is_same(SCHEMA.kinds["turn.ended"], 1, stored, b'{"state":"lost","turn_id":"u"}')


@pytest.mark.loss("M8")
def test_unknown_kinds_are_refused_unless_ignorable() -> None:
    """A kind or version of a newer Hansard is RecordTooNew; one that says that it may be ignored is kept unread."""
    for kind, version in (("message.hologram", 1), ("message.added", SCHEMA.kinds["message.added"].version + 1)):
        with pytest.raises(RecordTooNew, match=kind):
            SCHEMA.check_kind(kind, version, ignorable=False)
        with pytest.raises(RecordTooNew):
            SCHEMA.decode_body(kind, version, b"{}")
        assert SCHEMA.check_kind(kind, version, ignorable=True) is False
        assert SCHEMA.decode_body(kind, version, b'{"new": 1}', ignorable=True) == UnknownBody()
    assert SCHEMA.check_kind("message.added", 1, ignorable=False) is True


def test_a_field_of_a_newer_version_is_no_surprise() -> None:
    """A field that this version does not know is left alone within a version that it knows."""
    body = SCHEMA.decode_body("delivery.moved", 1, b'{"delivery_id":"d","state":"sent","novel":1}')
    assert body == DeliveryMoved(delivery_id="d", state=DeliveryState.SENT)
