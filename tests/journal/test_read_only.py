"""Reading needs no write: homes on full and read-only disks, of other users, in use, or not whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard import Entry, Message, Record, RecordDamaged, RecordReadOnly, RecordUnavailable
from hansard.cli.existing import READING_PATIENCE_SECONDS
from hansard.record.sessions import SessionFrozen
from tests.acceptance.shown.program import run_forked
from tests.record.helpers_facts import SESSION, fingerprint, ids_of, log_of, new_session, raw_rows, say
from tests.record.helpers_process import ROOT, Worker, fill_disk, need_mounts, remount, small_disk, stranger

NOBODY = 65534
PROVE = bool(os.environ.get("HANSARD_PROVE"))


async def make_home(home: Path) -> None:
    """Make a home with two messages, all of it still in the WAL."""
    async with Record.open(home) as record:
        await new_session(record)
        await say(record, "a", "b")


async def read_ids(home: Path) -> list[str]:
    """Open a home for reading only, and read it in every way; return its messages."""
    async with Record.open(home, read_only=True) as record:
        assert record.is_read_only
        assert record.home == home
        assert [each.id for each in await record.sessions()] == [SESSION]
        assert len(await record.search("text")) == 2
        return await ids_of(record)


@pytest.mark.drawn(1)  # SQLite waits for ten seconds
@pytest.mark.parametrize("garbage", [b"\x17" * 32, b"\x17" * 50_000])
async def test_a_wal_that_is_not_the_one_of_its_index(home: Path, garbage: bytes) -> None:
    """A process is killed and its WAL overwritten, so the wal-index that it left is of another WAL: logs are read."""
    with Worker(home) as worker:
        worker.ask("create", session=SESSION)
        for id in ("a", "b"):
            worker.ask("append", session=SESSION, id=id, text="text")
        worker.kill()
    with (home / "state.db-wal").open("r+b") as wal:
        wal.write(garbage)
    assert await read_ids(home) == ["a", "b"]


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this test alone makes temporary files."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


async def test_nothing_is_written(home: Path) -> None:
    """Not a byte, not a file, not a time; and every writing call is refused."""
    await make_home(home)
    before = fingerprint(home)
    times = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert await read_ids(home) == ["a", "b"]
    async with Record.open(home, read_only=True) as record:
        for write in (
            record.append(SESSION, Message.user("no")),
            record.create_session(source="test"),
            record.end_session(SESSION, "no"),
            record.blobs.put(b"no"),
            record.routes.move("key", SESSION),
        ):
            with pytest.raises(RecordReadOnly):
                await write
        with pytest.raises(RecordReadOnly):
            async with record.turn(SESSION):
                pass
        assert (await record.verify()).ok
        assert record.note == ""
    assert fingerprint(home) == before
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == times


@pytest.mark.parametrize("sides", [(), ("-shm",), ("-wal", "-shm")])
async def test_a_home_on_read_only_media(tmp_path: Path, sides: tuple[str, ...]) -> None:
    """With a WAL and its index, with the WAL alone, and with the database file alone: everything is there."""
    with small_disk(tmp_path / "disk", "16m") as disk:
        home = disk / "home"
        await make_home(home)
        if "-wal" in sides:
            raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
        for side in sides:
            (home / f"state.db{side}").unlink()
        remount(disk, "ro")
        before = fingerprint(home)
        assert await read_ids(home) == ["a", "b"]
        async with Record.open(home, read_only=True) as record:
            assert (await record.verify()).ok
        assert fingerprint(home) == before


@pytest.mark.parametrize("lost", ["", "-shm"])
async def test_a_home_on_a_full_disk(tmp_path: Path, lost: str) -> None:
    """Not a byte is free, and even the WAL's index may have to be made in memory."""
    with small_disk(tmp_path / "disk", "16m") as disk:
        home = disk / "home"
        await make_home(home)
        if lost:
            (home / f"state.db{lost}").unlink()
        fill_disk(disk)
        assert os.statvfs(disk).f_bavail == 0
        before = fingerprint(home)
        assert await read_ids(home) == ["a", "b"]
        assert fingerprint(home) == before


READ_AS_NOBODY = f"""
import asyncio, os, sys
from pathlib import Path
sys.dont_write_bytecode = True
from hansard import Record, RecordUnavailable
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
async def main():
    async with Record.open(sys.argv[1], read_only=True) as record:
        print(*[message.id for message in await record.load_transcript("{SESSION}")])
try:
    asyncio.run(main())
except RecordUnavailable as error:
    print(error.cause, error)
"""


def read_as_nobody(home: Path) -> str:
    """Read a home as a user who may write nowhere in it."""
    ended = subprocess.run(
        [sys.executable, "-c", READ_AS_NOBODY, str(home)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert not ended.stderr
    return ended.stdout.strip()


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="hansard-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def test_a_home_of_another_user(public: Path) -> None:
    """Who may read the files reads them; who may not is told which one."""
    need_mounts()
    home = public / "home"
    await make_home(home)
    assert (
        read_as_nobody(home)
        == f"not_permitted the record at {home} could not be read: permission denied ({home}/state.db)"
    )
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    before = fingerprint(home)
    assert read_as_nobody(home) == "a b"
    assert fingerprint(home) == before
    (home / "state.db").chmod(0o600)
    assert (
        read_as_nobody(home)
        == f"not_permitted the record at {home} could not be read: permission denied ({home}/state.db)"
    )


@pytest.mark.usefixtures("own_temporary_folder")
@pytest.mark.parametrize(
    "loss", ["missing", "empty", "garbage", "behind", "behind and damaged", "ahead", "ahead and damaged"]
)
async def test_a_database_that_is_not_the_whole_truth(home: Path, loss: str) -> None:
    """Missing, emptied, damaged, older or newer than the logs: a private copy has everything, and it is removed."""
    await make_home(home)
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    ((page,),) = raw_rows(home, "SELECT rootpage FROM sqlite_master WHERE name = 'note'")
    older = home.parent / "older.db"
    shutil.copyfile(home / "state.db", older)
    log = log_of(home)
    cut = log.read_bytes()
    async with Record.open(home) as record:
        await say(record, "c")
    raw_rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    for side in ("-wal", "-shm"):
        (home / f"state.db{side}").unlink()
    if loss == "missing":
        (home / "state.db").unlink()
    elif loss in {"empty", "garbage"}:
        (home / "state.db").write_bytes(b"" if loss == "empty" else b"this is no database" * 500)
    elif loss.startswith("behind"):
        shutil.copyfile(older, home / "state.db")
    else:
        log.write_bytes(cut)
    if "damaged" in loss:  # where only a copy of all of it looks
        with (home / "state.db").open("r+b") as file:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    before = fingerprint(home)
    async with Record.open(home, read_only=True) as record:
        assert await ids_of(record) == ["a", "b", "c"]
        assert "temporary copy" in record.note
        assert [hit.message.id for hit in await record.search("text")] != []
        with pytest.raises(RecordReadOnly):
            await say(record, "d")
        assert not (await record.verify()).ok, "a home that needs a repair is not in order"
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert fingerprint(home) == before


async def test_a_copy_that_cannot_be_made_names_its_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for temporary files, that is said; nobody is told that the record is full."""
    await make_home(home)
    (home / "state.db").unlink()
    monkeypatch.setattr(tempfile, "tempdir", str(home / "no-such-folder"))
    with pytest.raises(RecordUnavailable, match=r"needs a temporary copy in .*no-such-folder") as refused:
        async with Record.open(home, read_only=True):
            pass
    assert "TMPDIR" in refused.value.hint


async def test_no_leg_is_left(home: Path) -> None:
    """A damaged database and no logs: that is said, and no empty record is shown."""
    await make_home(home)
    shutil.rmtree(home / "sessions")
    (home / "home.jsonl").unlink()
    for side in ("-wal", "-shm"):
        (home / f"state.db{side}").unlink()
    (home / "state.db").write_bytes(b"this is no database" * 500)
    with pytest.raises(RecordDamaged, match="no logs"):
        async with Record.open(home, read_only=True):
            pass


async def test_a_home_that_is_not_there(tmp_path: Path) -> None:
    """Nothing is created."""
    with pytest.raises(RecordUnavailable, match="missing"):
        async with Record.open(tmp_path / "none", read_only=True):
            pass
    assert not (tmp_path / "none").exists()


async def test_while_another_process_writes(home: Path) -> None:
    """What it acknowledged is read at once and followed live, also while its lock is held or it is a stranger's."""
    with Worker(home) as worker:
        worker.ask("create", session=SESSION)
        worker.ask("append", session=SESSION, id="0")
        async with Record.open(home, read_only=True) as record:
            for number in range(1, 30):
                await worker.ask_soon("append", session=SESSION, id=str(number))
                assert await ids_of(record) == [str(each) for each in range(number + 1)]
            assert (await record.verify()).ok
            follower = record.follow(SESSION, (await record.sessions.read(SESSION)).head_seq)
            worker.send("append", session=SESSION, id="live")
            live = await anext(follower)
            assert isinstance(live, Entry)
            assert live.id == "live"
            worker.receive()
            await follower.aclose()
        with stranger(home / "state.db"):
            async with Record.open(home, read_only=True) as record:
                assert len(await ids_of(record)) == 31


COMMANDS = (
    "sessions",
    f"sessions show {SESSION}",
    "search text",
    f"export {SESSION}",
    "verify",
    "deliveries",
    "memory",
    "people",
    "pair",
    "permissions",
    f"config prompt {SESSION}",
    f"explain {SESSION}",
    "explain --person admin --tool memory --place terminal",
)
"""Every command that only reads the record, but for `audit`: that also asks a homeserver."""


def run_command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return run_forked("--home", home, *arguments, variables=os.environ)


async def make_full_home(home: Path) -> None:
    """Make a home in which every command of the table finds something."""
    await make_home(home)
    async with Record.open(home) as record:
        await record.sessions.freeze(SESSION, SessionFrozen(system="Be kind.", tools=()))
        async with record.turn(SESSION):
            pass


def test_every_command_that_reads_is_in_the_table() -> None:
    """A command that reads the record says so by one import."""
    modules = (ROOT / "src" / "hansard" / "cli").glob("*.py")
    reads = re.compile(r"^from hansard\.cli\.existing import .*\breading\b", re.MULTILINE)
    found = {path.stem for path in modules if reads.search(path.read_text(encoding="utf-8"))}
    assert found == {command.split()[0] for command in COMMANDS} | {"audit"}


@pytest.mark.parametrize("weather", ["read-only", "full"])
async def test_every_reading_command_works_at_once(tmp_path: Path, weather: str) -> None:
    """Each says in one line why it is read-only, and shows what it always shows. None has a writer's patience."""
    assert READING_PATIENCE_SECONDS <= 1
    with small_disk(tmp_path / "disk", "16m") as disk:
        home = disk / "home"
        await make_full_home(home)
        chosen = COMMANDS if PROVE else ("sessions", "search text", "verify")
        wanted = {command: run_command(home, *command.split()).stdout for command in chosen}
        reason = "the disk is mounted read-only" if weather == "read-only" else "the disk is full"
        if weather == "read-only":
            remount(disk, "ro")
        else:
            fill_disk(disk)
        for command in chosen:
            ended = run_command(home, *command.split())
            assert (command, ended.stdout, ended.returncode) == (command, wanted[command], 0)
            assert len(ended.stderr.splitlines()) == 1
            assert ended.stderr.startswith("hansard: read-only: ")
            assert reason in ended.stderr
        ended = run_command(home, "-p", "hello")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert reason in ended.stderr


async def test_who_is_not_the_owner_leaves_the_home_alone(home: Path) -> None:
    """Root reads a home of another user without making files in it that the other user could not write."""
    need_mounts()
    await make_full_home(home)
    wanted = {command: run_command(home, *command.split()).stdout for command in COMMANDS}
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    before = fingerprint(home)
    for command in COMMANDS:
        ended = run_command(home, *command.split())
        assert (command, ended.stdout, ended.returncode) == (command, wanted[command], 0)
        assert ended.stderr == f"hansard: read-only: {home} belongs to another user (user id {NOBODY}).\n"
        assert fingerprint(home) == before
