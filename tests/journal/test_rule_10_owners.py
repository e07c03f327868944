"""Rule 10: an owner lives as long as it holds its lock; fences come from the record; stale holders are refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import LeaseHeld, Message, Record, StaleLease, TurnState
from hansard.intake.commands.registry import run_command
from hansard.intake.commands.scene import CommandScene
from hansard.intake.speak import parse
from hansard.journal.causes import find_stopped, name_owner
from hansard.journal.locks import LockFile, is_locked
from tests.record.helpers_facts import SESSION, assert_clean, new_session, say
from tests.record.helpers_process import Worker, WorkerError


async def states(record: Record) -> list[TurnState]:
    """Return the states of the session's turns."""
    return [turn.state for turn in await record.turns.list(SESSION)]


def test_liveness_is_the_lock_and_never_the_pid(tmp_path: Path) -> None:
    """A name with a living pid and no lock is dead; a name with a pid that cannot be and a lock is alive."""
    (tmp_path / f"host-{os.getpid()}-aaaaaa").touch()
    assert not is_locked(tmp_path / f"host-{os.getpid()}-aaaaaa")
    lock = LockFile(tmp_path / "host-999999999-bbbbbb")
    lock.acquire()
    assert is_locked(tmp_path / "host-999999999-bbbbbb")
    lock.close()
    assert not is_locked(tmp_path / "host-999999999-bbbbbb")


@pytest.mark.loss("B6", "A13", "A14", "A6", "A7")
async def test_a_killed_owners_turn_is_lost_with_its_text(home: Path) -> None:
    """SIGKILL in the middle of a reply: the next claim closes it as lost, its text is kept as interrupted."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("turn", session=SESSION)
            worker.ask("reply", id="reply")
            worker.ask("write", text="half a sen")
            worker.ask("note", id="notice", text="durable: what was written before is, too")
            with pytest.raises(LeaseHeld) as held:
                async with record.turn(SESSION):
                    pass
            assert held.value.holder == worker.owner
            worker.kill()
        async with record.turn(SESSION):
            assert await states(record) == [TurnState.LOST, TurnState.RUNNING]
        found = [(each.id, each.text, each.status) for each in await record.load_transcript(SESSION)]
        assert found[0] == ("reply", "half a sen", "interrupted")
        await assert_clean(record)


async def test_a_stopped_owner_is_named_with_what_helps(home: Path) -> None:
    """Its turn never ends by itself: whoever wants the session, or says /stop, is told which process has to go on."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("turn", session=SESSION)
            scene = CommandScene(record=record, session_id=SESSION)
            assert await ask_to_stop(scene) == f"The answer that runs, in process {worker.pid}, was asked to stop."
            worker.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(LeaseHeld, match=rf", in process {worker.pid}, which is stopped$") as held:
                async with record.turn(SESSION):
                    pass
            assert held.value.hint == f"Let that process go on: kill -CONT {worker.pid}"
            helps = f"was asked to stop. That process is stopped: kill -CONT {worker.pid} lets it go on."
            assert (await ask_to_stop(scene)).endswith(helps)
            worker.kill()
        async with record.turn(SESSION):
            (lost, _) = await record.turns.list(SESSION)
            assert lost.state == "lost"


async def ask_to_stop(scene: CommandScene) -> str:
    """Return what /stop says."""
    parsed = parse("/stop")
    assert parsed is not None
    return (await run_command(scene, "/stop", parsed)).text


def test_how_owners_are_named() -> None:
    """By their process; one of another host with its host; what is no owner of a process as it is."""
    here = socket.gethostname()
    assert name_owner(f"{here}-12-abcdef") == "process 12"
    assert name_owner("other-host-12-abcdef") == "process 12 on other-host"
    assert name_owner("somebody") == "somebody"
    assert find_stopped("other-host-1-abcdef") == 0


@pytest.mark.loss("A13", "B6")
async def test_opening_closes_what_the_dead_left(home: Path) -> None:
    """Nobody claims anything: a start alone ends turns of dead owners, and leaves those of living ones."""
    with Worker(home) as living, Worker(home) as dying:
        living.ask("create", session="alive")
        living.ask("create", session=SESSION)
        living.ask("turn", session="alive")
        dying.ask("turn", session=SESSION)
        dying.ask("reply", id="reply")
        dying.ask("write", text="said")
        dying.ask("texts", session=SESSION)
        dying.kill()
        async with Record.open(home) as record:
            assert await states(record) == [TurnState.LOST]
            assert [turn.state for turn in await record.turns.list("alive")] == [TurnState.RUNNING]
            await assert_clean(record)
        living.ask("leave")


@pytest.mark.loss("I7", "I9", "D15")
async def test_a_stale_holder_is_refused_and_told_who_holds(home: Path) -> None:
    """Its lock file is gone, so others take over: each later write of the old holder raises and names the new one."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("turn", session=SESSION)
            worker.ask("reply", id="old")
            worker.ask("write", text="old text")
            while [row[2] for row in worker.ask("texts", session=SESSION)] != ["old text"]:
                pass
            (home / "locks" / "owners" / worker.owner).unlink()
            async with record.turn(SESSION) as turn, turn.reply(id="new") as reply:
                await reply.write("new text")
                for order in ({"do": "note", "id": "n", "text": "late"}, {"do": "seal"}, {"do": "leave"}):
                    with pytest.raises(WorkerError) as refused:
                        worker.ask(**order)
                    assert refused.value.name == "StaleLease"
                    assert refused.value.holder == record.store.owner
        found = [(each.id, each.text, each.status) for each in await record.load_transcript(SESSION)]
        assert found == [("old", "old text", "interrupted"), ("new", "new text", "complete")]
        assert await states(record) == [TurnState.LOST, TurnState.COMPLETED]
        await assert_clean(record)


def write_until_refused(worker: Worker) -> str:
    """Go on writing, as a holder does that does not know yet; return the refusal's name."""
    for _ in range(1000):
        try:
            worker.ask("write", text="later")
        except WorkerError as error:
            return error.name
    return ""


@pytest.mark.loss("I7", "I9")
async def test_late_chunks_of_a_stale_holder_are_refused(home: Path) -> None:
    """Chunks that were queued before the takeover and run after it do not enter the new holder's message."""
    async with Record.open(home) as record:
        await new_session(record)
        with Worker(home) as worker:
            worker.ask("turn", session=SESSION)
            worker.ask("reply", id="old")
            (home / "locks" / "owners" / worker.owner).unlink()
            async with record.turn(SESSION) as turn, turn.reply(id="new") as reply:
                worker.ask("write", text="late")
                assert write_until_refused(worker) == "StaleLease"
                await reply.write("mine")
        assert [each.text for each in await record.load_transcript(SESSION)] == ["", "mine"]
        await assert_clean(record)


@pytest.mark.loss("I7")
async def test_fences_never_repeat_even_after_a_rebuild(home: Path) -> None:
    """A fence is the seq of a recorded start: a database rebuilt from the logs gives larger ones."""
    fences = []
    for _ in range(3):
        async with Record.open(home) as record:
            await new_session(record)
            for _ in range(2):
                async with record.turn(SESSION) as turn:
                    fences.append(turn.fence)
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (home / name).unlink()
    assert fences == sorted(set(fences))


@pytest.mark.loss("B6")
def test_a_forked_child_does_not_keep_its_parents_turns_alive(home: Path) -> None:
    """An owner has forked a child, say a tool, and is killed: the child's life does not count."""
    script = (
        "import asyncio, os, signal, sys\n"
        "from hansard import Record\n"
        "async def main():\n"
        "    async with Record.open(sys.argv[1]) as record:\n"
        "        await record.create_session(id='talk', source='test')\n"
        "        async with record.turn('talk'):\n"
        "            child = os.fork()\n"
        "            if child:\n"
        "                print(child, flush=True)\n"
        "            signal.pause()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(home)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            os.kill(child, 0)
            with Worker(home) as worker:
                worker.ask("turn", session=SESSION)
                assert worker.ask("verify") == []
        finally:
            os.kill(child, 9)


async def test_a_turn_in_the_same_process_is_held_too(home: Path) -> None:
    """One process, two tasks: the second is refused while the first runs, and names the owner."""
    async with Record.open(home) as record:
        await new_session(record)
        async with record.turn(SESSION) as first:
            with pytest.raises(LeaseHeld, match=rf"runs in session {SESSION}, in process {os.getpid()}$") as held:
                async with record.turn(SESSION):
                    pass
            assert held.value.holder == record.store.owner
            await say(record, "a person may speak while a turn runs")
        with pytest.raises(StaleLease, match="no turn does"):
            await first.append(Message.notice("too late"))
