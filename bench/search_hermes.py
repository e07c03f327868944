"""The peer `hermes-agent`: `SessionDB.search_messages`, which gives a neighbour on both sides."""

from __future__ import annotations

import importlib.metadata
import itertools
from collections.abc import Iterable
from pathlib import Path

from hermes_state import SessionDB
from search_corpus import Line
from search_worker import serve


class Hermes:
    """One SessionDB."""

    async def open(self, home: Path) -> str:
        """Open the database."""
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self.database = SessionDB(home / "state.db")
        return f"hermes-agent {importlib.metadata.version('hermes-agent')}"

    async def fill(self, lines: Iterable[Line]) -> None:
        """A session in one transaction, by the call that rewrites a transcript."""
        for session, group in itertools.groupby(lines, key=lambda line: line.session):
            self.database.create_session(session, "bench")
            self.database.replace_messages(session, [{"role": line.role, "content": line.text} for line in group])

    async def search(self, query: str) -> int:
        """The first 20."""
        return len(self.database.search_messages(query, limit=20))

    async def append(self, session: str, text: str, *, indexed: bool) -> None:
        """One append; its index cannot be left out."""
        assert indexed
        self.database.append_message(session, "user", text)

    async def close(self) -> None:
        """Close the database."""
        self.database.close()


if __name__ == "__main__":
    serve(Hermes())
