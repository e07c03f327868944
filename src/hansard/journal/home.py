"""The home journal: facts that belong to no other journal. Its first entry names the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.ids import HOME_JOURNAL
from hansard.journal.concepts import Body, Concept

if TYPE_CHECKING:
    from hansard.journal.journals import Journal
    from hansard.journal.transaction import Transaction

HOME = Concept("home")


@HOME.entry("database.created")
class DatabaseCreated(Body, frozen=True):
    """A new database holds this record: at the beginning, or rebuilt from the logs."""

    database_id: str
    rebuilt: bool = False


def home_journal(tx: Transaction, database_id: str = "", *, rebuilt: bool = False) -> Journal:
    """Return the home journal; a new database makes itself known in it."""
    journal = tx.find_journal(HOME_JOURNAL) or tx.create_journal(HOME_JOURNAL)
    if database_id and tx.find(journal, f"~database:{database_id}") is None:
        body = DatabaseCreated(database_id=database_id, rebuilt=rebuilt)
        tx.add(journal, f"~database:{database_id}", body)
    return journal
