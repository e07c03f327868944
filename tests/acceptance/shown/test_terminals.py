"""What stood on a screen is in the transcript, whatever befell program and provider.

The terminal is one in memory, and every drawing is looked at, so that what appeared and vanished counts. Input and
status line are left out; of every other line all letters and digits have to be in the transcript, in one piece.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.acceptance.shown.play import prove
from tests.acceptance.shown.runs import SIGNALS, STYLES, Author, Fault, Surface
from tests.tally import Tally

PROVE = bool(os.environ.get("HANSARD_PROVE"))
CHAINS = 20 if PROVE else 4
CHAIN_RUNS = 3 if PROVE else 2
FIRST_FAULTS = (Fault.INTERRUPT, Fault.CUT_BYTE, Fault.INTERRUPT, Fault.GARBAGE, Fault.STALL, Fault.BUSY)
"""What a process in a terminal goes on after."""


def test_there_are_enough_runs() -> None:
    """The conversations below make 8 runs in a test and 60 in a proof."""
    assert (60 if PROVE else 8) <= CHAINS * CHAIN_RUNS


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.loss("A1", "A6", "A7", "D18")
@pytest.mark.parametrize("chain", range(CHAINS))
async def test_struck_at_any_moment(tmp_path: Path, seed: int, chain: int, tally: Tally) -> None:
    """Ctrl-C, a cut, then killed, ended or hung up: every line that stood on the screen is recorded, and it goes on."""
    draw = random.Random(f"{seed} terminal {chain}")
    author = Author(draw)
    style = list(STYLES)[chain % len(STYLES)]
    faults = [FIRST_FAULTS[(chain + seed) % len(FIRST_FAULTS)]] + [
        draw.choice(tuple(SIGNALS)) for _ in range(CHAIN_RUNS - 1)
    ]
    runs = [author.at_random(style, Surface.TERMINAL, fault) for fault in faults]
    runs.append(author.healthy(style, Surface.TERMINAL))
    evidence = await prove(tmp_path, seed, runs, tally, "terminal")
    assert all(shown.lines for shown in evidence.shown)
