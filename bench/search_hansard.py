"""Hansard's own search, by its public API."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from search_corpus import Line
from search_worker import serve

from hansard import Message, Record
from hansard.domain.limits import UNIT_ENTRIES_MAX
from hansard.journal.locks import TryLock
from hansard.record.search.index import search_index

ROLES = {"user": Message.user, "assistant": Message.assistant}


class Hansard:
    """One record; `indexed=False` keeps its index from being kept up, to see what that costs."""

    def __init__(self) -> None:
        """Nothing is open."""
        self.opened = AsyncExitStack()
        self.lock: TryLock | None = None

    async def open(self, home: Path) -> str:
        """Open the record."""
        self.home = home
        self.record = await self.opened.enter_async_context(Record.open(home))
        return "hansard"

    async def fill(self, lines: Iterable[Line]) -> None:
        """As many messages a commit as one call may have; then the index."""
        for session, group in itertools.groupby(lines, key=lambda line: line.session):
            await self.record.create_session(id=session, source="bench")
            rest = [(session, ROLES[line.role](line.text, id=line.id)) for line in group]
            for start in range(0, len(rest), UNIT_ENTRIES_MAX):
                await self.record.accept(rest[start : start + UNIT_ENTRIES_MAX])
        while search_index(self.record.store).step().more:
            pass

    async def search(self, query: str) -> int:
        """The first 20, each with a neighbour on both sides."""
        return len(await self.record.search(query, limit=20, context=1))

    async def append(self, session: str, text: str, *, indexed: bool) -> None:
        """One durable append."""
        self._hold(indexed=indexed)
        await self.record.append(session, Message.user(text))

    def _hold(self, *, indexed: bool) -> None:
        if not indexed and self.lock is None:
            self.lock = TryLock(self.home / "locks" / "search")
            while not self.lock.take_lock():
                pass
        elif indexed and self.lock is not None:
            self.lock.close()
            self.lock = None

    async def close(self) -> None:
        """Close the database."""
        if self.lock is not None:
            self.lock.close()
        await self.opened.aclose()


if __name__ == "__main__":
    serve(Hansard())
