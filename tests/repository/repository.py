"""The files of this repository, for the tests that read all of them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def repository_files() -> list[Path]:
    """Return every file that is in the repository, or would be after `git add`; without git, what a checkout holds."""
    listing = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        paths: Iterable[Path] = (ROOT / name for name in set(listing.stdout.decode().split("\0")) - {""})
    else:
        hidden = re.compile(r"(^|/)(\.[a-z_]+|__pycache__)/")
        paths = (path for path in ROOT.rglob("*") if not hidden.search(path.relative_to(ROOT).as_posix()))
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


@cache
def text_files() -> list[tuple[str, str]]:
    """Return the path and the text of every text file, read once a process."""
    texts = (
        (path.relative_to(ROOT).as_posix(), path.read_bytes().decode(errors="replace")) for path in repository_files()
    )
    return [(path, text) for path, text in texts if "\0" not in text]
