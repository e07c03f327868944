"""Every row of the table is kept by something in the source: without that, one of its cells fails."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.accidents.deeds import NOTHING, PATHS
from tests.crash.accidents.mutants import MUTANTS, Mutant
from tests.crash.accidents.stage import Cell, Stage, is_definite, open_stage, play


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """The stage of all changes; its homes were made by the source as it is."""
    if os.getuid() != 0:
        pytest.skip("accidents of rights and owners need root, who gives the homes to another user")
    with open_stage() as stage:
        yield stage


@pytest.fixture
def source(stage: Stage) -> Iterator[Path]:
    """A folder for a changed copy of the source, from which other users may read as well."""
    with tempfile.TemporaryDirectory(dir=stage.folder) as name:
        Path(name).chmod(0o755)
        yield Path(name)
        stage.use_source(None)


def test_every_row_has_a_mutant() -> None:
    """A row that nothing in the source keeps would not need to be in the table."""
    assert {mutant.row for mutant in MUTANTS} == set(PATHS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_place_of_a_mutant_is_in_the_source(mutant: Mutant) -> None:
    """Where the source has moved on, the change has to be written anew; a cell that chance decides proves nothing."""
    assert [edit.count_places() for edit in mutant.edits] == [1] * len(mutant.edits)
    assert is_definite(Cell(mutant.row, *mutant.cell, second=False))


@pytest.mark.skipif("HANSARD_PROVE" not in os.environ, reason="all changes take minutes: make prove")
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_cell_fails_without_what_keeps_it(stage: Stage, source: Path, mutant: Mutant) -> None:
    """The changed source does well without an accident, and fails after one; unchanged, it passes (`test_table`)."""
    cell = Cell(mutant.row, *mutant.cell, second=False)
    stage.use_source(mutant.write_source(source))
    assert not play(stage, cell._replace(accident=NOTHING))
    assert play(stage, cell), f"{cell} holds although {mutant.why}"
