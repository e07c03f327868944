"""The peer `openai-agents`: its SQLiteSession, one object a session on one file, used as its documentation shows."""

import argparse
import asyncio
import importlib.metadata
import sqlite3
from pathlib import Path
from typing import Any

from agents.memory.sqlite_session import SQLiteSession
from worker_protocol import serve
from worker_subject import Line


class OpenAISession:
    """The sessions of one file."""

    group = 1
    tasks_max = 1_000_000

    def __init__(self) -> None:
        self.file = ""
        self.sessions: dict[str, SQLiteSession] = {}

    async def open(self, home: str) -> dict[str, Any]:
        """The library connects at first use; only the settings are read here."""
        Path(home).mkdir(parents=True, exist_ok=True)
        self.file = str(Path(home) / "sessions.db")
        return {
            "version": f"openai-agents {importlib.metadata.version('openai-agents')}",
            "sqlite": sqlite3.sqlite_version,
            **await asyncio.to_thread(self._settings),
        }

    def _settings(self) -> dict[str, Any]:
        """Pragmas of a connection that the library made, in a session that is never written."""
        session = self._session("settings")
        with session._locked_connection() as connection:  # noqa: SLF001 - the only way to read its own settings back
            names = ("journal_mode", "synchronous")
            settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        self.sessions.pop("settings").close()
        return settings

    def _session(self, name: str) -> SQLiteSession:
        if name not in self.sessions:
            self.sessions[name] = SQLiteSession(name, self.file)
        return self.sessions[name]

    async def close(self) -> None:
        """Close every session."""
        for session in self.sessions.values():
            session.close()
        self.sessions = {}

    async def create(self, sessions: list[str]) -> None:
        """Connect, so that no measured append pays for it."""
        for name in sessions:
            self._session(name)

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:  # noqa: ARG002
        """One `add_items`, which commits before it returns."""
        await self._session(session).add_items([{"role": role, "content": text} for _, role, text in lines])

    async def fill(self, session: str, lines: list[Line]) -> None:
        """All items in one transaction."""
        await self.append(session, lines, shared=False)

    async def tail(self, session: str, count: int) -> int:
        """The newest items."""
        return len(await self._session(session).get_items(limit=count))

    async def context(self, session: str, count: int) -> int:
        """The same."""
        return await self.tail(session, count)

    async def load(self, session: str) -> int:
        """All items."""
        return len(await self._session(session).get_items())


def make_subject(_arguments: argparse.Namespace) -> OpenAISession:
    """The peer has no variants."""
    return OpenAISession()


if __name__ == "__main__":
    serve(make_subject)
