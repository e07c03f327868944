"""The peer `hermes-agent`: its SessionDB, called as its gateway calls it.

Alone, the call is made directly, which is its fastest form; with other tasks it goes through AsyncSessionDB, its own
door for asyncio. The context of a turn is `get_messages_as_conversation`, which its gateway loads for every turn; the
cheapest tail is `get_messages(limit, offset)`, which it offers for paging.
"""

import argparse
import importlib.metadata
import sqlite3
from pathlib import Path
from typing import Any

from hermes_state import AsyncSessionDB, SessionDB
from worker_protocol import serve
from worker_subject import Line


class HermesSessions:
    """One SessionDB, as one Hermes process has."""

    group = 1
    tasks_max = 1_000_000

    def __init__(self) -> None:
        self.database: SessionDB | None = None

    async def open(self, home: str) -> dict[str, Any]:
        """Open, and read back what the library set."""
        self.database = SessionDB(Path(home) / "state.db")
        connection = self.database._conn  # noqa: SLF001 - the only way to read its own settings back
        names = ("journal_mode", "synchronous")
        return {
            "version": f"hermes-agent {importlib.metadata.version('hermes-agent')}",
            "sqlite": sqlite3.sqlite_version,
            **{name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names},
        }

    async def close(self) -> None:
        """Close, which checkpoints."""
        if self.database is not None:
            self.database.close()
        self.database = None

    async def create(self, sessions: list[str]) -> None:
        """Insert or ignore."""
        assert self.database is not None
        for name in sessions:
            self.database.create_session(name, "bench")

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """One `append_message`, which commits before it returns."""
        assert self.database is not None
        for _, role, text in lines:
            if shared:
                await AsyncSessionDB(self.database).append_message(session, role, text)
            else:
                self.database.append_message(session, role, text)

    async def fill(self, session: str, lines: list[Line]) -> None:
        """All messages in one transaction, by the call that rewrites a transcript."""
        assert self.database is not None
        self.database.replace_messages(session, [{"role": role, "content": text} for _, role, text in lines])

    async def tail(self, session: str, count: int) -> int:
        """A page at the end, which it finds by counting."""
        assert self.database is not None
        held = self.database.message_count(session)
        return len(self.database.get_messages(session, limit=count, offset=max(0, held - count)))

    async def context(self, session: str, count: int) -> int:  # noqa: ARG002
        """Everything, whatever the count."""
        return await self.load(session)

    async def load(self, session: str) -> int:
        """The conversation."""
        assert self.database is not None
        return len(self.database.get_messages_as_conversation(session))


def make_subject(_arguments: argparse.Namespace) -> HermesSessions:
    """The peer has no variants."""
    return HermesSessions()


if __name__ == "__main__":
    serve(make_subject)
