"""The counts of a proof: one JSON line for each round or conversation, for `python -m tests.proof`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.counts import PROVE

FOLDER = Path(__file__).parents[1] / ".prove"


class Tally:
    """Where a ring writes what it did; nowhere, unless this run is a proof."""

    def __init__(self, ring: str) -> None:
        """Begin with an empty file. Each worker of pytest-xdist has its own."""
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._path = FOLDER / f"{ring}-{worker}.jsonl"
        if PROVE:
            FOLDER.mkdir(exist_ok=True)
            self._path.write_text("")

    def add(self, name: str, seed: int, counts: dict[str, object]) -> None:
        """Note one round, at once: a run that is stopped has still proved what it did."""
        if PROVE:
            with self._path.open("a") as file:
                file.write(json.dumps({"round": name, "seed": seed, **counts}) + "\n")
