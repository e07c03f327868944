"""One record in one process: the writer, the keeper, the readers and the owner's lock, shared by every `Record` on it.

Reads and writes: through its parts. Invariants: one store for each home (device, inode) and process (rule 9); a child
of fork() never touches its parent's. This is the only module that chooses a backend: a path is a home, SQLite and log
files; everything else knows the port (`backend.py`). On crash: the kernel drops the locks, and the next store recovers.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

from hansard.errors import HansardError, RecordMigrated, RecordUnavailable, UsedAfterFork
from hansard.journal.backend import Backend, DamageError, ReadBackend, Reads
from hansard.journal.causes import NOTHING, SAFE, SAFE_AND_READABLE, Cause, explain, explain_delay, framed
from hansard.journal.concepts import Companion, EndLost, Schema
from hansard.journal.files import make_folder
from hansard.journal.follow import Followers
from hansard.journal.queue import Item
from hansard.journal.sqlite.backend import SqliteBackend
from hansard.journal.sqlite.readonly import open_read_only, read_in_place
from hansard.journal.transaction import Transaction
from hansard.journal.writer import Writer, pass_by
from hansard.ports import Clock, SystemClock

logger = logging.getLogger("hansard.record")


PASSING = frozenset(
    {Cause.LOCKED_BY_STRANGER, Cause.LOCK_HELD, Cause.LOCK_HOLDER_STOPPED}
    | {Cause.DISK_FAILS, Cause.REPLACED, Cause.OTHER}
)
"""Causes that may be gone in a moment: opening tries again within its patience. The others are told at once."""


def cannot_open(home: Path, problem: HansardError) -> HansardError:
    return framed(problem, f"the record at {home} could not be opened for writing")


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """What a test or a simulator may put in place of the machine's own."""

    clock: Clock = SystemClock()
    reach: Callable[[str], None] = pass_by
    threads: bool = True
    """False: nothing moves by itself; whoever owns the store calls `writer.step()` and `keeper.step()`."""
    recoveries: Mapping[str, EndLost] = {}
    """By a concept's name, what ends lost work in place of the function that the concept registered."""


class Store:
    """The open record of this process."""

    companions_may_write = True
    """Whether a companion may write files of its own, such as an index."""

    def __init__(self, backend: Backend, wiring: Wiring, *, source: Path | None = None, note: str = "") -> None:
        """`open` does the rest. `source` is the home that a temporary copy was made of, `note` says why."""
        self.backend = backend
        self.home = backend.home
        self.source = source or backend.home
        self.is_read_only = source is not None
        self.note = note
        self.schema = backend.schema
        self.wiring = wiring
        self.clock = wiring.clock
        self.owner = backend.owners.owner
        self.held_locks = backend.owners.held_locks
        self.is_alive = backend.owners.is_alive
        self.blobs = backend.blobs
        self.work = backend.work
        self.followers = Followers(backend.watch if wiring.threads else None)
        self.writer = Writer(backend, wiring.clock, reach=wiring.reach, followers=self.followers)
        backend.upkeep.attach(self.writer)
        self._writer_thread = threading.Thread(target=self._write, name="hansard-writer", daemon=True)
        self.users = 0
        self.companions: dict[str, Companion] = {}

    # Opening and closing.

    def open(self, patience_seconds: float) -> None:
        """Open or rebuild the database, reconcile the logs, end what dead processes left. Blocking.

        The patience is for what is in the way. Time in which the record was migrated or rebuilt does not count.
        """
        began = time.monotonic()
        told = ""
        failures: tuple[type[Exception], ...] = (*self.backend.failures, DamageError, RecordUnavailable)
        while True:
            try:
                self._recover()
                break
            except failures as error:
                problem = self.backend.explain(error)
                deadline = max(began, self.work.moved_at) + patience_seconds
                if problem.cause not in PASSING or time.monotonic() > deadline:
                    raise cannot_open(self.home, problem) from error
                if str(problem) != told:
                    told = str(problem)
                    logger.warning("%s; trying again", problem)
                time.sleep(0.05)
        if self.wiring.threads:
            self._writer_thread.start()
            self.backend.upkeep.start()
        self.companions = start_companions(self)

    def _recover(self) -> None:
        """Open under the lock, then end what dead owners left open as what it is (L6)."""
        for operation in self.backend.open(self._find_lost):
            self.writer.queue.submit(Item(operation, _log_failure, ending=True))
        while self.writer.queue.is_ready():
            self.writer.step()
            if self.writer.problem is not None:
                raise self.writer.problem
        self.backend.owners.remove_dead()

    def _find_lost(self, reads: Reads) -> list[Callable[[Transaction], object]]:
        operations = []
        for concept, row in self.schema.find_lost(reads, self.is_alive):
            end_lost = self.wiring.recoveries.get(concept.name, concept.end_lost)
            assert end_lost is not None
            operations.append(end_lost(row, self.is_alive))
        return operations

    def close(self, patience_seconds: float) -> None:
        """Write what is queued, put the logs on the disk, let go of the locks. Blocking."""
        self.followers.stop_watching()
        finish_companions(self, wrote=self.writer.wrote)
        self.backend.upkeep.stop()
        self.backend.upkeep.step()
        self.writer.stop()
        if self._writer_thread.is_alive():
            self._writer_thread.join(self.writer.standing.left_of(patience_seconds))
        else:
            while self.writer.queue.items and self.writer.problem is None:
                self.writer.step()
        is_writing = self._writer_thread.is_alive()
        if is_writing or self.writer.queue.items:
            self.writer.abandon()
        self.backend.close(is_writing=is_writing)

    def abandon(self) -> None:
        """Drop everything where it stands; the owner's lock file stays, as a killed process leaves it."""
        self.writer.drop()
        if self._writer_thread.is_alive():
            self._writer_thread.join()
        self.backend.upkeep.stop()
        finish_companions(self, wrote=False)
        self.followers.stop_watching()
        self.backend.close(killed=True)

    # The writer's thread and what follows a commit.

    def _write(self) -> None:
        while self.writer.wait():
            try:
                self.writer.step()
            except Exception as error:  # boundary: writer batch
                logger.exception("the writer failed in an unforeseen way; it goes on")
                self.writer.stumble(error)

    @property
    def problem(self) -> HansardError:
        """Why something that waits to be written is not written yet."""
        return self.writer.problem or explain_delay(self.home / "locks")

    def check_fit(self) -> None:
        """Raise why this process may not write any more: a newer Hansard migrated the record, or the home is gone."""
        if self.writer.migrated:
            raise RecordMigrated(self.writer.migrated)
        self.backend.folder.check()


class ReadOnlyStore:
    """A record that is read where it lies. It has what a `Store` has for those who read."""

    is_read_only = True

    def __init__(
        self, backend: ReadBackend, wiring: Wiring, note: str = "", *, companions_may_write: bool = False
    ) -> None:
        self.companions_may_write = companions_may_write
        self.backend = backend
        self.home = self.source = backend.home
        self.schema = backend.schema
        self.note = note
        self.wiring = wiring
        self.clock = wiring.clock
        self.owner = ""
        self.blobs = backend.blobs
        self.is_alive = backend.owners.is_alive
        self.companions = start_companions(self)
        self.work = backend.work

    @cached_property
    def followers(self) -> Followers:
        return Followers(self.backend.watch)

    def heal(self, patience_seconds: float) -> None:
        """Repair what a read found wrong, as an opening for writing does. Reads wait meanwhile. Blocking."""
        with self.backend.emptied():
            store, ended = open_store(self.home, self.schema, self.wiring, patience_seconds), threading.Event()
            store.backend.doubt()
            store.writer.queue.submit(Item(lambda _tx: None, lambda _item: ended.set()))
            ended.wait(patience_seconds)
            close_store(store, patience_seconds)

    def close(self) -> None:
        self.followers.stop_watching()
        finish_companions(self, wrote=False)
        self.backend.close()


AnyStore = Store | ReadOnlyStore


def start_companions(store: AnyStore) -> dict[str, Companion]:
    """Start what follows a store, by the name of its concept."""
    companions = {each.name: each.companion(store) for each in store.schema.concepts if each.companion is not None}
    if store.wiring.threads:
        for companion in companions.values():
            companion.start()
    return companions


def finish_companions(store: AnyStore, *, wrote: bool) -> None:
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
        self.mutex = threading.Lock()
        self.store: Store | None = None

    def is_working(self) -> bool:
        """Return whether this process is migrating or rebuilding that home, or reading its logs."""
        store = self.store
        return store is not None and store.work.is_active


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
        self.slot: Slot | None = None

    def is_working(self) -> bool:
        return self.slot is not None and self.slot.is_working()


def open_store(
    path: Path, schema: Schema, wiring: Wiring, patience_seconds: float, opening: StoreOpening | None = None
) -> Store:
    """Return the store of a home, opening it when this process has not yet. Blocking."""
    home = home_at(path)
    is_new = holds_nothing(home)
    try:
        return _open_store(home, schema, wiring, patience_seconds, opening)
    except HansardError as error:
        if is_new:
            error.hint = error.hint.replace(SAFE_AND_READABLE, NOTHING).replace(SAFE, NOTHING)
        raise


def holds_nothing(home: Path) -> bool:
    """Whether neither leg of a record has begun in this home; false where that cannot be seen."""
    try:
        if any((home / leg).stat().st_size for leg in ("state.db", "home.jsonl") if (home / leg).exists()):
            return False
        return not any((home / "sessions").iterdir())
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _open_store(
    home: Path, schema: Schema, wiring: Wiring, patience_seconds: float, opening: StoreOpening | None
) -> Store:
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
        store = Store(SqliteBackend(home, schema, wiring.clock, wiring.reach), wiring)
    except OSError as error:
        error.filename = error.filename or str(home)
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


# Reading only.

COPY_PATIENCE_SECONDS: Final = 30.0
"""Nobody else uses a private copy, so this bounds only what its own disk does."""


def open_reading(path: str | Path, schema: Schema, wiring: Wiring) -> AnyStore:
    """Open a home for reading only. Blocking; as long as a rebuild when a copy has to be made."""
    home = home_at(path)
    check_not_inherited(home)
    found = open_read_only(home, schema, wiring.clock, wiring.reach)
    if found.copy is None:
        return ReadOnlyStore(found.backend, wiring, found.note)
    with ExitStack() as stack:
        stack.callback(found.remove_copy)
        store = Store(found.copy, wiring, source=home, note=f"{found.note}, so a temporary copy was read")
        stack.callback(store.abandon)
        try:
            store.open(COPY_PATIENCE_SECONDS)
        except RecordUnavailable as error:
            raise found.explain(error) from error
        stack.pop_all()
    return store


def open_in_place(path: str | Path, schema: Schema, wiring: Wiring) -> ReadOnlyStore | None:
    """Read a home of this user where it lies. None: opening it for writing would repair or tell something. Blocking.

    A home that this process has open is not read beside that: the connections of a process share SQLite's wal-index.
    """
    home = home_at(path)
    check_not_inherited(home)
    try:
        seen = os.stat(home)
    except OSError:
        return None
    slot = _slots.get((seen.st_dev, seen.st_ino))
    if slot is not None and slot.store is not None:
        return None
    backend = read_in_place(home, schema)
    return None if backend is None else ReadOnlyStore(backend, wiring, companions_may_write=True)


def close_reading(store: AnyStore) -> None:
    if isinstance(store, ReadOnlyStore):
        store.close()
        return
    try:
        store.close(COPY_PATIENCE_SECONDS)
    finally:
        shutil.rmtree(store.home, ignore_errors=True)
