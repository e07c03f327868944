"""Gate: compaction under fire. Killed, interrupted, spoken into, given nonsense: nothing is lost, and it goes on."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
from asyncio.subprocess import create_subprocess_exec
from collections import Counter
from pathlib import Path

import pytest

from hansard.domain.requests import FailureKind, FinishReason
from hansard.domain.sessions import TurnState
from hansard.domain.settings import Busy
from hansard.record.conversation import SessionCompacted
from hansard.testing.crash import CRASH_POINTS
from tests.counts import times
from tests.engine.compactor import ASKED
from tests.engine.stage import WAIT_SECONDS_MAX, Answer, Stage, failure, stage
from tests.engine.summing import MANUAL, SETTINGS, SUMMARY, Summing, last_request, talk
from tests.engine.worker import ROOT

PROVE = bool(os.environ.get("HANSARD_PROVE"))
ROUNDS = times(test=6, long=12, prove=300)
POINTS = [*(point for point in CRASH_POINTS if not point.startswith("reconcil")), ASKED]
OCCURRENCES = (1, 2, 3)

GARBAGE: tuple[Answer, ...] = (
    [SUMMARY],
    [SUMMARY],
    [SUMMARY[:80], SUMMARY[80:]],
    [""],
    ["no"],
    ["\x00\ufffd" * 200],
    ["again and again " * 100],
    [SUMMARY, FinishReason.LENGTH],
)
FAILURES: tuple[Answer, ...] = (
    [SUMMARY[:50], failure(FailureKind.CUT)],
    [failure(FailureKind.BUSY)],
    [RuntimeError("the adapter broke")],
)
"""With these there is no summary, whatever else happens."""


async def unharmed(on: Stage, model: Summing, before: list[str]) -> None:
    """Every word is there and found, the context is valid, the next turn runs, and both legs agree."""
    assert (await on.texts())[: len(before)] == before
    told = await last_request(on, model)
    await on.runner.beside.compacted(on.session_id)
    assert "marker-5" in told
    assert (await on.states())[-1] is TurnState.COMPLETED
    assert ("marker-0" not in told) is (SUMMARY in told)
    assert len(await on.record.search("marker-0")) == 1
    await on.check()


@pytest.mark.loss("G1", "G5")
async def test_killed_at_every_step(home: Path, tmp_path: Path, seed: int) -> None:
    """Whichever step it is killed in, the session is whole, the next turn runs, and the wish is fulfilled after it."""
    async with stage(home, Summing(), compaction=MANUAL) as on:
        await talk(on, 6)
        before, session_id = await on.texts(), on.session_id
        # What looks after an answer whether a summary is due has looked: the wish is left for the programs below.
        await on.runner.beside.compacted(session_id)
        await on.record.sessions.set_setting(session_id, "compact", "{}")
    chance = random.Random(seed)
    cases = [(point, number) for point in POINTS for number in (OCCURRENCES if PROVE else [chance.choice(OCCURRENCES)])]
    killed: Counter[bool] = Counter()
    for point, occurrence in cases:
        copy = tmp_path / f"{point}-{occurrence}"
        shutil.copytree(home, copy)
        command = [sys.executable, "-m", "tests.engine.compactor", str(copy), session_id, point, str(occurrence)]
        process = await create_subprocess_exec(*command, SUMMARY, cwd=ROOT)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await process.wait()
        killed[process.returncode == -9] += 1
        model = Summing()
        async with stage(copy, model, compaction=MANUAL, session_id=session_id) as again:
            await unharmed(again, model, before)
            await again.runner.beside.compacted(session_id)
            assert (await again.conversation()).covered, (point, occurrence, await again.ends())
            assert SUMMARY in await last_request(again, model)
            assert (await again.texts())[: len(before)] == before
        shutil.rmtree(copy)
    assert killed[True] >= len(cases) // 2, killed


@pytest.mark.loss("G4", "G5")
async def test_anything_at_any_moment(home: Path, seed: int) -> None:
    """New messages in every mode, stops, leaving and nonsense, after any number of steps: nothing is lost."""
    outcomes: Counter[str] = Counter()
    for number in range(ROUNDS):
        chance = random.Random(f"{seed}/{number}")
        model = Summing(chance.choice(GARBAGE + FAILURES if number % 3 == 2 else FAILURES) if number % 3 else [SUMMARY])
        folder = home / str(number)
        async with stage(folder, model, compaction=chance.choice([MANUAL, SETTINGS])) as on:
            await talk(on, 6)
            await on.runner.beside.compacted(on.session_id)
            before = await on.texts()
            await on.record.sessions.set_setting(on.session_id, "compact", '{"focus":"lamps"}')
            on.runner.wake(on.session_id)
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            if number % 3:
                await disturb(on, chance)
            else:
                await on.settled()
            await on.settled()
            await on.runner.beside.compacted(on.session_id)
            on.reports[:] = [error for error in on.reports if "the adapter broke" not in str(error)]
            await unharmed_after(on, model, before)
            bodies = [entry.body for entry in await on.entries()]
            outcomes["summed up" if any(isinstance(body, SessionCompacted) for body in bodies) else "not"] += 1
    assert len(outcomes) == 2, outcomes


async def disturb(on: Stage, chance: random.Random) -> None:
    """Do something to whatever runs."""
    what = chance.randrange(5)
    if what == 0:
        await on.ask("something new", chance.choice(list(Busy)))
    elif what == 1:
        await on.stop()
    elif what == 2:
        for number in range(5):
            await on.speak(f"burst {number}", chance.choice(list(Busy)))
    elif what == 3:
        await on.record.sessions.set_setting(on.session_id, "compact", "not a wish")
        on.runner.wake(on.session_id)
    else:
        await on.runner.beside.compacted(on.session_id)


async def unharmed_after(on: Stage, model: Summing, before: list[str]) -> None:
    """What was said before stands, whatever was said since; the next turn runs and reads a valid context."""
    texts = await on.texts()
    assert texts[: len(before)] == before
    told = await last_request(on, model)
    assert "and now?" in told
    assert (await on.states())[-1] in {TurnState.COMPLETED, TurnState.FAILED, TurnState.INTERRUPTED}
    assert len(await on.record.search("marker-0")) == 1
    await on.runner.beside.compacted(on.session_id)
    on.reports[:] = [error for error in on.reports if "the adapter broke" not in str(error)]
    await on.check()
