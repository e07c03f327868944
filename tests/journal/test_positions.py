"""Positions: opaque text that a follower keeps, and that comes back as it was."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hansard.domain.ids import check_entry_id
from hansard.domain.limits import ID_CHARACTERS_MAX, POSITION_CHARACTERS_MAX
from hansard.errors import InvalidInput
from hansard.journal.follow import Position

NUMBERS = st.integers(0, 2**53)
MESSAGE_IDS = st.text(min_size=1, max_size=ID_CHARACTERS_MAX).filter(
    lambda text: text.isprintable() and not text.startswith("~") and "\0" not in text
)


@given(NUMBERS, MESSAGE_IDS, NUMBERS)
def test_a_position_comes_back(seq: int, message_id: str, offset: int) -> None:
    """What a follower keeps is read as what it was given, whatever the message is called."""
    position = Position(seq, check_entry_id(message_id), offset)
    assert Position.parse(str(position)) == position
    assert len(str(position)) <= POSITION_CHARACTERS_MAX


@given(NUMBERS)
def test_a_position_between_messages_is_a_number(seq: int) -> None:
    """Where nothing is open, the position is the seq; a number is as good as its text."""
    assert str(Position(seq)) == str(seq)
    assert Position.parse(seq) == Position.parse(str(seq)) == Position(seq)


def test_zero_is_the_start() -> None:
    """A follower without a position begins at 0."""
    assert Position.parse(0) == Position.parse("0") == Position()


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.x.m", "1..m", "+1", " 1", "1 ", "٣", "1.٣.m", "1e3", "0x1", "9" * 401, "1.-1.m", None]
)
def test_what_is_no_position_is_refused(text: str) -> None:
    """Text that no record gave is InvalidInput, not a start from elsewhere."""
    with pytest.raises(InvalidInput):
        Position.parse(text)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes anything but a position or our own error."""
    try:
        position = Position.parse(text)
    except InvalidInput:
        return
    assert position.seq >= 0
    assert position.offset_bytes >= 0
