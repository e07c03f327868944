"""The one place that opens a database: each pragma with its reason, and each read back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import apsw

from hansard.domain.limits import BUSY_STEP_SECONDS, READ_ROWS_MAX, WAL_BYTES_MAX
from hansard.errors import (
    HansardError,
    RecordDamaged,
    RecordMigrated,
    RecordTooNew,
    RecordUnavailable,
    UnsupportedSQLite,
)
from hansard.journal import causes
from hansard.journal.backend import DamageError, UnreadableError
from hansard.journal.causes import Cause, find_transaction_holder, framed, look_for_cause, tell
from hansard.journal.concepts import Queries, Schema, read_sql
from hansard.journal.entries import Journal

SQL = Queries(read_sql("hansard.journal.sqlite", "sqlite.sql") + read_sql("hansard.journal", "journal.sql"))
"""The tables and statements of this backend, and the reads that every backend has."""

Connection = apsw.Connection
DatabaseError = apsw.Error
DatabaseBusy = apsw.BusyError
DatabaseFull = apsw.FullError
IdTaken = apsw.ConstraintError
"""An entry's id, or another key, is there already: SQLite undid the statement."""

BROKEN: Final = (apsw.IOError, apsw.FullError, apsw.CorruptError)
"""Errors of the whole database. Others concern one statement."""

NOT_TEXT: Final = "a text that is not UTF-8"

UNCLEAR: Final = (apsw.CantOpenError, apsw.IOError, apsw.ReadOnlyError, apsw.PermissionsError)
"""Errors that have several causes: the files are looked at to find which one."""

CAUSES: Final[tuple[tuple[type[apsw.Error], Cause], ...]] = (
    (apsw.NotADBError, Cause.DAMAGED),
    (apsw.CorruptError, Cause.DAMAGED),
    (apsw.FullError, Cause.DISK_FULL),
    (apsw.BusyError, Cause.LOCKED_BY_STRANGER),
    (apsw.LockedError, Cause.LOCKED_BY_STRANGER),
    (apsw.ProtocolError, Cause.LOCKED_BY_STRANGER),
    (apsw.NoMemError, Cause.NO_MEMORY),
    (apsw.ReadOnlyError, Cause.READ_ONLY),
    (apsw.PermissionsError, Cause.NOT_PERMITTED),
    (apsw.CantOpenError, Cause.CANNOT_OPEN),
    (apsw.IOError, Cause.DISK_FAILS),
)
"""Which cause of `journal/causes.py` an error has. The first that fits counts."""

SCHEMA_DAMAGES: Final = ("no such table", "no such column", "no such index")
"""How SQLite says that a part of our schema is not there any more. Other errors of a statement are ours."""

SQLITE_VERSION_MIN = (3, 51, 3)
"""Older libraries can lose commits when a WAL is reset while another process writes."""

APPLICATION_ID = 0x48_4E_53_44
"""'HNSD' in the file's header, so that `file` and a stranger's tools can tell what it is."""

PRAGMAS: tuple[tuple[str, int | str, int | str, str], ...] = (
    ("journal_mode", "WAL", "wal", "readers never block the writer, and a commit is one fsync"),
    ("synchronous", "FULL", 2, "NORMAL loses acknowledged commits on a power cut"),
    ("wal_autocheckpoint", 0, 0, "checkpoints are the keeper's work, never the writer's"),
    ("journal_size_limit", WAL_BYTES_MAX, WAL_BYTES_MAX, "a WAL that once grew gives its space back"),
    ("trusted_schema", "OFF", 0, "a damaged or foreign schema must not run functions"),
    ("cell_size_check", "ON", 1, "damage is noticed where it is read, not later"),
    ("temp_store", "MEMORY", 2, "no words of a conversation in temporary files"),
    ("cache_size", -8000, -8000, "8 MB a connection: the hot pages of many sessions"),
    ("mmap_size", 0, 0, "an I/O error must be an error, not a SIGBUS"),
)
PRAGMAS_DARWIN: tuple[tuple[str, int | str, int | str, str], ...] = (
    ("fullfsync", "ON", 1, "fsync on macOS does not reach the platter"),
    ("checkpoint_fullfsync", "ON", 1, "the same for checkpoints"),
)


def explain(error: Exception, database: Path | str = "state.db", *, writes: bool = True) -> HansardError:
    """Return our error for one of the system or of SQLite.

    `database` is the file that SQLite's errors are about; `writes` is whether it was to be written.
    """
    is_damage = isinstance(error, apsw.SQLError) and str(error).startswith(SCHEMA_DAMAGES)
    if is_damage or isinstance(error, DamageError):
        return tell(Cause.DAMAGED, database, error)
    if not isinstance(error, apsw.Error):
        return causes.explain(error)
    is_short = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ
    if (
        isinstance(error, UNCLEAR)
        and not is_short
        and (found := look_for_cause(str(database), writes=writes)) is not None
    ):
        return found
    for kind, named in CAUSES:
        if isinstance(error, kind):
            cause = Cause.DAMAGED if is_short else named  # the disk is well, and the file too short
            if cause is Cause.LOCKED_BY_STRANGER:
                return tell(cause, find_transaction_holder(str(database)) or "")
            return tell(cause, database, "" if cause is Cause.DISK_FULL else error)
    return causes.explain(error)


def map_error(error: Exception, done: str, database: Path | str = "state.db", *, writes: bool = True) -> HansardError:
    """Return our error for a foreign one, and say what could not be done: "opened", "read", "verified", "written"."""
    return framed(explain(error, database, writes=writes), f"the record could not be {done}")


def fetch(connection: apsw.Connection, query: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
    """Return every row of a query: no cursor stays half read (rule 12)."""
    try:
        return connection.execute(query, bindings).fetchall()
    except UnicodeDecodeError as error:
        raise apsw.CorruptError(NOT_TEXT) from error


def list_journals(connection: apsw.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield every journal's row. CorruptError if keys do not grow: paging would never end."""
    after = 0
    while rows := fetch(connection, SQL.list_journals, (after, READ_ROWS_MAX)):
        for row in rows:
            if row[0] <= after:
                raise apsw.CorruptError("the journals are not in the order of their keys")
            after = row[0]
            yield row


def read_page(
    connection: apsw.Connection, journal: Journal, after: int, last: int, count: int = READ_ROWS_MAX
) -> list[Any]:
    """Return the next rows of entries. CorruptError if their keys do not grow: paging would never end."""
    rows = fetch(connection, SQL.read_full_entries, (after, last, count))
    if rows and journal.entry_key(rows[-1][0]) <= after:
        raise apsw.CorruptError(f"the entries of {journal.id} are not in the order of their keys")
    return rows


@contextmanager
def immediate(connection: apsw.Connection) -> Iterator[None]:
    """Run a block in a write transaction: committed when it ends, rolled back when it is left otherwise."""
    connection.execute(SQL.begin)
    try:
        yield
        connection.execute(SQL.commit)
    finally:
        if connection.in_transaction:
            connection.execute(SQL.rollback)


@contextmanager
def savepoint(connection: apsw.Connection) -> Iterator[None]:
    """Run a block inside a transaction, and undo it alone when it fails."""
    connection.execute(SQL.savepoint)
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # a full disk may have rolled back all of it
            connection.execute(SQL.rollback_to)
        raise
    finally:
        if connection.in_transaction:
            connection.execute(SQL.release)


def check_sqlite_version(version: str = "") -> None:
    """Refuse a library with the WAL-reset bug."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < SQLITE_VERSION_MIN:
        needed = ".".join(str(part) for part in SQLITE_VERSION_MIN)
        message = f"SQLite {version} can lose commits when several processes write; {needed} or newer is needed"
        raise UnsupportedSQLite(message)


def open_connection(
    path: Path, *, read_only: bool = False, check: Callable[[apsw.Connection], object] | None = None
) -> apsw.Connection:
    """Return a connection with every pragma set and checked. The file must exist for a reader.

    `check` may refuse the database before anything about it is changed.
    """
    check_sqlite_version()
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI | (0 if read_only else apsw.SQLITE_OPEN_CREATE)
    # A new database is as private as its lock file; its WAL inherits that.
    uri = f"file:{quote(str(path))}?modeof={quote(str(path.parent / 'locks' / 'write'))}"
    connection = apsw.Connection(uri, flags=flags)
    with ExitStack() as stack:
        stack.callback(connection.close)
        connection.set_busy_timeout(round(BUSY_STEP_SECONDS * 1000))
        # Rule 5: a closing process must not checkpoint and unlink the WAL under others.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        if check is not None:
            check(connection)
        for name, value, expected, reason in PRAGMAS + (PRAGMAS_DARWIN if sys.platform == "darwin" else ()):
            connection.pragma(name, value)
            if (found := connection.pragma(name)) != expected:
                raise RecordUnavailable(f"SQLite did not take {name}={value} (it is {found!r}); it is needed: {reason}")
        if read_only:
            connection.pragma("query_only", value=True)
        stack.pop_all()
    return connection


def open_untouched(path: Path, *, trusts_index: bool = True) -> apsw.Connection:
    """Return a connection that writes nothing: not to the database, not to its WAL, and no file beside it.

    Where the wal-index is there, SQLite reads it and takes its locks, so others may write meanwhile. Without one,
    SQLite cannot keep others out: `is_guarded` tells, and whoever reads looks at the files again afterwards. A
    wal-index that a kill left behind may be of another WAL: then it is not to be trusted.
    """
    check_sqlite_version()
    if trusts_index and is_guarded(path):
        way = "readonly_shm=1"
    elif file_size(f"{path}-wal"):
        way = "vfs=unix-none"
    else:
        way = "immutable=1"
    uri = f"file:{quote(str(path))}?mode=ro&{way}"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(round(BUSY_STEP_SECONDS * 1000))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    if way == "vfs=unix-none":
        connection.pragma("locking_mode", "EXCLUSIVE")  # the WAL's index is made in memory
    for name in ("trusted_schema", "cell_size_check", "temp_store", "cache_size", "mmap_size"):
        connection.pragma(name, next(value for each, value, *_ in PRAGMAS if each == name))
    return connection


def is_guarded(path: Path) -> bool:
    """Return whether SQLite's locks protect a read that writes nothing: there is a WAL and a wal-index."""
    return os.path.exists(f"{path}-shm") and os.path.exists(f"{path}-wal")


def file_size(path: str) -> int:
    """Return how many bytes a file has; 0 when it is absent."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


FilesLook = tuple[tuple[int, int, int] | None, ...]


def look_at_files(path: Path, *sides: str) -> FilesLook:
    """Return what changes when anyone writes to one of the files of a database: inode, size and time."""
    looks: list[tuple[int, int, int] | None] = []
    for side in sides:
        try:
            found = os.stat(f"{path}{side}")
        except FileNotFoundError:
            looks.append(None)
        else:
            looks.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(looks)


@contextmanager
def open_alone(path: Path) -> Iterator[apsw.Connection]:
    """Open a database without its WAL, for reading only. It takes no locks and sees no later change.

    Half a checkpoint may be in it: it is read as far as it can be.
    """
    check_sqlite_version()
    uri = f"file:{quote(str(path))}?immutable=1"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    with closing(connection):
        connection.pragma("writable_schema", value=True)  # or a file that is shorter than its header says is refused
        connection.pragma("trusted_schema", value=False)
        yield connection


# Versions of the schema.

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
        raise RecordTooNew(f"state.db has schema version {version}; this Hansard knows {schema.version}")
    if version == 0 and connection.execute(SQL.count_tables).get:
        raise RecordDamaged("state.db is another program's database")
    return version


def check_not_migrated(version: int, schema: Schema) -> None:
    """Refuse to write to a database that another process brought to a newer version since it was opened."""
    if version < schema.version:
        raise UnreadableError("a schema")  # it was taken away, or damaged: nobody goes back to an older version
    if version > schema.version:
        message = f"state.db was migrated to schema version {version} by a newer Hansard; this one must be restarted"
        raise RecordMigrated(message)


def is_unfinished(connection: apsw.Connection, schema: Schema) -> bool:
    """Return whether some logs are not in this database yet. Once it is whole, it stays so."""
    return schema_version(connection) == schema.version and bool(connection.execute(SQL.read_rebuilding).get)
