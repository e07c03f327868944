"""A home with every feature, written by one commit: later commits read the same from it, byte for byte.

`scripts/full_home.py` made the home and had its answers read. `verify` compares tables with folds by the same code, so
a projection that is lost shows only in homes that were written before. When a test fails, this code reads something
else than before from homes that people have.
"""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import full_home_reading as reading
from tests.acceptance.full_home_reading import Parts
from tests.counts import LONG, PROVE

SCRIPT = Path(__file__).parents[2] / "scripts" / "full_home.py"
ARCHIVES_BYTES_MAX = 300_000
DIFFERENCES_SHOWN_MAX = 60
NAMES = (
    "beginnings.json",
    "commands.json",
    "conversations.json",
    "export-chat.jsonl",
    "export.html",
    "export.jsonl",
    "export.md",
    "facts.jsonl",
    "requests.json",
    "search.json",
    "shown.json",
    "tables.json",
    "transcripts.json",
)
BASICS = ("beginnings.json", "conversations.json", "export.jsonl", "requests.json", "tables.json", "transcripts.json")

RUNNING = ("conversations.json", "export.jsonl", "tables.json", "transcripts.json")


REWORDED = {b"keeps what a crash left unfinished": b"keeps lines that are not in the record"}
"""Sentences that were not true of every case, and say it otherwise since."""


def assert_same(found: bytes, golden: bytes) -> None:
    """Compare two texts; a failure shows the first lines that differ."""
    if found != golden:
        before, now = golden.decode().splitlines(), found.decode().splitlines()
        differences = list(difflib.unified_diff(before, now, "golden", "found", lineterm="", n=2))
        pytest.fail("\n".join(line[:400] for line in differences[:DIFFERENCES_SHOWN_MAX]), pytrace=False)


@pytest.fixture(scope="module")
def golden() -> Parts:
    """What the commit that made the home read from it."""
    parts = reading.golden_parts()
    for before, now in REWORDED.items():
        assert before in parts["commands.json"]
        parts = parts | {"commands.json": parts["commands.json"].replace(before, now)}
    return parts


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What this code reads from it."""
    return reading.read_home(reading.unpack(tmp_path_factory.mktemp("full") / "home"))


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What this code reads from its logs alone."""
    home = reading.unpack(tmp_path_factory.mktemp("rebuilt") / "home")
    reading.lose_database(home)
    return reading.read_basics(home)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """What this code reads from homes of older schemas."""
    return reading.read_old_homes(tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_is_read_from_the_home(name: str, found: Parts, golden: Parts) -> None:
    """Exports, commands, searches and requests to every protocol are those of the commit that made the home."""
    assert_same(found[name], golden[name])


@pytest.mark.parametrize("name", RUNNING)
def test_the_same_is_read_while_turns_run(name: str, found: Parts, golden: Parts) -> None:
    """So is what is open: an answer that is being said, a question that waits, turns that run."""
    assert_same(found[f"running/{name}"], golden[f"running/{name}"])


@pytest.mark.parametrize("name", BASICS)
def test_the_same_is_read_from_the_logs(name: str, rebuilt: Parts, golden: Parts) -> None:
    """Without its database, too: every projection is built anew from the entries and is the same."""
    assert_same(rebuilt[name], golden[name])


@pytest.mark.parametrize("home", reading.OLD)
@pytest.mark.parametrize("name", BASICS)
def test_the_same_is_read_from_older_homes(home: str, name: str, old: Parts, golden: Parts) -> None:
    """Entries of older versions, which lack fields, are projected and told as they were."""
    assert_same(old[f"{home}/{name}"], golden[f"{home}/{name}"])


def test_every_golden_answer_is_compared(golden: Parts) -> None:
    """No answer is kept that no test looks at, and none is empty."""
    homes = {"running": RUNNING, **dict.fromkeys(reading.OLD, BASICS)}
    assert {*golden} == {*NAMES, *(f"{home}/{name}" for home, names in homes.items() for name in names)}
    assert all(golden.values())
    assert json.loads(golden["commands.json"])["verify"]["ok"]


def test_the_home_has_every_kind_and_every_table(home: Path) -> None:
    """What is in no fixture is protected by none: the archive has each kind of entry, and a row in each table."""
    reading.unpack(home)
    assert reading.missing_kinds(home) == []
    assert reading.empty_tables(home) == []
    assert sum(path.stat().st_size for path in reading.FOLDER.iterdir()) < ARCHIVES_BYTES_MAX


def test_the_home_is_as_a_kill_left_it(home: Path) -> None:
    """An answer is open in the database and in its part file; a log ends with half a line, another with half a unit."""
    reading.unpack(home)
    assert [path.name for path in home.rglob("*.part")] == ["lost.part"]
    assert not (home / "sessions" / "other" / "trip-fork.jsonl").read_bytes().endswith(b"\n")
    assert len(reading.torn_units(home)) == 1


@pytest.mark.skipif(not (LONG or PROVE), reason="it takes seconds: make test-long runs it")
def test_the_script_still_builds_such_a_home(home: Path) -> None:
    """The script runs with this code, and its home lacks nothing either."""
    subprocess.run([sys.executable, SCRIPT, "build", home], check=True, timeout=600)
    assert reading.missing_kinds(home) == []
    assert reading.empty_tables(home) == []
    assert reading.read_basics(home)
