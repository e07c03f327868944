"""How a coroutine waits for the writer and for reads: bounded, and with a definite end also when it is cancelled."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from hansard.domain.limits import PATIENCE_SECONDS, QUEUE_BYTES_MAX, QUEUE_ITEMS_MAX
from hansard.errors import HansardError, OutcomeUnknown, RecordDamaged, RecordReadOnly, RecordUnavailable, UsedAfterFork
from hansard.journal.backend import DamageError, Reads, ReplacedError
from hansard.journal.causes import Cause, explain_delay, framed, tell
from hansard.journal.concepts import Schema
from hansard.journal.follow import notified
from hansard.journal.locks import QUIET_SECONDS, SHOW_SECONDS, OpeningWatch, Progress, ProgressLog, ProgressWatch
from hansard.journal.queue import Item, ItemState, WriteQueue
from hansard.journal.store import (
    AnyStore,
    ReadOnlyStore,
    Store,
    StoreOpening,
    Wiring,
    close_reading,
    close_store,
    home_at,
    open_in_place,
    open_reading,
    open_store,
)
from hansard.journal.transaction import Transaction
from hansard.tasks import wait_until

Result = TypeVar("Result")

OPEN_GRACE_SECONDS = 1.0

READ_THREADS = 2
SEARCH_THREADS = 2
"""Apart from the others: a search that has to read everything must not hold up who follows a conversation."""

STREAMS_SECONDS = 0.005
"""The shortest pause between two commits for pieces of streams: hundreds of them share one."""

ROOM_LOOK_SECONDS = 0.25
"""How often to look for room that no commit made: what waited was withdrawn."""

PATIENCE_LOOKS = 20
PATIENCE_PAUSE_SECONDS_MIN = 0.01
PATIENCE_PAUSE_SECONDS_MAX = 0.5


class Job(Generic[Result]):
    """Blocking work in a daemon thread, so that a stuck disk never keeps a process from leaving."""

    def __init__(self, function: Callable[[], Result], late: Callable[[Result], object]) -> None:
        """A result that nobody waits for any more goes to `late`."""
        self._function = function
        self._late = late
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Result] = self._loop.create_future()
        threading.Thread(target=self._work, name="hansard-job", daemon=True).start()

    def _work(self) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001  # boundary: process edge
            self._call(self._fail, error)
        else:
            if not self._call(self._succeed, result):
                self._late(result)

    def _call(self, settle: Callable[[Any], None], outcome: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return False
        return True

    def _succeed(self, result: Result) -> None:
        if self.future.done():
            threading.Thread(target=self._late, args=(result,), daemon=True).start()
        else:
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


async def open_home(
    path: str | Path,
    schema: Schema,
    patience_seconds: float,
    wiring: Wiring,
    progress: Callable[[Progress], None] | None,
) -> Store:
    """Return the store of a home. A migration or a rebuild, here or in another process, may take as long as it takes.

    `progress` is told how far that is, at most twice a second. Without `progress` it is logged.
    """
    opening = StoreOpening()
    return await open_in_thread(
        lambda: open_store(Path(path), schema, wiring, patience_seconds, opening),
        lambda late: close_store(late, 0),
        patience_seconds + OPEN_GRACE_SECONDS,
        OpeningWatch(home_at(path), opening.is_working),
        progress or ProgressLog(),
    )


async def open_in_thread(
    function: Callable[[], Result],
    late: Callable[[Result], object],
    patience_seconds: float,
    watch: OpeningWatch,
    show: Callable[[Progress], None],
) -> Result:
    """Open a home, which may block; what comes after the patience is over is handed to `late`.

    The patience is for waiting. While this process or another one is seen to get on with a migration or a rebuild,
    it begins again, and whoever waits is shown how far that is.
    """
    job = Job(function, late)
    pause_seconds = min(SHOW_SECONDS / 2, patience_seconds)
    began = time.monotonic()
    try:
        while not (await asyncio.wait({job.future}, timeout=pause_seconds))[0]:
            if not watch.is_alive():
                watch.start()
            now = time.monotonic()
            # After a pause of this whole process (Ctrl-Z, a busy machine) the watch may not have looked again yet.
            if now - watch.moved_at > patience_seconds and not watch.is_working():
                frame = f"the record at {watch.home} could not be opened for writing within {patience_seconds:g} s"
                raise framed(explain_delay(watch.home / "locks"), frame)
            if now - began > QUIET_SECONDS and (progress := watch.take_news()) is not None:
                show(progress)
        return await job.future
    finally:
        watch.end()
        job.future.cancel()


@asynccontextmanager
async def open_journals(
    path: str | Path,
    schema: Schema,
    *,
    wiring: Wiring | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    progress: Callable[[Progress], None] | None = None,
    read_only: bool = False,
) -> AsyncIterator[Caller]:
    """Open the journals of a home, creating it, and close them at the end, whatever happened."""
    store: AnyStore
    wired = wiring or Wiring()
    if read_only:
        store = reading = await Job(lambda: open_reading(path, schema, wired), close_reading).future
        close = partial(close_reading, reading)
    else:
        store = writing = await open_home(path, schema, patience_seconds, wired, progress)
        close = partial(close_store, writing, patience_seconds)
    caller = Caller(store, patience_seconds)
    try:
        yield caller
    finally:
        caller.close()
        await close_in_thread(close)


@asynccontextmanager
async def read_journals(path: str | Path, schema: Schema) -> AsyncIterator[Caller | None]:
    """Read the journals of a home where they lie. None: opening them for writing would repair or tell something."""
    opening = Job(lambda: open_in_place(path, schema, Wiring()), lambda late: None if late is None else late.close())
    store = await opening.future
    if store is None:
        yield None
        return
    caller = Caller(store, PATIENCE_SECONDS)
    try:
        yield caller
    finally:
        caller.close()
        await close_in_thread(store.close)


async def close_in_thread(function: Callable[[], None]) -> None:
    """Close something that may block, to the end; a cancellation meanwhile is raised after it."""
    await uncancelled(Job(function, lambda _result: None).future)


async def uncancelled(future: asyncio.Future[Result]) -> Result:
    """Wait for a future to the end; a cancellation meanwhile is raised after it."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()


class Waiter:
    """One coroutine that waits for one item."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future


class WaiterQueue:
    """Outcomes on their way to one event loop: woken once for a whole batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: deque[Waiter] = deque()
        self._called = False

    def put(self, waiter: Waiter) -> None:
        """Tell a waiter, from the writer's thread."""
        self._waiters.append(waiter)
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._called = False

    def _empty(self) -> None:
        self._called = False
        while self._waiters:
            future = self._waiters.popleft().future
            if not future.done():
                future.set_result(None)


class Patience:
    """Tells waiters when their patience is over: one timer for all of them, because nearly none ever waits so long."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        expire: Callable[[Item, Waiter], None],
        has_moved: Callable[[], bool],
    ) -> None:
        """Look at the oldest waiter a few times within its patience.

        `has_moved` tells whether somebody got on with a rebuild since it was last asked: everybody's patience begins
        again then.
        """
        self._loop = loop
        self._seconds = seconds
        self._has_moved = has_moved
        self._moved_at = -seconds
        self._expire = expire
        self._waiting: deque[tuple[float, Item, Waiter]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, item: Item, waiter: Waiter) -> None:
        self._waiting.append((self._loop.time() + self._seconds, item, waiter))
        if self._timer is None:
            self._timer = self._loop.call_later(self._pause(), self._expire_items)

    def _pause(self) -> float:
        return min(max(self._seconds / PATIENCE_LOOKS, PATIENCE_PAUSE_SECONDS_MIN), PATIENCE_PAUSE_SECONDS_MAX)

    def _expire_items(self) -> None:
        now = self._loop.time()
        if self._waiting and self._waiting[0][0] <= now and self._has_moved():
            self._moved_at = now
        soonest = now if now - self._moved_at >= self._seconds else -1
        while self._waiting and (self._waiting[0][1].state is ItemState.DONE or self._waiting[0][0] <= soonest):
            _, item, waiter = self._waiting.popleft()
            self._expire(item, waiter)
        self._timer = self._loop.call_later(self._pause(), self._expire_items) if self._waiting else None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Caller:
    """Calls into a store from one event loop."""

    def __init__(self, store: AnyStore, patience_seconds: float) -> None:
        self.store = store
        self._process = os.getpid()
        self.patience_seconds = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._waiters = WaiterQueue(self._loop)
        self._ringing = False
        self._stream_timer: asyncio.TimerHandle | None = None
        self._streams_rung_at = 0.0
        watch = ProgressWatch(store.home, store.work)
        self._patience = Patience(self._loop, patience_seconds, self._expire, watch.has_moved)
        self._executor = ThreadPoolExecutor(READ_THREADS, "hansard-read")
        self._searches = ThreadPoolExecutor(SEARCH_THREADS, "hansard-search")

    async def write(self, operation: Callable[[Transaction], Result], *, cost: int = 0, ending: bool = False) -> Result:
        """Run an operation in a group commit and return its result once it is durable.

        Cancelled before the writer took it, it is surely not written; taken or in doubt, it is waited for first.
        """
        queue = self.writable.writer.queue
        if self.crowded():
            await self.room()
        waiter = Waiter(self._loop.create_future())
        item = Item(operation, lambda _item: self._waiters.put(waiter), cost=cost, ending=ending)
        queue.submit(item, ring=False)
        self.ring_soon()
        self._patience.watch(item, waiter)
        await self._outcome(item, waiter)
        if item.error is not None:
            raise item.error
        result: Result = item.result
        return result

    def check_process(self) -> None:
        """Refuse a child of fork(): locks and connections stayed with its parent."""
        if os.getpid() != self._process:
            held = (
                "open it again in the child" if self.store.is_read_only else "its locks stayed with the parent process"
            )
            raise UsedAfterFork(f"this record was opened before fork(); {held}")

    @property
    def writable(self) -> Store:
        """The store, to write to; refused in a child of fork() and when it was opened for reading only."""
        self.check_process()
        if isinstance(self.store, Store) and not self.store.is_read_only:
            return self.store
        raise RecordReadOnly("this record was opened for reading only")

    @property
    def queue(self) -> WriteQueue:
        """What waits for the writer, of a store that is written to."""
        assert isinstance(self.store, Store)
        return self.store.writer.queue

    def now(self) -> float:
        return self._loop.time()

    def ring_soon(self) -> None:
        """Wake the writer once every task that is ready has queued its part.

        Woken at once, its thread would fight the loop's for the interpreter, and commit their parts one by one.
        """
        if not self._ringing:
            self._ringing = True
            self._loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._ringing = False
        self.queue.ring()

    def ring_for_stream(self, at: float) -> None:
        """Wake the writer for a piece of a stream, at a time of the loop's clock: one commit for many streams."""
        at = max(at, self._streams_rung_at + STREAMS_SECONDS)
        if self._stream_timer is None or self._stream_timer.when() > at:
            if self._stream_timer is not None:
                self._stream_timer.cancel()
            self._stream_timer = self._loop.call_at(at, self._ring_for_streams)

    def _ring_for_streams(self) -> None:
        self._stream_timer = None
        self._streams_rung_at = self._loop.time()
        self.queue.ring()

    async def _outcome(self, item: Item, waiter: Waiter) -> None:
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                await waiter.future
                break
            except asyncio.CancelledError as error:
                cancelled = error
                if (not item.ending and self.queue.withdraw(item)) or item.state is ItemState.DONE:
                    break
                waiter.future = self._loop.create_future()
        if cancelled is not None:
            raise cancelled

    def _expire(self, item: Item, waiter: Waiter) -> None:
        """The patience is over: say what is known."""
        if waiter.future.done() or item.state is ItemState.DONE:
            return
        seconds, problem = self.patience_seconds, self.writable.problem
        if isinstance(item.error, HansardError):
            problem = item.error
        if item.ending or not self.queue.withdraw(item):
            kind: type[HansardError] = OutcomeUnknown
            frame = f"not known to be written after {seconds:g} s"
        else:
            frame, kind = f"the record could not be written for {seconds:g} s", RecordUnavailable
        waiter.future.set_exception(framed(problem, frame, kind))

    def crowded(self) -> bool:
        queue = self.queue
        return queue.items >= QUEUE_ITEMS_MAX or queue.bytes >= QUEUE_BYTES_MAX

    async def room(self) -> None:
        """Hold a caller back while too much waits for the writer."""
        deadline = self._loop.time() + self.patience_seconds
        watch = ProgressWatch(self.store.home, self.store.work)
        committed = asyncio.Event()
        with notified(self.store.followers, committed, None):
            while self.crowded():
                if self._loop.time() > deadline:
                    if watch.has_moved():
                        deadline = self._loop.time() + self.patience_seconds
                        continue
                    raise framed(self.writable.problem, "too much waits to be written", RecordUnavailable)
                await wait_until(committed, min(deadline, self._loop.time() + ROOM_LOOK_SECONDS))
                committed.clear()

    async def read(self, read: Callable[[Reads], Result]) -> Result:
        """Run a read in one snapshot, off the loop."""
        return await self.retry_replaced(lambda: self.store.backend.read(read))

    async def search(self, look: Callable[[], Result]) -> Result:
        """Run a search, off the loop and apart from other reads."""
        return await self.retry_replaced(look, self._searches)

    async def retry_replaced(self, read: Callable[[], Result], executor: ThreadPoolExecutor | None = None) -> Result:
        """Run something that reads, off the loop, also when the database was replaced meanwhile."""
        try:
            return await self._run(read, executor=executor)
        except ReplacedError as error:
            # The file is gone or another one: a write, even of nothing, makes the writer open or rebuild it.
            if not self.store.is_read_only:
                if isinstance(error, DamageError):
                    self.writable.backend.doubt()
                await self.write(lambda _tx: None)
            elif isinstance(self.store, ReadOnlyStore) and self.store.companions_may_write:
                await self._run(self.store.heal, PATIENCE_SECONDS)
        try:
            return await self._run(read, executor=executor)
        except ReplacedError:
            pass
        try:
            return await self._run(read, executor=executor)
        except DamageError as error:
            why = (
                "its log may hold it: without state.db, the next opening rebuilds it"
                if self.store.is_read_only
                else "comparing it with the logs did not mend that"
            )
            raise RecordDamaged(f"{error}; {why}") from error
        except ReplacedError as error:
            raise tell(Cause.REPLACED, self.store.backend.place) from error

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:  # noqa: ANN401
        return await self._run(function, *arguments)

    async def _run(
        self,
        function: Callable[..., Result],
        *arguments: Any,  # noqa: ANN401
        executor: ThreadPoolExecutor | None = None,
    ) -> Result:
        self.check_process()
        if not self.store.wiring.threads:
            return function(*arguments)
        return await self._loop.run_in_executor(executor or self._executor, function, *arguments)

    def close(self) -> None:
        self._patience.close()
        if self._stream_timer is not None:
            self._stream_timer.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._searches.shutdown(wait=False, cancel_futures=True)
