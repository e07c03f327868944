"""State is an enum plus one table of moves, in Python and as a SQL CHECK: both say the same (style, point 9)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from importlib import resources

import pytest

from hansard.domain.access import Grant
from hansard.domain.deliveries import DELIVERY_MOVES, DeliveryState, Operation
from hansard.domain.people import How
from hansard.domain.sessions import SESSION_MOVES, TURN_ENDS, TURN_MOVES, Link, SessionState, TurnState
from hansard.record.messages.entries import PART_KINDS

SCHEMA = resources.files("hansard.record").joinpath("schema.sql").read_text(encoding="utf-8")

CHECKS = [
    ("session", "state", {state.value for state in SessionState}),
    ("session", "parent_link", {link.value for link in Link}),
    ("turn", "state", {state.value for state in TurnState}),
    ("delivery", "state", {state.value for state in DeliveryState}),
    ("delivery", "operation", {operation.value for operation in Operation}),
    ("chunk", "part", set(PART_KINDS)),
    ("turn_by", "how", {how.value for how in How}),
    ("access", "state", {grant.value for grant in Grant} - {Grant.NONE.value}),
]


def checked_values(table: str, column: str) -> set[str]:
    """Return the values that the schema allows in a column."""
    body = re.search(rf"CREATE TABLE {table} \((.*?)\n\)", SCHEMA, re.DOTALL)
    assert body, f"no table {table}"
    check = re.search(rf"^\s+{column} .*CHECK \({column} IN \(([^)]*)\)\)", body[1], re.MULTILINE)
    assert check, f"{table}.{column} has no CHECK"
    return set(re.findall(r"'([^']*)'", check[1]))


@pytest.mark.parametrize(("table", "column", "values"), CHECKS)
def test_the_schema_allows_exactly_the_enum(table: str, column: str, values: set[str]) -> None:
    """A CHECK lists the values of its enum, no more and no less."""
    assert checked_values(table, column) == values


def test_every_text_check_is_compared() -> None:
    """No CHECK on a list of words is left out of the comparison above."""
    found = re.findall(r"CHECK \((\w+) IN \('", SCHEMA)
    assert sorted(found) == sorted(column for _, column, _ in CHECKS)


@pytest.mark.parametrize(
    ("states", "moves"), [(SessionState, SESSION_MOVES), (TurnState, TURN_MOVES), (DeliveryState, DELIVERY_MOVES)]
)
def test_a_table_knows_every_state(states: type[StrEnum], moves: Mapping[StrEnum, frozenset[StrEnum]]) -> None:
    """Each state has its row, and each move leads to another state."""
    assert set(moves) == set(states)
    for state, following in moves.items():
        assert following <= set(states)
        assert state not in following


@pytest.mark.loss("A13")
def test_every_turn_can_end() -> None:
    """From each state of a turn an end can be reached, and no end is left again (L6)."""
    for state in TurnState:
        reached = {state}
        while (more := reached | {move for each in reached for move in TURN_MOVES[each]}) != reached:
            reached = more
        assert reached & TURN_ENDS
    assert all(not TURN_MOVES[state] for state in TURN_ENDS)
    assert frozenset(state for state in TurnState if not TURN_MOVES[state]) == TURN_ENDS


@pytest.mark.loss("E3", "E5")
def test_what_was_sent_stays_sent() -> None:
    """A delivery becomes sent only from a send that was recorded, and never leaves it."""
    assert DELIVERY_MOVES[DeliveryState.SENT] == frozenset()
    before = {state for state, moves in DELIVERY_MOVES.items() if DeliveryState.SENT in moves}
    assert before == {DeliveryState.SENDING, DeliveryState.UNKNOWN}
