"""Rule 5: nothing opens state.db except SQLite, and no closing connection takes the WAL with it."""

from __future__ import annotations

import ast
import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import hansard
from hansard import Record
from hansard.journal.sqlite.connection import PRAGMAS, open_connection
from hansard.journal.store import Wiring
from tests.record.helpers_facts import SESSION, assert_clean, ids_of, new_session, raw_rows, say
from tests.record.helpers_process import Worker, need_strace
from tests.record.helpers_worker import STILL

SOURCES = sorted(Path(hansard.__file__).parent.rglob("*.py"))

VISITOR = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
connection.close()
"""
"""A short-lived stranger: by default its close checkpoints and unlinks the WAL when it believes to be the last."""


def visit(database: Path) -> None:
    """Let a stranger open and close the database, in a process of its own."""
    subprocess.run([sys.executable, "-c", VISITOR, str(database)], check=True)


@pytest.mark.loss("B9")
def test_control_a_copy_in_the_writers_process_loses_commits(tmp_path: Path) -> None:
    """Without the rule: close() of a copied file drops the POSIX locks, a visitor unlinks the WAL, commits vanish."""
    (tmp_path / "home").mkdir()
    path = tmp_path / "home" / "naive.db"
    writer = apsw.Connection(str(path))
    writer.pragma("journal_mode", "WAL")
    writer.pragma("synchronous", "FULL")
    writer.execute("CREATE TABLE entry (id TEXT)")
    shutil.copytree(tmp_path / "home", tmp_path / "copy")
    visit(path)
    writer.execute("INSERT INTO entry VALUES ('first')")
    writer.execute("INSERT INTO entry VALUES ('second')")
    reader = "import sys, apsw; print(list(apsw.Connection(sys.argv[1]).execute('SELECT id FROM entry')))"
    found = subprocess.run([sys.executable, "-c", reader, str(path)], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.loss("B9", "B8")
async def test_a_copy_in_the_writers_process_loses_nothing(home: Path, tmp_path: Path) -> None:
    """Somebody copies the home inside our process and a visitor comes: every acknowledged entry is there afterwards.

    Nothing here runs during the visit: the visitor cuts the wal-index, and a thread that reads it just then dies.
    """
    async with Record.open(home, wiring=Wiring(threads=False)) as record:

        async def drive() -> None:
            while True:
                record.store.writer.step()
                await asyncio.sleep(0)

        driver = asyncio.create_task(drive())
        await new_session(record)
        for number in range(5):
            await say(record, f"before-{number}")
            shutil.copytree(home, tmp_path / f"copy-{number}")
            visit(home / "state.db")
            await say(record, f"after-{number}")
            assert len(await ids_of(record)) == 2 * number + 2
        driver.cancel()
        await assert_clean(record)
    async with Record.open(home) as record:
        assert await ids_of(record) == [f"{when}-{number}" for number in range(5) for when in ("before", "after")]
        await assert_clean(record)


@pytest.mark.loss("B9", "B8")
def test_a_copy_in_one_of_two_processes_loses_nothing(home: Path, tmp_path: Path) -> None:
    """Two processes write; one copies its home, the other leaves and comes back: both legs have all of it.

    Nothing runs in the first while the other comes: a thread that reads the wal-index just then dies.
    """
    with Worker(home, crash=STILL) as stays:
        stays.ask("create", session=SESSION)
        for number in range(3):
            with Worker(home) as visits:
                visits.ask("append", session=SESSION, id=f"visitor-{number}")
                stays.ask("copytree", to=str(tmp_path / f"copy-{number}"))
                stays.ask("append", session=SESSION, id=f"copied-{number}")
            stays.ask("append", session=SESSION, id=f"left-{number}")
        found = [row[0] for row in stays.ask("texts", session=SESSION)]
        assert found == [f"{who}-{number}" for number in range(3) for who in ("visitor", "copied", "left")]
        assert stays.ask("verify") == []
        assert raw_rows(home, "PRAGMA integrity_check") == [("ok",)]


def lay_out(folder: Path) -> Path:
    """Make what a database needs around it; return its path."""
    (folder / "locks").mkdir()
    (folder / "locks" / "write").touch(0o600)
    return folder / "state.db"


@pytest.mark.loss("B8")
@pytest.mark.parametrize("read_only", [False, True])
def test_no_connection_checkpoints_when_it_closes(tmp_path: Path, *, read_only: bool) -> None:
    """NO_CKPT_ON_CLOSE reads back as set on every connection that we open, and the WAL outlives the last of them."""
    path = lay_out(tmp_path)
    open_connection(path).execute("CREATE TABLE entry (id TEXT)")
    connection = open_connection(path, read_only=read_only)
    assert connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, -1) == 1
    connection.close()
    assert Path(f"{path}-wal").stat().st_size > 0


@pytest.mark.loss("B11")
def test_every_pragma_is_read_back(tmp_path: Path) -> None:
    """The effective settings are the configured ones: WAL and FULL among them."""
    connection = open_connection(lay_out(tmp_path))
    effective = {name: connection.pragma(name) for name, *_ in PRAGMAS}
    assert effective == {name: expected for name, _, expected, _ in PRAGMAS}
    assert (effective["journal_mode"], effective["synchronous"]) == ("wal", 2)


def test_one_function_opens_connections() -> None:
    """Only `connection.py` opens a record by apsw; imports read foreign files, verify's fold lives in memory."""
    places = [
        f"{path.name}: {ast.unparse(node.args[0])}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Connection") and "apsw" in ast.unparse(node)
    ]
    assert set(places) == {"foreign.py: uri", "connection.py: uri", "migrations.py: ':memory:'"}


@pytest.mark.loss("B9")
def test_only_sqlite_opens_the_database(home: Path, tmp_path: Path) -> None:
    """System calls of a whole life, verify included: state.db* is opened with SQLite's own flags only.

    The WAL is also read by us: SQLite's locks are on state.db and state.db-shm, never on it.
    """
    need_strace()
    calls = tmp_path / "calls"
    prefix = ["strace", "-f", "-y", "-qq", "-e", "trace=open,openat,openat2,creat", "-o", str(calls)]
    with Worker(home, prefix=prefix) as worker:
        worker.ask("create", session=SESSION)
        worker.ask("many", session=SESSION, prefix="m", count=3)
        worker.ask("texts", session=SESSION)
        assert worker.ask("verify") == []
        worker.ask("close")
        worker.ask("open")
        worker.ask("append", session=SESSION, id="last")
    opened = [line for line in calls.read_text().splitlines() if re.search(r'/state\.db[^"/]*"', line)]
    assert opened
    opened = [line for line in opened if "ENOENT" not in line and 'state.db-wal", O_RDONLY|O_NOFOLLOW' not in line]
    strange = [line for line in opened if "O_RDWR" not in line or "O_NOFOLLOW" not in line]
    assert strange == []
