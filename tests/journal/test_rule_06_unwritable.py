"""Rule 6: a log that cannot be written fails its journal alone; the others go on, and it heals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from hansard import Entry, Message, Record, TurnState
from hansard.errors import LogUnwritable, OutcomeUnknown
from hansard.journal.entries import log_name
from tests.clock import leap_until
from tests.record.helpers_facts import assert_clean, eventually, ids_of, new_session, say
from tests.record.helpers_process import (
    Worker,
    WorkerError,
    ask_again,
    failing,
    immutable,
    need_mounts,
    need_strace,
    weather,
)

DEADLINE_SECONDS = 60
"""Guards against hanging: what is refused at once once took twice as long."""

BAD, GOOD = "20250101-000000-aaaaaa", "20260101-000000-bbbbbb"

PATIENCE_SECONDS = 60.0
"""Longer than any machine stalls by itself. It passes by leaps of the clock."""

WITHOUT_POWERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Runs a program as root without the right to pass over modes and owners of files."""


@contextmanager
def mounted_read_only(path: Path) -> Iterator[None]:
    """EROFS."""
    need_mounts()
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@contextmanager
def in_a_file(path: Path) -> Iterator[None]:
    """ENOTDIR: a file lies where the log's folder was."""
    aside = path.parent.with_name("aside")
    path.parent.rename(aside)
    path.parent.touch()
    try:
        yield
    finally:
        path.parent.unlink()
        aside.rename(path.parent)


@contextmanager
def in_a_loop(path: Path) -> Iterator[None]:
    """ELOOP: the log's folder is a link to itself."""
    aside = path.parent.with_name("aside")
    path.parent.rename(aside)
    path.parent.symlink_to(path.parent)
    try:
        yield
    finally:
        path.parent.unlink()
        aside.rename(path.parent)


Fault = Callable[[Path], AbstractContextManager[None]]
FAULTS: list[Fault] = [immutable, mounted_read_only, in_a_file, in_a_loop]


async def make_home(home: Path) -> None:
    """Make a home with two sessions."""
    async with Record.open(home) as record:
        for session_id in (BAD, GOOD):
            await new_session(record, session_id)
            await say(record, "before", session_id=session_id)


@pytest.mark.loss("B3", "B15")
@pytest.mark.parametrize("fault", FAULTS, ids=["EPERM", "EROFS", "ENOTDIR", "ELOOP"])
async def test_one_unwritable_log_fails_its_session_alone(home: Path, fault: Fault) -> None:
    """In one batch with others: its own call is refused at once and names the file; it heals without a restart."""
    await make_home(home)
    log = home / log_name(BAD)
    named = str(log.parent if fault is in_a_file else log)
    async with Record.open(home) as record:
        with fault(log):
            calls = [
                record.append(session_id, Message.user("x", id=f"{number}-{session_id}"))
                for number in range(3)
                for session_id in (BAD, GOOD)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            refused, taken = answers[0::2], answers[1::2]
            assert {type(each) for each in refused} == {LogUnwritable}
            assert {named in str(each) for each in refused} == {True}
            assert not [each for each in taken if isinstance(each, BaseException)]
            assert named in record.trouble
            with pytest.raises(LogUnwritable):
                await record.accept([(GOOD, Message.user("x", id="both")), (BAD, Message.user("x", id="both"))])
            await new_session(record, "another")
        assert not record.trouble
        await say(record, "after", session_id=BAD)
        assert await ids_of(record, BAD) == ["before", "after"]
        assert await ids_of(record, GOOD) == ["before", *(f"{number}-{GOOD}" for number in range(3))]
        await assert_clean(record)


@pytest.mark.loss("B15")
async def test_a_home_opens_beside_an_unwritable_log(home: Path) -> None:
    """The log is short and cannot be mended at opening: its session waits, the others are served."""
    await make_home(home)
    log = home / log_name(BAD)
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    with immutable(log):
        async with Record.open(home) as record:
            await say(record, "after", session_id=GOOD)
            with pytest.raises(LogUnwritable, match=BAD):
                await say(record, "refused", session_id=BAD)
    async with Record.open(home) as record:
        await say(record, "after", session_id=BAD)
        assert await ids_of(record, BAD) == ["before", "after"]
        await assert_clean(record)


@pytest.mark.loss("B15")
async def test_a_home_whose_own_log_cannot_be_written_serves_its_sessions(home: Path) -> None:
    """Facts of the home are refused; what is said in sessions is recorded."""
    await make_home(home)
    with immutable(home / "home.jsonl"):
        async with Record.open(home) as record:
            await say(record, "after", session_id=GOOD)
            with pytest.raises(LogUnwritable, match=r"home\.jsonl"):
                await record.memory.add("person:admin", "a note")
    async with Record.open(home) as record:
        await record.memory.add("person:admin", "a note")
        await assert_clean(record)


async def end_in_vain(home: Path, record: Record, fault: contextlib.ExitStack) -> None:
    """End a turn whose log cannot be written any more, and let the patience pass once that is known."""
    async with contextlib.AsyncExitStack() as held:
        await held.enter_async_context(record.turn(BAD))
        fault.enter_context(immutable(home / log_name(BAD)))
        ending = asyncio.create_task(held.pop_all().aclose())
        await eventually(lambda: bool(record.trouble))
        await leap_until(ending.done, PATIENCE_SECONDS)
        await ending


@pytest.mark.loss("B15", "B22")
async def test_a_turn_ends_when_its_log_can_be_written_again(home: Path) -> None:
    """The end of a turn waits in the process; other sessions go on, and the session is free once it healed."""
    await make_home(home)
    async with Record.open(home, patience_seconds=PATIENCE_SECONDS) as record:
        with contextlib.ExitStack() as fault:
            with pytest.raises(OutcomeUnknown, match="cannot be written"):
                await end_in_vain(home, record, fault)
            await say(record, "after", session_id=GOOD)
            assert [info.state for info in await record.turns.list(BAD)] == [TurnState.RUNNING]
        async with asyncio.timeout(60), contextlib.aclosing(record.follow(BAD)) as items:
            async for item in items:
                if isinstance(item, Entry) and item.kind == "turn.ended":
                    break
        async with record.turn(BAD):
            pass
        await assert_clean(record)


@pytest.mark.loss("B15")
async def test_the_end_of_a_turn_is_dropped_when_the_record_closes(home: Path) -> None:
    """Closing does not wait for a log that cannot be written; the next opening ends the turn as lost."""
    await make_home(home)
    with contextlib.ExitStack() as fault:
        async with Record.open(home, patience_seconds=PATIENCE_SECONDS) as record:
            with pytest.raises(OutcomeUnknown):
                await end_in_vain(home, record, fault)
    async with Record.open(home) as record:
        assert [info.state for info in await record.turns.list(BAD)] == [TurnState.LOST]
        await assert_clean(record)


@pytest.mark.loss("B3", "I2")
def test_lines_that_cannot_be_cut_off_leave_their_own_session_in_doubt(home: Path) -> None:
    """A unit's second log cannot be written, and its line in the first cannot be cut: no third session is held up."""
    need_strace()
    asyncio.run(make_home(home))
    with Worker(home, patience_seconds=5) as worker, immutable(home / log_name(BAD)):
        worker.ask("create", session="third")
        with weather(worker.pid, *failing("truncate", home / log_name(GOOD))):
            with pytest.raises(WorkerError) as refused:
                worker.ask("unit", sessions=[GOOD, BAD], id="unit")
            assert refused.value.name == "OutcomeUnknown"
            assert str(home / log_name(GOOD)) in str(refused.value)
            ask_again(worker, "append", session="third", id="a")
        ask_again(worker, "append", session=GOOD, id="after")
        assert [row[0] for row in worker.ask("texts", session=GOOD)] == ["before", "after"]
        assert worker.ask("verify") == []


@pytest.mark.loss("B15")
def test_a_log_of_another_user_is_named_and_heals(home: Path) -> None:
    """EACCES: root's log in a home of another user, and a log that may not even be read."""
    asyncio.run(make_home(home))
    log = home / log_name(BAD)
    os.chown(log, 65534, 65534)
    with Worker(home, prefix=WITHOUT_POWERS) as worker:
        with pytest.raises(WorkerError) as refused:
            worker.ask("append", session=BAD, id="refused")
        assert refused.value.name == "LogUnwritable"
        assert f"a log cannot be written: permission denied ({log})" in str(refused.value)
        worker.ask("append", session=GOOD, id="after")
        assert str(log) in worker.ask("trouble")
        os.chown(log, 0, 0)
        worker.ask("append", session=BAD, id="after")
        assert worker.ask("trouble") == ""
        assert worker.ask("verify") == []


@pytest.mark.loss("B15")
def test_a_question_whose_log_cannot_be_written_is_refused_at_once(home: Path) -> None:
    """`hansard -r ID -p TEXT` names the file, says that nothing was written, promises nothing, and leaves."""
    asyncio.run(make_home(home))
    log = home / log_name(BAD)
    command = [str(Path(sys.executable).with_name("hansard")), "--home", str(home), "-r", BAD, "-p", "words"]
    with immutable(log):
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=DEADLINE_SECONDS
        )
    assert ran.returncode == 2
    assert "waiting for the record" not in ran.stderr
    assert f"a log cannot be written: permission denied ({log})" in ran.stderr
    assert "when that ends" not in ran.stderr
    assert b"words" not in log.read_bytes()
