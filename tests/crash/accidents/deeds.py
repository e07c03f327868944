"""What can happen to a file of a home: the rows and columns of the table, and how each accident is done.

A home lies beside four copies, its stock: `older`, `present` and `newer` are moments of one home, `foreign` is another
home. Files are overwritten in place, as `cp` does, so that the inode stays.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hansard.journal.entries import log_name, part_name, tail_name

HIT, OTHER, OPEN, SPARE = "hit", "other", "open", "spare"
"""Sessions: whose log is hit, one beside it, one with an open message, one that gives a recovery something to do."""

PATHS = {
    "state.db": "state.db",
    "state.db-wal": "state.db-wal",
    "state.db-shm": "state.db-shm",
    "search.db": "search.db",
    "home.jsonl": "home.jsonl",
    "session log": log_name(HIT),
    ".part": part_name(OPEN),
    ".tail": tail_name(HIT),
    "blobs/": "blobs",
    "locks/": "locks",
    "reserve": "reserve",
    "backups/": "backups",
    "*.orphan-*": "state.db.orphan-0badcafe",
}
COPIES = {"older copy": "older", "newer copy": "newer", "from another home": "foreign"}
RIGHTS = {"unreadable": 0o200, "unwritable": 0o400}
ACCIDENTS = (
    "missing",
    *COPIES,
    "cut off",
    "garbage",
    *RIGHTS,
    "a symlink",
    "a directory",
    "another owner",
)
NOTHING = "nothing"
"""No accident: how a change of the source is shown to break nothing but what follows an accident."""

MOMENTS = ("idle", "running", "recovering")

NOBODY, STRANGER = 65534, 54321
KEPT = (".tail", "backups/", "*.orphan-*")
"""Files that nothing reads: they are kept for people."""

TORN = b'{"seq":99,"id":"torn'
"""The beginning of a line. The log ends with it where the `.tail` is hit, so that there is something to set aside."""

GARBAGE = b"\x00\xffthis is no file of Hansard's\n" * 400


def do_accident(stock: Path, home: Path, row: str, accident: str) -> None:
    """Do an accident to a file of a home; a folder's files are hit one by one. Done as root, as a careless admin."""
    if accident == NOTHING:
        return
    if row == ".tail":
        with (home / log_name(HIT)).open("ab") as log:
            log.write(TORN)
    hit_path(stock, home, row, accident)


def hit_path(stock: Path, home: Path, row: str, accident: str) -> None:
    """Do an accident to what lies at the path of a row."""
    path = home / PATHS[row]
    if accident == "missing":
        remove(path)
    elif accident in COPIES:
        replace_content(path, stock / COPIES[accident] / PATHS[row])
    elif accident == "cut off":
        for file in files_of(path):
            os.truncate(file, file.stat().st_size * 2 // 3)
    elif accident == "garbage":
        for file in files_of(path):
            file.write_bytes(GARBAGE)
    elif accident == "a symlink":
        elsewhere = home.with_name(f"{home.name}-elsewhere")
        elsewhere.mkdir()
        os.chown(elsewhere, home.stat().st_uid, -1)
        path.symlink_to(path.rename(elsewhere / path.name))
    elif accident == "a directory":
        put_other_kind(path, home.stat().st_uid)
    elif accident == "another owner":
        os.chown(path, STRANGER, STRANGER)
    else:
        path.chmod(RIGHTS[accident] | (0o100 if path.is_dir() else 0))


def put_other_kind(path: Path, owner: int) -> None:
    """Put a folder in a file's place, or a file in a folder's."""
    is_folder = path.is_dir()
    remove(path)
    if is_folder:
        path.write_bytes(b"a file in place of a folder")
    else:
        path.mkdir()
        os.chown(path, owner, -1)


def remedy(home: Path, row: str, accident: str) -> None:
    """Do what the refusal asks for: give the rights back, or move what is wrong away."""
    path = home / PATHS[row]
    if accident in RIGHTS or accident == "another owner":
        os.chown(path, home.stat().st_uid, -1)
        path.chmod(0o700 if path.is_dir() else 0o600)
    elif path.is_symlink() and path.exists():
        aside = path.resolve()
        path.unlink()
        aside.rename(path)
    elif row.startswith("state.db"):
        for side in ("", "-wal", "-shm"):
            move_away(home, home / f"state.db{side}")
    else:
        move_away(home, path)


def move_away(home: Path, path: Path) -> None:
    """Move a file out of the home."""
    if path.is_symlink() or path.exists():
        path.rename(home.with_name(f"{home.name}-moved-{path.name}"))


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def files_of(path: Path) -> list[Path]:
    """Return a file, or the files of a folder; none where nothing lies."""
    return [each for each in (sorted(path.rglob("*")) if path.is_dir() else [path]) if each.is_file()]


def replace_content(path: Path, source: Path) -> None:
    """Overwrite a file with another one's content, in place; of a folder, each file that the other one has."""
    if not source.is_dir():
        path.write_bytes(source.read_bytes())
        return
    owner = path.stat()
    for file in files_of(source):
        target = path / file.relative_to(source)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(file.read_bytes())
        for each in (target, target.parent):
            os.chown(each, owner.st_uid, owner.st_gid)
