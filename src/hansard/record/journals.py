"""Journals as they stand under the lock, and what the writer may remember of them between two commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hansard.record.files import Look

SEQ_BITS = 32


class MismatchError(Exception):
    """A journal's files are not as the database says: reconcile them, then run the batch again."""

    def __init__(self, journal_id: str) -> None:
        """Keep which one."""
        super().__init__(journal_id)
        self.journal_id = journal_id


class Found(NamedTuple):
    """An entry that was recorded before."""

    seq: int
    kind: str
    version: int
    at: int
    body: bytes


class SessionRow(NamedTuple):
    """A session as its projection stands."""

    journal: int
    id: str
    source: str
    owner: str
    title: str | None
    state: str
    end_reason: str | None
    parent_id: str | None
    parent_link: str | None
    parent_at: int
    created_at: int
    open_message: str | None
    open_turn: str | None
    messages: int
    active_at: int
    head_seq: int
    archived: int = 0


class Journal:
    """A journal as it stands under the lock. The writer keeps it for as long as nobody else commits."""

    __slots__ = (
        "active_at",
        "base_digest",
        "base_id",
        "base_seq",
        "head_digest",
        "head_seq",
        "id",
        "key",
        "log",
        "log_end",
        "log_look",
        "log_seen",
        "log_synced",
        "messages",
        "open_end",
        "part",
        "part_end",
        "part_look",
        "part_reset",
        "part_seen",
        "running",
        "session",
    )

    def __init__(self, row: tuple[Any, ...]) -> None:
        """Take a row of `read_journal`."""
        (
            self.key,
            self.id,
            self.base_id,
            self.base_seq,
            self.base_digest,
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.log_synced,
            self.part_end,
            self.messages,
            self.active_at,
        ) = row
        self.forget()
        self.settle()

    def forget(self) -> None:
        """Read again what entries of this transaction may have changed."""
        self.session: SessionRow | None = None
        self.running: tuple[Any, ...] | None = None
        self.open_end = -1

    def settle(self) -> None:
        """Begin a transaction: nothing is to be written, and no file was looked at."""
        self.log: list[bytes] = []
        self.part: list[bytes] = []
        self.part_reset = False
        self.log_seen = False
        self.part_seen = False
        self.log_look: Look | None = None
        self.part_look: Look | None = None

    def head_row(self, commits: int) -> tuple[Any, ...]:
        """Return what `update_journal` stores."""
        return (
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.part_end,
            self.messages,
            self.active_at,
            commits,
            self.key,
        )

    def entry_key(self, seq: int) -> int:
        """Return where an entry of this journal lies."""
        key: int = (self.key << SEQ_BITS) + seq
        return key


class Written(NamedTuple):
    """A file that got bytes before COMMIT, and where they began."""

    name: str
    size_before: int


class Kept:
    """What the writer knows of the database from its last commits, for as long as nobody else commits."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.data_version = -1
        self.journals: dict[str, Journal] = {}
        self.kinds: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Read everything anew: another process committed, or a commit of ours failed."""
        self.data_version = -1
        self.journals = {}
        self.kinds = set()
