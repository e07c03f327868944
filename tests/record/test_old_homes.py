"""Homes that older commits wrote, a killed answer among them, become homes of today: every entry, and a clean verify.

`scripts/old_homes.py` made the archives, each with the code of its commit.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from hansard import Message, Record
from hansard.domain.permissions import CallVerdict
from hansard.record.schema import SCHEMA
from hansard.record.turns.entries import ToolDecided
from hansard.testing.crash import OPENING_POINTS
from tests.record.helpers_homes import ARCHIVES, Entries, unpack
from tests.record.helpers_process import ROOT, rebuild

PROVE = bool(os.environ.get("HANSARD_PROVE"))
POINTS = OPENING_POINTS[OPENING_POINTS.index("copied") :]
KILLS = 40 if PROVE else 1
KILL_SECONDS_MAX = 0.4
DEADLINE_SECONDS = 120

OLDER = "a8ba800"
"""The last commit of schema 8."""

APPEND = """
import asyncio, sys
from hansard import HansardError, Message, Record
async def main():
    async with Record.open(sys.argv[1]) as record:
        for session_id in ("known", "unknown"):
            try:
                await record.append(session_id, Message.user("said to the older one", id="older"))
                print("taken")
            except HansardError as error:
                print(type(error).__name__)
try:
    asyncio.run(main())
except HansardError as error:
    print(type(error).__name__)
"""
"""Says something in two sessions, as any Hansard can; prints what came of each, or why nothing was opened."""


def stored(database: Path) -> Entries:
    """Return every entry of a database."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READWRITE)
    query = "SELECT j.id, e.seq, e.id, e.kind, lower(hex(e.digest)) FROM entry e JOIN journal j ON j.key = e.journal"
    try:
        return {(journal, seq): (id, kind, digest) for journal, seq, id, kind, digest in connection.execute(query)}
    finally:
        connection.close()


async def check_migrated(home: Path, before: Entries) -> None:
    """A migrated home has every entry, verifies clean, and can be written to."""
    async with Record.open(home) as record:
        report = await record.verify()
        assert report.ok, report.findings
        cut = (await record.load_transcript("trip"))[-1]
        assert (cut.id, cut.text, cut.status) == ("cut", "It takes three", "interrupted")
        assert [turn.state for turn in await record.turns.list("trip")] == ["completed", "lost"]
        await record.create_session(id="new", source="test")
    assert before.items() <= stored(home / "state.db").items()


def test_every_schema_that_was_written_has_a_home() -> None:
    """The archives are those of the versions that a commit wrote."""
    assert [path.name for path in ARCHIVES] == [f"schema-{version}.tar.xz" for version in (1, 3, 5, 6, 8, 9)]


def has_history() -> bool:
    """Return whether git has the whole history here: an archive and a shallow clone have none."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    return asked.stdout.strip() == "false" and (ROOT / ".git").exists()


def need_history() -> None:
    """Skip with the reason where the code of old commits is not to be had."""
    if shutil.which("git") is None or not has_history():
        pytest.skip("the code of old commits is needed: a clone with its whole history")


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    """Return the environment in which `import hansard` is an older Hansard."""
    need_history()
    archived = ["git", "-C", str(ROOT), "archive", "--output", str(tmp_path / "src.tar"), OLDER, "src"]
    subprocess.run(archived, check=True)
    with tarfile.open(tmp_path / "src.tar") as source:
        source.extractall(tmp_path / "older", filter="data")
    return {**os.environ, "PYTHONPATH": str(tmp_path / "older" / "src")}


async def test_an_older_hansard_refuses_a_home_of_today(home: Path, older: dict[str, str]) -> None:
    """With the database it refuses all of it; with the logs alone, the journals with entries that it does not know.

    What it wrote into the others is in the record of today, and nothing else changed.
    """
    async with Record.open(home) as record:
        for session_id in ("known", "unknown"):
            await record.create_session(id=session_id, source="test")
            await record.append(session_id, Message.user("said today", id="today"))
        async with record.turn("unknown") as turn:
            await turn.note_decision(ToolDecided(turn_id=turn.id, call_id="c", tool="t", verdict=CallVerdict.ALLOW))
    command = [sys.executable, "-c", APPEND, str(home)]

    def append_by_older() -> list[str]:
        return subprocess.run(command, env=older, check=True, stdout=subprocess.PIPE, text=True).stdout.split()

    logs = {path: path.read_bytes() for path in home.rglob("*.jsonl")}
    assert append_by_older() == ["RecordTooNew"]
    assert {path: path.read_bytes() for path in home.rglob("*.jsonl")} == logs
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    assert append_by_older() == ["taken", "RecordTooNew"]
    async with Record.open(home) as record:
        assert [message.id for message in await record.load_transcript("known")] == ["today", "older"]
        assert [message.id for message in await record.load_transcript("unknown")] == ["today"]
        assert (await record.verify()).ok


@pytest.mark.drawn(2)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_the_script_still_makes_these_homes(tmp_path: Path, archive: Path) -> None:
    """It works with the code of the old commit, and what it says there is what the archive holds."""
    need_history()
    version = archive.name.partition(".")[0].removeprefix("schema-")
    subprocess.run([sys.executable, ROOT / "scripts" / "old_homes.py", tmp_path, version], check=True)
    made, kept = (
        Counter((seq, kind) for (_, seq), (_, kind, _) in unpack(folder / archive.name, tmp_path / name).items())
        for folder, name in ((tmp_path, "made"), (archive.parent, "kept"))
    )
    assert made == kept


@pytest.mark.loss("M4", "M7")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
async def test_an_old_home_becomes_one_of_today(home: Path, archive: Path) -> None:
    """Every entry is there, verify is clean, and one backup holds the database as it was."""
    before = unpack(archive, home)
    assert before
    await check_migrated(home, before)
    (backup,) = (home / "backups").iterdir()
    assert backup.name.startswith(archive.name.partition(".")[0].replace("schema-", "state-v") + "-")
    assert before.items() == stored(backup).items()


@pytest.mark.drawn(5)
@pytest.mark.loss("M4", "B26")
@pytest.mark.parametrize("words", [0, 1, 20])
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
async def test_the_backup_of_a_migration_is_put_back_beside_the_new_wal(home: Path, archive: Path, words: int) -> None:
    """`cp backups/… state.db`: the WAL of the migrated database is set aside, and the logs supply what came since."""
    before = unpack(archive, home)
    with closing(apsw.Connection(str(home / "state.db"))) as reader:
        reader.execute("BEGIN; SELECT count(*) FROM entry").get  # noqa: B018 - while it reads, the WAL is kept
        async with Record.open(home) as record:
            for number in range(words):
                await record.append("trip", Message.user("since", id=f"since-{number}"))
        reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    (backup,) = (home / "backups").iterdir()
    assert (home / "state.db-wal").stat().st_size
    shutil.copyfile(backup, home / "state.db")
    async with Record.open(home) as record:
        found = [message.id for message in await record.load_transcript("trip")]
        assert found[len(found) - words :] == [f"since-{number}" for number in range(words)]
        report = await record.verify()
        assert report.ok, report.findings
    assert before.items() <= stored(home / "state.db").items()
    assert list(home.glob("state.db-wal.orphan-*"))


@pytest.mark.drawn(2)
@pytest.mark.loss("M4")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
async def test_a_killed_migration_is_all_or_nothing(home: Path, archive: Path) -> None:
    """Killed at each of its steps, it leaves the old database or the new one, and the next opening succeeds."""
    before = unpack(archive, home)
    for point in POINTS if PROVE else [random.choice(POINTS)]:
        with rebuild(home, 30, f"{point}:1") as process:
            assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
        database = apsw.Connection(str(home / "state.db"))
        is_new = database.pragma("user_version") == SCHEMA.version
        database.close()
        assert is_new == (point == "migrated")
        assert before.items() <= stored(home / "state.db").items()
    await check_migrated(home, before)
    assert len(list((home / "backups").iterdir())) == 1


@pytest.mark.loss("M4")
@pytest.mark.timeout(1_800)
async def test_a_migration_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """Killed at a random moment, once or twice, every home migrates in the end."""
    for number in range(KILLS):
        for archive in ARCHIVES if PROVE else [random.choice(ARCHIVES)]:
            home = tmp_path / f"{number}-{archive.name}"
            before = unpack(archive, home)
            for _ in range(random.randint(1, 2)):
                with rebuild(home, 30) as process:
                    try:
                        process.wait(random.uniform(0, KILL_SECONDS_MAX))
                    except subprocess.TimeoutExpired:
                        process.kill()
            await check_migrated(home, before)
