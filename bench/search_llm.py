"""The peer `llm`: its command `llm logs -q`, called inside the process: starting Python is not measured."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import sqlite_utils
from llm.cli import cli
from llm.migrations import migrate
from search_corpus import Line
from search_worker import serve


class Logs:
    """One logs.db; two messages, a prompt and its response, are one row."""

    async def open(self, home: Path) -> str:
        """Make the database."""
        home.mkdir(parents=True, exist_ok=True)
        self.path = home / "logs.db"
        self.database = sqlite_utils.Database(self.path)
        migrate(self.database)
        return f"llm {importlib.metadata.version('llm')}"

    async def fill(self, lines: Iterable[Line]) -> None:
        """Rows as the command writes them."""
        for session, group in itertools.groupby(lines, key=lambda line: line.session):
            self.database["conversations"].insert({"id": session, "name": session, "model": "bench"})
            texts = list(group)
            pairs = zip(texts[::2], texts[1::2], strict=False)
            self.database["responses"].insert_all(self._row(session, one, two) for one, two in pairs)

    @staticmethod
    def _row(session: str, prompt: Line, response: Line) -> dict[str, str]:
        return {
            "id": prompt.id.rjust(10, "0"),
            "model": "bench",
            "prompt": prompt.text,
            "response": response.text,
            "conversation_id": session,
            "datetime_utc": "2026-01-01T00:00:00",
        }

    async def search(self, query: str) -> int:
        """The first 20, as JSON."""
        output = io.StringIO()
        arguments = ["logs", "list", "-q", query, "-n", "20", "--json", "-d", str(self.path)]
        with contextlib.redirect_stdout(output):
            cli.main(arguments, standalone_mode=False)
        return len(json.loads(output.getvalue()))

    async def append(self, session: str, text: str, *, indexed: bool) -> None:
        """Not measured: a row is written once a call of a model."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the database."""
        self.database.conn.close()


if __name__ == "__main__":
    serve(Logs())
