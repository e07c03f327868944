"""The floor: one table, one FTS5 index over it with the default tokeniser, the best 20 with their texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw
from search_corpus import Line
from search_worker import serve

SCHEMA = """
CREATE TABLE message (id INTEGER PRIMARY KEY, session TEXT, role TEXT, text TEXT);
CREATE VIRTUAL TABLE words USING fts5 (text, content = 'message', content_rowid = 'id');
CREATE TRIGGER added AFTER INSERT ON message
BEGIN INSERT INTO words (rowid, text) VALUES (new.id, new.text); END;
"""
FIND = (
    "SELECT m.session, m.role, m.text FROM words JOIN message m ON m.id = words.rowid"
    " WHERE words MATCH ? ORDER BY rank LIMIT 20"
)
ADD = "INSERT INTO message (session, role, text) VALUES (?, ?, ?)"


class Plain:
    """One connection."""

    async def open(self, home: Path) -> str:
        """Make the database."""
        home.mkdir(parents=True, exist_ok=True)
        self.path = home / "plain.db"
        self.connection = apsw.Connection(str(self.path))
        self.connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self.connection.execute(SCHEMA)
        return f"SQLite {apsw.sqlite_lib_version()}"

    async def fill(self, lines: Iterable[Line]) -> None:
        """One transaction."""
        with self.connection:
            self.connection.executemany(ADD, [(line.session, line.role, line.text) for line in lines])

    async def search(self, query: str) -> int:
        """The first 20."""
        return len(self.connection.execute(FIND, (query,)).fetchall())

    async def append(self, session: str, text: str, *, indexed: bool) -> None:
        """One transaction."""
        assert indexed
        self.connection.execute(ADD, (session, "user", text))

    async def close(self) -> None:
        """Close the database."""
        self.connection.close()


if __name__ == "__main__":
    serve(Plain())
