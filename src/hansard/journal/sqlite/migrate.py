"""Schema versions: create, migrate in one transaction, refuse what is newer."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from hansard.errors import RecordDamaged, RecordMigrated, RecordTooNew
from hansard.journal.files import make_folder, sync_file, sync_folder
from hansard.journal.sqlite.connection import APPLICATION_ID, SQL, immediate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import apsw

    from hansard.journal.concepts import Schema


STAMPED_VERSION = 9
"""The first version whose commits are stamped."""


def schema_version(connection: apsw.Connection) -> int:
    """Return the version of an open database; 0 is an empty one."""
    version: int = connection.execute(SQL.schema_version).get
    return version


def check_version(connection: apsw.Connection, schema: Schema) -> int:
    """Return the version; refuse a newer database, or one that is not ours, without touching it."""
    version = schema_version(connection)
    if version > schema.version:
        message = f"state.db has schema version {version}; this Hansard knows {schema.version}"
        raise RecordTooNew(message)
    if version == 0 and connection.execute(SQL.count_tables).get:
        message = "state.db is another program's database"
        raise RecordDamaged(message)
    return version


def check_not_migrated(version: int, schema: Schema) -> None:
    """Refuse to write to a database that another process brought to another version since it was opened."""
    if version != schema.version:
        message = f"state.db was migrated to schema version {version} by a newer Hansard; this one must be restarted"
        raise RecordMigrated(message)


def is_unfinished(connection: apsw.Connection, schema: Schema) -> bool:
    """Return whether some logs are not in this database yet. Once it is whole, it stays so."""
    return schema_version(connection) == schema.version and bool(connection.execute(SQL.read_rebuilding).get)


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
