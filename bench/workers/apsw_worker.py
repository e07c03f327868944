"""The floor: raw apsw, the least that anything durable on SQLite can cost. WAL, synchronous=FULL, one table.

`--group 1` commits each message, `--group 100` a hundred at a time. Rows are read with their body decoded from JSON.
"""

import argparse
import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
from worker_protocol import serve
from worker_subject import Line, Pace

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    key INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, at REAL NOT NULL,
    body TEXT NOT NULL, UNIQUE (session, seq)
);
CREATE TABLE IF NOT EXISTS chunks (key INTEGER PRIMARY KEY, session TEXT NOT NULL, text TEXT NOT NULL);
"""
_INSERT = """
INSERT INTO entries (session, seq, id, at, body)
SELECT ?1, coalesce(max(seq), 0) + 1, ?2, ?3, ?4 FROM entries WHERE session = ?1
"""
_LOAD = "SELECT seq, id, at, body FROM entries WHERE session = ? ORDER BY seq"
_TAIL = "SELECT seq, id, at, body FROM entries WHERE session = ? ORDER BY seq DESC LIMIT ?"
# How long the streaming floor gathers chunks before a commit, and how often its follower looks.
_GATHER_SECONDS = 0.005


class RawApsw:
    """One connection, one statement, one commit."""

    tasks_max = 1

    def __init__(self, *, group: int, decoder: str):
        self.group = group
        self.decode: Callable[[str], Any] = json.loads if decoder == "json" else msgspec.json.decode
        self.connection: apsw.Connection | None = None
        self.followed: dict[str, asyncio.Queue[str]] = {}
        self.poller: asyncio.Task[None] | None = None

    async def open(self, home: str) -> dict[str, Any]:
        """Open, with the settings that the record promises."""
        Path(home).mkdir(parents=True, exist_ok=True)
        self.connection = apsw.Connection(str(Path(home) / "floor.db"))
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
        """Close, and stop polling."""
        if self.poller is not None:
            self.poller.cancel()
        self.poller = None
        self.followed = {}
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    async def create(self, sessions: list[str]) -> None:
        """A raw session is only a name."""

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """One transaction for the group."""
        assert self.connection is not None
        assert not shared, "a floor has one task"
        rows = [
            (session, id, now := time.time(), json.dumps({"role": role, "parts": [{"text": text}], "at": now}))
            for id, role, text in lines
        ]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(_INSERT, rows)
        self.connection.execute("COMMIT")

    async def fill(self, session: str, lines: list[Line]) -> None:
        """A thousand a transaction."""
        for at in range(0, len(lines), 1000):
            await self.append(session, lines[at : at + 1000], shared=False)

    async def tail(self, session: str, count: int) -> int:
        """The newest rows, decoded, oldest first."""
        assert self.connection is not None
        rows = self.connection.execute(_TAIL, (session, count)).fetchall()
        return len([(seq, id, at, self.decode(body)) for seq, id, at, body in reversed(rows)])

    async def context(self, session: str, count: int) -> int:
        """The same."""
        return await self.tail(session, count)

    async def load(self, session: str) -> int:
        """All rows, decoded."""
        assert self.connection is not None
        rows = self.connection.execute(_LOAD, (session,))
        return len([(seq, id, at, self.decode(body)) for seq, id, at, body in rows])

    async def stream(self, _sessions: list[str], pace: Pace) -> None:
        """Chunks gathered for a few milliseconds, then committed."""
        assert self.connection is not None
        gathered: list[tuple[str, str]] = []

        async def write(session: str, text: str) -> None:
            gathered.append((session, text))

        async def commit_for_ever() -> None:
            while True:
                await asyncio.sleep(_GATHER_SECONDS)
                self._commit_chunks(gathered)

        committer = asyncio.create_task(commit_for_ever())
        await pace.run([functools.partial(write, session) for session in _sessions])
        committer.cancel()
        self._commit_chunks(gathered)

    def _commit_chunks(self, gathered: list[tuple[str, str]]) -> None:
        assert self.connection is not None
        if gathered:
            with self.connection:
                self.connection.executemany("INSERT INTO chunks (session, text) VALUES (?, ?)", gathered)
            gathered.clear()

    async def follow(self, session: str) -> AsyncIterator[str]:
        """Pieces of one session, from the poller that all followers of this process share."""
        queue = self.followed.setdefault(session, asyncio.Queue())
        if self.poller is None:
            self.poller = asyncio.create_task(self._poll())
        while True:
            yield await queue.get()

    async def _poll(self) -> None:
        assert self.connection is not None
        query = "SELECT key, session, text FROM chunks WHERE key > ? ORDER BY key"
        last = 0
        while True:
            for key, session, text in self.connection.execute(query, (last,)).fetchall():
                last = key
                if session in self.followed:
                    self.followed[session].put_nowait(text)
            await asyncio.sleep(_GATHER_SECONDS)


def make_subject(arguments: argparse.Namespace) -> RawApsw:
    """The floor that the options name."""
    return RawApsw(group=arguments.group, decoder=arguments.decoder)


if __name__ == "__main__":
    serve(make_subject)
