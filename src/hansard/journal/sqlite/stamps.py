"""Stamps: which state of the database a file holds, and so which files belong together, whatever their inodes.

Every commit gives the row of the table `record` a new random stamp and keeps the one before it. So each commit in a
WAL says which state it makes and which state it continues. The bytes of `state.db` are read through SQLite's own file
layer, which takes no lock and drops none (rule 5). Nobody locks the WAL itself, so it is read as any file is.

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

Reads: page 2 of `state.db`, the frames of its WAL. Writes: nothing. On crash: nothing to do.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

import apsw
import msgspec

RECORD_PAGE = 2
"""The root of the table `record`: it is created first, and no migration and no VACUUM moves it."""

LEAF_TABLE_PAGE = 0x0D
BLOB_TYPE_MIN = 12
VARINT_BYTES_MAX = 9
INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)
"""How many bytes a value of each serial type below 12 takes."""

DATABASE_PAGE_SIZE_AT = 16
DATABASE_VERSIONS_AT = 18
DATABASE_PAGES_AT = 28
WITHOUT_WAL = b"\x01\x01"
PAGE_BYTES_MIN, PAGE_BYTES_MAX = 512, 65536
WAL_HEADER = struct.Struct(">8I")
WAL_FRAME = struct.Struct(">6I")
WAL_MAGIC = (0x377F0682, 0x377F0683)
FRAMES_READ = 64
"""Frames of a WAL that are read at once."""


class DatabaseStamp(NamedTuple):
    """A state of the database and the one that it continues. Empty: made before there were stamps, or nothing."""

    state: bytes
    previous: bytes


class DatabaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `state.db` holds without its WAL."""

    state: bytes
    """Its stamp; empty when it has none."""

    is_new: bool
    """Whether it has no tables of ours yet: everything is in its WAL."""

    is_short: bool = False
    """Whether its header tells of more pages than it has: they are in its WAL, or it was cut off."""

    uses_wal: bool = True
    """False: its header says that it has no WAL. SQLite marks a database before the first write to its WAL. The copies
    that `VACUUM INTO` makes are not marked, and their pages lie otherwise than in the database itself."""


class WalFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `state.db-wal` holds."""

    stamps: tuple[DatabaseStamp, ...]
    """One for each commit that changed the table `record`, oldest first."""

    is_readable: bool = True
    """False: it does not begin like a WAL, and SQLite would ignore and overwrite it."""

    def until(self, state: bytes) -> WalFile:
        """Return as much of it as leads to a state; all that is before it makes no other."""
        for number, stamp in enumerate(self.stamps):
            if stamp.state == state:
                return WalFile(stamps=self.stamps[: number + 1], is_readable=self.is_readable)
        return WalFile(stamps=(), is_readable=self.is_readable)


def read_database_file(path: Path) -> DatabaseFile | None:
    """Return what a database holds without its WAL; None when there is no such file."""
    try:
        file = apsw.VFSFile("unix", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    except apsw.CantOpenError:
        return None
    try:
        header = file.xRead(DATABASE_PAGES_AT + 4, 0)
        size = int.from_bytes(header[DATABASE_PAGE_SIZE_AT:DATABASE_VERSIONS_AT])
        size = PAGE_BYTES_MAX if size == 1 else size
        page = file.xRead(size, (RECORD_PAGE - 1) * size) if size else b""
        is_short = file.xFileSize() < int.from_bytes(header[DATABASE_PAGES_AT:]) * size
    finally:
        file.xClose()
    stamp = read_stamp(page)
    uses_wal = header[DATABASE_VERSIONS_AT : DATABASE_VERSIONS_AT + 2] != WITHOUT_WAL
    return DatabaseFile(state=stamp.state if stamp else b"", is_new=stamp is None, is_short=is_short, uses_wal=uses_wal)


def read_wal_file(path: Path) -> WalFile | None:
    """Return what the WAL of a database holds; None when there is none, or an empty one."""
    try:
        file = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        header = os.pread(file, WAL_HEADER.size, 0)
        if not header:
            return None
        fields = WAL_HEADER.unpack(header) if len(header) == WAL_HEADER.size else (0, 0, 0)
        if fields[0] not in WAL_MAGIC or not PAGE_BYTES_MIN <= fields[2] <= PAGE_BYTES_MAX:
            return WalFile(stamps=(), is_readable=False)
        return WalFile(stamps=tuple(_committed_stamps(file, fields[2], list(fields[4:6]))))
    except OSError as error:
        error.filename = f"{path}-wal"
        raise
    finally:
        os.close(file)


def _committed_stamps(file: int, page_size: int, salts: list[int]) -> Iterator[DatabaseStamp]:
    """Yield the stamp of each commit, for as long as each continues the one before.

    What comes after that is not replayed: frames with other salts are of a WAL that was here before, and a commit that
    continues another state was overwritten in part.
    """
    offset = WAL_HEADER.size
    frame_bytes = WAL_FRAME.size + page_size
    stamp: DatabaseStamp | None = None
    last: DatabaseStamp | None = None
    while len(frames := os.pread(file, frame_bytes * FRAMES_READ, offset)) >= frame_bytes:
        for at in range(0, len(frames) - frame_bytes + 1, frame_bytes):
            page, pages_after_commit, *found, _, _ = WAL_FRAME.unpack_from(frames, at)
            if found != salts:
                return
            if page == RECORD_PAGE:
                stamp = read_stamp(frames[at + WAL_FRAME.size : at + frame_bytes])
            if pages_after_commit and stamp is not None:
                if last is not None and stamp.previous != last.state:
                    return
                yield stamp
                last, stamp = stamp, None
        offset += len(frames) // frame_bytes * frame_bytes


def read_stamp(page: bytes) -> DatabaseStamp | None:
    """Return the stamp in the page of the table `record`; None when the page holds no such row.

    The stamp and the one before it are the only BLOBs of the row, in this order. A row of an older schema has none.
    """
    try:
        return _read_row(page)
    except IndexError:
        return None


def _read_row(page: bytes) -> DatabaseStamp | None:
    if not page or page[0] != LEAF_TABLE_PAGE or int.from_bytes(page[3:5]) != 1:
        return None
    at = int.from_bytes(page[8:10])
    _, at = _read_varint(page, at)  # the size of the row
    key, at = _read_varint(page, at)
    if key != 1:
        return None
    header_size, types_at = _read_varint(page, at)
    value_at = at + header_size
    blobs: list[bytes] = []
    while types_at < at + header_size:
        kind, types_at = _read_varint(page, types_at)
        size = INTEGER_BYTES[kind] if kind < BLOB_TYPE_MIN else (kind - BLOB_TYPE_MIN) // 2
        if kind >= BLOB_TYPE_MIN and kind % 2 == 0:
            blobs.append(page[value_at : value_at + size])
        value_at += size
    return DatabaseStamp(blobs[0], blobs[1]) if len(blobs) > 1 else DatabaseStamp(b"", b"")


def _read_varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(1, VARINT_BYTES_MAX + 1):
        byte = page[at]
        at += 1
        if count == VARINT_BYTES_MAX:
            return (value << 8) | byte, at
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint has no high bit
            break
    return value, at


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
