"""S23: nothing is written where others can change what Hansard goes by, or read its keys; reading works."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from hansard.app.home_files import find_unsafe
from tests.acceptance.shown.program import run_forked

ANSWER = '[[answers]]\ntext = "hello"\n'


def hansard(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a home."""
    return run_forked("--home", home, *words, variables=os.environ)


@pytest.mark.parametrize(
    ("name", "mode", "right"),
    [("", 0o777, 0o755), ("config.toml", 0o666, 0o644), ("keys.toml", 0o640, 0o600)],
    ids=["home", "config", "keys"],
)
def test_writing_is_refused_and_reading_works(tmp_path: Path, name: str, mode: int, right: int) -> None:
    """The message names file, mode and command; the command puts it right. Reading goes on, with the same words."""
    home = tmp_path / "a home"
    home.mkdir(mode=0o700)
    (tmp_path / "script.toml").write_text(ANSWER)
    (home / "config.toml").write_text(f'model = "scripted:{tmp_path / "script.toml"}"\n')
    (home / "keys.toml").write_text("")
    (home / "keys.toml").chmod(0o600)
    assert hansard(home, "-p", "first").stdout == "hello\n"

    path = home / name
    path.chmod(mode)
    refused = hansard(home, "-p", "second")
    assert (refused.returncode, refused.stdout) == (2, "")
    command = f"chmod {'600' if name == 'keys.toml' else 'go-w'} {shlex.quote(str(path))}"
    assert f"{path}: others can" in refused.stderr
    assert f"(mode {mode:04o}); run: {command}" in refused.stderr

    listed = hansard(home, "sessions")
    assert listed.returncode == 0
    assert "first" in listed.stdout
    assert command in listed.stderr

    subprocess.run(shlex.split(command), check=True, timeout=120)
    assert path.stat().st_mode & 0o777 == right
    again = hansard(home, "-p", "third")
    assert (again.stdout, again.stderr) == ("hello\n", "")


def test_links_and_homes_that_are_not_there(tmp_path: Path) -> None:
    """Of a link, what it leads to counts. What is not there is safe: it is made private when it is needed."""
    home, target = tmp_path / "home", tmp_path / "shared.toml"
    assert find_unsafe(home) == []
    home.mkdir(mode=0o750)
    target.write_text("")
    (home / "config.toml").symlink_to(target)
    target.chmod(0o644)
    assert find_unsafe(home) == []
    target.chmod(0o664)
    (found,) = find_unsafe(home)
    assert found.path == home / "config.toml"
