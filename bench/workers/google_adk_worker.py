"""The peer `google-adk`: its SqliteSessionService, which it takes for a database in a file.

Each call opens a connection of its own. The `Session` object is kept between appends, as the runner does within one
call; a session that another process wrote to meanwhile is refused (StaleSessionError).
"""

import argparse
import importlib.metadata
import sqlite3
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from worker_protocol import serve
from worker_subject import AppendsAndLoads, Line

_WHOSE = {"app_name": "bench", "user_id": "bench"}
_ROLES = {"user": "user", "assistant": "model"}
_INSERT = """
INSERT INTO events (id, app_name, user_id, session_id, invocation_id, timestamp, event_data)
VALUES (?, 'bench', 'bench', ?, ?, ?, ?)
"""


class ADKSessions(AppendsAndLoads):
    """One service on one file."""

    group = 1
    tasks_max = 1_000_000

    def __init__(self) -> None:
        self.service: SqliteSessionService | None = None
        self.sessions: dict[str, Session] = {}

    async def open(self, home: str) -> dict[str, Any]:
        """Open, and read back what the library's own connections are set to."""
        Path(home).mkdir(parents=True, exist_ok=True)
        self.service = SqliteSessionService(str(Path(home) / "sessions.db"))
        settings = {}
        async with self.service._get_db_connection() as connection:  # noqa: SLF001 - to read its own settings back
            for name in ("journal_mode", "synchronous"):
                async with connection.execute(f"PRAGMA {name}") as cursor:
                    row = await cursor.fetchone()
                    assert row is not None
                    settings[name] = row[0]
        return {
            "version": f"google-adk {importlib.metadata.version('google-adk')}",
            "sqlite": sqlite3.sqlite_version,
            **settings,
        }

    async def close(self) -> None:
        """Nothing stays open between calls."""
        if self.service is not None:
            await self.service.close()
        self.service = None
        self.sessions = {}

    async def create(self, sessions: list[str]) -> None:
        """Create what is not there yet."""
        assert self.service is not None
        for name in sessions:
            found = await self.service.get_session(**_WHOSE, session_id=name)
            self.sessions[name] = found or await self.service.create_session(**_WHOSE, session_id=name)

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:  # noqa: ARG002
        """One `append_event`, which commits before it returns."""
        assert self.service is not None
        for line in lines:
            await self.service.append_event(self.sessions[session], _event(line))

    async def fill(self, session: str, lines: list[Line]) -> None:
        """Rows as `append_event` writes them, in one transaction: it has no way to append many."""
        assert self.service is not None
        events = [_event(line) for line in lines]
        rows = [
            (event.id, session, event.invocation_id, event.timestamp, event.model_dump_json(exclude_none=True))
            for event in events
        ]
        async with self.service._get_db_connection() as connection:  # noqa: SLF001 - not measured
            await connection.executemany(_INSERT, rows)
            await connection.commit()

    async def load(self, session: str) -> int:
        """All events."""
        assert self.service is not None
        found = await self.service.get_session(**_WHOSE, session_id=session)
        assert found is not None
        return len(found.events)


def _event(line: Line) -> Event:
    id, role, text = line
    content = types.Content(role=_ROLES[role], parts=[types.Part(text=text)])
    return Event(id=id, invocation_id="bench", author="user" if role == "user" else "bench", content=content)


def make_subject(_arguments: argparse.Namespace) -> ADKSessions:
    """The peer has no variants."""
    return ADKSessions()


if __name__ == "__main__":
    serve(make_subject)
