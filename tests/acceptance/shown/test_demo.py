"""A real model, struck in the middle of its answer: what was shown is recorded, and the conversation goes on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hansard import Record, Role, Status, TurnState
from hansard.domain.sessions import TURN_ENDS
from hansard.errors import ModelMissing
from hansard.models.demo_files import install_demo
from tests.acceptance.shown.checks import FIXED_NOTICES, check_lines, take_picture
from tests.acceptance.shown.evidence import Shown
from tests.acceptance.shown.nursery import ROOT
from tests.acceptance.shown.program import Program, environment, run
from tests.acceptance.shown.runs import Surface
from tests.acceptance.shown.terminal import CONTROL_C, CONTROL_D, Terminal
from tests.acceptance.shown.words import letters
from tests.counts import only_long
from tests.tally import Tally

QUESTION = "Tell me a long story about a ship and the sea."
SHOWN_BYTES = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def demo() -> Path:
    """The demo model, fetched once and kept beside the other caches of the tests."""
    folder = ROOT / ".pytest_cache" / "demo"
    folder.parent.mkdir(exist_ok=True)
    try:
        install_demo(folder, lambda _: None)
    except ModelMissing as error:
        pytest.skip(f"the demo model cannot be fetched here: {error}")
    return folder


@pytest.fixture
def variables(tmp_path: Path, demo: Path) -> dict[str, str]:
    """A machine on which nothing but the demo model is there."""
    return environment(tmp_path, HANSARD_DEMO_FOLDER=str(demo))


async def said(home: Path) -> list[tuple[str, Status]]:
    """Return what the model said, in a record that is in order and in which nothing runs."""
    async with Record.open(home) as record:
        [session] = await record.sessions()
        assert (await record.verify()).ok
        assert {turn.state for turn in await record.turns.list(session.id)} <= TURN_ENDS
        messages = await record.load_transcript(session.id)
    assert next(message.text for message in messages if message.role == Role.USER) == QUESTION
    return [(message.text, message.status) for message in messages if message.role == Role.ASSISTANT]


@pytest.mark.drawn(1, "demo server")
@pytest.mark.loss("A1", "A6")
@pytest.mark.parametrize(("number", "code"), [pytest.param(signal.SIGKILL, -9, marks=only_long), (signal.SIGINT, 130)])
async def test_struck_on_a_pipe(
    home: Path, variables: dict[str, str], number: signal.Signals, code: int, tally: Tally
) -> None:
    """Killed or interrupted in mid-answer: what was printed is how the recorded answer begins; the next turn runs."""
    options = ["--home", home, "-m", "demo"]
    async with await Program.start(*options, "-p", QUESTION, variables=variables) as program:
        assert await program.prints(SHOWN_BYTES), program.stderr
        program.send(number)
        assert await program.ended() == code
    [(text, status)] = await said(home)
    assert text.encode().startswith(bytes(program.output))
    assert status is Status.INTERRUPTED
    code, output, errors = await run(*options, "-c", "-p", "Thank you. Say goodbye.", variables=variables)
    assert code == 0, errors
    assert await said(home) == [(text, status), (output.decode()[:-1], Status.COMPLETE)]
    tally.add("shown demo", 0, counts(number.name, len(program.output) + len(output)))


@only_long
@pytest.mark.loss("A1", "A6")
async def test_interrupted_in_a_terminal(home: Path, variables: dict[str, str], tally: Tally) -> None:
    """Ctrl-C in mid-answer: every line that stood on the screen is recorded, and the next question is answered."""
    async with await Terminal.start("--home", home, "-m", "demo", variables=variables) as terminal:
        await terminal.type(QUESTION)
        await terminal.shows(lambda: len(letters(terminal.text)) > 400, "some of the story")
        terminal.press(CONTROL_C)
        assert await terminal.settled()
        await terminal.type("Thank you. Say goodbye.")
        await terminal.shows(lambda: "answering" in terminal.status, "the next turn")
        assert await terminal.settled()
        terminal.press(CONTROL_D)
        assert await terminal.ended() == 0
    first, second = await said(home)
    assert (first[1], second[1]) == (Status.INTERRUPTED, Status.COMPLETE)
    picture = await take_picture(home)
    assert list(picture.turns.values()) == [TurnState.INTERRUPTED, TurnState.COMPLETED]
    shown = Shown(surface=Surface.TERMINAL, lines=frozenset(terminal.lines))
    assert list(check_lines(picture, shown)) == []
    assert any(
        letters(line) in letters(first[0]) for line in shown.lines if len(line) > 40 and line not in FIXED_NOTICES
    )
    tally.add("shown demo", 0, counts("Ctrl-C", shown.size_bytes))


def counts(fault: str, shown_bytes: int) -> dict[str, object]:
    """Return what is counted of a run that was in order."""
    return {"runs": 1, "faults": [fault], "acknowledged": 2, "shown_bytes": shown_bytes, "violations": []}
