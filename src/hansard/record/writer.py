"""The writer: one for each process and record. It takes what has gathered and commits it at once.

Reads: the queue. Writes: whatever the operations write, in one transaction, with its log lines.
Invariants: the lock first, then the items, so that whoever waits for the lock can still be withdrawn; an item fails
alone; a waiter hears of its item only when it is durable, surely not written, or in doubt.
On crash: the lock is released by the kernel, and the next writer reconciles what the log holds.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from hansard.domain.limits import BATCH_BYTES_MAX, BATCH_ITEMS_MAX, RETRY_SECONDS_MAX, RETRY_SECONDS_MIN
from hansard.errors import (
    GatewayRuns,
    HansardError,
    HomeMoved,
    OutcomeUnknown,
    RecordMigrated,
    RecordRefused,
    RecordUnavailable,
)
from hansard.record.causes import Cause, explain, explain_waiting, framed, tell
from hansard.record.journals import MismatchError, Written
from hansard.record.latency import Latency
from hansard.record.sqlite.queries import SQL
from hansard.record.transaction import LogWriteError, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hansard.record.database import Database
    from hansard.record.locks import FairLock
    from hansard.record.reserve import Reserve

logger = logging.getLogger("hansard.record")


LOCK_TELL_SECONDS = 0.2
"""Waiting for the write lock is told after so long: before that, other processes just take their turns."""


class State(Enum):
    """Where an item is."""

    QUEUED = auto()
    TAKEN = auto()
    DONE = auto()
    WITHDRAWN = auto()


class Change(NamedTuple):
    """A journal that a commit touched, and whether its log grew or only its open message."""

    journal_id: str
    logged: bool


class Bell:
    """Wakes one thread, cheaply; ringing twice is ringing once."""

    def __init__(self) -> None:
        """Begin silent."""
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread that waits, or let the next wait pass."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._lock.release()

    def wait(self, timeout_seconds: float = -1) -> bool:
        """Wait for a ring."""
        return self._lock.acquire(timeout=timeout_seconds)


class ReplayError(Exception):
    """An item failed after it had written: roll back and run the others again without it."""


class Item:
    """One call that waits to be committed."""

    __slots__ = ("cost", "done", "doubt", "ending", "error", "operation", "result", "state")

    def __init__(
        self,
        operation: Callable[[Transaction], Any],
        done: Callable[[Item], None],
        *,
        cost: int = 0,
        ending: bool = False,
    ) -> None:
        """`done` is called once, on the writer's thread. `ending` items may use the reserve of a full disk."""
        self.operation = operation
        self.done = done
        self.cost = cost
        self.ending = ending
        self.state = State.QUEUED
        self.doubt = False
        self.result: Any = None
        self.error: BaseException | None = None


class Standing:
    """Whether the record can be written just now, and what prevents it."""

    def __init__(self, database: Path) -> None:
        """All is well."""
        self._database = database
        self._error: HansardError | None = None
        self._waiting_since = 0.0

    def problem(self) -> HansardError | None:
        """Return what prevents writing: a lock that is waited for now, or else the last error."""
        since = self._waiting_since
        if since and time.monotonic() - since > LOCK_TELL_SECONDS:
            return explain_waiting(self._database.parent / "locks") or self._error
        return self._error

    def note(self, error: Exception | None) -> None:
        """Note how the last attempt ended; None when it succeeded. A new problem is logged once."""
        before, self._error = self._error, None if error is None else explain(error, self._database)
        if self._error is not None and str(before or "") != str(self._error):
            logger.error("the record could not be written: %s", self._error)

    def note_full(self) -> None:
        """Note that the disk is full, although what ends something may still be written."""
        self.note(tell(Cause.DISK_FULL, self._database.parent))

    def take(self, lock: FairLock) -> None:
        """Wait for the write lock."""
        self._waiting_since = time.monotonic()
        try:
            lock.acquire()
        finally:
            self._waiting_since = 0.0


def answer_items(items: list[Item]) -> None:
    """Tell who waits for these items that they are settled."""
    for item in items:
        item.state = State.DONE
        item.done(item)


class Writer:
    """Group commit. A thread drives it by calling `step`; a simulator can do the same."""

    def __init__(
        self,
        database: Database,
        lock: FairLock,
        reserve: Reserve,
        *,
        reach: Callable[[str], None],
        committed: Callable[[list[Change]], None],
    ) -> None:
        """`committed` hears which journals changed; `reach` hears each step, for crash tests."""
        self._database = database
        self._lock = lock
        self._reserve = reserve
        self._reach = reach
        self._committed = committed
        self._queue: deque[Item] = deque()
        self._mutex = threading.Lock()
        self._bell = Bell()
        self._pause_seconds = 0.0
        self._stopping = False
        self._stopped = threading.Event()
        self.queued_bytes = 0
        self.queued_items = 0
        self.migrated = ""
        self._standing = Standing(database.path)
        self.latency = Latency()

    @property
    def problem(self) -> HansardError | None:
        """Why nothing can be written just now; None when all is well."""
        return self._standing.problem()

    # The queue.

    def submit(self, item: Item, *, ring: bool = True) -> None:
        """Queue an item; order of submission is order of commit. Who does not ring at once does so soon."""
        with self._mutex:
            if self._stopping:
                raise tell(Cause.CLOSED)
            self._queue.append(item)
            self.queued_bytes += item.cost
            self.queued_items += 1
        if ring:
            self._bell.ring()

    def ring(self) -> None:
        """Wake the writer's thread."""
        self._bell.ring()

    def withdraw(self, item: Item) -> bool:
        """Take an item back; False when it is too late to say that it is not written.

        One in doubt stays: its lines may be in a log already, so only the writer can settle it.
        """
        with self._mutex:
            if item.state is not State.QUEUED or item.doubt:
                return False
            item.state = State.WITHDRAWN
            self.queued_bytes -= item.cost
            self.queued_items -= 1
            return True

    def wait(self) -> bool:
        """Wait until there is something to do; return False when there is nothing left and the writer stops."""
        if self._pause_seconds and not self._stopping:
            self._stopped.wait(self._pause_seconds)
        while not self._queue and not self._stopping:
            self._bell.wait()
        return bool(self._queue)

    def stop(self) -> None:
        """Take no new items; what is queued is still written."""
        with self._mutex:
            self._stopping = True
        self._stopped.set()
        self._bell.ring()

    def stumble(self, error: Exception) -> None:
        """Note an error outside a batch, such as a lock file that cannot be opened; the next try is after a pause."""
        self._standing.note(error)
        self._pause_seconds = RETRY_SECONDS_MAX

    def retire(self, why: str) -> None:
        """Note that a newer Hansard has migrated the record: nothing is written here any more."""
        self.migrated = why
        self._standing.note(RecordMigrated(why))

    def drop(self) -> None:
        """Forget everything that is queued, without an answer: what a kill does."""
        with self._mutex:
            self._stopping = True
            self._queue.clear()
            self.queued_bytes = self.queued_items = 0
        self._stopped.set()
        self._bell.ring()

    def abandon(self) -> None:
        """Answer everything that is still queued: the record is closed before it could be written."""
        with self._mutex:
            items = [item for item in self._queue if item.state is State.QUEUED]
            self._queue.clear()
        for item in items:
            kind = OutcomeUnknown if item.doubt else RecordUnavailable
            item.error = framed(self.problem or tell(Cause.CLOSED), "closed before this was written", kind)
        answer_items(items)

    def _take(self) -> list[Item]:
        """Take what has gathered, up to the limits of a batch. On a full disk, only what ends something."""
        full = self._reserve.spent and not self._reserve.restore()
        batch: list[Item] = []
        kept: list[Item] = []
        size = 0
        with self._mutex:
            while self._queue and len(batch) < BATCH_ITEMS_MAX and (not batch or size < BATCH_BYTES_MAX):
                item = self._queue.popleft()
                if item.state is State.WITHDRAWN:
                    continue
                if full and not item.ending:
                    kept.append(item)
                    continue
                item.state = State.TAKEN
                size += item.cost
                batch.append(item)
            self._queue.extendleft(reversed(kept))
            self.queued_bytes -= size
            self.queued_items -= len(batch)
        if full and kept:
            self._standing.note_full()
            self._pause_seconds = RETRY_SECONDS_MIN
        return batch

    def _put_back(self, batch: list[Item], *, doubt: bool) -> None:
        """Queue a batch again, in front: it is tried until it is written or nobody waits for it any more."""
        with self._mutex:
            for item in reversed(batch):
                item.state = State.QUEUED
                item.doubt = item.doubt or doubt
                self.queued_bytes += item.cost
                self.queued_items += 1
                self._queue.appendleft(item)
        pause = self._pause_seconds * 2
        self._pause_seconds = min(max(pause, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)

    # One group commit.

    def step(self) -> None:
        """Commit what has gathered. Failures leave the items queued; their waiters decide how long to wait."""
        try:
            self._standing.take(self._lock)
        except HomeMoved as error:
            answer_items(self._refuse(self._take(), error))
            return
        self._reach("locked")
        began = time.perf_counter()
        try:
            batch, touched = self._commit_batch()
        finally:
            self._lock.release()
        if touched:
            self.latency.note(time.perf_counter() - began)
        self._reach("released")
        if touched:
            self._committed(touched)
        if batch:
            answer_items(batch)
            self._reach("acknowledged")

    def _commit_batch(self) -> tuple[list[Item], list[Change]]:
        """Run a batch and commit it; return who is to be answered and what changed."""
        batch: list[Item] = []
        try:
            connection = self._database.begin(self._lock)
            self._reach("begun")
            batch = self._take()
            tx = self._apply(connection, batch)
        except (apsw.Error, OSError) as error:
            return self._recover(batch, [], error)
        except (RecordRefused, GatewayRuns) as error:
            self._database.rollback()
            if isinstance(error, RecordMigrated):
                self.retire(str(error))
            return self._refuse(batch or self._take(), error), []
        except Exception as error:  # boundary: writer batch
            logger.exception("a batch failed in an unforeseen way")
            self._database.rollback()
            return self._refuse(batch, error), []
        return self._commit(connection, tx, batch)

    def _commit(
        self, connection: apsw.Connection, tx: Transaction, batch: list[Item]
    ) -> tuple[list[Item], list[Change]]:
        """Write the log, commit, and make sure that it went into the file at the path."""
        touched = [Change(journal.id, bool(journal.log)) for journal in tx.changed()]
        written: list[Written] = []
        try:
            if touched:
                written = tx.finish(self._reach)
        except LogWriteError as error:
            return self._recover(batch, error.written, error.error)
        except (apsw.Error, OSError) as error:
            return self._recover(batch, [], error)
        try:
            connection.execute(SQL.commit)
        except apsw.Error as error:
            return self._recover(batch, written, error, committing=True)
        self._reach("committed")
        if not self._database.same():
            self._database.lose()
            return self._recover(batch, [], tell(Cause.REPLACED, self._database.path), doubt=True)
        tx.settle()
        self._reach("removed")
        self._standing.note_full() if self._reserve.spent else self._standing.note(None)
        self._pause_seconds = 0.0
        return batch, touched

    def _refuse(self, batch: list[Item], error: Exception) -> list[Item]:
        """Answer a batch that cannot be written as things stand. Of items in doubt nobody knows."""
        self._standing.note(error)
        for item in batch:
            item.error = OutcomeUnknown(str(error)) if item.doubt else error
        return batch

    def _apply(self, connection: apsw.Connection, batch: list[Item]) -> Transaction:
        """Run the items; reconcile first whatever journal is not as the database says, and run them again."""
        blocked: dict[str, HansardError] = {}
        reconciled: set[str] = set()
        failed: set[Item] = set()
        while True:
            kept = self._database.known(connection)
            tx = Transaction(connection, self._database.files, self._database.clock, blocked, kept)
            tx.notices_of = self._database.notices_of
            try:
                for item in batch:
                    if item not in failed:
                        item.error = None
                        self._run(tx, item)
            except ReplayError:
                self._database.rollback()
                failed.update(item for item in batch if item.error is not None)
                connection.execute(SQL.begin)
            except MismatchError as mismatch:
                self._database.rollback()
                again = mismatch.journal_id in reconciled
                error = self._database.reconcile(connection, mismatch.journal_id)
                reconciled.add(mismatch.journal_id)
                if again and error is None:
                    error = RecordUnavailable(f"the files of {mismatch.journal_id} change under the write lock")
                if error is not None:
                    blocked[mismatch.journal_id] = error
                connection.execute(SQL.begin)
            else:
                return tx

    def _run(self, tx: Transaction, item: Item) -> None:
        """Run one item. It fails alone (rule 6); operations check before they write, so little is ever undone."""
        try:
            item.result = item.operation(tx)
        except (MismatchError, apsw.IOError, apsw.FullError, apsw.CorruptError, OSError):
            raise
        except Exception as error:  # boundary: writer batch
            if not isinstance(error, HansardError):
                logger.exception("an operation failed in an unforeseen way")
            item.error = error
            if tx.wrote():
                raise ReplayError from error
        else:
            tx.finish_unit()

    def _recover(
        self,
        batch: list[Item],
        written: list[Written],
        error: Exception,
        *,
        committing: bool = False,
        doubt: bool = False,
    ) -> tuple[list[Item], list[Change]]:
        """After a failed commit: make sure that it is gone, take the log lines back, and queue the batch again."""
        self._standing.note(error)
        try:
            self._database.rollback()
        except apsw.Error:
            self._database.close()
        if isinstance(error, apsw.FullError) or getattr(error, "errno", 0) == errno.ENOSPC:
            self._reserve.spend()
        doubt = doubt or (committing and not self._database.commit_nothing())
        if not doubt:
            try:
                for name, size in written:
                    self._database.files.cut(name, size)
            except OSError:
                doubt = True
        self._put_back(batch, doubt=doubt)
        if isinstance(error, apsw.BusyError):
            self._pause_seconds = RETRY_SECONDS_MIN
        return [], []
