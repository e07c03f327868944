"""`hansard -p`: a question that is recorded and cannot be answered does not let the program wait without end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hansard import Chunk, Entry, Message
from hansard.cli.once import CUT, NOT_ANSWERED, Output, answer
from hansard.cli.process import EXIT_COULD_NOT_RUN, EXIT_DONE, Options
from hansard.cli.talk import opened
from hansard.record.api import Record
from tests.acceptance.stories_program import Hansard, write_script
from tests.record.helpers_facts import SESSION, new_session, raw_rows
from tests.record.helpers_process import Worker


def ask(home: Path, model: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Ask, by the program itself."""
    command = [sys.executable, "-m", "hansard.cli.main", "--home", str(home), "-m", model, *options, "-p", "hello"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300)


async def test_a_stopped_process_that_is_waited_for_is_named(home: Path, tmp_path: Path) -> None:
    """Its turn holds the session: the question waits, says for which process, and is answered when that is gone."""
    hansard = Hansard(home, write_script(tmp_path / "script.toml", {"text": "Hello."}))
    async with Record.open(home) as record:
        await new_session(record)
    with Worker(home) as worker:
        worker.ask("turn", session=SESSION)
        worker.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WNOWAIT)
        async with hansard.asks("-r", SESSION, "-p", "hello") as asking:
            await asking.tells(f", in process {worker.pid}, which is stopped. ")
            await asking.tells(f"Let that process go on: kill -CONT {worker.pid}.\n")
            worker.kill()
            ended = await asking.ended()
    assert (ended.code, ended.out) == (EXIT_DONE, "Hello.\n")


def test_a_turn_that_cannot_be_run(tmp_path: Path) -> None:
    """The database lacks what the begin of a turn needs: that is told, and the question is recorded."""
    home = tmp_path / "home"
    model = write_script(tmp_path / "script.toml", {"text": "One."}, {"text": "Two."})
    assert ask(home, model).returncode == EXIT_DONE
    (session_id,) = (path.stem for path in (home / "sessions").rglob("*.jsonl"))
    raw_rows(home, "DROP TABLE turn_person")
    asked = ask(home, model, "-r", session_id)
    assert asked.returncode == EXIT_COULD_NOT_RUN
    assert "state.db is damaged" in asked.stderr
    assert NOT_ANSWERED.format(id=session_id) in asked.stderr


class StuckOutput(Output):
    """Tells with the first words that the record cannot be written."""

    def __init__(self, stuck: asyncio.Event) -> None:
        super().__init__(json=False)
        self._stuck = stuck

    async def show(self, item: Entry | Chunk) -> None:
        """Show it first."""
        await super().show(item)
        if isinstance(item, Chunk):
            self._stuck.set()


async def test_a_turn_that_began_and_cannot_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under half an answer it is not said that the question was not answered."""
    words = {"text": "word " * 10_000, "pieces": "words", "delay_seconds": 0.05}
    options = Options(home=tmp_path / "home", model=write_script(tmp_path / "script.toml", words), prompt="hello")
    stuck = asyncio.Event()
    async with opened(options) as app:
        session = await app.record.create_session(source="cli")
        code = await answer(app, session.id, Message.user("hello"), StuckOutput(stuck), stuck)
    out, err = capsys.readouterr()
    assert code == EXIT_COULD_NOT_RUN
    assert out.startswith("word")
    assert err == f"hansard: {CUT.format(id=session.id)}\n"
