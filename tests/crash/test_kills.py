"""Writers are killed at random moments and at every named step of a commit: nothing seen is missing afterwards.

Seen is what any writer acknowledged and what a follower in another process printed. It is looked for with both legs as
the crash left them, with either leg alone, and with the other leg rewritten from that one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from hansard.testing import CRASH_POINTS
from tests.counts import LONG, PROVE, times
from tests.crash import script
from tests.crash.rounds import Kill, examine, random_kill, run_round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tally import Tally

REPEATS = 7 if PROVE else 1
RANDOM_ROUNDS = 21 if PROVE else 1
CHAIN_ROUNDS = 2 * REPEATS
STEPS_DRAWN, CHAINS_DRAWN = 2, 1
"""Rounds of `make test`, drawn by its seed."""
VICTIMS = 4 if PROVE else 3
REPORT_CHARACTERS_MAX = 20_000

CHAINS = (
    ("logged", "reconciling", "logging", "reconciled", "committed", "removed"),
    ("logging", "reconciled", "logged", "reconciling", "applied", "acknowledged"),
)
"""Deaths with nobody else to clean up: the next writer opens what the one before left, and dies over it."""


def test_the_ring_kills_often_enough() -> None:
    """The rounds below make at least 18 kills in a test run, 60 in a long one and 500 in a proof.

    Each round asserts its own number.
    """
    step_rounds = REPEATS * len(CRASH_POINTS) if PROVE or LONG else STEPS_DRAWN
    chain_rounds = CHAIN_ROUNDS if PROVE or LONG else CHAINS_DRAWN
    planned = (step_rounds + RANDOM_ROUNDS) * (VICTIMS + 1) + chain_rounds * len(CHAINS[0])
    assert planned >= times(test=18, long=60, prove=500)


@pytest.mark.slow
@pytest.mark.loss("A1", "A2", "A3", "A6", "A7", "A13", "A14", "B6", "B12", "B20", "H3", "H8", "I1", "I2", "I12")
@pytest.mark.parametrize("repeat", range(RANDOM_ROUNDS))
async def test_nothing_is_lost_when_writers_are_killed_at_random(
    home: Path, seed: int, repeat: int, tally: Tally
) -> None:
    """Killed at random moments beside a survivor: all that was acknowledged or shown is there, once, in order."""
    draw = random.Random(f"{seed} random {repeat}")
    kills = [random_kill(draw) for _ in range(VICTIMS)]
    result = await run_round(home, seed + repeat, kills, survivor=True)
    await examine(result)
    tally.add("random", seed + repeat, result.counts())
    assert len(result.kills) == VICTIMS + 1
    assert not result.violations, "\n".join(result.violations)[:REPORT_CHARACTERS_MAX]


@pytest.mark.drawn(STEPS_DRAWN)
@pytest.mark.slow
@pytest.mark.loss("A1", "A2", "A3", "A6", "A7", "A13", "A14", "B6", "B12", "B18", "B20", "H3", "H8", "I2", "I12")
@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize("point", CRASH_POINTS)
async def test_nothing_is_lost_when_writers_die_at_a_step(
    home: Path, seed: int, point: str, repeat: int, tally: Tally
) -> None:
    """Killed at a named step of a commit, even the first, beside a survivor: nothing acknowledged or shown is lost."""
    draw = random.Random(f"{seed} {point} {repeat}")
    in_repair = point.startswith("reconcil")
    late = (2, draw.randint(3, len(script.SPARE))) if in_repair else (draw.randint(3, 30), 80)
    later = late if PROVE else (draw.choice(late),)
    # There is nothing to repair in a new home: there the first victim dies in a commit.
    first = Kill("logged", draw.randint(3, 30)) if in_repair else Kill(point, 1)
    kills = [first, *(Kill(point, occurrence) for occurrence in (1 if in_repair else 2, *later))]
    result = await run_round(home, seed + repeat, kills, survivor=True)
    await examine(result)
    tally.add(point, seed + repeat, result.counts())
    assert result.kills == [*(kill.point for kill in kills), "survivor"]
    assert not result.violations, "\n".join(result.violations)[:REPORT_CHARACTERS_MAX]


@pytest.mark.drawn(CHAINS_DRAWN)
@pytest.mark.slow
@pytest.mark.loss("A1", "A13", "B6", "B18", "D7", "I12")
@pytest.mark.parametrize("repeat", range(CHAIN_ROUNDS))
async def test_nothing_is_lost_when_recovery_dies_too(home: Path, seed: int, repeat: int, tally: Tally) -> None:
    """Killed in a commit, and the next in the middle of repairing that: nothing acknowledged or shown is lost."""
    draw = random.Random(f"{seed} chain {repeat}")
    points = CHAINS[repeat % len(CHAINS)]
    kills = [Kill(point, 1 if point.startswith("reconcil") else draw.randint(5, 60)) for point in points]
    result = await run_round(home, seed + repeat, kills, survivor=False)
    await examine(result)
    tally.add("chain", seed + repeat, result.counts())
    assert result.kills == list(points)
    assert not result.violations, "\n".join(result.violations)[:REPORT_CHARACTERS_MAX]
