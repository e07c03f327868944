"""Ctrl-C: the exit code is that of the signal wherever it comes, no traceback is shown, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hansard import Record, cli
from tests.acceptance.stories_program import write_script
from tests.record.helpers_facts import new_session, say

PROGRAM = """
import os, signal, sys
is_new = "HANSARD_ENVIRONMENT_PIPE" in os.environ

def strike(event):
    if os.environ["PYTHON_TEST_STRIKES"] == f"{'anew: ' if is_new else ''}{event}":
        os.kill(os.getpid(), signal.SIGINT)

class Imports:
    def find_spec(name, path, target=None):
        strike(f"import {name}")

def watch(event, given):
    if event == "os.exec":
        strike("exec")
    if event == "os.mkdir" and "hansard-read-" in str(given[0]):
        strike(f"copy: {os.path.basename(given[0])}")

from hansard.cli import start
sys.meta_path.insert(0, Imports)
sys.addaudithook(watch)
start()
"""
"""Interrupts itself at an import, when it starts itself anew, or at a folder of a private copy of the record.

What is called `PYTHON…` stays in the environment.
"""

WITH_RECORD = """
import asyncio, os, signal, sys
from pathlib import Path
from hansard.cli import end_at_interrupt
end_at_interrupt()
from hansard.cli.existing import opened_record, with_record

async def act(record):
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

with_record(Path(sys.argv[1]), act, opened_record)
"""

SLOW_PIP = """
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""

WAIT_SECONDS_MAX = 300


def run_program(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Python to its end."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS_MAX,
    )


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
    words = ("--home", str(home), "-m", model, "-p", "hello")
    ended = run_program(PROGRAM, *words, PYTHON_TEST_STRIKES=event, SOME_TOKEN="secret")  # noqa: S106
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGINT, "")
    assert ended.stderr in {"hansard: interrupted\n", ""}


async def test_no_private_copy_stays(tmp_path: Path) -> None:
    """A home that is only read, with a log of its own: the copy that is being made of it is removed."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")
    (home / "home.jsonl").write_bytes((home / "home.jsonl").read_bytes() + b"not an entry\n")
    home.chmod(0o777)  # such a home is read and left untouched
    given = {"PYTHON_TEST_STRIKES": "copy: locks", "TMPDIR": str(temporary)}
    ended = run_program(PROGRAM, "--home", str(home), "verify", **given)
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "")
    assert list(temporary.iterdir()) == []


def test_a_record_is_closed(tmp_path: Path) -> None:
    """A command that is interrupted while it has the record open leaves no owner behind."""
    ended = run_program(WITH_RECORD, str(tmp_path / "home"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGINT, "", "")
    assert list((tmp_path / "home" / "locks" / "owners").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_installation_ends_its_installer(tmp_path: Path, number: signal.Signals) -> None:
    """`models install-demo` leaves neither files nor a process."""
    pip, folder = tmp_path / "modules" / "pip", tmp_path / "demo"
    pip.mkdir(parents=True)
    (pip / "__init__.py").touch()
    (pip / "__main__.py").write_text(SLOW_PIP)
    variables = {"PYTHONPATH": str(pip.parent), "HANSARD_DEMO_FOLDER": str(folder)}
    installing = subprocess.Popen(
        [sys.executable, "-c", "from hansard.cli import start; start()", "models", "install-demo"],
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        log, deadline = b"", time.monotonic() + WAIT_SECONDS_MAX
        while not log.endswith(b"\n"):
            assert installing.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
            log = next((path.read_bytes() for path in folder.glob(".part-*/installer.log")), b"")
        installing.send_signal(number)
        told = installing.communicate(timeout=WAIT_SECONDS_MAX)[1]
    finally:
        installing.kill()
    assert installing.returncode == 128 + number
    assert "Traceback" not in told
    assert [path.name for path in folder.iterdir()] == [".lock"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(log), 0)


def test_commands_run_where_signals_end_them() -> None:
    """Only `process.run`, and the gateway with its own signals, enter the event loop."""
    folder = Path(cli.__file__).parent
    entering = {path.name for path in folder.rglob("*.py") if "asyncio.run(" in path.read_text(encoding="utf-8")}
    assert entering == {"process.py", "gateway.py"}
