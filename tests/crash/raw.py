"""A writer without Hansard, as a control: `python -m tests.crash.raw FILE NORMAL` commits rows with SQLite alone.

It acknowledges each commit on standard output, like the others, and goes on until it is killed.
"""

from __future__ import annotations

import sys

import apsw

from tests.crash.worker import tell


def open_raw(path: str, synchronous: str) -> apsw.Connection:
    """Return a connection in WAL mode with the synchronous mode that is on trial, and no checkpoint to help it."""
    connection = apsw.Connection(path)
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS said (number INTEGER PRIMARY KEY)")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.wal_autocheckpoint(0)
    connection.pragma("synchronous", synchronous)
    return connection


def main() -> None:
    """Commit and acknowledge."""
    connection = open_raw(*sys.argv[1:])
    number = 0
    while True:
        number += 1
        connection.execute("INSERT INTO said VALUES (?)", (number,))
        tell("committed", number=number)


if __name__ == "__main__":
    main()
