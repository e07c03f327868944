"""Bad weather: homes that are read-only, newer, foreign, damaged or on the wrong kind of disk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from hansard import (
    Record,
    RecordDamaged,
    RecordRefused,
    RecordTooNew,
    RecordUnavailable,
    UnsafeFilesystem,
    UnsupportedSQLite,
)
from hansard.journal.sqlite.connection import check_sqlite_version
from hansard.journal.sqlite.disk import check_filesystem
from hansard.record.schema import SCHEMA
from tests.journal.helpers_damage import made_line
from tests.record.helpers_facts import (
    SESSION,
    assert_clean,
    fingerprint,
    ids_of,
    log_of,
    new_session,
    raw_rows,
    retry_append,
    say,
)
from tests.record.helpers_process import Worker, WorkerError, ask_again, need_mounts, remount, small_disk

MOUNTS = """22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /mnt/share rw - nfs4 server:/export rw
31 22 0:26 / /mnt/share/local rw - xfs /dev/sdb rw
32 22 0:27 / /mnt/with\\040space rw - cifs //server/x rw
33 22 0:28 / /c rw - 9p drvfs rw
34 22 0:29 / /tmp rw - tmpfs tmpfs rw
"""


async def make_home(home: Path) -> None:
    """Make a home with two messages and leave it."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")


@contextmanager
def immutable(home: Path) -> Iterator[None]:
    """Let nothing below the home be written, not even by root or through open files; undone whatever happens.

    The shared memory is left out: a mapped page that may not be written is a SIGBUS, which no read-only mount gives.
    """
    paths = [str(path) for path in (home, *home.rglob("*")) if not path.name.endswith("-shm")]
    tried = subprocess.run(["chattr", "+i", *paths], capture_output=True, check=False, text=True)
    try:
        if tried.returncode:
            pytest.skip(f"chattr +i does not work here: {tried.stderr.strip()[:200]}")
        yield
    finally:
        subprocess.run(["chattr", "-R", "-i", str(home)], capture_output=True, check=False)


@pytest.mark.loss("B15", "B22")
def test_a_home_that_becomes_read_only_is_loud_and_heals(home: Path) -> None:
    """Reads go on, writes are refused with a typed error, and both go on by themselves when it is writable again."""
    need_mounts()
    with Worker(home, patience_seconds=3) as worker:
        worker.ask("create", session=SESSION)
        worker.ask("append", session=SESSION, id="before")
        with immutable(home):
            with pytest.raises(WorkerError) as refused:
                worker.ask("append", session=SESSION, id="refused")
            assert refused.value.name in {"LogUnwritable", "RecordUnavailable", "OutcomeUnknown"}
            assert worker.ask("trouble")
            assert [row[0] for row in worker.ask("texts", session=SESSION)][:1] == ["before"]
        ask_again(worker, "append", session=SESSION, id="after")
        found = [row[0] for row in worker.ask("texts", session=SESSION)]
        assert [id for id in found if id != "refused"] == ["before", "after"]
        assert refused.value.name == "OutcomeUnknown" or "refused" not in found
        assert worker.ask("verify") == []


@pytest.mark.loss("B15")
async def test_opening_a_read_only_home_is_a_typed_error(tmp_path: Path) -> None:
    """No traceback of the system, nothing written, and the home opens once it is writable."""
    with small_disk(tmp_path / "disk", "16m") as disk:
        await make_home(disk / "home")
        before = fingerprint(disk / "home")
        remount(disk, "ro")
        with pytest.raises((RecordUnavailable, RecordRefused)):
            async with Record.open(disk / "home", patience_seconds=0.4):
                pass
        with pytest.raises(RecordUnavailable):
            async with Record.open(disk / "another", patience_seconds=0.4):
                pass
        assert fingerprint(disk / "home") == before
        remount(disk, "rw")
        async with Record.open(disk / "home") as record:
            await say(record, "c")
            assert await ids_of(record) == ["a", "b", "c"]
            await assert_clean(record)


@pytest.mark.loss("M7")
async def test_a_newer_database_is_refused_and_left_byte_identical(home: Path) -> None:
    """Schema version 99: a clear error that says so, twice, and not one byte of the home differs."""
    await make_home(home)
    raw_rows(home, "PRAGMA user_version = 99")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    before = fingerprint(home)
    for _ in range(2):
        with pytest.raises(RecordTooNew, match="99"):
            async with Record.open(home, patience_seconds=1):
                pass
    after = fingerprint(home)
    assert {name: after[name] for name in before if "-shm" not in name} == {
        name: digest for name, digest in before.items() if "-shm" not in name
    }
    assert set(after) - set(before) <= {"state.db-shm", "state.db-wal"}
    raw_rows(home, f"PRAGMA user_version = {SCHEMA.version}")
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a", "b"]


@pytest.mark.loss("M8")
@pytest.mark.parametrize("ignorable", [False, True])
async def test_unknown_kinds_are_refused_unless_ignorable(home: Path, *, ignorable: bool) -> None:
    """A newer Hansard's kind is in the record: opening refuses it, or passes over it if it says that it may."""
    await make_home(home)
    raw_rows(home, "INSERT INTO kind (kind, version, ignorable) VALUES ('message.danced', 1, ?)", ignorable)
    if ignorable:
        async with Record.open(home) as record:
            assert await ids_of(record) == ["a", "b"]
            await say(record, "c")
            await assert_clean(record)
    else:
        with pytest.raises(RecordTooNew, match=r"message\.danced"):
            async with Record.open(home, patience_seconds=1):
                pass


@pytest.mark.loss("M8")
async def test_an_unknown_kind_in_a_log_is_not_adopted(home: Path) -> None:
    """A log goes on with a kind that we do not know: that session is not written to, and nothing is dropped."""
    await make_home(home)
    line = made_line(home, kind="message.danced")
    with log_of(home).open("ab") as file:
        file.write(line)
    before = log_of(home).read_bytes()
    async with Record.open(home) as record:
        await new_session(record, "fine")
        await say(record, "x", session_id="fine")
        with pytest.raises(RecordRefused):
            await say(record, "c")
        assert await ids_of(record) == ["a", "b"]
    assert log_of(home).read_bytes() == before


@pytest.mark.loss("B19")
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "home.jsonl", "log", "locks/identity"])
async def test_zero_byte_files_brick_nothing(home: Path, name: str) -> None:
    """Any file of the home is emptied while nobody has it open: everything acknowledged is there at the next start."""
    await make_home(home)
    path = log_of(home) if name == "log" else home / name
    path.write_bytes(b"")
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a", "b"]
        await say(record, "c")
        await assert_clean(record)
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a", "b", "c"]


async def write_to_both_journals(home: Path) -> None:
    """Write to a session and to the home's own journal."""
    async with Record.open(home, patience_seconds=3) as record:
        await say(record, "c")
        await record.routes.move("key", SESSION)


@pytest.mark.loss("B19")
@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "home.jsonl", "log", "sessions", "locks", "locks/write"])
async def test_something_else_in_a_files_place_is_a_typed_error(home: Path, name: str) -> None:
    """A directory where a file must be, or a file where a directory must be: refused, untouched, and healed by hand."""
    await make_home(home)
    path = log_of(home) if name == "log" else home / name
    aside = home.parent / "aside"
    shutil.move(path, aside)
    if aside.is_dir():
        path.write_bytes(b"a file")
    else:
        path.mkdir()
    with pytest.raises((RecordUnavailable, RecordRefused)):
        await write_to_both_journals(home)
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    shutil.move(aside, path)
    async with Record.open(home) as record:
        await retry_append(record, "d")
        assert (await ids_of(record))[:2] == ["a", "b"]
        await assert_clean(record)


@pytest.mark.loss("B13", "B14")
@pytest.mark.parametrize("damage", ["garbage", "foreign", "flipped"])
async def test_a_damaged_database_is_refused_and_rebuilt_from_the_logs(home: Path, damage: str) -> None:
    """No word is taken into a damaged file; moved aside, as the hint says, it is rebuilt from the logs."""
    await make_home(home)
    for side in ("-wal", "-shm"):
        (home / f"state.db{side}").unlink(missing_ok=True)
    if damage == "foreign":
        (home / "state.db").unlink()
        apsw.Connection(str(home / "state.db")).execute("CREATE TABLE mine (x)")
    elif damage == "garbage":
        (home / "state.db").write_bytes(b"this is not a database" * 500)
    else:
        data = bytearray((home / "state.db").read_bytes() or bytes(8192))
        data[100:4000] = b"\xff" * 3900
        (home / "state.db").write_bytes(data)
    before = (home / "state.db").read_bytes()
    for _ in range(2):
        with pytest.raises(RecordDamaged):
            async with Record.open(home, patience_seconds=5) as record:
                await say(record, "c")
    assert (home / "state.db").read_bytes() == before
    (home / "state.db").rename(home.parent / "damaged.db")
    async with Record.open(home) as record:
        assert await ids_of(record) == ["a", "b"]
        await say(record, "c")
        await assert_clean(record)


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("/home/me/.hansard", True),
        ("/mnt/share/.hansard", False),
        ("/mnt/share", False),
        ("/mnt/shared", True),
        ("/mnt/share/local/.hansard", True),
        ("/mnt/with space/home", False),
        ("/c/Users/me", False),
        ("/tmp/x", True),  # noqa: S108 - a path in a table of mounts
    ],
)
def test_file_systems_that_hosts_share_are_refused(path: str, *, safe: bool) -> None:
    """The mount that holds the home decides, by its type: network and passed-through file systems are unsafe."""
    if safe:
        check_filesystem(Path(path), MOUNTS)
    else:
        with pytest.raises(UnsafeFilesystem, match="write-ahead log"):
            check_filesystem(Path(path), MOUNTS)


@pytest.mark.parametrize(
    ("version", "good"), [("3.40.1", False), ("3.51.2", False), ("3.51.3", True), ("3.54.0", True), ("4.0.0", True)]
)
def test_sqlite_libraries_with_the_reset_bug_are_refused(version: str, *, good: bool) -> None:
    """A start-up gate on the library's version."""
    if good:
        check_sqlite_version(version)
    else:
        with pytest.raises(UnsupportedSQLite, match=version):
            check_sqlite_version(version)


@pytest.mark.loss("B11")
@pytest.mark.parametrize("mode", ["DELETE", "TRUNCATE", "PERSIST"])
async def test_an_existing_database_in_another_journal_mode_becomes_wal(home: Path, mode: str) -> None:
    """Somebody changed the mode: the effective one is WAL again, and nothing is lost."""
    await make_home(home)
    assert raw_rows(home, f"PRAGMA journal_mode = {mode}") == [(mode.lower(),)]
    async with Record.open(home) as record:
        assert raw_rows(home, "PRAGMA journal_mode") == [("wal",)]
        assert await ids_of(record) == ["a", "b"]
        await say(record, "c")
        await assert_clean(record)
