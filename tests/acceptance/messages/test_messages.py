"""Each fault, with the real commands: what a person sees must be in the table `allowed.toml` for that fault.

Every run writes what was seen to a file: `.prove/messages.jsonl` under HANSARD_PROVE=1, or where HANSARD_MESSAGES
names one. After a change of messages, read that file with fresh eyes and change the table by hand.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.acceptance.messages.faults import FAULTS, SLOW, make_home
from tests.acceptance.stories_program import write_script
from tests.counts import PROVE
from tests.record.helpers_facts import SESSION
from tests.record.helpers_process import ROOT, need_mounts

TABLE = Path(__file__).with_name("allowed.toml")
SEEN = os.environ.get("HANSARD_MESSAGES") or (str(ROOT / ".prove" / "messages.jsonl") if PROVE else "")

COMMANDS = {
    "sessions": ["sessions"],
    "verify": ["verify"],
    "-r talk -p hello": ["-r", SESSION, "-p", "hello"],
    "sessions title": ["sessions", "title", SESSION, "New"],
}
READING = ("sessions", "verify")
DRAWN = {
    "nothing is wrong": "-r talk -p hello",
    "a file lies where the home must be": "sessions title",
    "the disk is full": "-r talk -p hello",
    "the home belongs to another user and may be read": "sessions",
    "state.db belongs to another user": "-r talk -p hello",
    "another program has a transaction open": "sessions",
    "a stopped process holds the write lock": "sessions",
    "state.db is no database": "-r talk -p hello",
    "the session's log goes on with another history": "verify",
    "few files may be open": "verify",
}
"""What `make test` runs: the other pairs take minutes, because writing commands wait for locks."""

FILES_MAX = 13
SECONDS_MAX = 300
PLAIN = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
"""Root without its powers: rights of files count for it as for everybody."""


class Told(NamedTuple):
    """What a person saw, with everything left out that differs from run to run."""

    code: int
    lines: tuple[str, ...]
    verified: tuple[str, ...]
    """What `verify` printed: its findings are what it tells. What other commands print is no message."""


def read_table() -> dict[tuple[str, str], set[Told]]:
    """Return what is allowed for each fault and command."""
    table: dict[tuple[str, str], set[Told]] = defaultdict(set)
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["allowed"]:
        for command in row["commands"]:
            verified = row.get("verified", ()) if command == "verify" else ()
            table[row["fault"], command].add(Told(row["code"], tuple(row["lines"]), tuple(verified)))
    return table


def run(home: Path, model: str, command: str, *, few_files: bool) -> Told:
    """Run a command as a person without special powers."""
    talks = ["-m", model] if "-p" in COMMANDS[command] else []
    given = [*PLAIN, sys.executable, "-m", "hansard.cli.main", "--home", str(home), *talks, *COMMANDS[command]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSARD_")}

    def limit() -> None:
        if few_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))

    ended = subprocess.run(
        given,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS_MAX,
        env=environment,
        preexec_fn=limit,
    )
    lines, verified = (
        tuple(normal(line, home) for line in text.splitlines())
        for text in (ended.stderr, ended.stdout if command == "verify" else "")
    )
    return Told(ended.returncode, lines, verified)


def normal(line: str, home: Path) -> str:
    """Leave out what differs from run to run."""
    line = line.replace(str(home), "HOME")
    line = re.sub(r"process \d+, \S+?\)", "process N)", line)
    line = re.sub(r"(kill -[A-Z]+) \d+", r"\1 N", line)
    line = re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", line)
    return re.sub(r"user id \d+", "user id N", line)


@pytest.mark.alone
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_people_are_told(tmp_path: Path, fault: str) -> None:
    """Every pair of a fault and what was told is in the table."""
    need_mounts()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    commands = list(COMMANDS) if PROVE else [DRAWN[fault]] if fault in DRAWN else []
    if not commands:
        pytest.skip("only under HANSARD_PROVE=1")
    table, model = read_table(), write_script(tmp_path / "script.toml", {"text": "Hello."})
    wrong = []
    for number, command in enumerate(commands):
        home = tmp_path / str(number) / "home"
        await make_home(home)
        with FAULTS[fault](home):
            told = run(home, model, command, few_files=fault == "few files may be open")
        if SEEN:
            Path(SEEN).parent.mkdir(exist_ok=True)
            with Path(SEEN).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"fault": fault, "command": command, **told._asdict()}) + "\n")
        if told not in table[fault, command]:
            wrong.append((fault, command, told))
    assert wrong == []


def test_the_table_knows_every_fault() -> None:
    """No fault without messages, and no messages for what is no fault."""
    pairs = set(read_table())
    assert pairs == {(fault, command) for fault in FAULTS for command in COMMANDS}
    assert set(DRAWN) <= set(FAULTS)
    assert {fault for fault in SLOW if DRAWN.get(fault) not in {None, *READING}} == set(), "a slow pair in make test"
