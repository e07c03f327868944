"""Making the tables of a database: new, migrated from an older schema, or folded again from all entries.

Reads: every entry. Writes: every projection; a copy in `backups/` before a migration.
Invariants: the fold is the one that commits, adoption and `verify` run (`Schema.project`).
On crash: a migration is one transaction, and is rolled back.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw

from hansard.journal.backend import UnreadableError
from hansard.journal.concepts import EntryPlace, Schema, Table
from hansard.journal.entries import (
    EntryRow,
    Journal,
)
from hansard.journal.files import make_folder, sync_file, sync_folder
from hansard.journal.locks import MIGRATING, Work
from hansard.journal.sqlite.connection import (
    APPLICATION_ID,
    SQL,
    STAMPED_VERSION,
    fetch,
    immediate,
    list_journals,
    read_page,
    schema_version,
)
from hansard.journal.sqlite.reading import Snapshot

logger = logging.getLogger("hansard.record")


def refold(connection: apsw.Connection, schema: Schema, work: Work) -> None:
    """Empty every projection and fold all entries into them again, in the caller's transaction."""
    ((journals, entries),) = fetch(connection, SQL.count_entries)
    work.begin(MIGRATING, journals, entries)
    reads = Snapshot(connection, schema)
    with ExitStack() as stack:
        for concept in schema.concepts:
            if concept.refold is not None:
                stack.enter_context(concept.refold(reads, connection.cursor().execute))
        for table in schema.tables:
            connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our own names
        for row in list_journals(connection):
            _refold_journal(connection, schema, Journal(row), work)
            work.advance(sessions=1)


class MemoryFold:
    """An empty database of the same schema, to fold one journal's entries into."""

    def __init__(self, schema: Schema) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(SQL.tables + schema.create_tables())
        self.run = self._connection.cursor().execute
        self.filled = _tables_where(schema, "journal = ?1")
        self.orphaned = _tables_where(schema, "journal NOT IN (SELECT key FROM journal)")

    def begin(self) -> None:
        if self._connection.in_transaction:
            self.run(SQL.rollback)
        self.run(SQL.begin)

    def query(self, table: Table) -> str:
        """Return the query that gives the rows of a table that a journal's entries must give."""
        where = "" if table.of_home else " WHERE journal = ?1"
        return f"SELECT {table.columns} FROM {table.name}{where} ORDER BY {table.order}"  # noqa: S608 - our own names

    def dump(self, query: str, bindings: tuple[Any, ...]) -> list[Any]:
        return self.run(query, bindings).fetchall()


def _tables_where(schema: Schema, condition: str) -> str:
    """Return the query for the names of tables that have such a row of a journal."""
    names = ["entry", "chunk", *(table.name for table in schema.tables if not table.of_home)]
    looks = [f"SELECT '{name}' WHERE EXISTS (SELECT 1 FROM {name} WHERE {condition})" for name in names]  # noqa: S608 - our own names
    return " UNION ALL ".join(looks)


def _refold_journal(connection: apsw.Connection, schema: Schema, journal: Journal, work: Work) -> None:
    run = connection.cursor().execute
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    messages = active_at = 0
    while rows := read_page(connection, journal, after, last):
        for row in map(EntryRow._make, rows):
            try:
                body = schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
                schema.project(EntryPlace(run, journal, row.seq, row.id, row.at), body)
            except (UnreadableError, apsw.ConstraintError) as error:
                logger.error("entry %d of %s cannot be read: %s", row.seq, journal.id, error)  # noqa: TRY400
                continue
            messages += schema.count(body)
            active_at = row.at
        after = journal.entry_key(rows[-1][0])
        work.advance(done=len(rows))
    fetch(connection, SQL.update_journal_fold, (messages, active_at, journal.key))


# Creating and migrating: one transaction each.


def create_schema(connection: apsw.Connection, schema: Schema, *, rebuilding: bool = False) -> None:
    """Fill an empty database in one transaction. `rebuilding`: it is not whole before all logs were read into it."""
    with immediate(connection):
        connection.execute(SQL.tables + schema.create_tables())
        connection.execute(SQL.insert_record, (secrets.token_hex(8),))
        if rebuilding:
            connection.execute(SQL.begin_rebuilding)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", schema.version)


def migrate(
    connection: apsw.Connection,
    backups: Path,
    refold: Callable[[apsw.Connection], None],
    schema: Schema,
    reach: Callable[[str], None] = lambda _step: None,
) -> Path | None:
    """Bring an older database to the newest version, and leave one backup of it as it was.

    Every step and the fold of the entries into the projections are one transaction: killed at any moment, the
    database is the old one or the new one. The copy gets its name as the last thing before COMMIT, so that a run that
    did not come so far leaves a copy that the next run replaces.
    """
    version, migrations = schema_version(connection), schema.migrations
    if version >= len(migrations):
        return None
    make_folder(str(backups))
    copy = backups / f"state-v{version}.db.new"
    backup = backups / f"state-v{version}-{secrets.token_hex(4)}.db"
    copy.unlink(missing_ok=True)
    try:
        connection.execute(SQL.vacuum_into, (str(copy),))
        copy.chmod(0o600)
        sync_file(str(copy))
        reach("copied")
        with immediate(connection):
            for step in migrations[version:]:
                connection.execute(step)
            reach("altered")
            refold(connection)
            reach("folded")
            if len(migrations) >= STAMPED_VERSION:
                connection.execute(SQL.bump_commits)
            connection.pragma("user_version", len(migrations))
            copy.rename(backup)
            sync_folder(str(backups))
        reach("migrated")
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    return backup
