"""Changes of the source that each remove what a row of the table promises: the check, or the repair.

`test_mutants` plays a cell of the row with such a change, and it must fail. So no row holds by chance.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[3] / "src"


class Edit(NamedTuple):
    """A text in the source, and what stands in its place."""

    file: str
    """Below `src/hansard`."""
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The file below the folder of the source."""
        return Path("hansard") / self.file

    def count_places(self) -> int:
        """Return how often the old text is in the source: it must be there once."""
        return (SOURCE / self.path).read_text().count(self.old)


class Mutant(NamedTuple):
    """One change of the source."""

    row: str
    why: str
    """What the change takes away."""
    cell: tuple[str, str]
    """The accident and the moment of a cell that fails with it."""
    edits: tuple[Edit, ...]
    """More than one where the source has more than one line of defence."""

    def __str__(self) -> str:
        """Return its name."""
        return f"{self.row}, {self.why}"

    def write_source(self, folder: Path) -> Path:
        """Write a copy of the whole source with this change into a folder; return where to import it from."""
        shutil.copytree(SOURCE / "hansard", folder / "hansard")
        for edit in self.edits:
            assert edit.count_places() == 1, f"{edit.file} has changed: find the place again for {self}"
            changed = folder / edit.path
            changed.write_text(changed.read_text().replace(edit.old, edit.new))
            for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*"):
                compiled.unlink()
        return folder


NO_FIT = Edit(
    "journal/sqlite/stamps.py",
    "    return database.state == wal.stamps[0].previous or any(database.state == stamp.state for stamp in wal.stamps)",
    "    return True",
)
NO_REWRITE = Edit(
    "journal/sqlite/reconcile.py",
    "    size = group.files.replace(name, lines, keep_unknown)\n",
    "    size = mend.size + 0 * len(list(lines))\n",
)
NO_REFUSAL = Edit("journal/sqlite/reconcile.py", "        self.tails[journal_id].refuse_fork()\n", "")

MUTANTS = (
    Mutant(
        "state.db",
        "a WAL is replayed into an older database, and nobody counts the entries",
        ("older copy", "idle"),
        (
            NO_FIT,
            Edit(
                "journal/sqlite/database.py",
                "            check_heads(connection, every=every)\n            ((rebuilding",
                "            ((rebuilding",
            ),
        ),
    ),
    Mutant(
        "state.db",
        "a database that was cut off is opened as if it were whole",
        ("cut off", "idle"),
        (
            Edit(
                "journal/sqlite/stamps.py",
                "is_short = file.xFileSize() < int.from_bytes(header[DATABASE_PAGES_AT:]) * size",
                "is_short = False",
            ),
        ),
    ),
    Mutant("state.db-wal", "a WAL of another home is replayed", ("from another home", "idle"), (NO_FIT,)),
    Mutant(
        "state.db-shm",
        "a refusal does not name a wal-index that may not be read",
        ("unreadable", "idle"),
        (
            Edit(
                "journal/causes.py",
                '        for side in ("", "-wal", "-shm"):\n',
                '        for side in ("", "-wal"):\n',
            ),
        ),
    ),
    Mutant(
        "search.db",
        "an index that cannot be read is left as it is",
        ("unreadable", "idle"),
        (
            Edit(
                "record/search/index.py",
                "                self._file.discard()\n                return StepOutcome(moved=False, more=True)\n",
                "                return StepOutcome(moved=False, more=False)\n",
            ),
        ),
    ),
    Mutant(
        "search.db",
        "an index is kept behind a link, where searches do not look",
        ("a symlink", "idle"),
        (
            Edit(
                "journal/sqlite/reading.py",
                "            if self._identity() is None:  # nothing",
                "            if False:  # nothing",
            ),
        ),
    ),
    Mutant(
        "home.jsonl",
        "lines of another home are overwritten in silence",
        ("from another home", "idle"),
        (NO_REFUSAL,),
    ),
    Mutant("home.jsonl", "a missing log is not written anew", ("missing", "idle"), (NO_REWRITE,)),
    Mutant(
        "session log",
        "a shorter log of another history is overwritten in silence",
        ("from another home", "idle"),
        (NO_REFUSAL,),
    ),
    Mutant("session log", "a shorter log is not written anew", ("older copy", "idle"), (NO_REWRITE,)),
    Mutant(
        "session log",
        "a log is appended to although it is not as long as the database says",
        ("newer copy", "running"),
        (
            Edit(
                "journal/sqlite/group.py",
                "            if size != journal.log_end or is_other or journal.id in self.files.suspect:",
                "            if is_other or journal.id in self.files.suspect:",
            ),
        ),
    ),
    Mutant(
        ".part",
        "a folder in the place of a part file stops its session",
        ("a directory", "running"),
        (
            Edit(
                "journal/sqlite/reconcile.py",
                "  # the database has its text\n        group.files.put_aside(name)\n",
                "\n        raise\n",
            ),
        ),
    ),
    Mutant(
        ".part",
        "words of another message are adopted",
        ("from another home", "idle"),
        (
            Edit(
                "journal/sqlite/reconcile.py",
                "if line is not None and line.message == message_id]",
                "if line is not None]",
            ),
            Edit(
                "journal/sqlite/reconcile.py",
                "        if line.start == group.stream_end(journal):\n",
                "        if line.start <= group.stream_end(journal):\n",
            ),
        ),
    ),
    Mutant(
        ".tail",
        "a tail that cannot be written stops its session",
        ("a directory", "idle"),
        (
            Edit(
                "journal/sqlite/reconcile.py",
                "        files.put_aside(name)  # a folder, a link, or a file of another user: kept as well\n",
                "        raise\n",
            ),
        ),
    ),
    Mutant(
        ".tail",
        "what is cut off a log is not kept",
        ("missing", "idle"),
        (Edit("journal/sqlite/reconcile.py", "        files.append(name, block, None)\n", "        pass\n"),),
    ),
    Mutant(
        "blobs/",
        "attachments are not compared with their digests",
        ("garbage", "idle"),
        (Edit("journal/files.py", "        if hashlib.sha256(data).hexdigest() != digest:", "        if not data:"),),
    ),
    Mutant(
        "locks/",
        "a lock is taken on a file that is not there any more",
        ("missing", "running"),
        (
            Edit(
                "journal/locks.py",
                "                if self.is_in_place():\n                    return\n                self.reopen()\n",
                "                return\n",
            ),
        ),
    ),
    Mutant(
        "reserve",
        "a folder in the place of the reserve leaves the home without one",
        ("a directory", "idle"),
        (Edit("journal/sqlite/disk.py", "            self._clear_place()\n", ""),),
    ),
    Mutant(
        "reserve",
        "a reserve that cannot be written prevents opening",
        ("unwritable", "idle"),
        (
            Edit(
                "journal/sqlite/disk.py",
                "        except OSError:\n            return False\n        try:\n            os.posix",
                "        except FileNotFoundError:\n            return False\n        try:\n            os.posix",
            ),
        ),
    ),
    Mutant(
        "backups/",
        "opening needs the folder of backups",
        ("unwritable", "idle"),
        (
            Edit(
                "journal/sqlite/backend.py",
                '        for name in ("", "locks", "locks/owners", "sessions"):\n',
                '        for name in ("", "locks", "locks/owners", "sessions", "backups/of-today"):\n',
            ),
        ),
    ),
    Mutant(
        "*.orphan-*",
        "opening empties files that were set aside",
        ("older copy", "idle"),
        (
            Edit(
                "journal/sqlite/opening.py",
                "    every = set_orphans_aside(path, files, lost)\n",
                "    for orphan in path.parent.glob('*.orphan-*'):\n        os.truncate(orphan, 0)\n"
                "    every = set_orphans_aside(path, files, lost)\n",
            ),
        ),
    ),
)
