"""A worker of the search benchmark: fills a home, answers queries, appends; each measured inside, on its own clock."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from search_corpus import Line, corpus


class Searched(Protocol):
    """A store that can be filled, searched and appended to."""

    async def open(self, home: Path) -> str:
        """Open; return the version."""
        ...

    async def fill(self, lines: Iterable[Line]) -> None:
        """Store every message, in the fastest way there is."""
        ...

    async def search(self, query: str) -> int:
        """Return how many of the first 20 there are."""
        ...

    async def append(self, session: str, text: str, *, indexed: bool) -> None:
        """Store one message, durably."""
        ...

    async def close(self) -> None:
        """Leave as a program does that ends in order."""
        ...


def serve(subject: Searched) -> None:
    """Answer requests, one line of JSON each, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asyncio.run(_serve(subject, answers))


async def _serve(subject: Searched, answers: Any) -> None:  # noqa: ANN401 - a text file
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        answers.write(json.dumps(await OPERATIONS[request.pop("do")](subject, **request)) + "\n")
    await subject.close()


async def fill(subject: Searched, home: str, messages: int, sessions: int) -> dict[str, Any]:
    """Open and fill; say how long it took and how much text that is."""
    version = await subject.open(Path(home))
    lines = list(corpus(messages, sessions))
    began = time.perf_counter()
    await subject.fill(lines)
    seconds = time.perf_counter() - began
    text_bytes = sum(len(each.text.encode()) for each in lines)
    return {"version": version, "seconds": seconds, "text_bytes": text_bytes}


async def search(subject: Searched, query: str) -> dict[str, Any]:
    """One search."""
    began = time.perf_counter()
    hits = await subject.search(query)
    return {"us": (time.perf_counter() - began) * 1e6, "hits": hits}


async def append(subject: Searched, session: str, texts: list[str], *, indexed: bool) -> list[float]:
    """Append one after the other; say how long each took."""
    taken = []
    for text in texts:
        began = time.perf_counter()
        await subject.append(session, text, indexed=indexed)
        taken.append((time.perf_counter() - began) * 1e6)
    return taken


OPERATIONS: dict[str, Any] = {"fill": fill, "search": search, "append": append}
