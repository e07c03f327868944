"""Whether others can change what Hansard goes by, or read its keys. Imports little: every command asks.

Reads: the modes of the home, `config.toml` and `keys.toml`; of links, those of what they lead to. Writes nothing.
Others are the group and everybody else: whoever writes `config.toml` can have Hansard start any program.
"""

from __future__ import annotations

import shlex
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from hansard.errors import HomeUnsafe

if TYPE_CHECKING:
    from pathlib import Path

WRITING: Final = 0o022
ANYTHING: Final = 0o077
FILES: Final = {"": WRITING, "config.toml": WRITING, "keys.toml": ANYTHING}
"""What lies in a home, the home itself first, and which rights of others are too many there."""


class Unsafe(NamedTuple):
    """A path that is open to others."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def find_unsafe(home: Path) -> list[Unsafe]:
    """Return each path of a home that is open to others, with its mode and the command that closes it."""
    found = []
    for name, refused in FILES.items():
        path = home / name
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue  # what is not there, or cannot be looked at, is told by whoever opens it
        if mode & refused:
            what = "change" if mode & WRITING else "read"
            change = "go-w" if refused == WRITING else "600"
            command = f"chmod {change} {shlex.quote(str(path))}"
            found.append(Unsafe(path, f"others can {what} it (mode {mode:04o}); run: {command}"))
    return found


def check_modes(home: Path) -> None:
    """Raise HomeUnsafe when others can change what Hansard goes by, or read its keys."""
    if found := find_unsafe(home):
        raise HomeUnsafe("\n".join(map(str, found)))
