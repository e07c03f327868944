"""Choosing a session while typing."""

from __future__ import annotations

import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input

from hansard.cli.terminal.completion import SessionChoice
from hansard.cli.terminal.picker import PickerState, describe, pick
from hansard.cli.terminal.screen import TerminalOutput
from hansard.cli.terminal.text import cells

LINES = [
    SessionChoice(
        id="20261115-a", title="Trip to Rome", text="where shall we go", when="yesterday", messages=12, source="cli"
    ),
    SessionChoice(id="20261114-b", title="", text="how do I boil an egg", when="Friday", messages=1, source="matrix"),
    SessionChoice(
        id="20261113-c", title="Rome, once more", text="the second day", when="Thursday", messages=7, source="telegram"
    ),
]
WAIT_SECONDS = 120.0


async def picked(keys: str) -> str | None:
    """Press keys in the picker; return what it gives."""
    with create_pipe_input() as pipe:
        output = TerminalOutput(io.StringIO(), lambda: Size(rows=24, columns=80), enable_cpr=False)
        pipe.send_text(keys)
        return await asyncio.wait_for(pick(LINES, title="Which?", input=pipe, output=output), WAIT_SECONDS)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("\r", "20261115-a"),
        ("\x1b[B\r", "20261114-b"),
        ("\x1b[B\x1b[B\x1b[B\x1b[B\x1b[A\r", "20261114-b"),
        ("egg\r", "20261114-b"),
        ("ROME second\r", "20261113-c"),
        ("matrix\r", "20261114-b"),
        ("20261113\r", "20261113-c"),
        ("rome\x1b[B\r", "20261113-c"),
        ("nothing like it\r\x15\r", "20261115-a"),
        ("\x1b", None),
        ("\x03", None),
        ("\x04", None),
    ],
)
async def test_keys_choose(keys: str, expected: str | None) -> None:
    """Words search ids, titles, first words and sources; arrows move; Enter takes; Esc takes nothing."""
    assert await picked(keys) == expected


def test_the_chosen_one_stays_chosen_while_it_matches() -> None:
    """Typing more does not move the choice away from what it stands on."""
    choice = PickerState(LINES)
    choice.move(2)
    choice.search("rome")
    assert choice.chosen == LINES[2]
    choice.search("egg")
    assert choice.chosen == LINES[1]


@given(st.integers(0, 30), st.integers(0, 40), st.integers(1, 12))
def test_the_chosen_row_is_visible(count: int, moves: int, rows: int) -> None:
    """However long the list and small the window, the chosen session is among the rows, once."""
    choice = PickerState([SessionChoice(id=str(number)) for number in range(count)])
    choice.move(moves)
    shown = choice.rows(rows)
    assert len(shown) == min(rows, count)
    assert [line for line, chosen in shown if chosen] == ([choice.chosen] if count else [])


@given(st.text(max_size=60), st.integers(20, 120))
def test_a_row_fits(title: str, columns: int) -> None:
    """Whatever the title is, the row is one line and no wider than the terminal."""
    row = describe(
        SessionChoice(id="20261115-201233-k3v9qd", title=title, text="x", when="yesterday", messages=3, source="cli"),
        columns,
    )
    assert "\n" not in row
    assert cells(row) <= columns
