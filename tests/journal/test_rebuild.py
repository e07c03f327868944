"""A rebuild takes as long as it takes: nobody is refused, everybody sees how far it is, and a kill costs little."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hansard import Record
from hansard.journal.backend import ReplacedError
from hansard.journal.calls import open_in_thread
from hansard.journal.files import HomeFolder
from hansard.journal.locks import (
    REBUILDING,
    SHOW_SECONDS,
    OpeningWatch,
    Progress,
    ProgressWatch,
    Work,
    progress_path,
    read_progress,
)
from hansard.journal.sqlite.connection import SQL
from hansard.journal.sqlite.reading import ReadConnection, ReaderPool
from hansard.journal.store import Wiring
from hansard.record.schema import SCHEMA
from hansard.testing.crash import count_steps
from tests.journal.helpers_logs import write_logs
from tests.record.helpers_facts import raw_rows
from tests.record.helpers_process import rebuild

PROVE = bool(os.environ.get("HANSARD_PROVE"))
DEADLINE_SECONDS = 600


def count_journals(home: Path) -> int:
    """Return how many journals are in the database now."""
    ((count,),) = raw_rows(home, "SELECT count(*) FROM journal")
    return int(count)


def count_entries(home: Path) -> int:
    """Return how many entries are in the database now, while a process reads them in as well."""
    ((count,),) = raw_rows(home, "SELECT count(*) FROM entry")
    return int(count)


@pytest.mark.timeout(DEADLINE_SECONDS)
async def test_a_rebuild_may_take_longer_than_the_patience(home: Path) -> None:
    """Two thousand sessions, a slow machine, a patience of one second: who rebuilds and who waits are both served."""
    write_logs(home, sessions=2_000, messages=1)
    seen: list[Progress] = []
    with rebuild(home, patience_seconds=1, pause_seconds=0.0015) as process:
        assert process.stdout is not None
        first = await asyncio.to_thread(process.stdout.readline)
        assert first.startswith("Rebuilding the record from its logs")
        async with Record.open(home, patience_seconds=1, progress=seen.append) as record:
            assert len(await record.sessions(limit=3_000)) == 2_000
        *_, last = process.stdout.read().splitlines()
        assert last.startswith("opened 2000 ")
    assert {progress.pid for progress in seen} == {process.pid}
    assert seen[-1].sessions_total == 2_000
    assert f"Waiting for process {process.pid}" in seen[-1].describe()
    assert read_progress(home) is None


async def test_a_rebuild_goes_on_after_a_kill(home: Path) -> None:
    """What was read in before a kill stays, nobody takes the half for the whole, and the next opening does the rest."""
    write_logs(home, sessions=2_000, messages=1)
    with rebuild(home, 30, "reconciled:1500") as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    before = count_journals(home)
    assert 0 < before < 2_000
    with pytest.raises(ReplacedError):
        ReadConnection(home / "state.db", ReaderPool(HomeFolder(home), SCHEMA)).fetch(SQL.list_kinds)
    counter, reach = count_steps()
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        assert counter["reconciled"] == 2_000 - before
        assert len(await record.sessions(limit=3_000)) == 2_000
        assert (await record.verify()).ok
    (created,) = (home / "home.jsonl").read_bytes().splitlines()
    assert json.loads(created)["body"]["rebuilt"] is True


async def test_a_long_log_is_read_in_pieces(home: Path) -> None:
    """A log of many megabytes: a kill between two pieces loses none of them, and no word is missing at the end."""
    messages = 3_000
    write_logs(home, sessions=1, messages=messages, text="word " * 1_000)
    with rebuild(home, 30, "adopted:2") as process:
        assert process.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    counter, reach = count_steps()
    async with Record.open(home, wiring=Wiring(reach=reach)) as record:
        assert counter["adopted"] == 1
        transcript = await record.load_transcript("s000000")
        assert [message.id for message in transcript] == [f"m{number}" for number in range(1, messages + 1)]
        assert (await record.verify()).ok


async def test_whoever_rebuilds_is_not_refused_after_a_pause(home: Path) -> None:
    """A process stood still for longer than the patience, and nobody has looked since whether it gets on: it does."""
    asked = threading.Event()

    def is_working() -> bool:
        asked.set()
        return True

    watch = OpeningWatch(home, is_working)
    watch.moved_at -= 100
    opened = open_in_thread(lambda: asked.wait(DEADLINE_SECONDS), bool, 1, watch, print)
    assert await opened


async def test_another_home_opens_while_one_is_rebuilt(tmp_path: Path) -> None:
    """A process that rebuilds one home opens another one meanwhile; a second user of the first waits for it."""
    write_logs(tmp_path / "first", sessions=1, messages=1)
    reached, go_on = threading.Event(), threading.Event()

    def reach(step: str) -> None:
        if step == "reconciled":
            reached.set()
            assert go_on.wait(DEADLINE_SECONDS)

    async def open_first(wiring: Wiring | None = None) -> int:
        async with Record.open(tmp_path / "first", patience_seconds=0.1, wiring=wiring) as record:
            return len(await record.sessions())

    first = asyncio.create_task(open_first(Wiring(reach=reach)))
    try:
        assert await asyncio.to_thread(reached.wait, DEADLINE_SECONDS)
        second = asyncio.create_task(open_first())
        async with Record.open(tmp_path / "second") as record:
            await record.create_session(id="s1", source="test")
        await asyncio.sleep(1.3)  # longer than the patience of the one who waits
        assert not second.done()
    finally:
        go_on.set()
    assert (await first, await second) == (1, 1)


async def test_words_wait_for_a_rebuild(home: Path) -> None:
    """A call is not refused while its own process rebuilds the database that was lost under it."""
    write_logs(home, sessions=250, messages=1)
    pause_seconds = 0.0

    def reach(step: str) -> None:
        if step == "reconciled":
            time.sleep(pause_seconds)

    async with Record.open(home, patience_seconds=3, wiring=Wiring(reach=reach)) as record:
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (home / name).unlink()
        pause_seconds = 0.02
        session = await record.create_session(id="new", source="test")
        assert session.id == "new"
        assert (await record.verify()).ok


def test_what_a_dead_process_said_is_no_progress(home: Path) -> None:
    """A file that cannot be read, or that nobody changes, counts for nothing."""
    (home / "locks").mkdir(parents=True)
    assert read_progress(home) is None
    progress_path(home).write_bytes(b"\0garbage")
    assert read_progress(home) is None
    progress_path(home).unlink()
    progress_path(home).mkdir()
    assert read_progress(home) is None
    work = Work(home)
    with work.under_way():
        work.begin("rebuilding", 2, 10)
        work.advance(sessions=1, done=5)


def test_repeating_what_failed_is_no_progress(home: Path) -> None:
    """An attempt counts, and is shown to others, from where it gets further than the one that failed."""
    (home / "locks").mkdir(parents=True)
    work = Work(home)

    def attempt(*pieces: int) -> tuple[bool, bool]:
        watch = ProgressWatch(home, work)
        with suppress(KeyError), work.under_way():
            work.begin(REBUILDING, 0, 100)
            for done in pieces:
                work.advance(done=done)
            time.sleep(SHOW_SECONDS)
            work.show_life()
            is_shown = read_progress(home) is not None
            has_moved = watch.has_moved()
            raise KeyError
        return is_shown, has_moved

    assert attempt(10, 20) == (True, True)
    assert attempt(10, 20) == (False, False)
    assert attempt(10, 20, 1) == (True, True)


@contextmanager
def third_of_a_core(pid: int) -> Iterator[None]:
    """Let a process run for one third of the time only."""
    over = threading.Event()

    def drive() -> None:
        with suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.1)
                os.kill(pid, signal.SIGCONT)
                over.wait(0.05)

    driver = threading.Thread(target=drive)
    driver.start()
    try:
        yield
    finally:
        over.set()
        driver.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.skipif(not PROVE, reason="takes minutes: make prove")
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize(("sessions", "messages"), [(100_000, 2), (1, 1_000_000)])
async def test_much_is_rebuilt_with_a_third_of_a_core(home: Path, sessions: int, messages: int) -> None:
    """With a third of a core and two kills it opens in one go, shows progress, needs little memory, and has it all."""
    write_logs(home, sessions, messages)
    kept = 0
    for _ in range(2):
        with rebuild(home, 1) as process, third_of_a_core(process.pid):
            assert_goes_on(process, home, kept)
            for _ in range(random.randint(5, 20)):
                assert_says_more(process)
            while count_entries(home) == kept:
                assert_says_more(process)
            process.kill()
            process.wait()
        kept = count_entries(home)
        unread = sessions - count_journals(home)
    with rebuild(home, 1) as process, third_of_a_core(process.pid):
        assert_goes_on(process, home, kept)
        assert process.stdout is not None
        *_, last = process.stdout.read().splitlines()
    _, journals, megabytes = last.split()
    # Of the journals that are in the database, one at most was read in by half.
    assert unread <= int(journals) <= unread + 1
    assert int(megabytes) < 400
    assert count_journals(home) == sessions + 1
    assert count_entries(home) == sessions * (messages + 1) + 1
    async with Record.open(home) as record:
        report = await record.verify()
    assert report.ok
    assert report.entries == sessions * (messages + 1) + 1


def assert_says_more(process: subprocess.Popen[str]) -> None:
    """The process says once more how far it is, and has not ended."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Rebuilding the record from its logs")


def assert_goes_on(process: subprocess.Popen[str], home: Path, kept: int) -> None:
    """When the process first says how far it is, all that was kept of the run before is still there."""
    assert_says_more(process)
    assert count_entries(home) >= kept
