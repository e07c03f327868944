"""The counts of this ring, one JSON line for each conversation, for `python -m tests.proof`."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.acceptance.shown.nursery import ROOT

FOLDER = ROOT / ".prove"


def tally_path() -> Path | None:
    """Return where the counts of this process go; nowhere, unless this run is a proof."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    return FOLDER / f"shown-{worker}.jsonl" if os.environ.get("HANSARD_PROVE") else None


class Tally:
    """Where conversations write what befell them. Each worker of pytest-xdist has a file of its own."""

    def __init__(self, path: Path | None) -> None:
        """Begin with an empty file."""
        self._path = path
        if path is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text("")

    def add(self, name: str, seed: int, counts: dict[str, object]) -> None:
        """Note one conversation, at once: a run that is stopped has still proved what it did."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"round": f"shown {name}", "seed": seed, **counts}) + "\n")
