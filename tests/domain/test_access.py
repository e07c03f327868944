"""Who may do what: every cell of the table, and when a stranger is shown a code."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from hansard.domain.access import (
    CODE_CHARACTERS,
    DAY_MICROSECONDS,
    HOUR_MICROSECONDS,
    Access,
    Action,
    Grant,
    Pace,
    Standing,
    is_same_owner,
    may,
    may_see,
    may_show_pairing_code,
    may_try_code,
    new_code,
    read_code,
    written_code,
)
from hansard.domain.ids import ALPHABET
from hansard.domain.settings import Pairing

TALKING = {Action.TALK, Action.COMMAND, Action.CHANGE, Action.BE_OBSERVED}
EVERYTHING = {*TALKING, Action.INVITE}

CELLS = {
    (Standing.LISTED, Grant.NONE): EVERYTHING,
    (Standing.LISTED, Grant.ASKED): EVERYTHING,
    (Standing.LISTED, Grant.ALLOWED): EVERYTHING,
    (Standing.LISTED, Grant.REVOKED): set(),
    (Standing.ROOM, Grant.NONE): TALKING,
    (Standing.ROOM, Grant.ASKED): TALKING,
    (Standing.ROOM, Grant.ALLOWED): EVERYTHING,
    (Standing.ROOM, Grant.REVOKED): set(),
    (Standing.UNLISTED, Grant.NONE): {Action.ASK},
    (Standing.UNLISTED, Grant.ASKED): {Action.ASK},
    (Standing.UNLISTED, Grant.ALLOWED): EVERYTHING,
    (Standing.UNLISTED, Grant.REVOKED): set(),
}


@pytest.mark.parametrize(("standing", "grant"), list(itertools.product(Standing, Grant)))
@pytest.mark.parametrize("action", list(Action))
def test_every_cell(standing: Standing, grant: Grant, action: Action) -> None:
    """What the settings and the record say of somebody, and what they may: written down twice, independently."""
    assert may(action, standing, grant) == (action in CELLS[standing, grant])


def test_owners() -> None:
    """A conversation leads to its owner's sessions only; linking a person to a name changes nobody's chat."""
    assert may_see("person:ann", "person:ann")
    assert not may_see("room:matrix:!a:h", "person:ann")
    own = "person:matrix:@ann:h"
    assert is_same_owner(own, "person:ann", own)
    assert is_same_owner("person:ann", "person:ann", own)
    assert not is_same_owner(own, "room:matrix:!a:h", own)
    assert not is_same_owner("person:bob", "person:ann", own)


NOW = 10 * DAY_MICROSECONDS
PAIRING = Pairing(codes_per_hour_max=5, person_codes_per_day_max=2, tries_per_hour_max=3)
EVE = Access(
    channel="matrix",
    identity="@eve:h",
    state=Grant.ASKED,
    code="abc",
    expires_at=NOW,
    asked_since=NOW - 1,
    asked_count=1,
)


@pytest.mark.parametrize(
    ("known", "asked", "shown"),
    [
        (None, Pace(), True),
        (None, Pace(NOW - 1, 4), True),
        (None, Pace(NOW - 1, 5), False),
        (None, Pace(NOW - HOUR_MICROSECONDS, 5), True),
        (None, Pace(NOW + 1, 5), True),
        (EVE, Pace(), True),
        (msgspec.structs.replace(EVE, expires_at=NOW + 1), Pace(), False),
        (msgspec.structs.replace(EVE, asked_count=2), Pace(), False),
        (msgspec.structs.replace(EVE, asked_count=2, asked_since=NOW - DAY_MICROSECONDS), Pace(), True),
    ],
)
def test_when_a_code_is_shown(known: Access | None, asked: Pace, *, shown: bool) -> None:
    """One at a time, a few a day for one person, a few an hour for all; a clock that was set back locks nobody out."""
    assert may_show_pairing_code(known, asked, Pace(), PAIRING, NOW) == shown
    assert not may_show_pairing_code(known, asked, Pace(), msgspec.structs.replace(PAIRING, enabled=False), NOW)


def test_wrong_codes_are_counted() -> None:
    """After so many in an hour none is tried until it is over."""
    assert may_try_code(Pace(NOW, 2), PAIRING, NOW)
    assert not may_try_code(Pace(NOW, 3), PAIRING, NOW)
    assert may_try_code(Pace(NOW, 3), PAIRING, NOW + HOUR_MICROSECONDS)


def test_codes_cannot_be_guessed() -> None:
    """Ten tries an hour, for as long as a code counts at the most, against all codes that there are."""
    tries = 1000 * 7 * 24
    assert CODE_CHARACTERS >= 8
    assert tries / len(ALPHABET) ** CODE_CHARACTERS < 1e-6
    made = {new_code() for _ in range(2000)}
    assert len(made) == 2000
    assert set("".join(made)) == set(ALPHABET)
    for code in itertools.islice(made, 100):
        assert read_code(f" {written_code(code).upper()} ") == code
