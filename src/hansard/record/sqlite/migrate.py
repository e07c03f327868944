"""Schema versions: create, migrate one step at a time, refuse what is newer."""

from __future__ import annotations

import secrets
from importlib import resources
from typing import TYPE_CHECKING

from hansard.errors import RecordDamaged, RecordMigrated, RecordTooNew
from hansard.record.sqlite.connection import APPLICATION_ID, immediate
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import apsw


def load_migrations() -> tuple[str, ...]:
    """Return the migrations in order; the one at index n leads from version n to n + 1."""
    folder = resources.files(__package__).joinpath("migrations")
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


MIGRATIONS = load_migrations()
SCHEMA_VERSION = len(MIGRATIONS)


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


def create_schema(connection: apsw.Connection) -> None:
    """Fill an empty database in one transaction."""
    with immediate(connection):
        connection.execute(resources.files(__package__).joinpath("schema.sql").read_text(encoding="utf-8"))
        connection.execute(SQL.insert_record, (secrets.token_hex(8),))
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)


def migrate(connection: apsw.Connection, backups: Path, migrations: Sequence[str] = MIGRATIONS) -> list[Path]:
    """Bring an older database to the newest version: each step atomic, each preceded by a backup."""
    made = []
    for version in range(schema_version(connection), len(migrations)):
        backups.mkdir(mode=0o700, exist_ok=True)
        backup = backups / f"state-v{version}-{secrets.token_hex(4)}.db"
        connection.execute(SQL.vacuum_into, (str(backup),))
        backup.chmod(0o600)
        made.append(backup)
        with immediate(connection):
            connection.execute(migrations[version])
            connection.pragma("user_version", version + 1)
    return made
