"""Whatever happens to a file of a home: the next opening repairs it from the other leg, or refuses and names the file.

Every cell of files x accidents x moments, with and without a second process that writes. All of them are played when
HANSARD_PROVE is set; otherwise some are drawn, each row, column and moment among them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product

import pytest

from tests.crash.accidents.deeds import ACCIDENTS, MOMENTS, PATHS
from tests.crash.accidents.stage import Cell, Play, Stage, open_stage
from tests.crash.accidents.table import DOCUMENT, expected, render
from tests.crash.accidents.worker import PATIENCE_SECONDS
from tests.record.helpers_process import WorkerError

DRAWN = 60
REFUSED_SECONDS = 2.0
"""How long a call waits that is to be refused; what is to succeed waits as long as a busy machine needs."""

CELLS = [Cell(*each) for each in product(PATHS, ACCIDENTS, MOMENTS, (False, True))]


def is_definite(cell: Cell) -> bool:
    """Return whether a cell has one outcome only; the others, which chance decides, are for the proof."""
    return len(expected(cell.row, cell.accident, cell.moment)) == 1


def draw_cells(seed: int, count: int) -> list[Cell]:
    """Return some cells, by a seed: each row and each column at least once, the rest by chance."""
    draw = random.Random(seed)
    rows, columns = list(PATHS), list(ACCIDENTS)
    draw.shuffle(rows)
    draw.shuffle(columns)
    chosen = set()
    for number, row in enumerate(rows):
        cell = Cell(row, columns[number % len(columns)], MOMENTS[number % len(MOMENTS)], number % 2 == 1)
        chosen.add(cell if is_definite(cell) else cell._replace(moment="idle"))
    rest = [cell for cell in CELLS if cell not in chosen and is_definite(cell)]
    draw.shuffle(rest)
    return sorted([*chosen, *rest[: count - len(chosen)]], key=CELLS.index)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The stage of all cells."""
    if os.getuid() != 0:
        pytest.skip("accidents of rights and owners need root, who gives the homes to another user")
    with open_stage() as stage:
        yield stage


def play(stage: Stage, cell: Cell) -> str:
    """Play one cell; return what is wrong with it."""
    allowed = expected(cell.row, cell.accident, cell.moment)
    stage.revive()
    try:
        seen = Play(stage, cell, PATIENCE_SECONDS if allowed == ("repaired",) else REFUSED_SECONDS).act()
    except (AssertionError, WorkerError, EOFError, BrokenPipeError) as error:
        stage.begin_anew()
        return f"{cell}: {type(error).__name__}: {error}"
    if seen.outcome not in allowed:
        return f"{cell}: {seen.outcome}, not as the table says; {seen.errors}"
    return ""


@pytest.mark.skipif("HANSARD_PROVE" in os.environ, reason="the proof plays all cells")
def test_drawn_cells(stage: Stage, seed: int) -> None:
    """Some cells, drawn by the seed of this run."""
    wrong = [said for cell in draw_cells(seed, DRAWN) if (said := play(stage, cell))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.skipif("HANSARD_PROVE" not in os.environ, reason="all cells take minutes: make prove")
@pytest.mark.parametrize("row", PATHS)
def test_all_cells_of(stage: Stage, row: str) -> None:
    """All cells of one file."""
    wrong = [said for cell in CELLS if cell.row == row and (said := play(stage, cell))]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("seed_number", range(20))
def test_every_row_and_column_is_drawn(seed_number: int) -> None:
    """Whatever the seed: no file and no accident is left out."""
    cells = draw_cells(seed_number, DRAWN)
    assert len(cells) == len(set(cells)) == DRAWN
    assert {cell.row for cell in cells} == set(PATHS)
    assert {cell.accident for cell in cells} == set(ACCIDENTS)
    assert {cell.moment for cell in cells} == set(MOMENTS)
    assert {cell.second for cell in cells} == {False, True}


def test_the_document_has_the_table() -> None:
    """`python -m tests.crash.accidents.table` writes it there."""
    assert render() in DOCUMENT.read_text()
