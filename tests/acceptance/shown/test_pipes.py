"""What was printed on a pipe is in the transcript, byte for byte, whatever befell program and provider."""

from __future__ import annotations

import os
import random
from itertools import product
from pathlib import Path

import pytest

from tests.acceptance.shown.play import prove
from tests.acceptance.shown.runs import BOUNDARY_FAULTS, SIGNALS, STYLES, Author, Fault, Run, Surface, boundaries
from tests.tally import Tally

PROVE = bool(os.environ.get("HANSARD_PROVE"))
PARTS = 2
"""A style's boundaries are shared out to so many conversations."""

ROTATIONS = len(BOUNDARY_FAULTS) if PROVE else 1
"""In a proof every fault comes at every boundary; in a test each boundary has one, another at each seed."""

CHAINS = 25 if PROVE else 3
CHAIN_RUNS = 4
PROVIDER_FAULTS = tuple(fault for fault in Fault if fault not in SIGNALS and fault is not Fault.NONE)


def boundary_runs(author: Author, style: str, part: int, turned: int) -> list[Run]:
    """Return a run for each boundary of a part, and one that nothing befalls."""
    runs = []
    for count in range(part, boundaries(style), PARTS):
        fault = BOUNDARY_FAULTS[(count + turned) % len(BOUNDARY_FAULTS)]
        surface = Surface.ONCE if fault in SIGNALS or count % 3 == 0 else Surface.LINES
        runs.append(author.at_boundary(style, surface, fault, count))
    # Lines come first and together: one process takes them all.
    runs.sort(key=lambda run: run.surface is not Surface.LINES)
    return [*runs, author.healthy(style, Surface.ONCE)]


def random_runs(author: Author, draw: random.Random) -> list[Run]:
    """Return runs of any kind at any moment, half of them with signals, and one that nothing befalls."""
    runs = []
    for number in range(CHAIN_RUNS):
        style = draw.choice(list(STYLES))
        fault = draw.choice(PROVIDER_FAULTS if number % 2 else tuple(SIGNALS))
        runs.append(author.at_random(style, draw.choice((Surface.LINES, Surface.ONCE)), fault))
    return [*runs, author.healthy(runs[-1].style, Surface.ONCE)]


def test_there_are_enough_runs() -> None:
    """The conversations below make 32 runs in a test and 240 in a proof, and every fault comes up among them."""
    author = Author(random.Random(0))
    planned = [
        run
        for style in STYLES
        for part in range(PARTS)
        for turned in range(ROTATIONS)
        for run in boundary_runs(author, style, part, turned)
        if run.fault is not Fault.NONE
    ]
    assert {(run.style, run.fault) for run in planned} == {
        (style, fault) for style in STYLES for fault in BOUNDARY_FAULTS
    }
    assert len(planned) + CHAINS * CHAIN_RUNS >= (240 if PROVE else 32)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.loss("A1", "A6", "A7", "C1", "C2", "D5")
@pytest.mark.parametrize("turned", range(ROTATIONS))
@pytest.mark.parametrize(("style", "part"), list(product(STYLES, range(PARTS))))
async def test_struck_at_every_event_boundary(  # noqa: PLR0917 - fixtures and parameters come by name
    tmp_path: Path, seed: int, style: str, part: int, turned: int, tally: Tally
) -> None:
    """Killed, ended, cut, garbled or stalled between any two events: what was printed is recorded, and it goes on."""
    author = Author(random.Random(f"{seed} {style} {part} {turned}"))
    runs = boundary_runs(author, style, part, seed + turned)
    evidence = await prove(tmp_path, seed, runs, tally, "pipe at a boundary")
    assert evidence.shown[-1].output  # the others may be struck before they print anything


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.loss("A1", "A6", "A7", "C1", "C2", "D5")
@pytest.mark.parametrize("chain", range(CHAINS))
async def test_struck_at_random(tmp_path: Path, seed: int, chain: int, tally: Tally) -> None:
    """Any fault at any moment, long answers with any characters: what was printed is recorded, and it goes on."""
    draw = random.Random(f"{seed} pipe {chain}")
    await prove(tmp_path, seed, random_runs(Author(draw), draw), tally, "pipe at random")
