"""Files beside the record that are damaged or cannot be read: an error names the file and says what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from hansard.app.config import load_config
from hansard.app.home_files import load_wording
from hansard.app.keys import find_key
from hansard.channels.matrix.keeping import Keeping
from hansard.channels.telegram.keeping import Leaving, Places, read_token
from hansard.cli.terminal.screen import open_history
from hansard.errors import ConfigInvalid, StatusUnusable
from hansard.gateway.health import Running, read_status, write_status

GARBAGE = b"\x00\xff\xfe no file of ours"
READERS: dict[str, Callable[[Path], object]] = {
    "config.toml": lambda home: load_config(home, {}, {}),
    "keys.toml": lambda home: find_key("openai", home, {}),
    "notices.toml": load_wording,
    "gateway.json": read_status,
    "matrix/login.json": lambda home: Keeping(home).login(),
    "matrix/cross-signing.json": lambda home: Keeping(home).seeds(),
    "matrix/recovery-key": lambda home: Keeping(home).recovery_key(),
    "matrix/password": lambda home: Keeping(home).given("password"),
    "matrix/pickle-key": lambda home: Keeping(home).pickle_key(),
    "matrix/identities.json": lambda home: Keeping(home).pins(),
    "matrix/stamp-DEVICE.json": lambda home: Keeping(home).stamps("DEVICE"),
    "telegram/token": lambda home: read_token(home, ""),
    "telegram/migrated.json": lambda home: Places(home).first(1),
    "telegram/leaving.json": lambda home: Leaving(home).begin(1),
}
TEXTS = ("matrix/recovery-key", "matrix/password", "matrix/pickle-key")
"""Files of plain text: whether they are right, only the server can tell."""


@pytest.mark.parametrize("accident", ["a directory", "a symlink to itself", "garbage"])
@pytest.mark.parametrize("name", READERS)
def test_an_error_names_the_file(home: Path, name: str, accident: str) -> None:
    """No traceback of the system, and nothing is passed over in silence."""
    if accident == "garbage" and name in TEXTS:
        pytest.skip("any text may be right")
    path = home / name
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    if accident == "a directory":
        path.mkdir(mode=0o700)
    elif accident == "a symlink to itself":
        path.symlink_to(path)
    else:
        path.write_bytes(GARBAGE)
        path.chmod(0o600)
    with pytest.raises((ConfigInvalid, StatusUnusable), match=str(path)):
        READERS[name](home)


@pytest.mark.parametrize("name", ["matrix", "telegram"])
def test_a_file_in_place_of_a_folder_is_named(home: Path, name: str) -> None:
    """The folder of a channel, too."""
    home.mkdir(parents=True, mode=0o700)
    (home / name).touch(mode=0o600)
    use = Keeping(home).prepare if name == "matrix" else partial(Leaving(home).begin, 1)
    with pytest.raises(ConfigInvalid, match=f"{home / name} is no folder"):
        use()


def run_hansard(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a home."""
    command = [str(Path(sys.executable).parent / "hansard"), "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_status_does_not_say_that_no_gateway_runs(home: Path) -> None:
    """Where the file is damaged, nobody knows: that is said, with the file, and with no other exit code than errors."""
    home.mkdir(parents=True, mode=0o700)
    (home / "gateway.json").write_bytes(GARBAGE)
    done = run_hansard(home, "gateway", "status")
    assert done.returncode == 2
    assert "no gateway runs" not in done.stdout
    assert str(home / "gateway.json") in done.stderr


def test_a_gateway_names_the_file_that_it_cannot_write(home: Path) -> None:
    """A folder in its place: nothing is left behind, and the error names it."""
    (home / "gateway.json").mkdir(parents=True, mode=0o700)
    with pytest.raises(StatusUnusable, match=str(home / "gateway.json")):
        write_status(home, Running(pid=1, port=2))
    assert [path.name for path in home.iterdir()] == ["gateway.json"]


def test_a_history_that_cannot_be_kept_is_named(home: Path) -> None:
    """The conversation goes on without it, and the person is told why."""
    (home / "history").mkdir(parents=True, mode=0o700)
    history, trouble = open_history(home / "history")
    history.append_string("typed")
    assert history.get_strings() == ["typed"]
    assert str(home / "history") in trouble
