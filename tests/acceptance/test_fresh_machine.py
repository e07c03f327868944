"""The first ten minutes of a new person: `make chat` on a machine without a key, an account or anything installed."""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard import Message, Record, Status
from hansard.cli.terminal.view import MARKER
from tests.acceptance.fresh_machine import copy_repository, fresh, needs_git, running, skip_without_index
from tests.acceptance.fresh_terminal import POLL_SECONDS, WAIT_SECONDS_MAX, Shell, needs_tmux
from tests.acceptance.shown.words import letters
from tests.counts import only_long

SETUP_SECONDS_MAX = 420.0
"""Half a minute on an idle machine with a near index; several on a busy one."""

FETCH_SECONDS_MAX = 300.0
WORDS_SEEN_MIN = 12
"""Words of an answer that are on the screen when it is interrupted."""

QUESTIONS = (
    "Tell me a long story about a lighthouse keeper and the sea.",
    "Write a very long essay about the history of tea, in many paragraphs.",
    "Describe every room of a large castle, one after the other, with all its furniture.",
)
"""The demo model says what it likes; one of these makes it talk long enough."""

PROGRESS = re.compile(r"\d+ MB on disk so far|Checking what was fetched")
DEMO_NOTE = "This is a small demo model"
INTERRUPTED = "⎯ interrupted"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose large parts are gone afterwards."""
    yield tmp_path
    for large in (tmp_path / "hansard" / ".venv", tmp_path / "user" / ".cache"):
        shutil.rmtree(large, ignore_errors=True)


@only_long
@needs_tmux
@needs_git
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="what is left running is looked up in /proc")
@pytest.mark.loss("A1", "A7")
async def test_a_fresh_machine(folder: Path) -> None:
    """`make chat`, an answer of the demo model, Ctrl-C in its middle, leaving: `hansard -c` shows it all."""
    repository = copy_repository(folder / "hansard")
    home = folder / "user" / "record"
    variables = fresh(folder / "user", HANSARD_HOME=str(home))
    skip_without_index(folder, variables)
    with Shell(folder / "terminal", repository, variables, columns=120, rows=40) as shell:
        shell.type("make chat")
        shell.see("Fetching the demo model", everything=True, seconds_max=SETUP_SECONDS_MAX)
        shell.see(lambda text: bool(PROGRESS.search(text)), everything=True)
        shell.see(DEMO_NOTE, everything=True, seconds_max=FETCH_SECONDS_MAX)
        shell.see("demo · ")
        question = ask_and_interrupt(shell)
        first = answer_to(question, shell.everything())
        assert any("demo_server" in command for command in running(repository))
        shell.keys("C-c")
        assert shell.prompt() == 0
        assert not running(repository)
        shell.clear()
        shell.type(".venv/bin/hansard -c")
        shell.see("Resumed", everything=True)
        again = answer_to(question, shell.see(INTERRUPTED, everything=True))
        shell.keys("C-d")
        assert shell.prompt() == 0
        assert not running(repository)
        assert shell.run(".venv/bin/hansard verify") == 0
    asked, answer = await last_exchange(home)
    assert (asked.role, asked.text) == ("user", question)
    assert (answer.role, answer.status) == ("assistant", Status.INTERRUPTED)
    assert first == again == letters(answer.text)


def ask_and_interrupt(shell: Shell) -> str:
    """Ask until an answer is long enough to be interrupted in its middle; return the question."""
    for question in QUESTIONS:
        shell.type(question)
        shell.see(f"{MARKER}{question}", everything=True)
        until = time.monotonic() + WAIT_SECONDS_MAX
        while len(words_after(question, shell.everything())) < WORDS_SEEN_MIN:
            assert time.monotonic() < until, f"no answer:\n{shell.everything()}"
            time.sleep(POLL_SECONDS)
        shell.keys("C-c")
        shown = shell.see(lambda text: "answering" not in text)
        if INTERRUPTED in shown:
            return question
    raise AssertionError(f"every answer ended before it could be interrupted:\n{shell.everything()}")


def words_after(question: str, shown: str) -> list[str]:
    """Return the words below a question: the answer so far, then the input and the status line."""
    answer, _, _ = shown.partition(f"{MARKER}{question}")[2].rpartition(MARKER.strip())
    return answer.split()


def answer_to(question: str, shown: str) -> str:
    """Return the letters of the answer between a question and the mark of its interruption."""
    answer, mark, _ = shown.partition(f"{MARKER}{question}")[2].partition(INTERRUPTED)
    assert mark, shown
    return letters("\n".join(part for part in answer.split("\n\n") if DEMO_NOTE not in part))


async def last_exchange(home: Path) -> list[Message]:
    """Return the last two messages of the latest session, notices aside."""
    async with Record.open(home) as record:
        report = await record.verify()
        assert report.ok, report.findings
        latest, *_ = await record.sessions()
        said = [message for message in await record.load_transcript(latest.id) if message.role != "notice"]
    return said[-2:]
