"""Programs run by a user without rights: by nobody, when the tests are run by root."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65_534
SECONDS_MAX = 120


def user() -> dict[str, Any]:
    """Return how `subprocess` starts a program without rights."""
    return {} if os.geteuid() else {"user": NOBODY, "group": NOBODY, "extra_groups": []}


@functools.cache
def interpreter() -> str:
    """Return an interpreter that such a user can run, with what this one has installed."""
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/bin/{minor}", f"/usr/local/bin/{minor}"):
        words = [candidate, "-c", "import hansard.record.api, mcp"]
        try:
            subprocess.run(words, check=True, env=python_environment(), cwd="/", capture_output=True, **user())
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip("no interpreter that a user without rights can run")


def python_environment() -> dict[str, str]:
    """Return what an interpreter needs to find this tree and its packages."""
    folders = [str(ROOT / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def own_folder() -> Iterator[Path]:
    """Give a folder that belongs to such a user."""
    folder = Path(tempfile.mkdtemp(prefix="hansard-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def give_away(folder: Path) -> None:
    """Let everything in a folder belong to the user, and nobody else read it."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        if not os.geteuid():
            os.chown(path, NOBODY, NOBODY)


def run(*words: str, given: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as such a user, below a shell that has the same variables."""
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *words]
    environment = {**python_environment(), "HOME": str(cwd), **given}
    return subprocess.run(
        shell,
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        **user(),
    )
