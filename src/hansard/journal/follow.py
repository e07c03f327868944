"""Who waits for which journal. The writer wakes followers of this process; the watcher those of other writers."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from hansard.domain.limits import POSITION_CHARACTERS_MAX, READ_ROWS_MAX
from hansard.domain.text import INTEGER_MAX
from hansard.errors import HansardError, InvalidInput, NotFound, RecordDamaged
from hansard.journal.transaction import SQL, decode_text, read_page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence

    from hansard.journal.backend import Reads
    from hansard.journal.calls import Caller
    from hansard.journal.concepts import Body, Seal


class Position(msgspec.Struct, frozen=True):
    """Everything up to `seq`, and `offset_bytes` of the message that was open there."""

    seq: int = 0
    message_id: str = ""
    offset_bytes: int = 0

    def __str__(self) -> str:
        """Return the opaque text that callers keep."""
        return f"{self.seq}.{self.offset_bytes}.{self.message_id}" if self.message_id else str(self.seq)

    @classmethod
    def parse(cls, text: str | int) -> Position:
        """Return the position that a caller kept; 0 is the start."""
        whole = str(text)
        head, _, rest = whole.partition(".")
        offset, _, message_id = rest.partition(".")
        numbers = [head, offset] if rest else [head]
        if len(whole) > POSITION_CHARACTERS_MAX or not all(n.isascii() and n.isdigit() for n in numbers):
            raise InvalidInput(f"not a position of this record: {whole[:80]!r}")
        position = cls(int(head), message_id, int(offset or 0))
        if max(position.seq, position.offset_bytes) > INTEGER_MAX:
            raise InvalidInput(f"not a position of this record: {whole[:80]!r}")
        return position


ANY = "*"
"""In place of a journal's id: whatever is committed. No journal has this id."""


class Signal:
    """One follower's bell. It belongs to the loop that the follower runs on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event | None, *, chunks: bool) -> None:
        """Hang it up silent; a follower looks once before it waits. Several bells may ring one event."""
        self.loop = loop
        self.event = event or asyncio.Event()
        self.chunks = chunks
        """Whether it rings for a stream that grows, too; otherwise for entries alone."""


def ring_all(signals: list[Signal]) -> None:
    for signal in signals:
        signal.event.set()


class Followers:
    """The bells of one process, by journal."""

    def __init__(self, watch: Callable[[Followers], Callable[[], None]] | None) -> None:
        """`watch` begins to ring for other processes, and returns what ends it: only while somebody follows."""
        self._signals: dict[str, set[Signal]] = {}
        self._mutex = threading.Lock()
        self._watch = watch
        self._stop: Callable[[], None] | None = None
        self._listeners: list[Callable[[], None]] = []

    def listen(self, tell: Callable[[], None]) -> None:
        """Have a function called after each commit that this process makes or hears of, from any thread."""
        self._listeners.append(tell)

    def tell_listeners(self) -> None:
        for tell in self._listeners:
            tell()

    def add(self, journal_id: str, event: asyncio.Event | None = None, *, chunks: bool = True) -> Signal:
        """Hang up a bell for a journal, or for `ANY`."""
        signal = Signal(asyncio.get_running_loop(), event, chunks=chunks)
        with self._mutex:
            if not self._signals and self._watch is not None:
                self._stop = self._watch(self)
            self._signals.setdefault(journal_id, set()).add(signal)
        return signal

    def remove(self, journal_id: str, signal: Signal) -> None:
        with self._mutex:
            signals = self._signals.get(journal_id, set())
            signals.discard(signal)
            if not signals:
                self._signals.pop(journal_id, None)
            if not self._signals:
                self.stop_watching()

    def stop_watching(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def followed(self) -> list[str]:
        with self._mutex:
            return list(self._signals)

    def ring(self, written: Collection[str] | None, grown: Collection[str] = ()) -> None:
        """Wake whoever follows journals with a new entry, or `ANY`, from any thread; None wakes everybody.

        In `grown` journals there is only more of an open stream: who follows entries alone is not woken for them.
        """
        with self._mutex:
            names = list(self._signals) if written is None else [*written, ANY] if written else []
            signals = {signal for name in names for signal in self._signals.get(name, ())}
            for name in (*grown, ANY) if grown else ():
                signals |= {signal for signal in self._signals.get(name, ()) if signal.chunks}
        self.tell_listeners()
        by_loop: dict[asyncio.AbstractEventLoop, list[Signal]] = {}
        for signal in signals:
            by_loop.setdefault(signal.loop, []).append(signal)
        for loop, group in by_loop.items():
            try:
                loop.call_soon_threadsafe(ring_all, group)
            except RuntimeError:  # its loop is closed: nobody listens any more
                continue


@contextmanager
def notified(
    followers: Followers, event: asyncio.Event, journal_id: str | None, *, chunks: bool = True
) -> Iterator[None]:
    """Have an event set at each commit to a journal, or to any, for as long as this lasts."""
    where = ANY if journal_id is None else journal_id
    signal = followers.add(where, event, chunks=chunks)
    try:
        yield
    finally:
        followers.remove(where, signal)


Item = TypeVar("Item")


class Shapes(NamedTuple, Generic[Item]):
    """What followers are given for an entry and for a piece of a stream."""

    entry: Callable[[str, int, str, str, int, Body, str], Item]
    """Journal, seq, id, kind, time, body, position."""
    chunk: Callable[[str, int, str, str, str], Item]
    """Stream, offset, text, position, part."""


class FollowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower asks for: what came after a position, with the chunks or the entries only."""

    journal_id: str
    position: Position
    chunks: bool = True


class FollowPage(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """What a follower is given next, and where it then stands."""

    items: list[Item]
    position: Position
    complete: bool


CONTINUATION_BYTE = 0x80
"""What a byte inside a UTF-8 character looks like under the mask 0xC0."""


def follow_pages(
    reads: Reads, shapes: Shapes[Item], wanted: list[FollowRequest]
) -> list[FollowPage[Item] | HansardError]:
    """Return the next page of each follower, all of one moment; one that fails does so alone."""
    pages: list[FollowPage[Item] | HansardError] = []
    for each in wanted:
        try:
            pages.append(follow_page(reads, shapes, each))
        except HansardError as error:
            pages.append(error)
    return pages


def follow_page(reads: Reads, shapes: Shapes[Item], wanted: FollowRequest) -> FollowPage[Item]:
    """Return what came after a position: entries and chunks of one moment (rule 13)."""
    journal_id, position, chunks = wanted.journal_id, wanted.position, wanted.chunks
    tip = reads.row(reads.schema.tip or SQL.read_head, (journal_id,))
    if tip is None:
        raise NotFound(f"there is no {reads.schema.noun} {journal_id}")
    journal, head_seq, stream_id = tip
    items: list[Item] = []
    rows = read_page(reads, journal_id, position.seq, READ_ROWS_MAX) if head_seq > position.seq else []
    kinds = reads.schema.by_body
    for seq, entry_id, name, _, at, body in rows:
        kind = kinds.get(type(body))
        if kind is not None and kind.seals is not None:
            if chunks:
                give_rest(items, shapes, position, kind.seals(body))
            position = Position(seq)
        elif kind is not None and kind.opens:
            position = Position(seq, entry_id, 0)
        else:
            position = Position(seq, position.message_id, position.offset_bytes)
        items.append(shapes.entry(journal_id, seq, entry_id, name, at, body, str(position)))
    complete = len(rows) < READ_ROWS_MAX
    if chunks and complete and stream_id is not None:
        if position.message_id != stream_id:
            position = Position(position.seq, stream_id, 0)
        for start, _, part, data in reads.rows(SQL.read_chunks_after, (journal, position.offset_bytes)):
            position = give_piece(items, shapes, position, start, part, data)
    return FollowPage(items=items, position=position, complete=complete)


def give_rest(items: list[Item], shapes: Shapes[Item], position: Position, seal: Seal) -> None:
    """Give what a sealed stream has beyond the follower's offset, before the seal itself."""
    offset = position.offset_bytes if position.message_id == seal.stream_id else 0
    start = 0
    for part, text in seal.pieces:
        data = text.encode()
        give_piece(items, shapes, Position(position.seq, seal.stream_id, offset), start, part, data)
        start += len(data)
        offset = max(offset, start)


def give_piece(  # noqa: PLR0917
    items: list[Item], shapes: Shapes[Item], position: Position, start: int, part: str, data: bytes
) -> Position:
    """Give a piece as far as it lies beyond the follower's offset; return where the follower then stands."""
    skip = max(0, position.offset_bytes - start)
    if skip >= len(data):
        return position
    here = Position(position.seq, position.message_id, start + len(data))
    if data[skip] & 0xC0 == CONTINUATION_BYTE:
        raise InvalidInput(f"byte {position.offset_bytes} of {position.message_id} is inside a character")
    items.append(shapes.chunk(position.message_id, start + skip, decode_text(data[skip:]), str(here), part))
    return here


class PageReader(Generic[Item]):
    """Reads for many followers at once: whoever asks within one turn of the loop shares a snapshot and a thread."""

    def __init__(self, caller: Caller, shapes: Shapes[Item]) -> None:
        self._caller = caller
        self._shapes = shapes
        self._waiting: list[tuple[FollowRequest, asyncio.Future[FollowPage[Item]]]] = []
        self._task: asyncio.Task[None] | None = None

    async def follow(self, journal_id: str, position: Position, *, chunks: bool) -> AsyncGenerator[Item, None]:
        """Yield what came after a position, and then what comes, without end."""
        event = asyncio.Event()
        with notified(self._caller.store.followers, event, journal_id, chunks=chunks):
            while True:
                event.clear()
                page = await self.next(journal_id, position, chunks=chunks)
                position = page.position
                for item in page.items:
                    yield item
                if page.complete:
                    await event.wait()

    async def next(self, journal_id: str, position: Position, *, chunks: bool) -> FollowPage[Item]:
        future: asyncio.Future[FollowPage[Item]] = asyncio.get_running_loop().create_future()
        self._waiting.append((FollowRequest(journal_id=journal_id, position=position, chunks=chunks), future))
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        return await future

    async def _read(self) -> None:
        """Serve whoever waits, until nobody does."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    outcomes = await self._read_pages([wanted for wanted, _ in batch])
                except BaseException as error:
                    settle_pages(batch, [error] * len(batch))
                    raise
                settle_pages(batch, outcomes)
        finally:
            self._task = None

    async def _read_pages(self, wanted: list[FollowRequest]) -> Sequence[FollowPage[Item] | BaseException]:
        """Read a page of each follower. Damage that one of them meets does not concern the others."""
        try:
            return await self._caller.read(lambda reads: follow_pages(reads, self._shapes, wanted))
        except (HansardError, OSError) as error:
            if len(wanted) == 1 or not isinstance(error, RecordDamaged):
                return [error] * len(wanted)
        return [(await self._read_pages([each]))[0] for each in wanted]


def settle_pages(
    batch: list[tuple[FollowRequest, asyncio.Future[FollowPage[Item]]]],
    outcomes: Sequence[FollowPage[Item] | BaseException],
) -> None:
    """Give each follower its page, or why there is none."""
    for (_, future), outcome in zip(batch, outcomes, strict=True):
        if future.done():
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
