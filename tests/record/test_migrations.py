"""The schema's versions: the migrations lead to `schema.sql`, in one transaction, after one backup."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import apsw
import pytest

from hansard.domain.messages import Message
from hansard.errors import RecordDamaged, RecordTooNew
from hansard.journal.concepts import Schema
from hansard.journal.locks import Work
from hansard.journal.sqlite.connection import APPLICATION_ID, check_version, schema_version
from hansard.journal.sqlite.migrations import create_schema, migrate, refold
from hansard.record.api import Record
from hansard.record.schema import CONCEPTS, SCHEMA

GOOD_STEP = "CREATE TABLE more (x INTEGER) STRICT; INSERT INTO more VALUES (1);"
BAD_STEP = "CREATE TABLE half (x INTEGER); UPDATE record SET commits = 99; INSERT INTO nowhere VALUES (1);"


def shape(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """Return everything that a database's schema says, without comments and layout."""
    rows = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name").fetchall()
    bare = [(str(kind), str(name), " ".join(re.sub(r"--[^\n]*", "", str(sql)).split())) for kind, name, sql in rows]
    return [(kind, name, re.sub(r" ?([(),]) ?", r"\1", sql)) for kind, name, sql in bare]


def longer(*steps: str) -> Schema:
    """Return the schema with more migrations."""
    return Schema(CONCEPTS, (*SCHEMA.migrations, *steps))


def fold(connection: apsw.Connection) -> None:
    """Fold the entries anew, with nobody watching."""
    refold(connection, SCHEMA, Work(Path("/nonexistent")))


def content(connection: apsw.Connection) -> list[object]:
    """Return the rows of the tables that these tests change."""
    return list(connection.execute("SELECT * FROM record"))


@pytest.fixture
def scratch(tmp_path: Path) -> apsw.Connection:
    """A database of the newest version."""
    connection = apsw.Connection(str(tmp_path / "scratch.db"))
    create_schema(connection, SCHEMA)
    return connection


@pytest.mark.loss("M7")
def test_the_migrations_reproduce_the_schema(tmp_path: Path, scratch: apsw.Connection) -> None:
    """An empty database that takes every migration has the schema of `schema.sql`, to the word."""
    migrated = apsw.Connection(str(tmp_path / "migrated.db"))
    migrate(migrated, tmp_path / "backups", fold, SCHEMA)
    assert schema_version(migrated) == schema_version(scratch) == SCHEMA.version
    assert shape(migrated) == shape(scratch)


def test_the_migrations_are_numbered_without_a_gap() -> None:
    """The files are 0001, 0002, …: their number is the version that they lead to."""
    folder = resources.files("hansard.record").joinpath("migrations")
    numbers = sorted(int(item.name[:4]) for item in folder.iterdir() if item.name.endswith(".sql"))
    assert numbers == list(range(1, SCHEMA.version + 1))
    assert len(SCHEMA.migrations) == SCHEMA.version


@pytest.mark.loss("M4", "M7")
def test_a_migration_leaves_one_backup(tmp_path: Path, scratch: apsw.Connection) -> None:
    """However many steps there are, one copy of the database as it was before stays, readable by nobody else."""
    before = shape(scratch)
    backup = migrate(scratch, tmp_path / "backups", fold, longer(GOOD_STEP, "DROP TABLE more;"))
    assert schema_version(scratch) == SCHEMA.version + 2
    assert [backup] == list((tmp_path / "backups").iterdir())
    copy = apsw.Connection(str(backup), flags=apsw.SQLITE_OPEN_READONLY)
    assert (schema_version(copy), shape(copy)) == (SCHEMA.version, before)
    assert backup is not None
    assert backup.stat().st_mode & 0o777 == 0o600


@pytest.mark.loss("M4", "B18")
def test_a_migration_that_fails_changes_nothing(tmp_path: Path, scratch: apsw.Connection) -> None:
    """A step that fails undoes those before it, too: version, schema and rows are as before, and no copy is left."""
    before = (schema_version(scratch), shape(scratch), content(scratch))
    with pytest.raises(apsw.SQLError, match="nowhere"):
        migrate(scratch, tmp_path / "backups", fold, longer(GOOD_STEP, BAD_STEP))
    assert not scratch.in_transaction
    assert (schema_version(scratch), shape(scratch), content(scratch)) == before
    assert list((tmp_path / "backups").iterdir()) == []


@pytest.mark.loss("M4")
def test_a_migration_replaces_the_copy_of_one_that_was_killed(tmp_path: Path, scratch: apsw.Connection) -> None:
    """What a killed migration had copied so far does not stay beside the backup of the one that succeeds."""
    backups = tmp_path / "backups"
    backups.mkdir()
    (backups / f"state-v{SCHEMA.version}.db.new").write_bytes(b"half a copy")
    backup = migrate(scratch, backups, fold, longer(GOOD_STEP))
    assert list(backups.iterdir()) == [backup]


def test_a_database_of_this_version_is_left_alone(tmp_path: Path, scratch: apsw.Connection) -> None:
    """Nothing to migrate makes no backup."""
    assert migrate(scratch, tmp_path / "backups", fold, SCHEMA) is None
    assert not (tmp_path / "backups").exists()


def test_a_fold_empties_every_projection(scratch: apsw.Connection) -> None:
    """Every table but those that hold what was said is emptied before the entries are folded again."""
    tables = [
        name for _, name, sql in shape(scratch) if sql.startswith("CREATE TABLE") and not name.startswith("sqlite_")
    ]
    assert sorted(table.name for table in SCHEMA.tables) == sorted(
        set(tables) - {"record", "journal", "entry", "chunk", "kind"}
    )


async def make_home(home: Path) -> None:
    """Make a record with a few words in it."""
    async with Record.open(home) as record:
        session = await record.create_session(id="s1", source="test")
        await record.append(session.id, Message.user("hello", id="m1"))


def change(home: Path, *statements: str) -> None:
    """Change a home's database as a newer Hansard, or a stranger, would."""
    connection = apsw.Connection(str(home / "state.db"))
    connection.set_busy_timeout(60_000)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def files(home: Path) -> dict[str, bytes]:
    """Return the database and the logs, byte for byte."""
    paths = [*home.glob("state.db"), *home.rglob("*.jsonl")]
    return {str(path.relative_to(home)): path.read_bytes() for path in paths}


@pytest.mark.loss("M1")
async def test_a_newer_database_is_refused_untouched(home: Path) -> None:
    """A database of a later version is refused with RecordTooNew, and no byte of it or of the logs changes."""
    await make_home(home)
    change(home, f"PRAGMA user_version = {SCHEMA.version + 1}", "PRAGMA wal_checkpoint(TRUNCATE)")
    before = files(home)
    with pytest.raises(RecordTooNew, match=str(SCHEMA.version + 1)):
        async with Record.open(home):
            pass
    assert files(home) == before
    change(home, f"PRAGMA user_version = {SCHEMA.version}")
    async with Record.open(home) as record:
        assert [message.text for message in await record.load_transcript("s1")] == ["hello"]


@pytest.mark.loss("M1", "M8")
async def test_an_unknown_kind_is_refused_unless_it_may_be_ignored(home: Path) -> None:
    """A kind of entry that only a newer version knows refuses the whole record; an ignorable one does not."""
    await make_home(home)
    change(home, "INSERT INTO kind VALUES ('message.hologram', 1, 0)")
    with pytest.raises(RecordTooNew, match=r"message\.hologram"):
        async with Record.open(home):
            pass
    change(home, "UPDATE kind SET ignorable = 1 WHERE kind = 'message.hologram'")
    async with Record.open(home) as record:
        assert (await record.verify()).ok


@pytest.mark.loss("M1")
async def test_a_migration_by_another_process_stops_this_one(home: Path) -> None:
    """A process whose database was migrated under it is told so; nothing of its call is written (rule 6)."""
    async with Record.open(home) as record:
        await record.create_session(id="s1", source="test")
        change(home, f"PRAGMA user_version = {SCHEMA.version + 1}")
        with pytest.raises(RecordTooNew, match="restarted"):
            await record.append("s1", Message.user("late"))
    change(home, f"PRAGMA user_version = {SCHEMA.version}")
    async with Record.open(home) as record:
        await record.append("s1", Message.user("in time"))
        assert [message.text for message in await record.load_transcript("s1")] == ["in time"]


async def test_a_strangers_database_is_refused(home: Path) -> None:
    """Another program's tables in state.db are refused and left alone."""
    home.mkdir()
    change(home, "CREATE TABLE recipes (title TEXT)", "INSERT INTO recipes VALUES ('soup')")
    with pytest.raises(RecordDamaged, match="another program"):
        async with Record.open(home):
            pass
    connection = apsw.Connection(str(home / "state.db"))
    assert connection.execute("SELECT * FROM recipes").fetchall() == [("soup",)]
    connection.close()


def test_a_new_database_says_whose_it_is(scratch: apsw.Connection) -> None:
    """The file's header names this program and the version; check_version accepts it."""
    assert scratch.pragma("application_id") == APPLICATION_ID
    assert check_version(scratch, SCHEMA) == SCHEMA.version
