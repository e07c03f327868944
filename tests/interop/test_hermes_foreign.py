"""Another program's database is read where it lies: whole, and without a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from hansard.errors import InvalidInput, RecordUnavailable
from hansard.journal.sqlite.foreign import open_foreign
from tests.interop.hermes_homes import fingerprint

COUNT = "SELECT count(*) AS n, max(a) AS last FROM m"

LEAVE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute(f"PRAGMA journal_mode={sys.argv[2]}")
connection.execute("CREATE TABLE m (a INTEGER PRIMARY KEY, b TEXT)")
connection.executemany("INSERT INTO m (b) VALUES (?)", [("x" * 100,)] * 1000)
connection.commit()
if sys.argv[3] == "crash":
    os._exit(0)
connection.close()
"""


def write(folder: Path, mode: str, end: str) -> Path:
    """Let another process, and another library, write a database; it closes it, or crashes."""
    folder.mkdir()
    path = folder / "it's 100%.db"
    subprocess.run([sys.executable, "-c", LEAVE, str(path), mode, end], check=True, timeout=120)
    return path


@pytest.mark.parametrize(
    ("mode", "end", "files"),
    [
        pytest.param("WAL", "close", 1, id="wal-closed"),
        pytest.param("WAL", "crash", 3, id="wal-crashed"),
        pytest.param("DELETE", "close", 1, id="rollback-journal"),
    ],
)
def test_every_row_is_read_and_nothing_is_changed(tmp_path: Path, mode: str, end: str, files: int) -> None:
    """All rows come, those in the WAL too; no file, byte or time changes, and no side file is made."""
    path = write(tmp_path / "source", mode, end)
    before = fingerprint(path.parent)
    assert len(before) == files + 1
    with open_foreign(path) as database:
        assert database.rows(COUNT) == [{"n": 1000, "last": 1000}]
    assert fingerprint(path.parent) == before


def test_a_wal_without_its_index(tmp_path: Path) -> None:
    """A copy that somebody made without the -shm file is read whole, and none is made."""
    path = write(tmp_path / "source", "WAL", "crash")
    Path(f"{path}-shm").unlink()
    before = fingerprint(path.parent)
    with open_foreign(path) as database:
        assert database.rows(COUNT) == [{"n": 1000, "last": 1000}]
    assert fingerprint(path.parent) == before


def test_a_program_that_writes_meanwhile_is_noticed(tmp_path: Path) -> None:
    """What another program commits between two reads is seen by the second, as a whole; its file is left to it."""
    path = write(tmp_path / "source", "WAL", "crash")
    writer = apsw.Connection(str(path))
    with open_foreign(path) as database:
        assert database.rows(COUNT)[0]["n"] == 1000
        writer.execute("INSERT INTO m (b) VALUES ('new')")
        assert database.rows(COUNT)[0]["n"] == 1001
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert database.rows(COUNT)[0]["n"] == 1001
    writer.execute("INSERT INTO m (b) VALUES ('newer')")
    writer.close()


def test_nothing_can_be_written(tmp_path: Path) -> None:
    """A statement that writes is refused."""
    path = write(tmp_path / "source", "DELETE", "close")
    before = fingerprint(path.parent)
    with open_foreign(path) as database, pytest.raises(InvalidInput, match="cannot be read"):
        database.rows("DELETE FROM m")
    assert fingerprint(path.parent) == before


def test_half_a_transaction_is_refused(tmp_path: Path) -> None:
    """A rollback journal with content means that the file is between two states: it is not read."""
    path = write(tmp_path / "source", "DELETE", "close")
    Path(f"{path}-journal").write_bytes(b"journal")
    with open_foreign(path) as database, pytest.raises(InvalidInput, match="half of a transaction"):
        database.rows(COUNT)


def test_a_file_that_never_rests_is_told(tmp_path: Path) -> None:
    """A database that changes under every read is given up on, with what to do about it."""
    path = write(tmp_path / "source", "DELETE", "close")

    class Restless(tuple[object, ...]):
        """Bindings whose use lets the file change, as a busy writer would."""

        __slots__ = ()

        def __iter__(self):  # type: ignore[no-untyped-def]  # noqa: ANN204
            path.write_bytes(path.read_bytes())
            return super().__iter__()

    with open_foreign(path) as database, pytest.raises(RecordUnavailable, match="changes all the time"):
        database.rows("SELECT ? AS a", Restless(("x",)))


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """A missing file and a file of something else are named."""
    with pytest.raises(InvalidInput, match="no database"), open_foreign(tmp_path / "none"):
        pass
    path = tmp_path / "text"
    path.write_text("not a database at all" * 100)
    with open_foreign(path) as database, pytest.raises(InvalidInput, match="cannot be read"):
        database.rows(COUNT)
