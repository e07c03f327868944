"""Files of channels that are damaged or cannot be read: an error names the file and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hansard.channels.matrix.keeping import Keeping
from hansard.channels.telegram.keeping import Leaving, Places, read_token
from hansard.errors import ConfigInvalid

GARBAGE = b"\x00\xff\xfe no file of ours"
READERS: dict[str, Callable[[Path], object]] = {
    "matrix/login.json": lambda home: Keeping(home).login(),
    "matrix/cross-signing.json": lambda home: Keeping(home).seeds(),
    "matrix/recovery-key": lambda home: Keeping(home).recovery_key(),
    "matrix/password": lambda home: Keeping(home).given("password"),
    "matrix/pickle-key": lambda home: Keeping(home).pickle_key(),
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
    path.parent.mkdir(parents=True, mode=0o700)
    if accident == "a directory":
        path.mkdir(mode=0o700)
    elif accident == "a symlink to itself":
        path.symlink_to(path)
    else:
        path.write_bytes(GARBAGE)
        path.chmod(0o600)
    with pytest.raises(ConfigInvalid, match=str(path)):
        READERS[name](home)
