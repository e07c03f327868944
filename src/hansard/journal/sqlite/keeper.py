"""The keeper: what has to be done soon but not by the writer. Log fsyncs, checkpoints, and watching other processes.

Reads: log files. Writes: fsyncs; checkpoints; `log_synced`, through the writer.
Invariants: `log_synced` moves only after fsync of the file and of its folder; a log whose fsync failed is written anew.
On crash: `log_synced` is behind, and the next start compares what lies beyond it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import apsw
import msgspec

from hansard.domain.limits import (
    CHECKPOINT_WAL_BYTES,
    FINISH_WAL_BYTES,
    FOLLOW_POLL_SECONDS,
    LOG_SYNC_SECONDS,
    SHRINK_WAL_BYTES,
)
from hansard.errors import HansardError, RecordMigrated
from hansard.journal.backend import ReplacedError
from hansard.journal.entries import log_name
from hansard.journal.files import sync_descriptor, sync_folder
from hansard.journal.follow import Followers
from hansard.journal.locks import FairLock
from hansard.journal.queue import Item
from hansard.journal.sqlite.connection import SQL, check_not_migrated, open_connection
from hansard.journal.sqlite.database import Database
from hansard.journal.sqlite.group import group_of
from hansard.journal.sqlite.reading import ReadConnection, Readers, Snapshot
from hansard.journal.transaction import Transaction
from hansard.journal.writer import Writer

logger = logging.getLogger("hansard.record")

PAGE_BYTES = 4096

CHECKPOINT_PAUSE_SECONDS = 5.0
"""The pause after a checkpoint that failed, on a full disk above all."""

FOLDERS_KNOWN_MAX = 50_000


class Keeper:
    """Syncs logs and checkpoints the WAL. A thread calls `tick` again and again."""

    def __init__(self, database: Database, lock: FairLock) -> None:
        """The lock is the keeper's own handle on the write lock."""
        self._database = database
        self._files = database.files
        self._writer: Writer | None = None
        self._lock = lock
        self._thread = Ticker("hansard-keeper", self.tick, TICK_SECONDS)
        self._connection = ReadConnection(database.path, database.gate, open_connection)
        self._in_folder: set[str] = set()
        self._failing: dict[str, str] = {}
        self._mending: set[str] = set()
        self._stepped = 0.0
        self._checkpoint_after = 0.0
        self._looked = time.monotonic()

    def attach(self, writer: Writer) -> None:
        self._writer = writer

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._thread.stop()

    def tick(self) -> None:
        """Do what is due: a long WAL at once, the logs twice a second."""
        now = time.monotonic()
        if now - self._stepped < KEEPER_SECONDS:
            self.checkpoint()
            return
        self._stepped = now
        self.step()
        if now - self._looked >= SCHEMA_SECONDS:
            self._looked = now
            self._look_at_schema()

    def step(self) -> None:
        """Sync what grew since the last time, tell the record, and copy the WAL back when it is large.

        While the home is not at its path there is nothing to sync; the writer tells who calls.
        """
        if not self._database.folder.is_there():
            return
        dirty = set()
        with suppress(KeyError):  # the writer's thread adds to it meanwhile
            while True:
                dirty.add(self._database.unsynced.pop())
        synced = {journal_id: end for journal_id in dirty if (end := self._sync(journal_id))}
        if synced:
            self._submit(lambda tx: mark_synced(tx, synced))
        self.checkpoint()

    def _look_at_schema(self) -> None:
        """Notice a migration although nobody writes here: an idle gateway has to let go of the record, too."""
        try:
            ((version,),) = self._connection.fetch(SQL.schema_version)
            check_not_migrated(version, self._database.schema)
        except RecordMigrated as error:
            if self._writer is not None:
                self._writer.retire(str(error))
        except (apsw.Error, OSError, HansardError, ReplacedError):
            pass  # the writer finds out what is wrong with it

    def checkpoint(self) -> None:
        """Copy a long WAL back while others write; a very long one to its end, under the lock: it starts over."""
        size = self._database.wal_pages * PAGE_BYTES
        if size < CHECKPOINT_WAL_BYTES or time.monotonic() < self._checkpoint_after:
            return
        try:
            self._copy_back()
            if size < FINISH_WAL_BYTES:
                return
            self._lock.acquire()
            try:
                self._copy_back()
            finally:
                self._lock.release()
        except (apsw.Error, OSError, HansardError, ReplacedError) as error:
            self._checkpoint_after = time.monotonic() + CHECKPOINT_PAUSE_SECONDS
            logger.warning("the WAL could not be copied back: %s", error)

    def _sync(self, journal_id: str) -> int:
        """Put one log on the disk; return how much of it, 0 when that failed."""
        name = log_name(journal_id)
        path = self._files.path(name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            return self._mend(journal_id, error)
        except OSError as error:
            # The file may be as it should be, and only cannot be opened: it is tried again, and nothing is rewritten.
            self._tell(journal_id, f"{path} cannot be opened and is not synced: {error.strerror}")
            self._database.unsynced.add(journal_id)
            return 0
        try:
            try:
                size = os.fstat(descriptor).st_size
                sync_descriptor(descriptor)
            finally:
                os.close(descriptor)
            if name not in self._in_folder:
                sync_folder(os.path.dirname(path))
                if len(self._in_folder) > FOLDERS_KNOWN_MAX:
                    self._in_folder.clear()
                self._in_folder.add(name)
        except OSError as error:
            return self._mend(journal_id, error)
        self._failing.pop(journal_id, None)
        return size

    def _mend(self, journal_id: str, error: OSError) -> int:
        """Let the writer write a log anew: it is missing, or its content did not reach the disk."""
        name = log_name(journal_id)
        self._tell(journal_id, f"the log {name} could not be synced ({error}); it is written anew")
        self._in_folder.discard(name)
        self._files.suspect.add(journal_id)
        if journal_id not in self._mending:
            self._mending.add(journal_id)
            self._submit(
                lambda tx: tx.find_journal(journal_id),  # a look at the log makes it be written anew
                lambda _item: self._mending.discard(journal_id),
                ending=False,
            )
        self._database.unsynced.add(journal_id)
        return 0

    def _tell(self, journal_id: str, what: str) -> None:
        """Log what is wrong with a file, once for as long as it stays so."""
        if self._failing.get(journal_id) != what:
            self._failing[journal_id] = what
            logger.error("%s", what)

    def _submit(
        self,
        operation: Callable[[Transaction], object],
        done: Callable[[Item], object] = lambda _item: None,
        *,
        ending: bool = True,
    ) -> None:
        if self._writer is None:
            return
        try:
            self._writer.queue.submit(Item(operation, done, ending=ending))
        except HansardError as error:
            logger.warning("the keeper's note is not written: %s", error)

    def _copy_back(self) -> None:
        self._connection.fetch(SQL.checkpoint)

    def shrink(self) -> None:
        """Give the space of a long WAL back before this process leaves; whoever reads meanwhile prevents it."""
        try:
            if os.stat(f"{self._database.path}-wal").st_size < SHRINK_WAL_BYTES:
                return
            self._connection.fetch(SQL.checkpoint_truncate)
        except (apsw.Error, OSError, HansardError, ReplacedError) as error:
            logger.info("the WAL keeps its size: %s", error)

    def close(self) -> None:
        self._connection.close()


def mark_synced(tx: Transaction, synced: dict[str, int]) -> None:
    group = group_of(tx)
    group.number()  # every commit is stamped
    for journal_id in synced.keys() - group.files.suspect:
        tx.run(SQL.update_log_synced, (synced[journal_id], journal_id))


class Watcher:
    """Looks for commits of other processes while somebody follows. A thread calls `step` every few milliseconds."""

    def __init__(self, readers: Readers, followers: Followers) -> None:
        self._connection = readers.connect()
        self._followers = followers
        self._version = -1
        self._commits = -1

    def step(self) -> None:
        try:
            version = self._connection.fetch(SQL.data_version)[0][0]
            if version == self._version:
                return
            journal_ids = self._connection.snapshot(self._read_touched)
        except ReplacedError:
            self._version = self._commits = -1
            self._followers.ring(None)  # who reads next has it looked at by the writer
            return
        except (apsw.Error, OSError, HansardError):
            self._version = self._commits = -1
            return
        self._version = version
        self._followers.ring(journal_ids)

    def _read_touched(self, snapshot: Snapshot) -> list[str] | None:
        before = self._commits
        self._commits = snapshot.row(SQL.read_record)[1]
        if before < 0:
            return None
        followed = msgspec.json.encode(self._followers.followed()).decode()
        return [row[0] for row in snapshot.rows(SQL.touched_since, (before, followed))]

    def close(self) -> None:
        self._connection.close()


class Ticker(threading.Thread):
    """Calls a step again and again, with a pause that can be cut short."""

    def __init__(
        self, name: str, step: Callable[[], None], pause_seconds: float, end: Callable[[], None] | None = None
    ) -> None:
        """Daemonic: a process never waits for it at exit. `end` is called last, on the thread itself."""
        super().__init__(name=name, daemon=True)
        self._step = step
        self._end = end
        self._pause_seconds = pause_seconds
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._pause_seconds):
            self._step()
        if self._end is not None:
            self._end()

    def request_stop(self) -> None:
        """Stop after the step that runs, without waiting for it."""
        self._stopped.set()

    def stop(self) -> None:
        """Stop, and wait for the step that runs."""
        self._stopped.set()
        if self.is_alive():
            self.join()


KEEPER_SECONDS = LOG_SYNC_SECONDS / 2
SCHEMA_SECONDS = 1.0
"""How often to look whether the record was migrated, in a process that lives so long."""

TICK_SECONDS = 0.05
WATCHER_SECONDS = FOLLOW_POLL_SECONDS


def watch_others(readers: Readers, followers: Followers) -> Callable[[], None]:
    """Ring for journals that other processes changed, from a thread, until the returned function is called."""
    watcher = Watcher(readers, followers)
    thread = Ticker("hansard-watcher", watcher.step, WATCHER_SECONDS, watcher.close)
    thread.start()
    return thread.request_stop
