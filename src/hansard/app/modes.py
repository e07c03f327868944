"""Whether others can change what Hansard goes by, or read its keys. Imports little: every command asks.

Reads: owners and modes of the home, `config.toml` and `keys.toml`, and of every folder on the way to them, links
followed. Writes nothing.
Others are all users but Hansard's own and root: whoever changes `config.toml` can have Hansard start any program.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hansard.errors import HomeUnsafe

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = 0
WRITING: Final = 0o022
ANYTHING: Final = 0o077
FILES: Final = {"": WRITING, "config.toml": WRITING, "keys.toml": ANYTHING}
"""What lies in a home, the home itself first, and which rights of others are too many there."""

LINKS_MAX: Final = 40
"""Links on the way to one file: as many as Linux follows."""


class Unsafe(NamedTuple):
    """A path that is open to others."""

    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class PathStep(NamedTuple):
    """One step on the way to a path: something in a folder that is reached without links."""

    folder: Path
    inner: Path


def find_unsafe(home: Path) -> list[Unsafe]:
    """Return how each path of a home is open to others, with the command that closes it. A folder is named once."""
    found: list[Unsafe] = []
    told: set[Path] = set()
    for name, refused in FILES.items():
        path = home / name
        try:
            if what := why_open(path, refused):
                found.append(Unsafe(path, what))
            steps = list(steps_to(path))
            for step in steps:
                if step.folder not in told and (what := why_replaceable(step)):
                    found.append(Unsafe(path, f"others can put another in its place: {what}"))
                    told.add(step.folder)
            told.update(step.inner for step in steps[-1:])  # of the home itself why_open tells
        except OSError:
            continue  # what is not there, or cannot be looked at, is told by whoever opens it
    return found


def why_open(path: Path, refused: int) -> str:
    """Return why others can change or read what a path leads to; empty when they cannot, or when it is not there."""
    try:
        look = path.stat()
    except FileNotFoundError:
        return ""
    if look.st_uid not in ({os.geteuid()} if refused == ANYTHING else {os.geteuid(), ROOT}):
        return told_owner("it", path, look.st_uid)
    mode = stat.S_IMODE(look.st_mode)
    if not mode & refused:
        return ""
    change = "go-w" if refused == WRITING else "600"
    command = f"chmod {change} {shlex.quote(str(path))}"
    return f"others can {'change' if mode & WRITING else 'read'} it (mode {mode:04o}); run: {command}"


def why_replaceable(step: PathStep) -> str:
    """Return why others can rename or remove something in a folder; empty when they cannot.

    In a sticky folder only the owners of the folder and of the thing can. Owners of files and folders are looked at
    anyway, so here those of links.
    """
    look = step.folder.lstat()
    if look.st_uid not in {os.geteuid(), ROOT}:
        return told_owner(str(step.folder), step.folder, look.st_uid)
    mode = stat.S_IMODE(look.st_mode)
    if not mode & WRITING:
        return ""
    if not mode & stat.S_ISVTX:
        return f"{step.folder} (mode {mode:04o}); run: chmod go-w {shlex.quote(str(step.folder))}"
    if not step.inner.is_symlink() or (owner := step.inner.lstat().st_uid) in {os.geteuid(), ROOT}:
        return ""
    return told_owner(f"the link {step.inner}", step.inner, owner, "-h ")


def told_owner(what: str, path: Path, owner: int, option: str = "") -> str:
    """Return that something belongs to another user, and the command that changes that."""
    command = f"sudo chown {option}{os.geteuid()} {shlex.quote(str(path))}"
    return f"{what} belongs to another user (user id {owner}); run: {command}"


def steps_to(path: Path) -> Iterator[PathStep]:
    """Yield each step to what a path leads to, as the system goes there, as far as there is something."""
    whole = path.absolute()
    folder, names, links = Path(whole.anchor), list(reversed(whole.parts[1:])), 0
    while names:
        name = names.pop()
        if name == "..":
            folder = folder.parent
            continue
        inner = folder / name
        yield PathStep(folder, inner)
        if not inner.is_symlink():
            if not inner.is_dir():
                return
            folder = inner
            continue
        links += 1
        if links > LINKS_MAX:
            return
        target = inner.readlink()
        folder = Path(target.anchor) if target.anchor else folder
        names.extend(reversed(target.parts[1:] if target.anchor else target.parts))


def check_modes(home: Path) -> None:
    """Raise HomeUnsafe when others can change what Hansard goes by, or read its keys."""
    if found := find_unsafe(home):
        raise HomeUnsafe("\n".join(map(str, found)))
