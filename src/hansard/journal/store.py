"""One record in one process: the writer, the keeper, the readers and the owner's lock, shared by every `Record` on it.

Reads and writes: through its parts. Invariants: one store for each home (device, inode) and process (rule 9); a child
of fork() never touches its parent's. On crash: the kernel drops the locks, and the next store recovers.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.ids import random_letters
from hansard.errors import HansardError, RecordMigrated, RecordUnavailable, UsedAfterFork
from hansard.journal.blobs import Blobs
from hansard.journal.causes import Cause, explain, explain_delay, framed
from hansard.journal.files import LogFiles, make_folder
from hansard.journal.follow import Followers
from hansard.journal.locks import FairLock, OwnerLock, owner_is_alive, remove_dead_owner
from hansard.journal.queue import Item
from hansard.journal.sqlite.connection import SQL, DatabaseError, fetch
from hansard.journal.sqlite.database import Database
from hansard.journal.sqlite.filesystem import check_behaviour, check_filesystem
from hansard.journal.sqlite.keeper import TICK_SECONDS, WATCHER_SECONDS, Keeper, Ticker, Watcher
from hansard.journal.sqlite.reading import Readers, Snapshot
from hansard.journal.sqlite.reserve import Reserve
from hansard.journal.writer import TouchedJournal, Writer
from hansard.ports import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hansard.journal.concepts import Companion, Recover, Schema
    from hansard.journal.sqlite.readonly import ReadOnlyStore

logger = logging.getLogger("hansard.record")


PASSING = frozenset(
    {Cause.LOCKED_BY_STRANGER, Cause.LOCK_HELD, Cause.LOCK_HOLDER_STOPPED}
    | {Cause.DISK_FAILS, Cause.REPLACED, Cause.OTHER}
)
"""Causes that may be gone in a moment: opening tries again within its patience. The others are told at once."""


def cannot_open(home: Path, problem: HansardError) -> HansardError:
    """Return why a home cannot be opened."""
    return framed(problem, f"the record at {home} could not be opened for writing")


def pass_by(_step: str) -> None:
    """Reach a step of a commit, with nobody watching."""


class Wiring(NamedTuple):
    """What a test or a simulator may put in place of the machine's own."""

    clock: Clock = SystemClock()
    reach: Callable[[str], None] = pass_by
    threads: bool = True
    """False: nothing moves by itself; whoever owns the store calls `writer.step()` and `keeper.step()`."""
    recoveries: Mapping[str, Recover] = {}
    """By a concept's name, what recovers in place of the function that the concept registered."""


class Store:
    """The open record of this process."""

    is_read_only = False
    note = ""

    def __init__(
        self, home: Path, schema: Schema, wiring: Wiring, *, files: LogFiles | None = None, blobs: Blobs | None = None
    ) -> None:
        """Create what is missing of the home; `open` does the rest. A copy has its logs and attachments elsewhere."""
        self.home = self.source = home
        self.schema = schema
        self.wiring = wiring
        self.clock = wiring.clock
        check_filesystem(home)
        for name in ("", "locks", "locks/owners", "sessions"):
            make_folder(str(home / name).rstrip("/"))
        check_behaviour(home / "locks" / "probe")
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{random_letters(6)}"
        self._owners = home / "locks" / "owners"
        self._owner_lock = OwnerLock(self._owners, self.owner)
        self.held_locks: list[Callable[[], None]] = []
        """Locks that this process holds for as long as it serves: each call takes one again, or raises."""
        self.files = files or LogFiles(home)
        self.database = Database(home, self.files, self.clock, wiring.reach, self._check_place, schema)
        self.work = self.database.work
        self.lock = FairLock(home / "locks")
        self._keeper_lock = FairLock(home / "locks")
        self.blobs = blobs or Blobs(self.database.folder)
        self.readers = Readers(self.database.path, self.database.gate)
        self.followers = Followers(self._start_watching, self._stop_watching)
        reserve = Reserve(home)
        self.writer = Writer(self.database, self.lock, reserve, reach=wiring.reach, committed=self._committed)
        self.keeper = Keeper(self.database, self.writer, self._keeper_lock)
        self._writer_thread = threading.Thread(target=self._write, name="hansard-writer", daemon=True)
        self._keeper_thread = Ticker("hansard-keeper", self.keeper.tick, TICK_SECONDS)
        self._watcher_thread: Ticker | None = None
        self.watcher: Watcher | None = None
        self._process = os.getpid()
        self._wrote = False
        self.users = 0
        self.companions: dict[str, Companion] = {}

    # Opening and closing.

    def open(self, patience_seconds: float) -> None:
        """Open or rebuild the database, reconcile the logs, end what dead processes left. Blocking.

        The patience is for what is in the way. Time in which the record was migrated or rebuilt does not count.
        """
        began = time.monotonic()
        told = ""
        while True:
            try:
                self._recover()
                break
            except (DatabaseError, OSError, RecordUnavailable) as error:
                problem = explain(error, self.database.path)
                deadline = max(began, self.database.work.moved_at) + patience_seconds
                if problem.cause not in PASSING or time.monotonic() > deadline:
                    raise cannot_open(self.home, problem) from error
                if str(problem) != told:
                    told = str(problem)
                    logger.warning("%s; trying again", problem)
                time.sleep(0.05)
        if self.wiring.threads:
            self._writer_thread.start()
            self._keeper_thread.start()
        self.companions = start_companions(self)

    def _recover(self) -> None:
        """Open under the lock, then end what dead owners left open as what it is (L6)."""
        self.lock.acquire()
        try:
            connection = self.database.connection()
            reads = Snapshot(connection, self.schema)
            recoveries = [self.wiring.recoveries.get(each.name, each.recover) for each in self.schema.concepts]
            operations = [each for recover in recoveries if recover for each in recover(reads, self.is_alive)]
            unsynced = [row[0] for row in fetch(connection, SQL.unsynced_journals)]
        finally:
            self.lock.release()
        self.keeper.note(unsynced)
        for operation in operations:
            self.writer.queue.submit(Item(operation, _log_failure, ending=True))
        while self.writer.queue.is_ready():
            self.writer.step()
            if self.writer.problem is not None:
                raise self.writer.problem
        self._remove_dead_owners()

    def _remove_dead_owners(self) -> None:
        """Remove the lock files of owners that are gone and whose turns are closed."""
        for entry in list(os.scandir(self._owners)):
            if entry.name != self.owner:
                remove_dead_owner(entry.path)

    def close(self, patience_seconds: float) -> None:
        """Write what is queued, put the logs on the disk, let go of the locks. Blocking."""
        self._stop_watching()
        finish_companions(self, wrote=self._wrote)
        self._keeper_thread.stop()
        self.keeper.step()
        self.writer.stop()
        if self._writer_thread.is_alive():
            self._writer_thread.join(patience_seconds)
        else:
            while self.writer.queue.items and self.writer.problem is None:
                self.writer.step()
        if self._writer_thread.is_alive() or self.writer.queue.items:
            self.writer.abandon()
        self.readers.close()
        if not self._writer_thread.is_alive():
            self.keeper.shrink()
            self.database.close()
            self.files.close()
            self.lock.close()
        self.keeper.close()
        self._keeper_lock.close()
        self._owner_lock.close()

    def abandon(self) -> None:
        """Drop everything where it stands; the owner's lock file stays, as a killed process leaves it."""
        self.writer.drop()
        if self._writer_thread.is_alive():
            self._writer_thread.join()
        self._keeper_thread.stop()
        finish_companions(self, wrote=False)
        self._stop_watching()
        self.readers.close()
        self.keeper.close()
        self.database.close()
        self.files.close()
        self.lock.close()
        self._keeper_lock.close()
        self._owner_lock.drop()

    # The writer's thread and what follows a commit.

    def _write(self) -> None:
        while self.writer.wait():
            try:
                self.writer.step()
            except Exception as error:  # boundary: writer batch
                logger.exception("the writer failed in an unforeseen way; it goes on")
                self.writer.stumble(error)

    def _committed(self, changes: list[TouchedJournal]) -> None:
        self._wrote = True
        self.keeper.note(change.journal_id for change in changes if change.logged)
        self.followers.ring([change.journal_id for change in changes])

    @property
    def problem(self) -> HansardError:
        """Why something that waits to be written is not written yet."""
        return self.writer.problem or explain_delay(self.home / "locks")

    def _check_place(self) -> None:
        """Refuse when the home was taken away; take locks again whose files were.

        Called under the write lock, before the database is opened and after a lock file was replaced.
        """
        self.database.folder.check()
        self._owner_lock.renew()
        for take_again in self.held_locks:
            take_again()

    def check_fit(self) -> None:
        """Raise why this process may not write any more: a newer Hansard migrated the record, or the home is gone."""
        if self.writer.migrated:
            raise RecordMigrated(self.writer.migrated)
        self.database.folder.check()

    def check_process(self) -> None:
        """Refuse a child of fork(): locks and connections stayed with its parent."""
        if os.getpid() != self._process:
            message = "this record was opened before fork(); its locks stayed with the parent process"
            raise UsedAfterFork(message)

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Hold the write lock, so that nothing is in flight."""
        lock = FairLock(self.home / "locks")
        lock.acquire()
        try:
            yield
        finally:
            lock.release()
            lock.close()

    def is_alive(self, owner: str) -> bool:
        """Return whether an owner's process lives."""
        return owner_is_alive(self._owners, owner)

    # Watching other processes, only while somebody follows.

    def _start_watching(self) -> None:
        watcher = Watcher(self.readers, self.followers)
        self.watcher = watcher
        if self.wiring.threads:
            self._watcher_thread = Ticker("hansard-watcher", watcher.step, WATCHER_SECONDS, watcher.close)
            self._watcher_thread.start()

    def _stop_watching(self) -> None:
        watcher, self.watcher = self.watcher, None
        thread, self._watcher_thread = self._watcher_thread, None
        if thread is not None:
            thread.request_stop()
        elif watcher is not None:
            watcher.close()


def start_companions(store: Store | ReadOnlyStore) -> dict[str, Companion]:
    """Start what follows a store, by the name of its concept."""
    companions = {each.name: each.companion(store) for each in store.schema.concepts if each.companion is not None}
    if store.wiring.threads:
        for companion in companions.values():
            companion.start()
    return companions


def finish_companions(store: Store | ReadOnlyStore, *, wrote: bool) -> None:
    """End what follows a store. `wrote`: this process added entries, which each may take in a last time."""
    for companion in store.companions.values():
        companion.finish(wrote=wrote and store.wiring.threads)


def _log_failure(item: Item) -> None:
    if item.error is not None:
        logger.error("recovery left something open: %s", item.error)


# One store for each home and process.


class Slot:
    """What this process has of one home: at most one store, which one thread at a time opens or closes."""

    def __init__(self) -> None:
        """Nothing is open."""
        self.mutex = threading.Lock()
        self.store: Store | None = None

    def is_working(self) -> bool:
        """Return whether this process is migrating or rebuilding that home, or reading its logs."""
        store = self.store
        return store is not None and store.database.work.is_active


_slots: dict[tuple[int, int], Slot] = {}
_inherited: set[tuple[int, int]] = set()
_leaked: list[Slot] = []
"""The parent's stores, kept in a child so that nothing of them is ever finalised there."""


def _forget_in_child() -> None:
    """A child must neither use nor close its parent's connections: SQLite's locks do not survive fork()."""
    _inherited.update(key for key, slot in _slots.items() if slot.store is not None)
    _leaked.extend(_slots.values())
    _slots.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def home_at(path: str | Path) -> Path:
    """Return the whole path of a home."""
    return Path(path).expanduser().absolute()


def check_not_inherited(home: Path) -> None:
    """Refuse a home that the parent process had open when it forked: SQLite's locks do not survive that."""
    with suppress(OSError):
        seen = os.stat(home)
        if (seen.st_dev, seen.st_ino) in _inherited:
            message = f"{home} was open in the parent process when it forked; start the child with exec or spawn"
            raise UsedAfterFork(message)


class StoreOpening:
    """An opening, as those see it who wait for it beside its thread."""

    def __init__(self) -> None:
        """It has not come to its home yet."""
        self.slot: Slot | None = None

    def is_working(self) -> bool:
        """Return whether this process does what has to be waited for."""
        return self.slot is not None and self.slot.is_working()


def open_store(
    path: Path, schema: Schema, wiring: Wiring, patience_seconds: float, opening: StoreOpening | None = None
) -> Store:
    """Return the store of a home, opening it when this process has not yet. Blocking."""
    home = home_at(path)
    try:
        make_folder(str(home))
        seen = os.stat(home)
    except OSError as error:
        raise cannot_open(home, explain(error)) from error
    key = (seen.st_dev, seen.st_ino)
    check_not_inherited(home)
    slot = _slots.setdefault(key, Slot())
    if opening is not None:
        opening.slot = slot
    with slot.mutex:
        if slot.store is None:
            _fill_slot(slot, home, schema, wiring, patience_seconds)
        store = slot.store
        assert store is not None
        store.users += 1
    return store


def _fill_slot(slot: Slot, home: Path, schema: Schema, wiring: Wiring, patience_seconds: float) -> None:
    """Open the store of a home; one that cannot be opened leaves the slot empty."""
    try:
        store = Store(home, schema, wiring)
    except OSError as error:
        raise cannot_open(home, explain(error)) from error
    slot.store = store
    with ExitStack() as stack:
        stack.callback(store.abandon)
        stack.callback(setattr, slot, "store", None)
        store.open(patience_seconds)
        stack.pop_all()


def close_store(store: Store, patience_seconds: float) -> None:
    """Leave a store; the last one closes it. Blocking."""
    with _slot_of(store) as is_last:
        if is_last:
            store.close(patience_seconds)


def abandon_store(store: Store) -> None:
    """Forget a store as a kill would: nothing queued is written or answered, the kernel's locks fall.

    For simulators that crash inside one process.
    """
    store.users = 1
    with _slot_of(store) as is_last:
        if is_last:
            store.abandon()


@contextmanager
def _slot_of(store: Store) -> Iterator[bool]:
    """Leave a store, and let nobody open its home meanwhile; tell whether it has to be closed now."""
    slot = next((slot for slot in list(_slots.values()) if slot.store is store), None)
    if slot is None:
        yield False
        return
    with slot.mutex:
        store.users -= 1
        is_last = store.users == 0 and slot.store is store
        try:
            yield is_last
        finally:
            if is_last:
                slot.store = None
