"""Connecting to `state.db` once it is known which of its files belong together; the others are set aside, and kept.

Reads: stamps of `state.db` and its WAL. Writes: names of files that do not belong together (`.orphan-…`); logs, with
entries that only a database holds that is set aside.
Invariants: a WAL is never replayed into a database that it does not continue. Runs under the write lock.
On crash: it runs again, on the files that are left.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import apsw

from hansard.journal.sqlite.belonging import DatabaseVerdict, does_fit, judge_files
from hansard.journal.sqlite.connection import SQL, fetch, open_alone, open_connection
from hansard.journal.sqlite.legs import check_legs, copy_to_logs, is_whole_alone
from hansard.journal.sqlite.migrate import STAMPED_VERSION, check_version, schema_version
from hansard.journal.sqlite.reading import LOOK_SECONDS, LOOKS_MAX, Identity, look_at
from hansard.journal.sqlite.stamps import read_database_file, read_wal_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hansard.journal.concepts import Schema
    from hansard.journal.files import LogFiles

logger = logging.getLogger("hansard.record")


def connect(path: Path, files: LogFiles, lost: Identity, schema: Schema) -> tuple[apsw.Connection, bool]:
    """Return a connection, and whether the heads of all journals must be compared with their entries.

    `lost` is what this process was connected to before, when it vanished or was replaced.
    """
    check = partial(check_version, schema=schema)
    every = set_orphans_aside(path, files, lost)
    try:
        connection = _connect_to_fitting(path, check)
    except apsw.CorruptError:
        database = read_database_file(path)
        if database is None or not database.is_short:
            raise
        set_files_aside(path, "", "-wal", "-shm")  # it was cut off, and the logs have what it had
        return open_connection(path, check=check), True
    if connection is not None:
        return connection, every
    set_files_aside(path, "-wal", "-shm")
    return open_connection(path, check=check), True


def set_orphans_aside(path: Path, files: LogFiles, lost: Identity) -> bool:
    """Move away what does not belong together; return whether the heads of all journals must be compared.

    When a WAL or wal-index vanished under a connection that used it, the database may hold half of a checkpoint:
    all of it is set aside, and rebuilt from the logs.
    """
    verdict = _judge(path, lost)
    if not verdict.opens and look_at(path).identity[0] is not None:
        with open_alone(path) as connection, suppress(apsw.Error):
            check_legs(connection, files)
            if verdict is DatabaseVerdict.SET_BOTH_ASIDE:
                copy_to_logs(connection, files)
    if verdict is DatabaseVerdict.SET_BOTH_ASIDE:
        set_files_aside(path, "", "-wal", "-shm")
    elif verdict is DatabaseVerdict.SET_WAL_ASIDE:
        set_files_aside(path, "-wal", "-shm")
    elif look_at(path).identity[1] is None:
        set_files_aside(path, "-shm")
    return verdict in {DatabaseVerdict.SET_WAL_ASIDE, DatabaseVerdict.OPEN_AND_COMPARE}


def _judge(path: Path, lost: Identity) -> DatabaseVerdict:
    """Look until the files belong together, or surely do not: another process may run a checkpoint meanwhile."""
    for attempt in range(LOOKS_MAX):
        if attempt:
            time.sleep(LOOK_SECONDS)
        wal_file, database_file = read_wal_file(path), read_database_file(path)
        database, wal, shm = look_at(path).identity
        is_lost = bool(lost) and database is not None and database == lost[0]
        has_wal = wal is not None and (shm is not None or not is_lost)
        verdict = judge_files(database_file, wal_file, has_wal=has_wal, is_lost=is_lost)
        is_short = database_file is not None and database_file.is_short  # also in the middle of a checkpoint
        if verdict.opens and not is_short:
            break
    return verdict


def _connect_to_fitting(path: Path, check: Callable[[apsw.Connection], int]) -> apsw.Connection | None:
    """Connect; return None when SQLite does not replay as much of the WAL as `state.db` needs.

    It stops at the first frame whose checksum is wrong. A `state.db` that already holds a later state must not be
    read through the earlier pages of such a WAL. It is left as it is when it is not whole without the WAL either.
    """
    wal, database = read_wal_file(path), read_database_file(path)
    with ExitStack() as stack:
        try:
            connection = open_connection(path, check=check)
            stack.callback(connection.close)
            if wal is not None and wal.stamps and database is not None:
                is_stamped = schema_version(connection) >= STAMPED_VERSION
                state = fetch(connection, SQL.read_stamp)[0][0] if is_stamped else b""
                if not does_fit(database, wal.until(state)):
                    return None
        except apsw.CorruptError:
            if wal is None or not is_whole_alone(path):
                raise
            return None
        stack.pop_all()
    return connection


def set_files_aside(path: Path, *sides: str) -> None:
    """Give files of the database another name, under which they are kept."""
    name = secrets.token_hex(4)
    moved = []
    for side in sides:
        with suppress(FileNotFoundError):
            os.rename(f"{path}{side}", f"{path}{side}.orphan-{name}")
            moved.append(f"state.db{side}")
    if moved:
        logger.warning("set aside %s as .orphan-%s", ", ".join(moved), name)
