"""The attainable floor: an append with Hansard's guarantees, and nothing that these do not need.

One transaction under one flock: an entry, the head of its journal, the two SHA-256 hashes of the chain, and the line of
the log, written before COMMIT and not fsynced. WAL and synchronous=FULL. There is no queue, no thread, no task, no
projection, no look at what others did. So a journal has one writer, which keeps its head in memory.

The tables are those of `src/hansard/journal/sqlite/sqlite.sql`. SQLite checkpoints by itself, every 1,000 pages: the
record must do that as well, in another thread. Only appends are measured.
"""

import argparse
import fcntl
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import apsw
import msgspec
from worker_protocol import serve
from worker_subject import AppendsOnly, Line

_SCHEMA = """
CREATE TABLE IF NOT EXISTS journal (
    key         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    base_id     TEXT,
    base_seq    INTEGER NOT NULL DEFAULT 0,
    base_digest BLOB    NOT NULL,
    head_seq    INTEGER NOT NULL CHECK (head_seq >= base_seq),
    head_digest BLOB    NOT NULL,
    log_end     INTEGER NOT NULL DEFAULT 0,
    log_synced  INTEGER NOT NULL DEFAULT 0,
    part_end    INTEGER NOT NULL DEFAULT 0,
    touched     INTEGER NOT NULL DEFAULT 0,
    messages    INTEGER NOT NULL DEFAULT 0,
    active_at   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE IF NOT EXISTS entry (
    key           INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    ignorable     INTEGER NOT NULL DEFAULT 0 CHECK (ignorable IN (0, 1)),
    at            INTEGER NOT NULL,
    digest_format INTEGER NOT NULL,
    salt          BLOB    NOT NULL,
    digest        BLOB    NOT NULL,
    body          BLOB    NOT NULL,
    journal       INTEGER NOT NULL GENERATED ALWAYS AS (key >> 32) VIRTUAL,
    seq           INTEGER NOT NULL GENERATED ALWAYS AS (key & 4294967295) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS entry_id ON entry (journal, id);
"""
_CREATE = "INSERT INTO journal (id, base_digest, head_seq, head_digest) VALUES (?1, ?2, 0, ?2) ON CONFLICT DO NOTHING"
_HEAD = "SELECT key, head_seq, head_digest, log_end FROM journal WHERE id = ?"
_INSERT = """
INSERT INTO entry (key, id, kind, version, ignorable, at, digest_format, salt, digest, body)
VALUES (?, ?, 'message.added', 1, 0, ?, 1, ?, ?, ?)
"""
_UPDATE = "UPDATE journal SET head_seq = ?, head_digest = ?, log_end = ?, messages = ?, active_at = ? WHERE key = ?"
_LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_SALT_BYTES = 16


class Journal:
    """The head of a journal, and its open log."""

    def __init__(self, id: str, row: tuple[int, int, bytes, int], log: Path) -> None:
        self.id = id
        self.key, self.seq, self.digest, self.log_end = row
        self.log = os.open(log, _LOG_FLAGS, 0o600)


class Floor(AppendsOnly):
    """One connection, one lock file, and a log for each journal."""

    group = 1
    tasks_max = 1

    def __init__(self) -> None:
        self.home = Path()
        self.connection: apsw.Connection | None = None
        self.lock = -1
        self.journals: dict[str, Journal] = {}
        self.encode = msgspec.json.Encoder().encode

    async def open(self, home: str) -> dict[str, Any]:
        """Open, with the settings that the record promises."""
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        self.lock = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.connection = apsw.Connection(str(self.home / "floor.db"))
        self.connection.set_busy_timeout(30_000)
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", "full")
        self.connection.execute(_SCHEMA)
        return {
            "version": f"apsw {apsw.apsw_version()}",
            "sqlite": apsw.sqlite_lib_version(),
            "journal_mode": self.connection.pragma("journal_mode"),
            "synchronous": self.connection.pragma("synchronous"),
        }

    async def close(self) -> None:
        """Close everything."""
        for journal in self.journals.values():
            os.close(journal.log)
        self.journals = {}
        if self.connection is not None:
            self.connection.close()
            os.close(self.lock)
        self.connection = None

    async def create(self, sessions: list[str]) -> None:
        """One row and one log a session."""
        assert self.connection is not None
        for id in sessions:
            self.connection.execute(_CREATE, (id, hashlib.sha256(f"hansard 1 {id}".encode()).digest()))
            row = self.connection.execute(_HEAD, (id,)).fetchone()
            assert row is not None
            self.journals[id] = Journal(id, row, self.home / f"{id}.jsonl")

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """One transaction for each message."""
        assert not shared, "a floor has one task"
        for id, role, text in lines:
            body = self.encode({"role": role, "parts": [{"type": "text", "text": text}]})
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            try:
                self._commit(self.journals[session], id, body)
            finally:
                fcntl.flock(self.lock, fcntl.LOCK_UN)

    def _commit(self, journal: Journal, id: str, body: bytes) -> None:
        """Both legs; the head in memory moves only after COMMIT."""
        assert self.connection is not None
        execute = self.connection.execute
        seq, at, salt = journal.seq + 1, time.time_ns() // 1000, os.urandom(_SALT_BYTES)
        header = f"{journal.id}\n{seq}\n{id}\nmessage.added\n1\n0\n{at}\n".encode()
        digest = hashlib.sha256(journal.digest + header + hashlib.sha256(salt + body).digest()).digest()
        line = (
            f'{{"seq":{seq},"id":"{id}","kind":"message.added","version":1,"at":{at},"salt":"{salt.hex()}",'
            f'"digest":"{digest.hex()}","body":'
        ).encode() + b'%b,"tx":%d}\n' % (body, seq)
        log_end = journal.log_end + len(line)
        execute("BEGIN IMMEDIATE")
        execute(_INSERT, ((journal.key << 32) + seq, id, at, salt, digest, body))
        execute(_UPDATE, (seq, digest, log_end, seq, at, journal.key))
        written = os.write(journal.log, line)
        assert written == len(line)
        execute("COMMIT")
        journal.seq, journal.digest, journal.log_end = seq, digest, log_end


def make_subject(_arguments: argparse.Namespace) -> Floor:
    """The floor has no variants."""
    return Floor()


if __name__ == "__main__":
    serve(make_subject)
