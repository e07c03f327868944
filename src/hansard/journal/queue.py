"""What waits to be committed: items in the order in which they were submitted.

Reads and writes: memory only. Any thread may submit and withdraw; the writer's thread takes.
Invariants: order of submission is order of commit; an item that nobody took can be withdrawn, and is then surely not
written; a parked item waits for its pause and does not hold up the others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hansard.domain.limits import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, PARKED_SECONDS
from hansard.journal.causes import Cause, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from hansard.journal.transaction import Transaction


class ItemState(Enum):
    """Where an item is."""

    QUEUED = auto()
    TAKEN = auto()
    DONE = auto()
    WITHDRAWN = auto()


class Bell:
    """Wakes one thread, cheaply; ringing twice is ringing once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread that waits, or let the next wait pass."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._lock.release()

    def wait(self, timeout_seconds: float = -1) -> bool:
        return self._lock.acquire(timeout=timeout_seconds)


class Item:
    """One call that waits to be committed."""

    __slots__ = ("cost", "done", "doubt", "ending", "error", "operation", "result", "state")

    def __init__(
        self,
        operation: Callable[[Transaction], Any],
        done: Callable[[Item], object],
        *,
        cost: int = 0,
        ending: bool = False,
    ) -> None:
        """`done` is called once, on the writer's thread. `ending` items may use the reserve of a full disk."""
        self.operation = operation
        self.done = done
        self.cost = cost
        self.ending = ending
        self.state = ItemState.QUEUED
        self.doubt = False
        self.result: Any = None
        self.error: BaseException | None = None


class WriteQueue:
    """Items that wait for the writer."""

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._parked: list[Item] = []
        self._parked_until = 0.0
        self._mutex = threading.Lock()
        self._bell = Bell()
        self.stopping = False
        self.bytes = 0
        self.items = 0
        """How many items nobody has taken or withdrawn, parked ones included."""

    def submit(self, item: Item, *, ring: bool = True) -> None:
        """Queue an item; order of submission is order of commit. Who does not ring at once does so soon."""
        with self._mutex:
            if self.stopping:
                raise tell(Cause.CLOSED)
            self._waiting.append(item)
            self._count(item, 1)
        if ring:
            self._bell.ring()

    def ring(self) -> None:
        self._bell.ring()

    def withdraw(self, item: Item) -> bool:
        """Take an item back; False when it is too late to say that it is not written.

        One in doubt stays: its lines may be in a log already, so only the writer can settle it.
        """
        with self._mutex:
            if item.state is not ItemState.QUEUED or item.doubt:
                return False
            item.state = ItemState.WITHDRAWN
            self._count(item, -1)
            return True

    def wait(self) -> bool:
        """Wait until there is something to do; return False when there is nothing left and the queue is closed."""
        while not self.is_ready() and not self.stopping:
            self._bell.wait(max(0.0, self._parked_until - time.monotonic()) if self._parked else -1)
        return bool(self._waiting or self._parked)

    def is_ready(self) -> bool:
        return bool(self._waiting) or self._parked_are_due()

    def has_ending(self) -> bool:
        with self._mutex:
            return (
                any(item.ending and item.state is ItemState.QUEUED for item in self._waiting) or self._parked_are_due()
            )

    def _parked_are_due(self) -> bool:
        return bool(self._parked) and (self.stopping or time.monotonic() >= self._parked_until)

    def take_batch(self, *, only_ending: bool = False) -> list[Item]:
        """Take what has gathered, up to the limits of a batch; or only what ends something."""
        batch: list[Item] = []
        kept: list[Item] = []
        size = 0
        with self._mutex:
            if self._parked_are_due():
                self._waiting.extendleft(reversed(self._parked))
                self._parked = []
            while self._waiting and len(batch) < BATCH_ITEMS_MAX and (not batch or size < BATCH_BYTES_MAX):
                item = self._waiting.popleft()
                if item.state is ItemState.WITHDRAWN:
                    continue
                if only_ending and not item.ending:
                    kept.append(item)
                    continue
                item.state = ItemState.TAKEN
                size += item.cost
                batch.append(item)
                self._count(item, -1)
            self._waiting.extendleft(reversed(kept))
        return batch

    def put_back(self, batch: list[Item]) -> None:
        with self._mutex:
            for item in reversed(batch):
                item.state = ItemState.QUEUED
                self._count(item, 1)
                self._waiting.appendleft(item)

    def park(self, items: list[Item]) -> None:
        """Queue items again, to be taken after a pause; what is behind them does not wait for them."""
        with self._mutex:
            for item in items:
                item.state = ItemState.QUEUED
                self._count(item, 1)
            self._parked += items
            self._parked_until = time.monotonic() + PARKED_SECONDS

    def stop(self) -> None:
        with self._mutex:
            self.stopping = True
        self._bell.ring()

    def empty(self) -> list[Item]:
        with self._mutex:
            items = [item for item in (*self._parked, *self._waiting) if item.state is ItemState.QUEUED]
            self._waiting.clear()
            self._parked = []
            self.bytes = self.items = 0
        return items

    def _count(self, item: Item, sign: int) -> None:
        self.bytes += sign * item.cost
        self.items += sign


BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""From a fast disk to one that is in trouble."""


class Counted(NamedTuple):
    """Commits so far: how many took at most each bound, in all, and how long together."""

    within: tuple[int, ...]
    commits: int
    seconds: float


class Latency:
    """Written by the writer's thread alone; a reader may be one commit behind."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self._seconds = 0.0

    def note(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self._seconds += seconds

    def read(self) -> Counted:
        counts = list(self._counts)
        within = [sum(counts[: place + 1]) for place in range(len(BOUNDS_SECONDS))]
        return Counted(tuple(within), sum(counts), self._seconds)
