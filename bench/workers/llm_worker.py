"""The peer `llm`: a prompt and its response, written to logs.db by `Response.log_to_db` as the command does.

A response is one transaction that holds two messages, so an append here is of two. The model answers at once, with the
second text. Each response is logged with the chain of all messages before it, which is hashed and looked up again: to
have a figure that does not depend on how long a round takes, a conversation is continued up to 100 messages, and then
another one begins. `llm` has no door for asyncio that writes, and each of its processes has one conversation.
"""

import argparse
import importlib.metadata
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import sqlite_utils
from llm.logs import LogStore
from llm.migrations import migrate
from llm.models import Conversation
from llm.parts import Message, TextPart
from worker_protocol import serve
from worker_subject import AppendsAndLoads, Line

_CONVERSATION_RESPONSES = 50


class Echo(llm.Model):
    """Answers with what was prepared."""

    model_id = "bench"
    answer = ""

    def execute(self, *_: object, **__: object) -> Iterator[str]:
        """One piece."""
        yield self.answer


class LlmLogs(AppendsAndLoads):
    """One logs.db."""

    group = 2
    tasks_max = 1

    def __init__(self) -> None:
        self.model = Echo()
        self.database: sqlite_utils.Database | None = None
        self.conversations: dict[str, Conversation] = {}
        self.begun = 0

    async def open(self, home: str) -> dict[str, Any]:
        """Open as the command does, and read back what is set."""
        Path(home).mkdir(parents=True, exist_ok=True)
        self.database = sqlite_utils.Database(Path(home) / "logs.db")
        migrate(self.database)
        names = ("journal_mode", "synchronous")
        return {
            "version": f"llm {importlib.metadata.version('llm')}",
            "sqlite": sqlite3.sqlite_version,
            **{name: self.database.execute(f"PRAGMA {name}").fetchone()[0] for name in names},
        }

    async def close(self) -> None:
        """Close the database."""
        if self.database is not None:
            self.database.close()
        self.database = None
        self.conversations = {}

    async def create(self, sessions: list[str]) -> None:
        """A conversation is stored with its first response."""
        for name in sessions:
            self.conversations[name] = Conversation(model=self.model, id=name)

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """One response, which is committed when `log_to_db` returns."""
        assert not shared, "llm has one conversation at a time"
        (_, _, prompt), (_, _, self.model.answer) = lines
        conversation = self._conversation(session)
        response = conversation.prompt(prompt)
        response.text()
        try:
            response.log_to_db(self.database)
        except Exception:
            conversation.responses.remove(response)
            raise

    def _conversation(self, session: str) -> Conversation:
        """The conversation that this session is at: full ones are left behind."""
        if len(self.conversations[session].responses) >= _CONVERSATION_RESPONSES:
            self.begun += 1
            self.conversations[session] = Conversation(model=self.model, id=f"{session}, {self.begun} more")
        return self.conversations[session]

    async def fill(self, session: str, lines: list[Line]) -> None:
        """One chain of messages in one transaction, and a thread that ends with it."""
        assert self.database is not None
        store = LogStore(self.database)
        with self.database.atomic():
            tip = store.ensure_chain([Message(role, [TextPart(text)]) for _, role, text in lines])
            store.create_thread(id=session, tip=tip)

    async def load(self, session: str) -> int:
        """What `llm -c` reads to go on."""
        assert self.database is not None
        return len(LogStore(self.database).thread_messages(session))


def make_subject(_arguments: argparse.Namespace) -> LlmLogs:
    """The peer has no variants."""
    return LlmLogs()


if __name__ == "__main__":
    serve(make_subject)
