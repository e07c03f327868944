"""Rule 3: a COMMIT that failed can come back, so it is unknown until a commit after it succeeded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from hansard import Record
from tests.record.helpers_facts import SESSION, assert_clean, eventually, ids_of, log_lines, log_of, raw_rows, say
from tests.record.helpers_process import Worker, WorkerError, ask_again, failing, need_strace, weather

NAIVE = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.pragma("journal_mode", "WAL")
connection.pragma("synchronous", "FULL")
connection.execute("CREATE TABLE IF NOT EXISTS entry (id TEXT PRIMARY KEY)")
print("ready", flush=True)
for line in sys.stdin:
    try:
        connection.execute("INSERT INTO entry VALUES (?)", (line.strip(),))
        print("committed", flush=True)
    except apsw.IOError:
        print("refused", flush=True)
"""
"""A writer that takes an error from COMMIT for a refusal."""

EVERY_OTHER = ":when=1+2"
"""The commit fails and the no-op after it succeeds, again and again."""


@pytest.fixture(autouse=True)
def _strace() -> None:
    need_strace()


@contextmanager
def servant(home: Path, patience_seconds: float = 1.0) -> Iterator[Worker]:
    """Give a worker with one acknowledged entry; patient with a slow machine until then."""
    with Worker(home, patience_seconds=patience_seconds) as worker:
        ask_again(worker, "create", session=SESSION)
        ask_again(worker, "append", session=SESSION, id="before", text="text of before")
        yield worker


def append_in_weather(worker: Worker, *options: str) -> str:
    """Append "doubtful" while system calls fail; return the error's name, empty when it was acknowledged."""
    with weather(worker.pid, *options):
        try:
            worker.ask("append", session=SESSION, id="doubtful", text="text of doubtful")
        except WorkerError as error:
            return error.name
    return ""


def test_control_a_refused_commit_comes_back(tmp_path: Path) -> None:
    """Without the rule: fsync gives EIO, the writer says refused, it is killed, and the entry is there."""
    path = tmp_path / "naive.db"
    command = [sys.executable, "-c", NAIVE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with weather(process.pid, *failing("fdatasync", Path(f"{path}-wal"))):
            process.stdin.write("ghost\n")
            process.stdin.flush()
            assert process.stdout.readline() == "refused\n"
        process.kill()
    assert list(apsw.Connection(str(path)).execute("SELECT id FROM entry")) == [("ghost",)]


@pytest.mark.loss("I2", "B3")
async def test_a_refused_entry_never_comes_back(tmp_path: Path) -> None:
    """The commit fails and the no-op after it succeeds: refused, in both legs, after SIGKILL and after a rebuild."""
    for number in range(20):  # where the patience ends in the middle of an attempt its outcome is open: another case
        home = tmp_path / str(number)
        with servant(home) as worker:
            answer = append_in_weather(worker, *failing("fdatasync", home / "state.db-wal", when=EVERY_OTHER))
            worker.kill()
        if answer != "OutcomeUnknown":
            break
    assert answer == "RecordUnavailable"
    async with Record.open(home) as record:
        assert await ids_of(record) == ["before"]
        await assert_clean(record)
    assert "doubtful" not in [line["id"] for line in log_lines(home)]
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (home / name).unlink()
    async with Record.open(home) as record:
        assert await ids_of(record) == ["before"]
        await say(record, "doubtful")
        assert await ids_of(record) == ["before", "doubtful"]
        await assert_clean(record)


@pytest.mark.drawn(1)
@pytest.mark.loss("I2", "B2")
@pytest.mark.parametrize(
    ("call", "error"), [("fdatasync", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fdatasync", "ENOSPC")]
)
async def test_no_acknowledgement_while_the_disk_fails_and_one_entry_after(home: Path, call: str, error: str) -> None:
    """While every sync or write of the WAL fails nothing is acknowledged; repeating the id then settles it, once."""
    with servant(home) as worker:
        answer = append_in_weather(worker, *failing(call, home / "state.db-wal", error))
        assert answer in {"OutcomeUnknown", "RecordUnavailable"}
        worker.kill()
    async with Record.open(home) as record:
        found = await ids_of(record)
        assert found == ["before"] or (answer == "OutcomeUnknown" and found == ["before", "doubtful"])
        await say(record, "doubtful")
        assert await ids_of(record) == ["before", "doubtful"]
        await assert_clean(record)


@pytest.mark.drawn(1)
@pytest.mark.loss("B2")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_it_heals_by_itself(home: Path, call: str) -> None:
    """The same process goes on when the disk does, without being opened again: one entry for each id."""
    with servant(home) as worker:
        assert append_in_weather(worker, *failing(call, home / "state.db-wal"))
        ask_again(worker, "append", session=SESSION, id="doubtful", text="text of doubtful")
        ask_again(worker, "append", session=SESSION, id="after")
        assert [row[0] for row in worker.ask("texts", session=SESSION)] == ["before", "doubtful", "after"]
        assert worker.ask("verify") == []
        assert not worker.ask("trouble")


@pytest.mark.loss("B2", "I2")
def test_one_failed_sync_costs_nothing_but_the_wait(home: Path) -> None:
    """A single EIO from COMMIT is overcome within the patience: acknowledged, once."""
    with servant(home, patience_seconds=20) as worker:
        assert append_in_weather(worker, *failing("fdatasync", home / "state.db-wal", when=":when=1")) == ""
        assert [row[0] for row in worker.ask("texts", session=SESSION)] == ["before", "doubtful"]
        assert worker.ask("verify") == []


@pytest.mark.loss("B22")
@pytest.mark.parametrize(("error", "answer"), [("EIO", "LogUnwritable"), ("ENOSPC", "RecordUnavailable")])
async def test_a_log_that_cannot_be_written_refuses_the_batch(home: Path, error: str, answer: str) -> None:
    """No leg is ahead of the other: the entry is in neither, and comes once when it is repeated."""
    with servant(home) as worker:
        assert append_in_weather(worker, *failing("write", log_of(home), error)) == answer
        worker.kill()
    async with Record.open(home) as record:
        assert await ids_of(record) == ["before"]
        await say(record, "doubtful")
        await assert_clean(record)


@pytest.mark.loss("B18")
async def test_a_log_whose_fsync_failed_is_written_anew(home: Path, tmp_path: Path) -> None:
    """The keeper never repeats fsync on that file: the log is replaced, and only the new file counts as synced."""
    calls = tmp_path / "calls"
    with servant(home, patience_seconds=20) as worker:
        inode = log_of(home).stat().st_ino
        await eventually(lambda: synced(home))
        with weather(worker.pid, *failing("fsync", log_of(home), when=":when=1"), output=calls):
            worker.ask("append", session=SESSION, id="next")
            await eventually(lambda: log_of(home).stat().st_ino != inode)
            worker.ask("append", session=SESSION, id="last")
            await eventually(lambda: synced(home))
        assert [row[0] for row in worker.ask("texts", session=SESSION)] == ["before", "next", "last"]
        assert worker.ask("verify") == []
    assert "EIO" in calls.read_text().splitlines()[0]
    assert [line["id"] for line in log_lines(home)][1:] == ["before", "next", "last"]


def synced(home: Path) -> bool:
    """Whether the session's log counts as being on the disk."""
    rows = raw_rows(home, "SELECT log_end, log_synced FROM journal WHERE id = ?", SESSION)
    return all(end == known > 0 for end, known in rows)


@pytest.mark.loss("I2")
async def test_what_recovery_finds_is_synced_before_it_is_acknowledged(home: Path, tmp_path: Path) -> None:
    """A process dies inside the fsync of its COMMIT. Who finds the entry and is asked for it syncs it first."""
    calls = tmp_path / "calls"
    with servant(home) as worker:
        options = [
            "-e",
            "trace=fdatasync",
            "-P",
            f"{home}/state.db-wal",
            "-e",
            "inject=fdatasync:error=EIO:signal=KILL",
        ]
        with weather(worker.pid, *options):
            worker.send("append", session=SESSION, id="doubtful", text="text of doubtful")
            with pytest.raises(EOFError):
                worker.receive()
    prefix = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,write", "-o", str(calls)]
    with Worker(home, prefix=prefix) as worker:
        worker.ask("append", session=SESSION, id="doubtful", text="text of doubtful")
        assert worker.ask("verify") == []
    lines = calls.read_text().splitlines()
    answers = [place for place, line in enumerate(lines) if re.search(r'write\(1<.*"{\\"ok', line)]
    sync = re.compile(r"(fdatasync|fsync)\(\d+<[^>]*/state\.db(-wal)?>")
    assert any(sync.search(line) for line in lines[: answers[1]])
