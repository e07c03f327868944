"""Which files of the database belong together: decided by what they hold, never by their inodes.

`cp backup.db state.db` keeps the inode, and SQLite then replays the newer WAL into the older database in silence. So
before SQLite may replay anything, the stamp of `state.db` is looked for in its WAL.

    state.db      state.db-wal                        lost      what is done
    absent        absent or empty                     -         create, or rebuild from the logs
    absent        anything                            -         set the WAL aside
    any           no WAL at all                       no        open; compare all heads
    any           absent, or no WAL at all            yes       set both aside: half a checkpoint may be in state.db
    any           empty                               -         open; compare all heads if state.db is short
    without WAL   anything                            no        set the WAL aside; compare all heads
    any           begun and without commit            -         open; compare all heads if state.db is short
    without stamp continues a state without stamp     -         open; compare all heads if state.db is not new
    stamp         makes or continues that state       -         open; compare all heads if state.db is short
    stamp         makes and continues other states    no        set the WAL aside; compare all heads
    stamp         makes and continues other states    yes       set both aside

*Short*: its header tells of more pages than it has. A checkpoint that was killed leaves it so, and so does a copy that
was cut off.
*Without WAL*: its header says that it never had one, as in the copies that `VACUUM INTO` makes.
*Lost*: this process was connected to `state.db`, and the WAL or the wal-index that it used is not at the path any more.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hansard.journal.sqlite.stamps import DatabaseFile, WalFile


class DatabaseVerdict(Enum):
    """What to do with `state.db` and its WAL before SQLite opens them."""

    OPEN = auto()
    OPEN_AND_COMPARE = auto()
    """Open them, and compare the heads of all journals with their entries."""

    SET_WAL_ASIDE = auto()
    """Open `state.db` without its WAL, and compare the heads of all journals with their entries."""

    SET_BOTH_ASIDE = auto()
    """Rebuild the database from the logs."""

    @property
    def opens(self) -> bool:
        """Whether the files are opened as they are."""
        return self in {DatabaseVerdict.OPEN, DatabaseVerdict.OPEN_AND_COMPARE}


def judge_files(database: DatabaseFile | None, wal: WalFile | None, *, has_wal: bool, is_lost: bool) -> DatabaseVerdict:
    """Decide by the table above. `wal` is None when it is absent or empty, `has_wal` tells which."""
    if database is None:
        return DatabaseVerdict.SET_WAL_ASIDE if wal is not None else DatabaseVerdict.OPEN
    if not has_wal:
        return DatabaseVerdict.SET_BOTH_ASIDE if is_lost else DatabaseVerdict.OPEN_AND_COMPARE
    if wal is None:
        return DatabaseVerdict.OPEN_AND_COMPARE if database.is_short else DatabaseVerdict.OPEN
    if not wal.is_readable or not does_fit(database, wal):
        return DatabaseVerdict.SET_BOTH_ASIDE if is_lost else DatabaseVerdict.SET_WAL_ASIDE
    is_legacy = not database.state and not database.is_new
    return DatabaseVerdict.OPEN_AND_COMPARE if is_legacy or database.is_short else DatabaseVerdict.OPEN


def does_fit(database: DatabaseFile, wal: WalFile | None) -> bool:
    """Return whether a WAL continues the state that a database holds, or makes it: a checkpoint copies such a state.

    No WAL fits a database that is marked as one without: it is a copy, such as those in `backups/`. A WAL without a
    commit fits every other database: it was begun after a complete checkpoint.
    """
    if wal is None:
        return True
    if not database.uses_wal:
        return False
    if not wal.stamps:
        return True
    return database.state == wal.stamps[0].previous or any(database.state == stamp.state for stamp in wal.stamps)
