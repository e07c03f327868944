"""A long past: how long it takes until the server has the request, at 100 messages and at 10,000.

A request holds the whole past, so that no way of asking is free of its length. What is of interest is how much of the
growth is the engine's: the fold is kept, and only what came since is read; the request is rendered anew.
"""

from __future__ import annotations

import statistics
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from harness.figures import paired_ratio
from turn_hansard import MODEL_ASKED, SPOKEN, HansardReader
from turn_readers import Past
from turn_scene import Scene
from turn_tokens import Wanted

from hansard import Record

SIZES = (100, 10_000)
TEXT_CHARACTERS = 200
ANSWER = Wanted(tokens=1, tokens_per_second=100)
ENGINE = "engine"
"""Hansard's part before the model is asked: claim, fold, request."""
WORDS = "speak"
REQUEST = "hansard"


async def measure_history(scene: Scene) -> dict[str, Any]:
    """Every reader at every length, interleaved."""
    home = scene.new_home()
    times: dict[str, dict[int, list[float]]] = {}
    async with AsyncExitStack() as stack:
        makers = scene.readers(home, watched=True)
        readers = [await stack.enter_async_context(make()) for make in makers]
        pasts = {size: past_of(size) for size in SIZES}
        for reader in readers:
            for size in SIZES:
                await reader.begin(f"size-{size}", pasts[size])
            await reader.ask(f"size-{SIZES[0]}", pasts[SIZES[0]], ANSWER)
        for _ in range(scene.settings.history_rounds):
            for reader in readers:
                for size in SIZES:
                    heard = await reader.ask(f"size-{size}", pasts[size], ANSWER)
                    found = {reader.name: heard.request_us}
                    if isinstance(reader, HansardReader):
                        found[WORDS] = heard.stages[SPOKEN] - heard.asked_us
                        found[ENGINE] = heard.stages[MODEL_ASKED] - heard.stages[SPOKEN]
                    for name, us in found.items():
                        times.setdefault(name, {}).setdefault(size, []).append(us / 1000)
    small, large = SIZES
    figures: dict[str, Any] = {
        name: {
            "ms": {str(size): statistics.median(rounds) for size, rounds in sizes.items()},
            "growth": paired_ratio(sizes[large], sizes[small]),
        }
        for name, sizes in times.items()
    }
    return {"readers": figures, "cold_ms": {str(size): await _cold_ms(home, size) for size in SIZES}}


async def _cold_ms(home: Path, size: int) -> float:
    """The fold of a conversation that this process has not seen: what the first turn after a start pays once."""
    async with Record.open(home) as record:
        began = time.perf_counter()
        await record.conversation(f"size-{size}")
        return (time.perf_counter() - began) * 1000


def past_of(messages: int) -> Past:
    """Return so many messages, half of them said, half answered."""
    text = ("The House divided, and the tellers told what they had counted. " * 4)[:TEXT_CHARACTERS]
    return [(f"{number} {text}", f"{number} {text}") for number in range(messages // 2)]
