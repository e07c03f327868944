"""The search index: a view of the entries in a file of its own, brought up to date before each search.

Reads: state.db, in short pages. Writes: search.db.
Invariants: what the index has of a journal is what its entries said up to the head in `done`; the digest there proves
that the record still holds them. A journal whose entries are others is indexed anew; an index of another database or
another rule, or one that is damaged, is made anew.
On crash: a batch is one transaction; the next goes on after the last.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from hansard.domain.limits import INDEX_BATCH_BYTES, INDEX_BATCH_ENTRIES
from hansard.domain.search import RULE
from hansard.errors import HansardError
from hansard.journal.backend import Reads, ReplacedError, Snapshots, UnreadableError
from hansard.journal.entries import SEQ_BITS, SEQ_MASK, Stretch
from hansard.journal.locks import TryLock
from hansard.journal.sqlite.connection import (
    Connection,
    DatabaseBusy,
    DatabaseError,
    DatabaseFull,
    immediate,
    map_error,
)
from hansard.journal.sqlite.reading import SideFile, Snapshot, look_at
from hansard.journal.store import AnyStore, ReadOnlyStore
from hansard.record.messages.entries import read_fold
from hansard.record.search.docs import (
    DELETED,
    SEARCH,
    UNDONE,
    Scanner,
    add_docs,
    clear,
    finds_doc,
    mark_docs,
    read_digest,
    remove_journal,
)
from hansard.record.search.docs import SEARCHES as SEARCHES  # noqa: PLC0414 - whoever has it has the index, too
from hansard.tasks import backoff_seconds

Result = TypeVar("Result")

logger = logging.getLogger("hansard.record")

INDEX_SECONDS = 0.5
"""How long after a commit a process that stays indexes it, with what came meanwhile: searches find little to add."""

STUCK_SECONDS = 1.0
WAIT_SECONDS = 0.005
"""How long a search waits while nobody gets on with the index, and how often it looks. Then entries are read."""

PAUSE_SECONDS_MAX = 30.0
"""The longest pause after a failure. Room on a full disk ends it at the next look."""

BATCHES_MAX = 50
BATCH_PAUSE_SECONDS = 0.002
"""Between two batches others are let through."""

DONE_LOOKS_MAX = 50
"""For more journals than this, all rows of `done` are read at once."""


class IndexState(NamedTuple):
    """What an index is of, how far it is, and which one: `made` is another one each time something is removed."""

    database_id: str
    commits: int
    stamp: bytes
    rule: str
    made: str
    last_doc: int


class RecordState(NamedTuple):
    """Which database the record is in, how many commits it has seen, and which state that is."""

    database_id: str
    commits: int
    stamp: bytes


class JournalHead(NamedTuple):
    """Where a journal begins and ends, and the commit that last changed it."""

    journal: int
    base_seq: int
    head_seq: int
    digest: bytes
    touched: int

    @property
    def has_entries(self) -> bool:
        """Whether there is anything to index: a fork may have no entries of its own yet."""
        return self.head_seq > self.base_seq

    def all_behind(self, *, is_wrong: bool = False) -> Behind:
        return Behind(
            journal=self.journal, after=self.base_seq, head_seq=self.head_seq, touched=self.touched, is_wrong=is_wrong
        )


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A journal that is not indexed whole: the index has its entries up to `after`, where `digest` is theirs.

    `is_wrong`: the index has entries of this journal that the record does not hold.
    """

    journal: int
    after: int = 0
    digest: bytes = b""
    head_seq: int = 0
    touched: int = 0
    is_wrong: bool = False


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The record as it was looked at, and what the index lacks of it. `made` is empty when there is no index."""

    record: RecordState
    heads: list[JournalHead]
    behind: list[Behind]
    made: str = ""
    state: IndexState | None


class ComparedRecord(NamedTuple):
    """An index and the record that it was compared with, journal by journal: from then on only changes are compared."""

    made: str
    record_file: tuple[int, int] | None
    record: RecordState


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a batch was indexed, and whether more waits."""

    moved: bool
    more: bool


class SearchCompanion:
    """Keeps the index up to date while a store is open.

    A search would do it anyway, but it would have to wait until all that was said since the last one is indexed.
    """

    def __init__(self, store: AnyStore) -> None:
        self.index = SearchIndex(store.home, store.backend, read_only=not store.companions_may_write)
        self._followers = None if isinstance(store, ReadOnlyStore) else store.followers
        self._committed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(name="hansard-index", target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to index what is committed."""
        if self._followers is not None:
            self._committed.set()
            self._followers.listen(self._committed.set)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._committed.wait()
            self._committed.clear()
            if not self._stopping.wait(INDEX_SECONDS) and not self.index.tick():
                self._committed.set()

    def finish(self, *, wrote: bool) -> None:
        """Close the index. A process that lives for a moment leaves its words indexed, too."""
        self._stopping.set()
        self._committed.set()
        if self._thread.is_alive():
            self._thread.join()
        if wrote:
            self.index.tick(batches_max=1)
        self.index.close()

    def check(self) -> list[str]:
        """Ask the index for words of every message; one that does not find them all is made anew."""
        try:
            is_wrong = self.index.finds_drift()
        except (DatabaseError, UnreadableError) as error:
            is_wrong = isinstance(error, DatabaseError)  # an entry that cannot be read is no fault of the index
        if not is_wrong:
            return []
        ends = "it is made anew" if self.index.begin_anew() else "it is left as it is: it cannot be written now"
        return [f"search.db did not find every message; {ends}"]


SEARCHES.companion = SearchCompanion


def search_index(store: AnyStore) -> SearchIndex:
    companion = store.companions[SEARCHES.name]
    assert isinstance(companion, SearchCompanion)
    return companion.index


class SearchIndex:
    """The index of one home, in this process."""

    def __init__(
        self, home: Path, readers: Snapshots, *, read_only: bool = False, stuck_seconds: float = STUCK_SECONDS
    ) -> None:
        self._read_only = read_only
        self._file = SideFile(home / "search.db", SEARCH.tables, read_only=read_only)
        self._record_path = home / "state.db"
        self._readers = readers
        self._lock = None if read_only else TryLock(home / "locks" / "search")
        self._mutex = threading.Lock()
        self._reading = threading.Lock()
        self._is_closed = False
        self._trust: ComparedRecord | None = None
        self._waited_for: IndexState | None = None
        self._waited_since = time.monotonic()
        self._stuck_seconds = stuck_seconds
        self._told = ""
        self._is_full = False
        self._failures = 0
        self._quiet_until = 0.0

    # Catching up.

    def tick(self, batches_max: int = BATCHES_MAX) -> bool:
        """Index what came since the last time, a batch at a time; return whether nothing is left for later."""
        for _ in range(batches_max):
            try:
                outcome = self._try_step()
            except ReplacedError as error:
                self._note_failure(error)
                return False
            if outcome is None or not (outcome.moved and outcome.more):
                return outcome is not None and not outcome.more
            time.sleep(BATCH_PAUSE_SECONDS)
        return False

    def fill_index(self, found: Comparison) -> bool:
        """Index a batch for a search that found journals behind, or wait a moment for the process that does.

        Returns whether to look again. False: it cannot be done now, or nobody gets on with it.
        """
        now = time.monotonic()
        if found.state != self._waited_for:
            self._waited_for, self._waited_since = found.state, now
        outcome = None if self._read_only else self._try_step()
        if outcome is None or outcome.moved:
            return outcome is not None
        if now - self._waited_since > self._stuck_seconds:
            return False
        time.sleep(WAIT_SECONDS)
        return True

    def _try_step(self) -> StepOutcome | None:
        """Index a batch; None when that cannot be done now. A failure is told once, and followed by a pause."""
        if time.monotonic() < self._quiet_until and not (self._is_full and self._file.has_room(INDEX_BATCH_BYTES)):
            return None
        self._is_full = False
        try:
            outcome = self.step()
        except (HansardError, OSError) as error:
            self._note_failure(error)
            return None
        self._told = ""
        self._failures = 0
        return outcome

    def _note_failure(self, error: Exception) -> None:
        if str(error) != self._told:
            logger.warning("the search index stays behind for now: %s", error)
        self._told = str(error)
        self._failures += 1
        self._quiet_until = time.monotonic() + backoff_seconds(self._failures, INDEX_SECONDS, PAUSE_SECONDS_MAX)
        self._is_full = not self._file.has_room(INDEX_BATCH_BYTES)

    def step(self) -> StepOutcome:
        """Index one batch, unless another process does."""
        with self._mutex:
            if self._lock is None or self._is_closed or not self._lock.take_lock():
                is_held = self._lock is not None and not self._is_closed  # by one who may have looked before a commit
                return StepOutcome(moved=False, more=is_held)
            try:
                self._readers.read(lambda _: None)  # a home that was replaced has another index: it is left alone
                return self._index_batch(self._file.open_writer())
            except DatabaseBusy:
                self._quiet_until = time.monotonic() + INDEX_SECONDS
                return StepOutcome(moved=False, more=True)
            except DatabaseError as error:
                if isinstance(error, DatabaseFull) or not self._file.has_room(INDEX_BATCH_BYTES):
                    self._file.close_writer()
                    raise map_error(error, "indexed", self._file.path) from error
                logger.warning("the search index is made anew: %s", error)
                self._file.discard()
                return StepOutcome(moved=False, more=True)
            finally:
                self._lock.release()

    def _index_batch(self, connection: Connection) -> StepOutcome:
        snapshot = Snapshot(connection, self._readers.schema)
        found = self.compare_heads(snapshot)
        record, behind = found.record, found.behind
        if not found.made:
            clear(connection, record.database_id)
        elif not behind and IndexState._make(snapshot.row(SEARCH.read_state)).stamp == record.stamp:
            return StepOutcome(moved=False, more=False)
        with immediate(connection):
            if any(each.is_wrong for each in behind):
                connection.execute(SEARCH.set_made, (secrets.token_hex(8),))
            left = self._take_batch(connection, behind)
            stand = (left[0].touched - 1, b"") if left else (record.commits, record.stamp)
            connection.execute(SEARCH.set_commits, stand)
        self._note_trust(IndexState._make(snapshot.row(SEARCH.read_state)).made, record)
        self._file.shrink()
        return StepOutcome(moved=left != behind, more=bool(left))

    def _take_batch(self, connection: Connection, behind: list[Behind]) -> list[Behind]:
        """Index a batch of what is behind, and note how far each journal is; return what is left."""
        entries_left, bytes_left = INDEX_BATCH_ENTRIES, INDEX_BATCH_BYTES
        for place, each in enumerate(behind):
            if each.is_wrong:
                remove_journal(connection, each.journal)
            scanner = Scanner(self._readers, each.journal)
            seq = each.after
            for docs in scanner.pages(each.after, each.head_seq, each.digest):
                bytes_left -= add_docs(connection, docs)
                entries_left -= scanner.seq - seq
                seq = scanner.seq
                if entries_left <= 0 or bytes_left <= 0:
                    break
            if seq > each.after:
                connection.execute(SEARCH.put_done, (each.journal, seq, scanner.digest))
            mark_docs(connection, scanner)
            if seq < each.head_seq:
                return [msgspec.structs.replace(each, after=seq), *behind[place + 1 :]]
            if entries_left <= 0 or bytes_left <= 0:
                return behind[place + 1 :]
        return []

    # Comparing the index with the record.

    def compare_heads(self, index: Reads | None, since: Comparison | None = None, *, whole: bool = False) -> Comparison:
        """Return which journals the index does not have as the record does.

        With `since`, those that lack what the record held then, as long as it is the same index. `whole`: every journal
        is compared, whatever this process knows of them.
        """
        row = index.row(SEARCH.read_state) if index is not None else None
        state = IndexState._make(row) if row is not None else None
        record, heads, start = self._readers.read(
            lambda snapshot: self._read_heads(snapshot, state, since, whole=whole)
        )
        if index is None or state is None or (state.database_id, state.rule) != (record.database_id, RULE):
            behind = [each.all_behind() for each in heads if each.has_entries]
            return Comparison(record=record, heads=heads, behind=behind, state=state)
        done = read_done(index, None if start == 0 else heads)
        behind = self._readers.read(lambda snapshot: compare_some(snapshot, heads, done)) if heads else []
        if start == 0:
            gone = sorted(done.keys() - {head.journal for head in heads})
            behind = [*(Behind(journal=journal, is_wrong=True) for journal in gone), *behind]
        if start is not None and all(each.touched > state.commits for each in behind):
            self._note_trust(state.made, record)
        return Comparison(record=record, heads=heads, behind=behind, made=state.made, state=state)

    def _read_heads(
        self, snapshot: Reads, state: IndexState | None, since: Comparison | None, *, whole: bool
    ) -> tuple[RecordState, list[JournalHead], int | None]:
        """Return the heads to compare, and the commit after which they are all that changed; None with `since`."""
        record = RecordState(*snapshot.row(SEARCHES.queries.read_record))
        made = state.made if state is not None and (state.database_id, state.rule) == (record.database_id, RULE) else ""
        if since is not None and since.record.database_id == record.database_id and since.made in {"", made}:
            return record, since.heads, None
        if state is None or not made or whole or not (state.stamp == record.stamp or self._trusts(state, record)):
            return record, list_heads(snapshot, 0), 0
        return record, [] if state.stamp == record.stamp else list_heads(snapshot, state.commits), state.commits

    def _trusts(self, state: IndexState, record: RecordState) -> bool:
        """Return whether the record only went on since this process compared every journal of it with this index."""
        trust = self._trust
        if trust is None or (trust.made, trust.record_file) != (state.made, self._record_file()):
            return False
        earlier = (trust.record, RecordState(state.database_id, state.commits, state.stamp))
        return trust.record.database_id == record.database_id and all(
            each.commits < record.commits or each == record for each in earlier
        )

    def _note_trust(self, made: str, record: RecordState) -> None:
        self._trust = ComparedRecord(made, self._record_file(), record)

    def _record_file(self) -> tuple[int, int] | None:
        """Return which file the record is in: one that was put in its place is another."""
        with suppress(HansardError):
            return look_at(self._record_path).identity[0]
        return None

    def finds_drift(self) -> bool:
        """Return whether the index is damaged, or does not find a message by words of it. For `verify`."""
        with self._reading, self._file.snapshot(self._readers.schema) as index:
            found = None if index is None else self.compare_heads(index, whole=True)
            if index is None or found is None or not found.made:
                return False  # the next search makes it anew
            if any(each.is_wrong for each in found.behind) or index.rows(SEARCH.quick_check) != [("ok",)]:
                return True
            docs, words = index.row(SEARCH.count_docs)
            for journal, seq, _ in index.rows(SEARCH.list_done):
                count = self._count_right(index, journal, seq)
                if count is None:
                    return True
                docs, words = docs - count, words - count
            return (docs, words) != (0, 0)

    def _count_right(self, index: Reads, journal: int, seq: int) -> int | None:
        """Return how many messages of a journal the index has and finds by their words; None when one is wrong."""
        start = journal << SEQ_BITS
        rows = {row[0]: row[1:] for row in index.rows(SEARCH.list_docs, (start, start | SEQ_MASK))}
        fold = self._readers.read(lambda snapshot: read_fold(snapshot, [Stretch(start, start + seq)]))
        count = 0
        for docs in Scanner(self._readers, journal).pages(0, seq):
            for doc in docs:
                message = doc.message
                marks = UNDONE * fold.is_undone(message.id) | DELETED * fold.now(message).is_retracted
                expected = (doc.first, message.role, message.at_microseconds, doc.tool, marks)
                if rows.pop(doc.key, None) != expected or not finds_doc(index, doc):
                    return None
                count += 1
        return None if rows else count

    def read(self, look: Callable[[Reads | None], Result]) -> Result:
        """Run a short read of the index in one snapshot; `look` is given None when there is none that can be read."""
        with self._reading:
            try:
                with self._file.snapshot(self._readers.schema) as index:
                    if index is not None and not self._is_closed:
                        return look(index)
            except DatabaseError as error:
                logger.warning("the search index cannot be read, entries are read instead: %s", error)
                self._file.close_reader()
        return look(None)

    def begin_anew(self) -> bool:
        """Empty the index, unless another process holds it or it cannot be written; return whether that was done.

        The next search fills it again.
        """
        with self._mutex, suppress(OSError):
            if self._lock is not None and self._lock.take_lock():
                try:
                    self._file.discard()
                finally:
                    self._lock.release()
                return True
        return False

    def close(self) -> None:
        with self._mutex, self._reading:
            self._is_closed = True
            self._file.close()
            if self._lock is not None:
                self._lock.close()


def list_heads(snapshot: Reads, after: int) -> list[JournalHead]:
    """Return the heads of journals that changed after a commit, in the order in which they did."""
    return list(map(JournalHead._make, snapshot.rows(SEARCHES.queries.list_heads, (after,))))


def read_done(index: Reads, heads: list[JournalHead] | None = None) -> dict[int, tuple[int, bytes]]:
    """Return the heads up to which journals are indexed: of some, or of all."""
    if heads is None or len(heads) > DONE_LOOKS_MAX:
        rows = index.rows(SEARCH.list_done)
    else:
        rows = [row for head in heads for row in index.rows(SEARCH.read_done, (head.journal,))]
    return {journal: (seq, digest) for journal, seq, digest in rows}


def compare_some(snapshot: Reads, heads: list[JournalHead], done: dict[int, tuple[int, bytes]]) -> list[Behind]:
    """Return which of some journals are behind. An index may be further than a head that was read before."""
    behind = []
    for head in heads:
        seq, digest = done.get(head.journal, (0, b""))
        if not seq:
            behind += [head.all_behind()] if head.has_entries else []
        elif digest != (head.digest if seq == head.head_seq else read_digest(snapshot, head.journal, seq)):
            behind.append(head.all_behind(is_wrong=True))
        elif seq < head.head_seq:
            behind.append(msgspec.structs.replace(head.all_behind(), after=seq, digest=digest))
    return behind
