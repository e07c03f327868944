"""A machine on which nobody has installed anything: the files as git has them, and the way to a package index."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hansard.models.discovery import LM_STUDIO
from tests.acceptance.fresh_terminal import machine
from tests.cli.terminal.tmux import ROOT

COMMAND_SECONDS_MAX = 300.0
PROBED = "editables"
"""A package of a few kilobytes, which the requirements pin: whoever can fetch it can fetch the others."""

needs_git = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="the files are copied as git lists them"
)


def listed_files(below: str = ".") -> list[str]:
    """Return the files of the repository: those that git has, and those that it would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", below]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def copy_repository(target: Path) -> Path:
    """Copy the repository into a folder that does not exist yet; return it."""
    for name in listed_files():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return target


def fresh(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a new person, who has nothing but this machine's way to a package index."""
    home.mkdir(parents=True, exist_ok=True)
    own = machine(home, **variables)
    own.pop("PYTHONPYCACHEPREFIX", None)
    for settings in (Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"):
        if settings.is_file():
            own.setdefault("PIP_CONFIG_FILE", str(settings))
    return own


def run(command: list[str], variables: dict[str, str], place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a place to its end."""
    return subprocess.run(
        command,
        env=variables,
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_SECONDS_MAX,
    )


def skip_without_index(folder: Path, variables: dict[str, str]) -> None:
    """Skip the test when packages cannot be fetched, and say why."""
    pinned = re.search(rf"^{PROBED}==\S+", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    wanted = ["--no-deps", "--dest", str(folder / "probe"), pinned[0]]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1", "--timeout", "20", *wanted]
    done = run(pip, variables, folder)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        pytest.skip(f"pip cannot reach an index: {' '.join(last)}")


def local_model_runs() -> bool:
    """Whether a model is found on this machine whatever the environment says: no setting moves LM Studio."""
    try:
        with socket.create_connection((LM_STUDIO.host, LM_STUDIO.port), 1):
            return True
    except OSError:
        return False


def skip_with_a_local_model() -> None:
    """Skip the test when there is no way to be without a model."""
    if local_model_runs():
        pytest.skip("LM Studio runs on this machine")


def running(folder: Path) -> list[str]:
    """Return the commands that run with the Python of an environment in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if command[0].startswith(f"{folder}{os.sep}"):
            found.append(" ".join(command).strip())
    return found
