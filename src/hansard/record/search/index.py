"""The search index: a view of the entries in a file of its own, kept up by whichever process has time.

Reads: state.db, in short pages. Writes: search.db.
Invariants: what a journal's row in `done` says is indexed; whatever lies beyond is found by reading it. An index that
is of another database or another rule, damaged or not what it should be is made anew.
On crash: a batch is one transaction; the next goes on after the last.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hansard.domain.limits import CHECKPOINT_WAL_BYTES, INDEX_BATCH_BYTES, INDEX_BATCH_ENTRIES, SHRINK_WAL_BYTES
from hansard.domain.search import RULE
from hansard.errors import HansardError
from hansard.journal.backend import ReplacedError
from hansard.journal.databases import SQL as DATABASE
from hansard.journal.databases import (
    Connection,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    Identity,
    Snapshot,
    Ticker,
    fetch,
    immediate,
    is_guarded,
    look_at,
    map_error,
    open_connection,
    open_reader,
    open_untouched,
)
from hansard.journal.locks import TryLock
from hansard.journal.reading import SQL as JOURNAL
from hansard.journal.store import ReadOnlyStore
from hansard.record.search.docs import SEARCH, Doc, Scanner, joined
from hansard.record.search.docs import SEARCHES as SEARCHES  # noqa: PLC0414 - whoever has it has the index, too
from hansard.record.search.drift import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hansard.journal.backend import Snapshots
    from hansard.journal.store import AnyStore

Result = TypeVar("Result")

logger = logging.getLogger("hansard.record")

BEHIND_MAX = 1_000_000
"""Journals that one step looks at."""

INDEX_SECONDS = 0.5
"""How often to look for entries that are not indexed."""

PAUSE_SECONDS_MAX = 30.0
"""The longest pause after a failure. Room on a full disk ends it at the next look."""

BATCHES_MAX = 50
BATCH_PAUSE_SECONDS = 0.002
"""Between two batches others are let through."""

UNDONE, DELETED = 1, 2
"""Marks of a message that is found on request only."""

SAMPLE_TICKS = 4
"""While nothing happens, only one look of so many compares entries: an idle program should be idle."""


class Behind(NamedTuple):
    """A journal that has entries which are not indexed."""

    journal: int
    head_seq: int
    touched: int
    base_seq: int
    is_last_of_commit: bool


class IndexState(NamedTuple):
    """What an index is of, how far it is, and which one: `made` is another one each time it is begun anew."""

    database_id: str
    commits: int
    rule: str
    made: str

    def is_of(self, database_id: str, commits: int) -> bool:
        """Return whether it is of a database at a commit, by the rule as it is now."""
        return self.database_id == database_id and self.commits <= commits and self.rule == RULE


class SearchCompanion:
    """Keeps the index up to date while a store is open."""

    def __init__(self, store: AnyStore) -> None:
        self.index = SearchIndex(store.home, store.backend, read_only=isinstance(store, ReadOnlyStore))
        self._thread = Ticker("hansard-index", self.index.tick, INDEX_SECONDS)
        self._is_passive = isinstance(store, ReadOnlyStore)

    def start(self) -> None:
        """Begin to index what is committed."""
        if not self._is_passive:
            self._thread.start()

    def finish(self, *, wrote: bool) -> None:
        """Close the index. A process that lives for a moment leaves its words indexed, too."""
        self._thread.stop()
        if wrote:
            self.index.tick(batches_max=1)
        self.index.close()

    def check(self) -> list[str]:
        """Ask the index for words of every message; one that does not find them all is made anew."""
        try:
            is_wrong = self.index.finds_drift()
        except DatabaseError:
            is_wrong = True
        if not is_wrong:
            return []
        ends = "it is made anew" if self.index.begin_anew() else "it is left as it is: it cannot be written now"
        return [f"search.db did not find every message; {ends}"]


SEARCHES.accompanies(SearchCompanion)


def search_index(store: AnyStore) -> SearchIndex:
    """Return the index of an open store."""
    companion = store.companions[SEARCHES.name]
    assert isinstance(companion, SearchCompanion)
    return companion.index


class SearchIndex:
    """The index of one home, in this process."""

    def __init__(self, home: Path, readers: Snapshots, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._path = home / "search.db"
        self._readers = readers
        self._lock = None if read_only else TryLock(home / "locks" / "search")
        self._mutex = threading.Lock()
        self._reading = threading.Lock()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        self._written: Identity | None = None
        self._read: Identity | None = None
        self._sampler = Sampler(readers)
        self._ticks = 0
        self._told = ""
        self._is_full = False
        self._pause_seconds = 0.0
        self._quiet_until = 0.0

    def tick(self, batches_max: int = BATCHES_MAX) -> None:
        """Index what came since the last time, a batch at a time; what cannot be read now is read later."""
        self._ticks += 1
        if time.monotonic() < self._quiet_until and not (self._is_full and self._has_room()):
            return
        self._is_full = False
        try:
            more = self.step(samples=self._ticks % SAMPLE_TICKS == 0)
            for _ in range(batches_max - 1 if more else 0):
                time.sleep(BATCH_PAUSE_SECONDS)
                if not self.step(samples=False):
                    return
        except (HansardError, ReplacedError, OSError) as error:
            if str(error) != self._told:
                logger.warning("the search index stays behind for now: %s", error)
            self._told = str(error)
            self._pause_seconds = min(max(self._pause_seconds * 2, INDEX_SECONDS), PAUSE_SECONDS_MAX)
            self._quiet_until = time.monotonic() + self._pause_seconds
            self._is_full = not self._has_room()
        else:
            self._told = ""
            self._pause_seconds = 0.0

    def _has_room(self) -> bool:
        """Return whether the disk has room for a batch."""
        try:
            space = os.statvfs(self._path.parent)
        except OSError:
            return True
        return space.f_bavail * space.f_frsize >= INDEX_BATCH_BYTES

    def step(self, *, samples: bool = True) -> bool:
        """Index one batch, unless another process does; return whether more waits."""
        with self._mutex:
            if self._lock is None or not self._lock.take_lock():
                return False
            try:
                return self._index(samples=samples)
            except DatabaseBusy:
                return True
            except DatabaseError as error:
                if isinstance(error, DatabaseFull) or not self._has_room():
                    self._close_writer()
                    raise map_error(error, "indexed", self._path) from error
                logger.warning("the search index is made anew: %s", error)
                self._discard()
                return True
            finally:
                self._lock.release()

    def read(self, look: Callable[[Snapshot | None], Result]) -> Result:
        """Run a short read of the index in one snapshot; `look` is given None when there is none that can be read."""
        with self._reading:
            try:
                connection = self._open_reader()
                if connection is not None:
                    connection.execute(DATABASE.begin_read)
                    try:
                        return look(Snapshot(connection, self._readers.schema))
                    finally:
                        if connection.in_transaction:
                            connection.execute(DATABASE.rollback)
            except DatabaseError as error:
                logger.warning("the search index cannot be read, every entry is: %s", error)
                self._close_reader()
        return look(None)

    def finds_drift(self) -> bool:
        """Return whether the index is damaged, or does not find a message by words of it. For `verify`."""
        sampler = Sampler(self._readers)
        with self._reading:
            connection = self._open_reader()
            if connection is None or not self._is_current(connection):
                return False
            if fetch(connection, SEARCH.quick_check) != [("ok",)]:
                return True
            while True:
                if sampler.finds_drift(connection):
                    return True
                if sampler.is_at_start:
                    return False

    def begin_anew(self) -> bool:
        """Empty the index, unless another process holds it; return whether that was done.

        Every entry is read until it is full again.
        """
        with self._mutex:
            if self._lock is None or not self._lock.take_lock():
                return False
            try:
                self._discard()
            finally:
                self._lock.release()
        return True

    def _is_current(self, connection: Connection) -> bool:
        """Return whether the index is of this database: another one is made anew at the next step."""
        database_id, commits = self._readers.read(lambda snapshot: snapshot.row(JOURNAL.read_record))
        rows = fetch(connection, SEARCH.read_state)
        return bool(rows) and IndexState(*rows[0]).is_of(database_id, commits)

    def close(self) -> None:
        """Close everything."""
        with self._mutex, self._reading:
            self._close_reader()
            if self._writer is not None:
                self._shrink(self._writer, SHRINK_WAL_BYTES)
            self._close_writer()
            if self._lock is not None:
                self._lock.close()

    def behind(self, upto: int) -> list[Behind]:
        """Return the journals that changed after a commit."""
        rows = self._readers.read(lambda snapshot: snapshot.rows(JOURNAL.journals_behind, (upto, BEHIND_MAX)))
        following = [row[2] for row in rows[1:]] + [None] * bool(rows)
        return [
            Behind(key, head_seq, touched, base_seq, touched != after)
            for (key, head_seq, touched, base_seq), after in zip(rows, following, strict=True)
        ]

    def _index(self, *, samples: bool) -> bool:
        database_id, commits = self._readers.read(lambda snapshot: snapshot.row(JOURNAL.read_record))
        connection = self._open_writer()
        rows = fetch(connection, SEARCH.read_state)
        state = IndexState(*rows[0]) if rows else None
        if state is None or not state.is_of(database_id, commits):
            clear(connection, database_id)
            upto = 0
        else:
            upto = state.commits
        behind = self.behind(upto) if upto < commits else []
        if upto < commits:
            with immediate(connection):
                self._take_batch(connection, behind, upto, commits)
            self._shrink(connection)
        if samples and self._sampler.finds_drift(connection):
            logger.warning("the search index drifted from the record and is made anew")
            clear(connection, database_id)
            return True
        return bool(behind)

    def _take_batch(self, connection: Connection, behind: list[Behind], upto: int, commits: int) -> None:
        """Index a batch of what is behind, and note how far every journal was looked at."""
        entries_left, bytes_left = INDEX_BATCH_ENTRIES, INDEX_BATCH_BYTES
        for place in behind:
            found = fetch(connection, SEARCH.read_done_of, (place.journal,))
            scanner = Scanner(self._readers, place.journal)
            seq = found[0][0] if found else place.base_seq
            for docs in scanner.pages(seq, place.head_seq):
                bytes_left -= add_docs(connection, docs)
                entries_left -= scanner.seq - seq
                seq = scanner.seq
                if entries_left <= 0 or bytes_left <= 0:
                    break
            connection.execute(SEARCH.put_done, (place.journal, scanner.seq))
            mark_docs(connection, scanner)
            if scanner.seq < place.head_seq:
                break
            if place.is_last_of_commit:
                upto = place.touched
            if entries_left <= 0 or bytes_left <= 0:
                break
        else:
            upto = upto if len(behind) == BEHIND_MAX else max(upto, commits)
        connection.execute(SEARCH.set_commits, (upto,))

    def _shrink(self, connection: Connection, wal_bytes_max: int = CHECKPOINT_WAL_BYTES) -> None:
        """Copy a long WAL back: nobody else does it for this file."""
        with contextlib.suppress(OSError, DatabaseError):
            if os.stat(f"{self._path}-wal").st_size > wal_bytes_max:
                fetch(connection, DATABASE.checkpoint_truncate)

    def _open_writer(self) -> Connection:
        if self._writer is not None and self._identity() != self._written:
            self._close_writer()
        if self._writer is None:
            if self._identity() is None:  # nothing lies there, or a link or a folder, which readers do not use
                self._discard()
            connection = open_connection(self._path)
            self._writer = connection
            if fetch(connection, DATABASE.count_tables)[0][0] == 0:
                with immediate(connection):
                    connection.execute(SEARCH.tables)
            self._written = self._identity()
        return self._writer

    def _open_reader(self) -> Connection | None:
        identity = self._identity()
        if self._reader is not None and identity != self._read:
            self._close_reader()
        if self._reader is None and identity is not None:
            if self._read_only and not is_guarded(self._path):
                return None  # nothing would tell that somebody writes meanwhile: every entry is read instead
            connection = open_untouched(self._path) if self._read_only else open_reader(self._path)
            self._reader, self._read = connection, identity
            if fetch(connection, DATABASE.count_tables)[0][0] == 0:
                self._close_reader()
        return self._reader

    def _identity(self) -> Identity | None:
        """Return which files lie there; None when there is none that could be a database."""
        try:
            found = look_at(self._path).identity
        except HansardError:
            return None
        return found if found[0] is not None else None

    def _discard(self) -> None:
        """Remove the files: whatever was wrong with them, a new index is right."""
        self._close_writer()
        for side in ("", "-wal", "-shm"):
            path = f"{self._path}{side}"
            with contextlib.suppress(FileNotFoundError):
                if os.path.isdir(path):
                    os.rename(path, f"{path}.{secrets.token_hex(4)}")
                else:
                    os.unlink(path)

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close(True)  # noqa: FBT003 - force
            self._writer = None

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close(True)  # noqa: FBT003 - force
            self._reader = None


def mark_docs(connection: Connection, scanner: Scanner) -> None:
    """Mark the messages that entries undid, brought back or deleted, with all their versions."""
    for first, undone in scanner.undone.items():
        connection.execute(SEARCH.mark_doc, (DELETED, UNDONE if undone else 0, first))
    for first in scanner.deleted:
        connection.execute(SEARCH.mark_doc, (UNDONE, DELETED, first))


def add_docs(connection: Connection, docs: list[Doc]) -> int:
    """Add versions of messages; return how much text that was."""
    size = 0
    for doc in docs:
        message = doc.message
        row = (doc.key, doc.first, message.role, message.at_microseconds, doc.tool)
        ((number,),) = fetch(connection, SEARCH.insert_doc, row)
        connection.execute(SEARCH.insert_words, (number, joined(doc.said), joined(doc.tools)))
        size += len(doc.said) + len(doc.tools)
    return size


def clear(connection: Connection, database_id: str) -> None:
    """Begin anew, for a database."""
    with immediate(connection):
        for query in (SEARCH.clear_state, SEARCH.clear_done, SEARCH.clear_docs, SEARCH.clear_words):
            connection.execute(query)
        connection.execute(SEARCH.insert_state, (database_id, RULE, secrets.token_hex(8)))
