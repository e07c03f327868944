"""The writer: one for each process and record. It takes what has gathered and commits it at once.

Reads: the queue. Writes: whatever the operations write, in one transaction, with its log lines.
Invariants: the lock first, then the items, so that whoever waits for the lock can still be withdrawn; an item fails
alone; a waiter hears of its item only when it is durable, surely not written, or in doubt.
On crash: the lock is released by the kernel, and the next writer reconciles what the log holds.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from hansard.domain.limits import RETRY_SECONDS_MAX, RETRY_SECONDS_MIN
from hansard.errors import (
    GatewayRuns,
    HansardError,
    HomeMoved,
    LogUnwritable,
    OutcomeUnknown,
    RecordMigrated,
    RecordRefused,
    RecordUnavailable,
)
from hansard.journal.backend import (
    Backend,
    BlockedError,
    CommitError,
    DamageError,
    Group,
    GroupCommit,
    MismatchError,
    TouchedJournal,
)
from hansard.journal.causes import Cause, explain_waiting, framed, tell
from hansard.journal.entries import log_name
from hansard.journal.queue import Item, ItemState, Latency, WriteQueue
from hansard.journal.transaction import Transaction
from hansard.tasks import backoff_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hansard.journal.follow import Followers
    from hansard.ports import Clock

logger = logging.getLogger("hansard.record")


FULL_SECONDS = 5.0
"""How long the writer leaves a full disk alone. Freed space, and the end of a turn, cut this short."""

ROOM_SECONDS = 0.25
"""How often it looks for freed space meanwhile: one call of the system, without any lock."""

LOCK_TELL_SECONDS = 0.2
"""Waiting for the write lock is told after so long: before that, other processes just take their turns."""


class UnwritableLogs:
    """The files of logs that could not be written, and why: said once each, and once more when they can be."""

    KEPT_MAX = 1000
    """Files that are remembered. Beyond that, errors are raised to callers and not logged."""

    def __init__(self, home: str, changed: Callable[[], None]) -> None:
        self._home = home
        self._changed = changed
        self._files: dict[str, tuple[str, str]] = {}

    def note(self, error: LogUnwritable) -> None:
        """Keep an error, and log it unless it was the last one of that journal."""
        stem = error.name.rpartition(".")[0]
        if self._files.get(stem, ("", ""))[1] != str(error) and len(self._files) < self.KEPT_MAX:
            self._files[stem] = (error.name, str(error))
            logger.error("%s; nothing is recorded in that session until it can be", error)
            self._changed()

    def forget(self, journal_ids: Iterable[str]) -> None:
        for journal_id in journal_ids if self._files else ():
            if self._files.pop(log_name(journal_id).rpartition(".")[0], None) is not None:
                logger.warning("%s/%s can be written again", self._home, log_name(journal_id))
                self._changed()

    def describe(self) -> str:
        """Return what is wrong with the first file that still cannot be written; empty when there is none."""
        for name, why in list(self._files.values()):
            path = f"{self._home}/{name}"
            folder = os.path.dirname(path)
            if not os.path.isdir(folder) or not os.access(path if os.path.lexists(path) else folder, os.W_OK):
                return why
        return ""


class ReplayError(Exception):
    """An item failed after it had written: roll back and run the others again without it."""


class WriteHealth:
    """Whether the record can be written just now, and what prevents it."""

    def __init__(self, backend: Backend, changed: Callable[[], None]) -> None:
        """`changed` is called when a problem comes, is another one, or goes."""
        self._backend = backend
        self._changed = changed
        self._error: HansardError | None = None
        self._failing_since = self._waiting_since = 0.0

    def problem(self) -> HansardError | None:
        """Return what prevents writing: a lock that is waited for now, or else the last error."""
        since = self._waiting_since
        if since and time.monotonic() - since > LOCK_TELL_SECONDS:
            return explain_waiting(self._backend.home / "locks") or self._error
        return self._error

    def note(self, error: Exception | None) -> None:
        """Note how the last attempt ended; None when it succeeded. A new problem is logged once."""
        before, self._error = self._error, None if error is None else self._backend.explain(error)
        if before is None:
            self._failing_since = time.monotonic()
        if str(before or "") != str(self._error or ""):
            if self._error is not None:
                logger.error("the record could not be written: %s", self._error)
            self._changed()

    def left_of(self, patience_seconds: float) -> float:
        """Return what is left of a patience that began when writing began to fail, or begins now."""
        now = time.monotonic()
        since = self._waiting_since or (self._failing_since if self._error is not None else now)
        return max(0.0, since + patience_seconds - now)

    def note_full(self) -> None:
        """Note that the disk is full, although what ends something may still be written."""
        self.note(tell(Cause.DISK_FULL, self._backend.home))

    def begin(self) -> GroupCommit:
        self._waiting_since = time.monotonic()
        try:
            return self._backend.begin()
        finally:
            self._waiting_since = 0.0


def pass_by(_step: str) -> None:
    """Reach a step of a commit, with nobody watching."""


def answer_items(items: list[Item]) -> None:
    for item in items:
        item.state = ItemState.DONE
        item.done(item)


class Writer:
    """Group commit. A thread drives it by calling `step`; a simulator can do the same."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        *,
        reach: Callable[[str], None],
        followers: Followers,
    ) -> None:
        """`followers` hear which journals changed; `reach` hears each step, for crash tests."""
        self._backend = backend
        self._clock = clock
        self._failures: tuple[type[Exception], ...] = (DamageError, *backend.failures)
        self._breaking: tuple[type[Exception], ...] = (MismatchError, *backend.broken, OSError)
        self._room = backend.room
        self._reach = reach
        self._followers = followers
        self.wrote = False
        """Whether anything was committed since the store was opened."""
        self.queue = WriteQueue()
        self._pause_seconds = 0.0
        self._tries = 0
        self._is_full = False
        self._stopped = threading.Event()
        self.migrated = ""
        changed = partial(followers.ring, None)
        self.standing = WriteHealth(backend, changed)
        self.unwritable = UnwritableLogs(str(backend.home), changed)
        self.latency = Latency()

    @property
    def problem(self) -> HansardError | None:
        """Why nothing can be written just now; None when all is well."""
        return self.standing.problem()

    # Between two commits.

    def wait(self) -> bool:
        """Wait until there is something to do; return False when there is nothing left and the writer stops."""
        until = time.monotonic() + self._pause_seconds
        while (left := until - time.monotonic()) > 0:
            # On a disk that was full there is something to do when it has room, or something is to be ended.
            if self._is_full and (self._room.has_room() or self.queue.has_ending()):
                break
            if self._stopped.wait(min(left, ROOM_SECONDS)):
                time.sleep(RETRY_SECONDS_MIN)  # a record that closes tries again soon, and not without a pause
                break
        return self.queue.wait()

    def stop(self) -> None:
        """Take no new items; what is queued is still written."""
        self._stopped.set()
        self.queue.stop()

    def drop(self) -> None:
        """Forget everything that is queued, without an answer: what a kill does."""
        self.stop()
        self.queue.empty()

    def abandon(self) -> None:
        """Answer everything that is still queued: the record is closed before it could be written."""
        items = self.queue.empty()
        for item in items:
            kind = OutcomeUnknown if item.doubt else RecordUnavailable
            item.error = framed(self.problem or tell(Cause.CLOSED), "closed before this was written", kind)
        answer_items(items)

    def stumble(self, error: Exception) -> None:
        """Note an error outside a batch, such as a lock file that cannot be opened; the next try is after a pause."""
        self.standing.note(error)
        self._pause_seconds = RETRY_SECONDS_MAX

    def retire(self, why: str) -> None:
        """Note that a newer Hansard has migrated the record: nothing is written here any more."""
        self.migrated = why
        self.standing.note(RecordMigrated(why))

    def _take_items(self) -> list[Item]:
        """Take what has gathered. On a full disk, only what ends something."""
        self._is_full = self._room.spent and not self._room.restore()
        batch = self.queue.take_batch(only_ending=self._is_full)
        if self._is_full and self.queue.items:
            self.standing.note_full()
            self._pause_seconds = FULL_SECONDS
        return batch

    @staticmethod
    def _undo(commit: GroupCommit, batch: list[Item], error: Exception) -> None:
        """Undo a commit that failed. Its items are in doubt when nobody knows whether it comes back."""
        if not commit.undo(error):
            for item in batch:
                item.doubt = True

    def _put_back(self, batch: list[Item]) -> None:
        """Queue a batch again, in front: it is tried until it is written or nobody waits for it any more."""
        self.queue.put_back(batch)
        self._is_full = False
        self._tries += 1
        self._pause_seconds = backoff_seconds(self._tries, RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)

    def _park(self, batch: list[Item], can_heal: Callable[[Item], bool]) -> list[Item]:
        """Set aside what ends something and can be written later: it is tried again. Return the others.

        A turn that is over must end in the record once that is possible, also when nobody waits for it any more.
        """
        parked = [item for item in batch if item.ending and can_heal(item)]
        if not parked or self.queue.stopping:
            return batch
        for item in parked:
            item.doubt = item.doubt or isinstance(item.error, OutcomeUnknown)
        self.queue.park(parked)
        return [item for item in batch if item.state is ItemState.TAKEN]

    # One group commit.

    def step(self) -> None:
        """Commit what has gathered. Failures leave the items queued; their waiters decide how long to wait."""
        try:
            commit = self.standing.begin()
        except (HomeMoved, PermissionError, NotADirectoryError) as error:  # waiting does not change that
            batch = self._refuse(self._take_items(), self._backend.explain(error))
            answer_items(batch if isinstance(error, HomeMoved) else self._park(batch, lambda _item: True))
            return
        self._reach("locked")
        began = time.perf_counter()
        try:
            batch, touched = self._commit_batch(commit)
        finally:
            commit.release()
        if touched:
            self.latency.note(time.perf_counter() - began)
        self._reach("released")
        if touched:
            self.wrote = True
            written = [change.journal_id for change in touched if change.logged]
            self._followers.ring(written, [change.journal_id for change in touched if not change.logged])
        elif batch:
            self._followers.tell_listeners()
        if batch:
            answer_items(batch)
            self._reach("acknowledged")

    def _commit_batch(self, commit: GroupCommit) -> tuple[list[Item], list[TouchedJournal]]:
        """Run a batch and commit it; return who is to be answered and what changed."""
        batch: list[Item] = []
        try:
            group = commit.start({})
            self._reach("begun")
            batch = self._take_items()
            touched = self._commit(commit, group, batch)
        except CommitError as failed:
            return self._recover(commit, batch, failed.error)
        except self._failures as error:
            return self._recover(commit, batch, error)
        except (RecordRefused, GatewayRuns) as error:
            self._undo(commit, batch, error)
            if isinstance(error, RecordMigrated):
                self.retire(str(error))
            return self._refuse(batch or self._take_items(), error), []
        except Exception as error:  # boundary: writer batch
            logger.exception("a batch failed in an unforeseen way")
            self._undo(commit, batch, error)
            return self._refuse(batch, error), []
        if self._room.spent:
            self.standing.note_full()
        else:
            self.standing.note(None)
        self._pause_seconds = FULL_SECONDS if self._is_full else 0.0
        self._tries = 0
        self.unwritable.forget(change.journal_id for change in touched)
        return self._park(batch, lambda item: isinstance(item.error, LogUnwritable | OutcomeUnknown)), touched

    def _commit(self, commit: GroupCommit, group: Group, batch: list[Item]) -> list[TouchedJournal]:
        """Run a batch and commit it. A log that cannot be written fails the items of its journal alone."""
        blocked: dict[str, HansardError] = {}
        while True:
            tx = self._apply(commit, group, batch, blocked)
            try:
                return commit.commit(tx.units)
            except BlockedError as error:
                blocked.update(error.journals)
                group = commit.start(blocked)

    def _refuse(self, batch: list[Item], error: Exception) -> list[Item]:
        """Answer a batch that cannot be written as things stand. Of items in doubt nobody knows."""
        self.standing.note(error)
        for item in batch:
            item.error = OutcomeUnknown(str(error)) if item.doubt else error
        return batch

    def _apply(
        self, commit: GroupCommit, group: Group, batch: list[Item], blocked: dict[str, HansardError]
    ) -> Transaction:
        """Run the items; mend first whatever journal is not as the database says, and run them again.

        What touches a blocked journal fails with that journal's error.
        """
        mended: set[str] = set()
        failed: set[Item] = set()
        while True:
            tx = Transaction(group, self._clock)
            try:
                for item in batch:
                    if item not in failed:
                        item.error = None
                        self._run(tx, item)
            except ReplayError:
                failed.update(item for item in batch if item.error is not None)
            except MismatchError as mismatch:
                again = mismatch.journal_id in mended
                error = commit.mend(mismatch.journal_id)
                mended.add(mismatch.journal_id)
                if again and error is None:
                    error = RecordUnavailable(f"the files of {mismatch.journal_id} change under the write lock")
                if error is not None:
                    blocked[mismatch.journal_id] = error
            else:
                return tx
            group = commit.start(blocked)

    def _run(self, tx: Transaction, item: Item) -> None:
        """Run one item. It fails alone (rule 6); operations check before they write, so little is ever undone."""
        try:
            item.result = item.operation(tx)
        except self._breaking:
            raise
        except DamageError as error:
            if self._backend.doubt():
                raise  # the batch is run again, once the database was compared with the logs
            item.error = self._backend.explain(error)
            if tx.wrote():
                raise ReplayError from error
        except Exception as error:  # boundary: writer batch
            if not isinstance(error, HansardError):
                logger.exception("an operation failed in an unforeseen way")
                error = self._backend.explain(error) if isinstance(error, self._failures) else error
            if isinstance(error, LogUnwritable):
                self.unwritable.note(error)
                error = framed(error, "not known to be written", OutcomeUnknown) if item.doubt else error
            item.error = error
            if tx.wrote():
                raise ReplayError from error
        else:
            tx.finish_unit()

    def _recover(
        self, commit: GroupCommit, batch: list[Item], error: Exception
    ) -> tuple[list[Item], list[TouchedJournal]]:
        """After a failed commit: make sure that it is gone, and queue the batch again."""
        if isinstance(error, DamageError) and self._backend.doubt():  # mended before the batch is run again
            self._undo(commit, batch, error)
            self.queue.put_back(batch)
            return [], []
        self.standing.note(error)
        self._undo(commit, batch, error)
        self._put_back(batch)
        problem = self.standing.problem()
        if problem is not None and problem.cause == Cause.LOCKED_BY_STRANGER:
            self._pause_seconds = RETRY_SECONDS_MIN
            self._tries = 1
        return [], []
