"""The counts of the crash ring, one JSON line for each round, for `python -m tests.proof`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.crash.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TALLY_PATH = ROOT / ".prove" / "crash.jsonl"


class Tally:
    """Where rounds write what they did; nowhere, unless this run is a proof."""

    def __init__(self, path: Path | None) -> None:
        """Begin with an empty file."""
        self._path = path
        if path is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text("")

    def add(self, round_name: str, seed: int, counts: dict[str, object]) -> None:
        """Note one round, at once: a run that is stopped has still proved what it did."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"round": round_name, "seed": seed, **counts}) + "\n")
