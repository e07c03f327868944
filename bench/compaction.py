"""What compaction adds to the turns around it: one process, a real record on disk, a model that answers at once.

Three sessions take turns, so that a busy machine slows all of them:
- `none`: nothing is ever summed up.
- `followed`: after each answer a summary is due and begins; it is stopped before the next turn is measured.
- `spoken into`: the same, and the next message comes while the summary is being written.
A turn is measured from the person's words to its end, as whoever waits for it sees it. The aim: `followed` costs what
`none` does. Run it alone: `python bench/compaction.py`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from hansard import Busy, Message, Record
from hansard.domain.requests import Delta, Finished, ModelEvent, ModelRules, Request
from hansard.domain.settings import TurnLimits
from hansard.domain.settings.agent import CompactionSettings
from hansard.engine.runner import Runner
from hansard.engine.summaries import INSTRUCTIONS
from hansard.engine.turns import Agent
from hansard.intake.speak import speak
from hansard.record.turns.entries import TurnStarted

ROUNDS = 150
WARM_ROUNDS = 10
RATIO_MAX = 1.1
"""What a median of turns of a few milliseconds may differ by on a machine that others use, too."""

KINDS = ("none", "followed", "spoken into")
PAST = "The House divided, and the tellers told what they had counted. " * 800
"""Enough for a summary to be due, and not for a turn to have to wait for it."""

SETTINGS = CompactionSettings(window_tokens=100_000, start_percent=10, tail_tokens=100)
SECONDS_MAX = 30.0


class Model:
    """Answers at once, and never comes to the end of a summary."""

    name = "bench"
    uses_tools = False
    rules = ModelRules()

    def __init__(self) -> None:
        """Nothing was asked."""
        self.summing = asyncio.Event()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """Answer, or begin to sum up."""
        if request.system == INSTRUCTIONS:
            self.summing.set()
            await asyncio.sleep(SECONDS_MAX * 2)
        yield Delta("Order, order.")
        yield Finished()

    async def close(self) -> None:
        """Nothing is held."""


class Bench:
    """One session of a kind."""

    def __init__(self, record: Record, session_id: str, kind: str) -> None:
        """Nothing was said."""
        self.kind = kind
        self.session_id = session_id
        self.milliseconds: list[float] = []
        self._record = record
        self._model = Model()
        settings = CompactionSettings(automatic=False) if kind == "none" else SETTINGS
        self.runner = Runner(
            Agent(record=record, models=self._models, tools={}, limits=TurnLimits(), compaction=settings), self._report
        )

    async def _models(self) -> list[Model]:
        return [self._model]

    def _report(self, _session_id: str, error: BaseException) -> None:
        raise error

    async def turn(self, text: str) -> None:
        """Say something and wait for the answer; then let things be as the next turn is to find them."""
        began = time.perf_counter()
        spoken = await speak(self._record, self.session_id, [Message.user(text)], Busy.QUEUE)
        self.runner.wake(self.session_id, spoken.turn_id)
        await self.runner.settled(self.session_id)
        self.milliseconds.append((time.perf_counter() - began) * 1000)
        if self.kind != "none" and len(self.milliseconds) > 1:
            await self._model.summing.wait()
            self._model.summing.clear()
        if self.kind == "followed":
            await self._record.turns.stop(self.session_id, "the next turn is measured alone")
            await self.runner.beside.compacted(self.session_id)

    async def chores(self) -> int:
        """How many summaries were begun."""
        found, seq = 0, 0
        while entries := await self._record.sessions.read_entries(self.session_id, seq):
            found += sum(isinstance(entry.body, TurnStarted) and bool(entry.body.purpose) for entry in entries)
            seq = entries[-1].seq
        return found


async def measure(home: Path) -> dict[str, object]:
    """All three, in turn."""
    async with Record.open(home) as record:
        benches = [Bench(record, (await record.create_session(source="bench")).id, kind) for kind in KINDS]
        async with asyncio.timeout(SECONDS_MAX * 10):
            for bench in benches:
                await bench.turn(PAST)
            for number in range(WARM_ROUNDS + ROUNDS):
                for bench in benches:
                    await bench.turn(f"question {number}")
        times = {bench.kind: bench.milliseconds[1 + WARM_ROUNDS :] for bench in benches}
        begun = {bench.kind: await bench.chores() for bench in benches}
        for bench in benches:
            await bench.runner.close()
    alone = statistics.median(times["none"])
    return {
        "milliseconds": {kind: round(statistics.median(each), 3) for kind, each in times.items()},
        "p95": {kind: round(statistics.quantiles(each, n=20)[-1], 3) for kind, each in times.items()},
        "summaries begun": begun,
        "ratios": {kind: round(statistics.median(times[kind]) / alone, 3) for kind in KINDS[1:]},
        "ratio_max": RATIO_MAX,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".home-") as folder:
        figures = asyncio.run(measure(Path(folder) / "home"))
    print(json.dumps(figures, indent=2))
    sys.exit(figures["ratios"]["followed"] > RATIO_MAX)  # type: ignore[index]
