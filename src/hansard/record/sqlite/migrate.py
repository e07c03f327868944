"""Schema versions: create, migrate in one transaction, refuse what is newer."""

from __future__ import annotations

import secrets
from importlib import resources
from typing import TYPE_CHECKING

from hansard.errors import RecordDamaged, RecordMigrated, RecordTooNew
from hansard.record.files import make_folder, sync_file, sync_folder
from hansard.record.sqlite.connection import APPLICATION_ID, immediate
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import apsw


def load_migrations() -> tuple[str, ...]:
    """Return the migrations in order; the one at index n leads from version n to n + 1."""
    folder = resources.files(__package__).joinpath("migrations")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


MIGRATIONS = load_migrations()
SCHEMA_VERSION = len(MIGRATIONS)
STAMPED_VERSION = 9
"""The first version whose commits are stamped."""


def schema_version(connection: apsw.Connection) -> int:
    """Return the version of an open database; 0 is an empty one."""
    version: int = connection.execute(SQL.schema_version).get
    return version


def check_version(connection: apsw.Connection) -> int:
    """Return the version; refuse a newer database, or one that is not ours, without touching it."""
    version = schema_version(connection)
    if version > SCHEMA_VERSION:
        message = f"state.db has schema version {version}; this Hansard knows {SCHEMA_VERSION}"
        raise RecordTooNew(message)
    if version == 0 and connection.execute(SQL.count_tables).get:
        message = "state.db is another program's database"
        raise RecordDamaged(message)
    return version


def check_not_migrated(version: int) -> None:
    """Refuse to write to a database that another process brought to another version since it was opened."""
    if version != SCHEMA_VERSION:
        message = f"state.db was migrated to schema version {version} by a newer Hansard; this one must be restarted"
        raise RecordMigrated(message)


def is_unfinished(connection: apsw.Connection) -> bool:
    """Return whether some logs are not in this database yet. Once it is whole, it stays so."""
    return schema_version(connection) == SCHEMA_VERSION and bool(connection.execute(SQL.read_rebuilding).get)


def create_schema(connection: apsw.Connection, *, rebuilding: bool = False) -> None:
    """Fill an empty database in one transaction. `rebuilding`: it is not whole before all logs were read into it."""
    with immediate(connection):
        connection.execute(resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8"))
        connection.execute(SQL.insert_record, (secrets.token_hex(8),))
        if rebuilding:
            connection.execute(SQL.begin_rebuilding)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)


def migrate(
    connection: apsw.Connection,
    backups: Path,
    refold: Callable[[apsw.Connection], None],
    migrations: Sequence[str] = MIGRATIONS,
    reach: Callable[[str], None] = lambda _step: None,
) -> Path | None:
    """Bring an older database to the newest version, and leave one backup of it as it was.

    Every step and the fold of the entries into the projections are one transaction: killed at any moment, the
    database is the old one or the new one. The copy gets its name as the last thing before COMMIT, so that a run that
    did not come so far leaves a copy that the next run replaces.
    """
    version = schema_version(connection)
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
