"""The record itself, through its public names only."""

import argparse
import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator
from typing import Any

import apsw
from worker_protocol import serve
from worker_subject import Line, Pace

from hansard import Message, Record

# How many appends a fill has in flight; they are queued in order, so the session holds them in order.
_FILL_TASKS = 500
# How many sessions' heads are kept: the worker's own memory must not count as the record's.
_HEADS_MAX = 1000


class HansardRecord:
    """One Record, as one Hansard process has."""

    group = 1
    tasks_max = 1_000_000

    def __init__(self) -> None:
        self.record: Record | None = None
        self.life = contextlib.AsyncExitStack()
        # The last seq of each session as this worker knows it, for reading the tail.
        self.heads: dict[str, int] = {}

    async def open(self, home: str) -> dict[str, Any]:
        """Open. The pragmas of the writer are not public, so what is said of them is the promise, not a reading."""
        self.record = await self.life.enter_async_context(Record.open(home))
        return {
            "version": _version(),
            "sqlite": apsw.sqlite_lib_version(),
            "journal_mode": "wal",
            "synchronous": "FULL by its own account, not read back here; and a log",
        }

    async def close(self) -> None:
        """Close."""
        await self.life.aclose()
        self.record = None

    async def create(self, sessions: list[str]) -> None:
        """With an id given, creating is idempotent."""
        assert self.record is not None
        for name in sessions:
            await self.record.create_session(id=name, source="bench")

    async def append(self, session: str, lines: list[Line], *, shared: bool) -> None:  # noqa: ARG002
        """Durable when it returns."""
        assert self.record is not None
        for id, role, text in lines:
            entry = await self.record.append(session, _message(id, role, text))
            if len(self.heads) >= _HEADS_MAX:
                self.heads = {}
            self.heads[session] = entry.seq

    async def fill(self, session: str, lines: list[Line]) -> None:
        """Many in flight, so that they share commits."""
        assert self.record is not None
        for at in range(0, len(lines), _FILL_TASKS):
            some = lines[at : at + _FILL_TASKS]
            entries = await asyncio.gather(*(self.record.append(session, _message(*line)) for line in some))
            self.heads[session] = max(entry.seq for entry in entries)

    async def tail(self, session: str, count: int) -> int:
        """The newest entries."""
        assert self.record is not None
        after = max(0, self.heads[session] - count)
        return len(await self.record.sessions.read_entries(session, after=after, limit=count))

    async def context(self, session: str, count: int) -> int:
        """The same."""
        return await self.tail(session, count)

    async def load(self, session: str) -> int:
        """The transcript."""
        assert self.record is not None
        return len(await self.record.load_transcript(session))

    async def leased_turn(self, session: str, lines: list[Line], count: int) -> int:
        """What the engine does: the question, the tail of context, then the answer in a leased turn."""
        assert self.record is not None
        asked, answered = lines
        await self.append(session, [asked], shared=False)
        async with self.record.turn(session) as turn:
            found = await self.tail(session, count)
            async with turn.reply() as reply:
                await reply.write(answered[2])
        return found

    async def stream(self, sessions: list[str], pace: Pace) -> None:
        """One leased turn and one open reply in each session; the writing begins when all are open."""
        assert self.record is not None
        async with contextlib.AsyncExitStack() as stack:
            replies = []
            for session in sessions:
                turn = await stack.enter_async_context(self.record.turn(session))
                replies.append(await stack.enter_async_context(turn.reply()))
            await pace.run([reply.write for reply in replies])

    async def follow(self, session: str) -> AsyncIterator[str]:
        """Text as the record shows it; an opening and a seal have none."""
        assert self.record is not None
        async with contextlib.aclosing(self.record.follow(session, after=0)) as items:
            async for item in items:
                if item.text:
                    yield item.text


def _version() -> str:
    """The installed version, or a word for a source tree on the path."""
    try:
        return f"hansard {importlib.metadata.version('hansard')}"
    except importlib.metadata.PackageNotFoundError:
        return "hansard, source tree"


def _message(id: str, role: str, text: str) -> Message:
    return Message.assistant(text, id=id) if role == "assistant" else Message.user(text, id=id)


def make_subject(_arguments: argparse.Namespace) -> HansardRecord:
    """The record has no variants."""
    return HansardRecord()


if __name__ == "__main__":
    serve(make_subject)
