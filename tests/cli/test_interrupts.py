"""Ctrl-C while `hansard` starts: the exit code is that of the signal wherever it comes, and no traceback is shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.stories_program import write_script

PROGRAM = """
import os, signal, sys
is_new = "HANSARD_ENVIRONMENT_PIPE" in os.environ

def strike(event):
    if os.environ["PYTHON_TEST_STRIKES"] == f"{'anew: ' if is_new else ''}{event}":
        os.kill(os.getpid(), signal.SIGINT)

class Imports:
    def find_spec(name, path, target=None):
        strike(f"import {name}")

def start_anew(event, given):
    if event == "os.exec":
        strike("exec")

from hansard.cli import start
sys.meta_path.insert(0, Imports)
sys.addaudithook(start_anew)
start()
"""
"""Interrupts itself at an import, or when it starts itself anew. What is called `PYTHON…` stays in the environment."""


@pytest.mark.parametrize(
    "event",
    [
        "import hansard.cli.main",
        "import click",
        "import msgspec",
        "import hansard.app.secrecy",
        "exec",
        "anew: import hansard.cli.main",
        "anew: import hansard.cli.once",
        "anew: import hansard.journal.sqlite.opening",
        "anew: import hansard.models.scripted",
    ],
)
def test_exit_code_while_it_starts(tmp_path: Path, event: str) -> None:
    """At imports, while the process starts itself anew, and while the record is opened."""
    model = write_script(tmp_path / "script.toml", {"text": "Hello."})
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(f"[mcp.never]\ncommand = {json.dumps(sys.executable)}\n")
    given = {"PYTHON_TEST_STRIKES": event, "SOME_TOKEN": "secret"}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--home", str(home), "-m", model, "-p", "hello"],
        env=os.environ | given,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGINT, "")
    assert ended.stderr in {"hansard: interrupted\n", ""}
