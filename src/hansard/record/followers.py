"""Who waits for which journal. The writer wakes followers of this process; the watcher those of other writers."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hansard.errors import HansardError
from hansard.record.views import FollowPage, TranscriptPage, Wanted, fold_pages, follow_pages, transcript_page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence

    from hansard.domain.entries import Chunk, Entry
    from hansard.domain.messages import Message
    from hansard.domain.positions import Position
    from hansard.record.calls import Caller


ANY = "*"
"""In place of a journal's id: whatever is committed. No journal has this id."""


class Signal:
    """One follower's bell. It belongs to the loop that the follower runs on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event | None = None) -> None:
        """Hang it up silent; a follower looks once before it waits. Several bells may ring one event."""
        self.loop = loop
        self.event = event or asyncio.Event()


def ring_all(signals: list[Signal]) -> None:
    """Wake followers, on their loop."""
    for signal in signals:
        signal.event.set()


class Followers:
    """The bells of one process, by journal."""

    def __init__(self, first: Callable[[], None], last: Callable[[], None]) -> None:
        """`first` and `last` hear when following begins and ends, so that nothing is watched for nobody."""
        self._signals: dict[str, set[Signal]] = {}
        self._mutex = threading.Lock()
        self._first = first
        self._last = last

    def add(self, journal_id: str, event: asyncio.Event | None = None) -> Signal:
        """Hang up a bell for a journal, or for `ANY`."""
        signal = Signal(asyncio.get_running_loop(), event)
        with self._mutex:
            if not self._signals:
                self._first()
            self._signals.setdefault(journal_id, set()).add(signal)
        return signal

    def remove(self, journal_id: str, signal: Signal) -> None:
        """Take a bell down."""
        with self._mutex:
            signals = self._signals.get(journal_id, set())
            signals.discard(signal)
            if not signals:
                self._signals.pop(journal_id, None)
            if not self._signals:
                self._last()

    def followed(self) -> list[str]:
        """Return the journals that somebody follows."""
        with self._mutex:
            return list(self._signals)

    def ring(self, journal_ids: Iterable[str] | None) -> None:
        """Wake everybody who follows one of these journals, from any thread; None wakes everybody."""
        with self._mutex:
            chosen = self._signals if journal_ids is None else (*journal_ids, ANY)
            signals = [signal for journal_id in chosen for signal in self._signals.get(journal_id, ())]
        by_loop: dict[asyncio.AbstractEventLoop, list[Signal]] = {}
        for signal in signals:
            by_loop.setdefault(signal.loop, []).append(signal)
        for loop, group in by_loop.items():
            try:
                loop.call_soon_threadsafe(ring_all, group)
            except RuntimeError:  # its loop is closed: nobody listens any more
                continue


@contextmanager
def notified(followers: Followers, event: asyncio.Event, journal_id: str | None) -> Iterator[None]:
    """Have an event set at each commit to a journal, or to any, for as long as this lasts."""
    where = ANY if journal_id is None else journal_id
    signal = followers.add(where, event)
    try:
        yield
    finally:
        followers.remove(where, signal)


class PageReader:
    """Reads for many followers at once: whoever asks within one turn of the loop shares a snapshot and a thread."""

    def __init__(self, caller: Caller) -> None:
        """Read through a caller, on its loop."""
        self._caller = caller
        self._waiting: list[tuple[Wanted, asyncio.Future[FollowPage]]] = []
        self._task: asyncio.Task[None] | None = None

    async def follow(self, session_id: str, position: Position, *, chunks: bool) -> AsyncGenerator[Entry | Chunk, None]:
        """Yield what came after a position, and then what comes, without end."""
        followers = self._caller.store.followers
        signal = followers.add(session_id)
        try:
            while True:
                signal.event.clear()
                page = await self.next(session_id, position, chunks=chunks)
                position = page.position
                for item in page.items:
                    yield item
                if page.complete:
                    await signal.event.wait()
        finally:
            followers.remove(session_id, signal)

    async def next(self, session_id: str, position: Position, *, chunks: bool) -> FollowPage:
        """Return what came after a position."""
        future: asyncio.Future[FollowPage] = asyncio.get_running_loop().create_future()
        self._waiting.append((Wanted(session_id, position, chunks), future))
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        return await future

    async def _read(self) -> None:
        """Serve whoever waits, until nobody does."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            wanted = [each for each, _ in batch]
            outcomes: Sequence[FollowPage | BaseException]
            try:
                outcomes = await self._caller.read(lambda snapshot: follow_pages(snapshot, wanted))  # noqa: B023
            except HansardError as error:
                outcomes = [error] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if isinstance(outcome, BaseException):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
        self._task = None


async def load_transcript(caller: Caller, session_id: str) -> list[Message]:
    """Return every message of a session, page by page."""
    pages: list[TranscriptPage] = []
    after = 0
    while not pages or not pages[-1].complete:
        start = after
        pages.append(await caller.read(lambda snapshot: transcript_page(snapshot, session_id, start)))  # noqa: B023
        after = pages[-1].rows[-1][0] if pages[-1].rows else after
    return fold_pages(pages)
