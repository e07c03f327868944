"""The peer `langgraph`: its SQLite checkpointers, called as a compiled graph calls them after each step.

Alone, `SqliteSaver.put` is called directly, which is its fastest form; with other tasks it goes through
`AsyncSqliteSaver`, its own door for asyncio. A checkpoint holds the whole state, here the list of all messages, so each
append writes the thread once more. To have a figure that does not depend on how long a round takes, a thread is
continued up to 100 messages, and then another one begins. The state is kept in memory, as in a running graph: the
loading before each call of a graph is not in the figures, nor are the separate commits of a step's pending writes.
"""

import argparse
import contextlib
import importlib.metadata
import sqlite3
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from worker_protocol import serve
from worker_subject import AppendsAndLoads, Line

_THREAD_MESSAGES = 100
_CHANNEL = "messages"


class Thread:
    """The state of one thread, and the checkpoint that it continues."""

    def __init__(self, id: str) -> None:
        self.messages: list[BaseMessage] = []
        self.version: str | None = None
        self.config: dict[str, Any] = {"configurable": {"thread_id": id, "checkpoint_ns": ""}}


class LangGraphThreads(AppendsAndLoads):
    """Both checkpointers on one file."""

    group = 1
    tasks_max = 1_000_000

    def __init__(self) -> None:
        self.life = contextlib.AsyncExitStack()
        self.saver: SqliteSaver | None = None
        self.async_saver: AsyncSqliteSaver | None = None
        self.threads: dict[str, Thread] = {}
        self.begun = 0

    async def open(self, home: str) -> dict[str, Any]:
        """Open as the documentation does, and read back what the library set."""
        Path(home).mkdir(parents=True, exist_ok=True)
        file = str(Path(home) / "checkpoints.db")
        self.saver = self.life.enter_context(SqliteSaver.from_conn_string(file))
        self.saver.setup()
        self.async_saver = await self.life.enter_async_context(AsyncSqliteSaver.from_conn_string(file))
        await self.async_saver.setup()
        names = ("journal_mode", "synchronous")
        return {
            "version": f"langgraph-checkpoint-sqlite {importlib.metadata.version('langgraph-checkpoint-sqlite')}",
            "sqlite": sqlite3.sqlite_version,
            **{name: self.saver.conn.execute(f"PRAGMA {name}").fetchone()[0] for name in names},
        }

    async def close(self) -> None:
        """Close both connections."""
        await self.life.aclose()
        self.threads = {}

    async def create(self, sessions: list[str]) -> None:
        """A thread is only a name."""
        for name in sessions:
            self.threads[name] = Thread(name)

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:
        """One checkpoint with one message more; `put` commits before it returns."""
        assert self.saver is not None
        assert self.async_saver is not None
        for line in lines:
            thread = self._thread(session)
            thread.messages.append(message := _message(line))
            checkpoint, metadata, versions = self._checkpoint(thread)
            try:
                if shared:
                    config = await self.async_saver.aput(thread.config, checkpoint, metadata, versions)
                else:
                    config = self.saver.put(thread.config, checkpoint, metadata, versions)
            except Exception:
                thread.messages.remove(message)
                raise
            thread.config, thread.version = config, versions[_CHANNEL]

    def _thread(self, session: str) -> Thread:
        """The thread that this session is at: full ones are left behind."""
        if len(self.threads[session].messages) >= _THREAD_MESSAGES:
            self.begun += 1
            self.threads[session] = Thread(f"{session}, {self.begun} more")
        return self.threads[session]

    def _checkpoint(self, thread: Thread) -> tuple[Checkpoint, dict[str, Any], dict[str, str]]:
        """The state as a graph hands it to its checkpointer."""
        assert self.saver is not None
        versions = {_CHANNEL: self.saver.get_next_version(thread.version, None)}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {_CHANNEL: list(thread.messages)}
        checkpoint["channel_versions"] = dict(versions)
        checkpoint["updated_channels"] = [_CHANNEL]
        return checkpoint, {"source": "loop", "step": len(thread.messages), "parents": {}}, versions

    async def fill(self, session: str, lines: list[Line]) -> None:
        """All messages in one checkpoint."""
        assert self.saver is not None
        thread = self.threads[session]
        thread.messages = [_message(line) for line in lines]
        thread.config = self.saver.put(thread.config, *self._checkpoint(thread))

    async def load(self, session: str) -> int:
        """The newest checkpoint, which holds all messages."""
        assert self.saver is not None
        found = self.saver.get_tuple({"configurable": {"thread_id": session, "checkpoint_ns": ""}})
        assert found is not None
        return len(found.checkpoint["channel_values"][_CHANNEL])


def _message(line: Line) -> BaseMessage:
    id, role, text = line
    return AIMessage(text, id=id) if role == "assistant" else HumanMessage(text, id=id)


def make_subject(_arguments: argparse.Namespace) -> LangGraphThreads:
    """The peer has no variants."""
    return LangGraphThreads()


if __name__ == "__main__":
    serve(make_subject)
