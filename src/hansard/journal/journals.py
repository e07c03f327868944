"""Journals as they stand under the lock, and what the writer may remember of them between two commits."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.journal.lines import log_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.errors import LogUnwritable
    from hansard.journal.files import FileStat
    from hansard.journal.lineage import Stretch

logger = logging.getLogger("hansard.record")

SEQ_BITS = 32


class MismatchError(Exception):
    """A journal's files are not as the database says: reconcile them, then run the batch again."""

    def __init__(self, journal_id: str) -> None:
        """Keep which one."""
        super().__init__(journal_id)
        self.journal_id = journal_id


class KnownEntry(NamedTuple):
    """An entry that was recorded before."""

    seq: int
    kind: str
    version: int
    at: int
    body: bytes


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
        "memo",
        "messages",
        "open_end",
        "part",
        "part_end",
        "part_look",
        "part_reset",
        "part_seen",
        "past",
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
        self.past: list[Stretch] | None = None
        self.forget()
        self.reset_changes()

    def forget(self) -> None:
        """Read again what entries of this transaction may have changed."""
        self.memo: Any = None
        self.open_end = -1

    def reset_changes(self) -> None:
        """Begin a transaction: nothing is to be written, and no file was looked at."""
        self.log: list[bytes] = []
        self.part: list[bytes] = []
        self.part_reset = False
        self.log_seen = False
        self.part_seen = False
        self.log_look: FileStat | None = None
        self.part_look: FileStat | None = None

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

    journal_id: str
    name: str
    size_before: int


class HeadCache:
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


class UnwritableLogs:
    """The files of logs that could not be written, and why: said once each, and once more when they can be."""

    KEPT_MAX = 1000
    """Files that are remembered. Beyond that, errors are raised to callers and not logged."""

    def __init__(self, home: str) -> None:
        """Begin with none."""
        self._home = home
        self._files: dict[str, tuple[str, str]] = {}

    def note(self, error: LogUnwritable) -> None:
        """Keep an error, and log it unless it was the last one of that journal."""
        stem = error.name.rpartition(".")[0]
        if self._files.get(stem, ("", ""))[1] != str(error) and len(self._files) < self.KEPT_MAX:
            self._files[stem] = (error.name, str(error))
            logger.error("%s; nothing is recorded in that session until it can be", error)

    def forget(self, journal_ids: Iterable[str]) -> None:
        """Note that these journals were written."""
        for journal_id in journal_ids if self._files else ():
            if self._files.pop(log_name(journal_id).rpartition(".")[0], None) is not None:
                logger.warning("%s/%s can be written again", self._home, log_name(journal_id))

    def describe(self) -> str:
        """Return what is wrong with the first file that still cannot be written; empty when there is none."""
        for name, why in list(self._files.values()):
            path = f"{self._home}/{name}"
            folder = os.path.dirname(path)
            if not os.path.isdir(folder) or not os.access(path if os.path.lexists(path) else folder, os.W_OK):
                return why
        return ""
