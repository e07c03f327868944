"""Rule 8: every new file and folder is fsynced, and nothing is acknowledged before its commit is."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from hansard import Message, NotFound, Record
from hansard.domain.limits import LOG_SYNC_SECONDS
from hansard.domain.messages import File
from hansard.journal.store import Wiring
from tests.record.helpers_facts import SESSION, assert_clean, eventually, new_session, raw_rows
from tests.record.helpers_process import Worker, need_strace, traced

CALL = re.compile(r"^\d+\s+(?:<\.\.\. )?(\w+)(?:\((.*)| resumed>(.*))$")
SYNCS = "fsync,fdatasync"


class Call(NamedTuple):
    """One system call of a trace."""

    name: str
    rest: str


@pytest.fixture(autouse=True)
def _strace() -> None:
    need_strace()


def read_calls(path: Path) -> list[Call]:
    """Return the calls of a trace in order of their ends: a call that was interrupted counts when it is resumed."""
    calls: list[Call] = []
    started: dict[str, str] = {}
    for line in path.read_text().splitlines():
        thread = line.split(" ", 1)[0]
        match = CALL.match(line)
        if match is None:
            continue
        if line.endswith("<unfinished ...>"):
            started[thread] = match[2]
        else:
            rest = match[2] if match[2] is not None else started.pop(thread, "") + match[3]
            calls.append(Call(match[1], rest))
    return calls


def is_answer(call: Call) -> bool:
    """Whether the call told the outside that something is done."""
    return call.name == "write" and call.rest.startswith("1<") and '"{\\"ok\\"' in call.rest


def is_commit_sync(call: Call) -> bool:
    """Whether the call put commits on the disk."""
    return call.name in {"fsync", "fdatasync"} and "/state.db-wal>" in call.rest and call.rest.endswith("= 0")


def is_wal_write(call: Call) -> bool:
    """Whether the call wrote a commit, not yet on the disk."""
    return call.name == "pwrite64" and "/state.db-wal>" in call.rest


@pytest.mark.loss("A1", "B12")
def test_no_acknowledgement_before_the_fsync_of_its_group(home: Path, tmp_path: Path) -> None:
    """At each answer on standard output, nothing that was written to the WAL is unsynced; at least one sync each.

    A commit of the keeper, which nobody is answered for, may be on its way at one of them.
    """
    calls = tmp_path / "calls"
    with traced(home, calls, f"{SYNCS},pwrite64,write") as worker:
        worker.ask("create", session=SESSION)
        for number in range(20):
            worker.ask("append", session=SESSION, id=f"m{number}")
        worker.ask("burst", session=SESSION, prefix="group", count=50)
    syncs = dirty = answered = 0
    synced_since = 0
    unsynced: list[str] = []
    for call in read_calls(calls):
        if is_wal_write(call):
            dirty += 1
        elif is_commit_sync(call):
            dirty, syncs, synced_since = 0, syncs + 1, synced_since + 1
        elif is_answer(call):
            answered += 1
            unsynced += [f"answer {answered} was given with {dirty} unsynced writes"] if dirty else []
            assert answered == 1 or synced_since >= 1, f"answer {answered} without a sync of its own"
            synced_since = 0
    assert len(unsynced) <= 1, unsynced
    assert answered == 23
    assert syncs >= 22


@pytest.mark.loss("A1")
def test_fifty_calls_at_once_share_their_syncs(home: Path, tmp_path: Path) -> None:
    """Group commit: fifty appends that gathered cost far fewer than fifty syncs, and never none."""
    calls = tmp_path / "calls"
    with traced(home, calls, SYNCS) as worker:
        worker.ask("create", session=SESSION)
        before = len(calls.read_text().splitlines())
        worker.ask("burst", session=SESSION, prefix="group", count=50)
        during = [line for line in calls.read_text().splitlines()[before:] if "/state.db-wal>" in line]
    assert 1 <= len(during) < 25


def test_new_folders_and_files_are_synced_into_their_parents(home: Path, tmp_path: Path) -> None:
    """After each mkdir of the home its parent is fsynced before the next answer; so are the log's folders in time."""
    calls = tmp_path / "calls"
    deep = home / "in" / "a" / "new" / "place"
    with traced(deep, calls, f"{SYNCS},mkdir,write,rename,openat") as worker:
        worker.ask("create", session="20261115-201233-k3v9qd")
        worker.ask("create", session=SESSION)
        worker.finish()
    waiting: set[str] = set()
    made = synced_logs = 0
    for call in read_calls(calls):
        if call.name == "mkdir" and str(home) in call.rest and call.rest.endswith("= 0"):
            made += 1
            waiting.add(str(Path(call.rest.split('"')[1]).parent))
        elif call.name == "fsync":
            path = call.rest.split("<")[1].split(">")[0]
            waiting.discard(path)
            synced_logs += path.endswith(".jsonl")
        elif is_answer(call):
            assert waiting == set()
    assert made >= 9
    assert synced_logs >= 3


@pytest.mark.loss("B18", "N4")
def test_a_log_is_replaced_by_a_synced_file(home: Path, tmp_path: Path) -> None:
    """A rewritten log: the new file is synced before it is renamed, and the folder after."""
    calls = tmp_path / "calls"
    with Worker(home) as worker:
        worker.ask("create", session=SESSION)
        worker.ask("append", session=SESSION, id="a")
    log = home / "sessions" / "other" / f"{SESSION}.jsonl"
    log.unlink()
    with traced(home, calls, f"{SYNCS},rename") as worker:
        assert worker.ask("verify") == []
    steps = [
        "sync" if f"{SESSION}.jsonl.new>" in call.rest else "rename" if call.name == "rename" else "folder"
        for call in read_calls(calls)
        if f"{SESSION}.jsonl" in call.rest or "/sessions/other>" in call.rest
    ]
    assert steps[:3] == ["sync", "rename", "folder"]


@pytest.mark.loss("N4")
def test_a_blob_is_durable_before_anyone_can_name_it(home: Path, tmp_path: Path) -> None:
    """Its file is synced, renamed, and its folder synced, all before the digest is given out."""
    calls = tmp_path / "calls"
    with traced(home, calls, f"{SYNCS},rename,write") as worker:
        digest = worker.ask("blob", text="picture")
    steps = [
        "answer" if is_answer(call) else call.name if "/blobs/" in call.rest else ""
        for call in read_calls(calls)
        if "/blobs/" in call.rest or digest[:20] in call.rest
    ]
    assert [step for step in steps if step != "write"] == ["fsync", "rename", "fsync", "answer"]


async def test_an_entry_cannot_name_a_blob_that_is_not_there(home: Path) -> None:
    """The message is refused, and nothing of it is written."""
    async with Record.open(home) as record:
        await new_session(record)
        part = File(blob="0" * 64, name="p.png", size_bytes=7)
        with pytest.raises(NotFound):
            await record.append(SESSION, Message.user([part], id="with"))
        assert await record.load_transcript(SESSION) == []
        await assert_clean(record)


async def test_a_log_is_synced_however_slow_its_commit_was(home: Path) -> None:
    """A commit that takes longer than the keeper waits, or a process that was stopped in it, leaves no log unsynced."""
    pauses = [LOG_SYNC_SECONDS]

    def reach(step: str) -> None:
        if step == "committed" and armed and pauses:
            time.sleep(pauses.pop())

    armed: list[bool] = []
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        await new_session(record)
        armed.append(True)
        await record.append(SESSION, Message.user("x", id="m1"))
        query = "SELECT log_synced = log_end FROM journal WHERE id = ?"
        await eventually(lambda: raw_rows(home, query, SESSION) == [(1,)])
