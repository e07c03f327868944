"""What the journal needs of a backend, and the errors by which a backend asks for something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hansard.journal.concepts import Schema


class Reads(Protocol):
    """Queries on one state of the database: a snapshot, or a transaction."""

    schema: Schema

    def rows(self, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        """Return every row."""

    def row(self, query: str, bindings: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a row of any shape
        """Return the first row or None."""


class ReplacedError(Exception):
    """The database is absent or another one than before: the writer must look at it first."""

    def __str__(self) -> str:
        return "state.db is missing or was replaced"


class EntriesGoneError(ReplacedError):
    """The database lacks entries below a journal's head: the writer must compare it with the logs first."""

    def __init__(self, journal_id: str, seq: int) -> None:
        """Keep which one is missing."""
        super().__init__(journal_id, seq)
        self.journal_id = journal_id
        self.seq = seq

    def __str__(self) -> str:
        return f"state.db does not hold entry {self.seq} of {self.journal_id}, which its head says is there"
