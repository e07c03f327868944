"""What the crash ring shares."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.crash.processes import Program
from tests.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.stage import Play


@pytest.fixture(scope="session")
def tally() -> Tally:
    """Where the counts of this run go."""
    return Tally("crash")


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Let the scene be played to its death; each ending is played once a run, and every home gets a copy of it."""
    played: dict[tuple[str, str], tuple[Path, list[str]]] = {}

    async def play_scene(home: Path, last: str = "", point: str = "") -> list[str]:
        if (last, point) not in played:
            folder = tmp_path_factory.mktemp("scene")
            options = [*(["--last", last] if last else []), *(["--point", point] if point else [])]
            program = await Program.start("tests.crash.scene", folder / "home", *options, errors=folder / "errors")
            await program.ended()
            played[last, point] = folder / "home", [str(line["what"]) for line in program.lines]
        master, lines = played[last, point]
        shutil.copytree(master, home)
        return lines

    return play_scene
