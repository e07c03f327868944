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
from tests.crash.accidents.stage import Cell, Stage, is_definite, open_stage, play
from tests.crash.accidents.table import DOCUMENT, render

DRAWN = 60

CELLS = [Cell(*each) for each in product(PATHS, ACCIDENTS, MOMENTS, (False, True))]


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
