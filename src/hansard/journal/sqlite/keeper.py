"""The keeper: what has to be done soon but not by the writer. Log fsyncs and checkpoints.

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

from hansard.domain.limits import LOG_SYNC_SECONDS, SHRINK_WAL_BYTES
from hansard.errors import HansardError
from hansard.journal.backend import ReplacedError
from hansard.journal.entries import log_name
from hansard.journal.files import sync_descriptor, sync_folder
from hansard.journal.queue import Item
from hansard.journal.sqlite.connection import SQL, open_connection
from hansard.journal.sqlite.database import COPY_BACK_PAGES, Database
from hansard.journal.sqlite.group import group_of
from hansard.journal.sqlite.reading import ReadConnection
from hansard.journal.transaction import Transaction
from hansard.journal.writer import Writer

logger = logging.getLogger("hansard.record")

KEEPER_SECONDS = LOG_SYNC_SECONDS / 2
"""How long after a commit its logs are synced, together with those of all commits until then."""

CHECKPOINT_PAUSE_SECONDS = 5.0
"""The pause after a checkpoint that failed, on a full disk above all."""

FOLDERS_KNOWN_MAX = 50_000


class Keeper:
    """Syncs logs and checkpoints the WAL. Its thread sleeps until something is committed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._files = database.files
        self._writer: Writer | None = None
        self._thread = threading.Thread(name="hansard-keeper", target=self._run, daemon=True)
        self._stopping = False
        self._connection = ReadConnection(database.path, database.gate, open_connection)
        self._in_folder: set[str] = set()
        self._failing: dict[str, str] = {}
        self._mending: set[str] = set()
        self._checkpoint_after = 0.0

    def attach(self, writer: Writer) -> None:
        self._writer = writer

    def retire(self, why: str) -> None:
        """Pass on to the writer that another process migrated the record: an idle gateway has to let go of it, too."""
        if self._writer is not None:
            self._writer.retire(why)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the step that runs."""
        self._stopping = True
        self._database.committed.ring()
        self._database.wal_is_long.ring()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        """After a commit, copy a long WAL back at once, and sync the logs a little later."""
        while not self._stopping:
            self._database.committed.wait()
            due = time.monotonic() + KEEPER_SECONDS
            while not self._stopping and (left := due - time.monotonic()) > 0:
                if self._database.wal_is_long.wait(left):
                    self.checkpoint()
            if not self._stopping:
                self.step()
            if self._database.unsynced:
                self._database.committed.ring()

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

    def checkpoint(self) -> None:
        """Copy a long WAL back while others write. Before its next transaction the writer copies what came meanwhile.

        So the WAL begins anew, unless a reader prevents that: then it is tried again once it has grown as much again.
        """
        database = self._database
        if database.wal_pages < database.copy_back_at or time.monotonic() < self._checkpoint_after:
            return
        try:
            self._connection.fetch(SQL.checkpoint)
        except (apsw.Error, OSError, HansardError, ReplacedError) as error:
            self._checkpoint_after = time.monotonic() + CHECKPOINT_PAUSE_SECONDS
            logger.warning("the WAL could not be copied back: %s", error)
            return
        database.copy_back_at = database.wal_pages + COPY_BACK_PAGES
        database.is_copied_back = True

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
