"""The port: what the journal asks of the database and the files that keep it.

A **backend** is SQLite with log files (`sqlite/`), or another database one day. It runs statements that concepts and
the journal name, inside a group commit or a snapshot, without knowing what they say. `store.py` is the one place that
chooses a backend; everything else above knows these protocols only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hansard.errors import HansardError
    from hansard.journal.concepts import Base, Schema, Table
    from hansard.journal.entries import EntryRow, Journal
    from hansard.journal.files import HomeFolder, LogFiles
    from hansard.journal.follow import Followers
    from hansard.journal.locks import Work
    from hansard.journal.writer import Writer

Result = TypeVar("Result")


class Reads(Protocol):
    """Queries on one state of the database: a snapshot, or a transaction."""

    schema: Schema

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row."""

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        """Return the first row or None."""


class Group(Reads, Protocol):
    """What operations work on: journals under the write lock, in a transaction that was begun."""

    run: Callable[..., Any]
    """Runs a statement that writes. Only projections do."""

    def head(self, journal_id: str, *, log: bool = True) -> Journal | None:
        """Return a journal as it stands, or None. MismatchError: its legs differ. Chunks ask without `log`."""

    def create(self, journal_id: str, base: Base | None = None) -> Journal:
        """Return a new journal; a fork's continues its parent's chain."""

    def add(self, journal: Journal, row: EntryRow) -> None:
        """Store an entry at its place. IdTakenError: its id is there, and nothing was changed."""

    def extend(self, journal: Journal, stream_id: str, start: int, part: str, text: str) -> int:
        """Add to the open stream, in both legs; what is there already is skipped. Return where the stream ends.

        MismatchError: the legs of the stream differ.
        """

    def end_stream(self, journal: Journal) -> None:
        """Let the pieces of the open stream go: the entry that seals it holds their text."""


Unit = list[tuple["Journal", "EntryRow"]]
"""What one call added: it stands or falls together, in the log too."""


class TouchedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A journal that a commit touched, and whether its log grew or only its open stream."""

    journal_id: str
    logged: bool


class GroupCommit(Protocol):
    """Many calls, one commit. Whoever has it holds the write lock."""

    def start(self, blocked: Mapping[str, HansardError]) -> Group:
        """Begin a transaction, or begin it again: what was not committed is forgotten.

        Whoever asks for a blocked journal gets its error.
        """

    def mend(self, journal_id: str) -> HansardError | None:
        """Bring the legs of a journal in line, in transactions of their own; return why it cannot be written to."""

    def commit(self, units: Sequence[Unit]) -> list[TouchedJournal]:
        """Store heads, write the log, COMMIT, and make sure that it went to where readers read.

        BlockedError: some logs cannot be written; start again without them. CommitError: ask `undo`.
        """

    def undo(self, error: Exception) -> bool:
        """Forget what was not committed, after an error; return False when nobody knows whether it comes back."""

    def release(self) -> None:
        """Let the next in line go."""


class Owners(Protocol):
    """Which processes live. Nothing is ever guessed from a pid or a time (rule 10)."""

    owner: str
    """The name of this process."""
    held_locks: list[Callable[[], None]]
    """Locks that this process holds for as long as it serves: each call takes one again, or raises."""

    def is_alive(self, owner: str) -> bool:
        """Return whether the process with this name lives."""

    def remove_dead(self) -> None:
        """Forget processes that are gone and whose work was ended."""


class Blobs(Protocol):
    """Attachments by their digest, durable before the entry that names them (rule 8)."""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their digest."""

    def require(self, digest: str) -> None:
        """Refuse a reference to a blob that is not there."""

    def get(self, digest: str) -> bytes:
        """Return a blob's bytes, and make sure that they are the ones that were stored."""


class Room(Protocol):
    """A reserve of space: given back when the disk is full, so that what runs can still end (rule 17)."""

    spent: bool

    def has_room(self) -> bool:
        """Return whether there is room for more than the reserve."""

    def restore(self) -> bool:
        """Set the reserve aside again once there is room; return whether there is."""


class Upkeep(Protocol):
    """What has to be done soon, but not by the writer."""

    def attach(self, writer: Writer) -> None:
        """Write through this writer's queue."""

    def start(self) -> None:
        """Begin, in a thread."""

    def step(self) -> None:
        """Do what is due, now."""

    def stop(self) -> None:
        """End the thread."""


class Leg(Protocol):
    """The log leg: the files of a home, and what a verification compares them with."""

    files: LogFiles
    self_check: str
    """The query by which the database gives its opinion of its own pages: "ok", or what is wrong."""

    def settled(self) -> AbstractContextManager[None]:
        """Hold the write lock, so that nothing is in flight."""

    def list_logs(self) -> Iterator[LogSeen]:
        """Yield every log and part file of the home."""

    def make_fold(self) -> Fold:
        """Return empty tables, to fold a journal's entries into."""

    def snapshot(self, look: Callable[[Reads], Result]) -> Result:
        """Read one committed state, on a connection of verifications; errors of the database are its own."""


class Fold(Protocol):
    """Tables of the same schema, to fold one journal's entries into."""

    run: Callable[..., Any]
    filled: str
    """The query for the names of the tables that have a row of a journal."""
    orphaned: str
    """The query for the names of the tables that have rows of no journal."""

    def begin(self) -> None:
        """Start with empty tables."""

    def query(self, table: Table) -> str:
        """Return the query that gives the rows of a table that a journal's entries must give."""

    def dump(self, query: str, bindings: tuple[Any, ...]) -> list[Any]:
        """Return the rows of a query."""


class LogSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A log or part file of the home."""

    suffix: str
    journal_id: str
    size_bytes: int
    changed_ns: int
    """When it was last changed or put in place; no tool can set this time back."""


class Snapshots(Protocol):
    """Reads of committed states, each short."""

    schema: Schema

    def read(self, look: Callable[[Reads], Result]) -> Result:
        """Run a read on one committed state and end it. ReplacedError: a write, even of nothing, heals that."""


class ReadBackend(Snapshots, Protocol):
    """One record as a backend keeps it, open in this process."""

    home: Path
    """The folder of logs and locks."""
    folder: HomeFolder
    """The same, as it was when it was opened."""
    place: Path
    """What a person is told about where the database is."""
    failures: tuple[type[Exception], ...]
    """Errors of the database and of the system, which `explain` knows."""
    owners: Owners
    blobs: Blobs
    work: Work

    @property
    def leg(self) -> Leg:
        """The log files, and what a verification compares them with."""

    def emptied(self) -> AbstractContextManager[None]:
        """Close every connection of readers, and let nobody read meanwhile."""

    def watch(self, followers: Followers) -> Callable[[], None]:
        """Ring, within 50 ms, for journals that other processes changed, until the returned function is called."""

    def explain(self, error: Exception) -> HansardError:
        """Return our error for one of the system or of the database."""

    def close(self, *, is_writing: bool = False, killed: bool = False) -> None:
        """Let go of locks and connections; of those that a stuck writer uses not. `killed`: the owner's lock stays."""


class Backend(ReadBackend, Protocol):
    """One record that can be written, too."""

    broken: tuple[type[Exception], ...]
    """Errors of the whole database; others concern one statement."""
    room: Room
    upkeep: Upkeep

    def open(self, look: Callable[[Reads], Result]) -> Result:
        """Create, migrate or rebuild; bring the legs in line; make durable what was found; look, under the lock."""

    def begin(self) -> GroupCommit:
        """Wait for the write lock in a fair line. Nothing is decided before."""

    def doubt(self) -> bool:
        """Have the next group commit compare the whole database with the logs first.

        False: that was done a moment ago, and found nothing to mend.
        """


class ReplacedError(Exception):
    """The database is absent or another one than before: the writer must look at it first."""

    def __str__(self) -> str:
        return "state.db is missing or was replaced"


class DamageError(ReplacedError):
    """Something in the database is missing or cannot be read: the writer must compare it with the logs first."""


class EntriesGoneError(DamageError):
    """The database lacks entries below a journal's head."""

    def __init__(self, journal_id: str, seq: int) -> None:
        super().__init__(journal_id, seq)
        self.journal_id = journal_id
        self.seq = seq

    def __str__(self) -> str:
        return f"state.db does not hold entry {self.seq} of {self.journal_id}, which its head says is there"


class UnreadableError(DamageError):
    """Bytes of the database are not what they must be: a page was torn or overwritten."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"state.db holds {self.what} that cannot be read"


class MismatchError(Exception):
    """A journal's files are not as the database says: mend it, then run the batch again."""

    def __init__(self, journal_id: str) -> None:
        super().__init__(journal_id)
        self.journal_id = journal_id


class IdTakenError(Exception):
    """An entry's id is there already: nothing was changed."""


class BlockedError(Exception):
    """Logs that cannot be written: start again, without what touches these journals."""

    def __init__(self, journals: dict[str, HansardError]) -> None:
        super().__init__(*journals)
        self.journals = journals


class CommitError(Exception):
    """A commit failed: `undo` tells what became of it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
