"""Making databases: new, migrated, or folded again from their entries; and saving what one holds that is set aside.

Reads: every entry; logs. Writes: every projection; what `reconcile` writes.
Invariants: the fold is the one that commits, adoption and `verify` run (`Schema.project`). Logs are read in
pieces, each committed. On crash: a migration is rolled back; reading the logs goes on after the last piece.
"""

from __future__ import annotations

import logging
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

import apsw
import msgspec

from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import LogForked, RecordDamaged
from hansard.journal.concepts import EntryPlace
from hansard.journal.entries import (
    SEQ_BITS,
    EntryRow,
    Journal,
    decode_line,
    encode_line,
    log_name,
    log_size,
    row_digest,
    tail_name,
)
from hansard.journal.files import make_folder, sync_file, sync_folder
from hansard.journal.locks import MIGRATING
from hansard.journal.sqlite.connection import (
    APPLICATION_ID,
    SQL,
    STAMPED_VERSION,
    fetch,
    immediate,
    schema_version,
)
from hansard.journal.sqlite.reading import Snapshot
from hansard.journal.sqlite.reconcile import PIECE_BYTES, set_aside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from hansard.journal.concepts import Schema, Table
    from hansard.journal.entries import LogLine
    from hansard.journal.files import LogFiles
    from hansard.journal.locks import Work
    from hansard.journal.sqlite.opening import JournalDifference

logger = logging.getLogger("hansard.record")

JOURNALS_MAX = 1_000
"""Short logs that are read into the database in one transaction."""


def group_differences(differences: Iterable[JournalDifference]) -> Iterator[list[JournalDifference]]:
    """Put logs together, up to what one transaction may hold. Of a long log only the last piece is left by then."""
    group: list[JournalDifference] = []
    size_bytes = 0
    for difference in differences:
        if group and (size_bytes > PIECE_BYTES or len(group) == JOURNALS_MAX):
            yield group
            group, size_bytes = [], 0
        group.append(difference)
        size_bytes += min(difference.size_bytes, PIECE_BYTES)
    if group:
        yield group


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
        for row in _list_journals(connection):
            _refold_journal(connection, schema, Journal(row), work)
            work.advance(sessions=1)


class MemoryFold:
    """An empty database of the same schema, to fold one journal's entries into."""

    def __init__(self, schema: Schema) -> None:
        self._connection = apsw.Connection(":memory:")
        self._connection.execute(SQL.tables + schema.create_tables())
        self.run = self._connection.cursor().execute

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


def _list_journals(connection: apsw.Connection) -> Iterator[tuple[object, ...]]:
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        yield from rows
        after = rows[-1][0]


def _refold_journal(connection: apsw.Connection, schema: Schema, journal: Journal, work: Work) -> None:
    run = connection.cursor().execute
    after, last = journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq)
    messages = active_at = 0
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        for row in map(EntryRow._make, rows):
            try:
                body = schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
                schema.project(EntryPlace(run, journal, row.seq, row.id, row.at), body)
            except (msgspec.MsgspecError, apsw.ConstraintError) as error:
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


# What only a database holds that is set aside.


def list_heads(connection: apsw.Connection) -> Iterator[tuple[Journal, int]]:
    """Yield every journal, and the commit that last changed it."""
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        after = rows[-1][0]
        for row in rows:
            ((touched,),) = fetch(connection, SQL.read_touched, (row[0],))
            yield Journal(row), touched


def read_entries(connection: apsw.Connection, journal: Journal) -> Iterator[EntryRow]:
    """Yield the entries that the database has of a journal."""
    after, last = journal.entry_key(journal.base_seq), ((journal.key + 1) << SEQ_BITS) - 1
    while rows := fetch(connection, SQL.read_full_entries, (after, last, READ_ROWS_MAX)):
        yield from map(EntryRow._make, rows)
        after = journal.entry_key(rows[-1][0])


def copy_to_logs(connection: apsw.Connection, files: LogFiles) -> None:
    """Write the entries that only this database holds into the logs, so that the rebuilt one has them.

    Only entries whose chain holds count. Where both legs go on differently, nothing is done and a person decides.
    """
    try:
        journals = list(list_heads(connection))
    except apsw.Error as error:
        logger.warning("no entries could be read from the state.db that is set aside: %s", error)
        return
    for journal, touched in journals:
        merge = Merge(connection, files, journal)
        try:
            log_size(files, journal.id)
        except RecordDamaged as error:
            logger.warning("the log of %s cannot be read: %s", journal.id, error)
            continue
        merge.compare()
        if merge.missing:
            if merge.taken_bytes < log_size(files, journal.id):
                set_aside(files, journal.id, 0, log_size(files, journal.id), cut=False)
            files.replace(log_name(journal.id), merge.lines(touched))
            logger.warning("wrote %d entries of %s from state.db into its log", merge.missing, journal.id)


class Merge:
    """One journal of both legs: at each seq the entry that continues the chain, from whichever leg has it."""

    def __init__(self, connection: apsw.Connection, files: LogFiles, journal: Journal) -> None:
        self._connection = connection
        self._files = files
        self._journal = journal
        self.missing = 0
        """Entries that the log lacks and the database has."""
        self.taken_bytes = 0
        """Bytes of the log that are lines of the merged journal."""

    def compare(self) -> None:
        """Count what the log lacks; refuse two histories."""
        for _, data in self._merged():
            self.missing += not data
            self.taken_bytes += len(data)

    def lines(self, touched: int) -> Iterator[bytes]:
        """Yield the lines of the whole log."""
        for row, data in self._merged():
            yield data or encode_line(row, touched)

    def _merged(self) -> Iterator[tuple[EntryRow, bytes]]:
        """Yield each entry, with its line where the log has it."""
        seq, digest = self._journal.base_seq, self._journal.base_digest
        stored, logged = self._stored(), self._logged()
        row = next(stored, None)
        found = next(logged, None)
        while True:
            while row is not None and row.seq <= seq:
                row = next(stored, None)
            while found is not None and found[0].seq <= seq:
                found = next(logged, None)
            from_database = row if row is not None and self._continues(seq, digest, row) else None
            from_log = found if found is not None and self._continues(seq, digest, found[0]) else None
            if from_log is not None:
                if from_database is not None and from_database.digest != from_log[0].digest:
                    self._refuse(seq + 1)
                taken, data = from_log
            elif from_database is not None:
                taken, data = from_database, b""
            elif row is not None:
                self._refuse_gap(seq + 1)
            else:
                return
            yield taken, data
            seq, digest = taken.seq, taken.digest

    def _continues(self, seq: int, digest: bytes, row: EntryRow) -> bool:
        return row.seq == seq + 1 and row_digest(self._journal.id, digest, row) == row.digest

    def _stored(self) -> Iterator[EntryRow]:
        try:
            yield from read_entries(self._connection, self._journal)
        except apsw.Error as error:
            logger.warning("not all entries of %s can be read from state.db: %s", self._journal.id, error)

    def _logged(self) -> Iterator[tuple[EntryRow, bytes]]:
        name = log_name(self._journal.id)
        for _, data in self._files.read_lines(name, 0, log_size(self._files, self._journal.id)):
            line: LogLine | None = decode_line(data)
            if line is not None:
                yield line.row(), data

    def _refuse_gap(self, seq: int) -> NoReturn:
        message = (
            f"entry {seq} of {self._journal.id} is neither in state.db nor in {log_name(self._journal.id)}, and later "
            f"ones are. To go on without them, move state.db, state.db-wal and state.db-shm away: the database is "
            f"rebuilt from the logs, and the later ones stay in the file {tail_name(self._journal.id)}"
        )
        raise RecordDamaged(message)

    def _refuse(self, seq: int) -> NoReturn:
        message = (
            f"state.db and {log_name(self._journal.id)} go on differently from entry {seq} of {self._journal.id}, and "
            f"state.db does not fit its WAL. To take the log, move state.db, state.db-wal and state.db-shm away; to "
            f"take the database, move the log away"
        )
        raise LogForked(message)
