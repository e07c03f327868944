"""A program out of the nursery is the program: what it says, reads, returns and dies of is what a started one does."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.acceptance.shown.program import Program, environment
from tests.acceptance.shown.terminal import CONTROL_D, Terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the nursery needs sockets that keep messages apart")

ECHO = "[[answers]]\ntext = 'You said: {last}'\n"
STALL = "[[answers]]\ntext = 'one two three'\npieces = 'words'\nstall = {after_pieces = 2}\n"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """A machine on which nothing is set up, and one thing that only these programs have."""
    return environment(tmp_path, HANSARD_BUSY="steer")


async def both(
    folder: Path, variables: dict[str, str], *arguments: str, stdin: bytes = b""
) -> list[tuple[int, str, str]]:
    """Run a command as it is started by people and as it comes out of the nursery; return what each did."""
    ends = []
    for name in ("started", "forked"):
        given = ["--home", str(folder / name), *arguments]
        if name == "started":
            program = await Program.start(*given, variables=variables, stdin=asyncio.subprocess.PIPE)
        else:
            program = await Program.fork(*given, variables=variables, has_input=True)
        async with program:
            if stdin:
                await program.write(stdin)
            await program.close_input()
            code = await program.ended()
        ends.append((code, program.output.decode(), program.stderr.replace(name, "HOME")))
    return ends


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (("--version",), b"", 0),
        (("no-such-command",), b"", 2),
        (("-m", "nowhere:nothing", "-p", "hello"), b"", 2),
        (("config",), b"", 0),
        (("-m", "scripted:SCRIPT", "-p", "grüße"), "und 漢字".encode(), 0),
        (("-m", "scripted:SCRIPT"), b"one\ntwo\n", 0),
    ],
    ids=["version", "wrong", "no such model", "config", "once", "lines"],
)
async def test_it_says_what_a_started_one_says(
    tmp_path: Path, variables: dict[str, str], arguments: tuple[str, ...], stdin: bytes, code: int
) -> None:
    """The same exit code, the same bytes on both pipes, from the same arguments, variables and input."""
    script = tmp_path / "script.toml"
    script.write_text(ECHO)
    given = [argument.replace("SCRIPT", str(script)) for argument in arguments]
    started, forked = await both(tmp_path, variables, *given, stdin=stdin)
    assert forked == started
    assert started[0] == code


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=str
)
async def test_it_dies_as_a_started_one_dies(
    tmp_path: Path, variables: dict[str, str], number: signal.Signals, code: int
) -> None:
    """A signal in mid-answer ends it with the code that the signal means, and nothing of it goes on."""
    script = tmp_path / "script.toml"
    script.write_text(STALL)
    options = ["--home", tmp_path / "home", "-m", f"scripted:{script}", "-p", "hello"]
    async with await Program.fork(*options, variables=variables) as program:
        assert await program.prints(len("one two"))
        program.send(number)
        assert await program.ended() == code
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)


async def test_it_has_a_terminal(tmp_path: Path, variables: dict[str, str]) -> None:
    """In a window it finds a terminal of its own, shows its prompt there, and leaves when asked to."""
    script = tmp_path / "script.toml"
    script.write_text(ECHO)
    options = ["--home", tmp_path / "home", "-m", f"scripted:{script}"]
    async with await Terminal.fork(*options, variables=variables) as terminal:
        await terminal.type("hello")
        assert await terminal.shows(lambda: "You said: hello" in terminal.text, "the answer")
        assert await terminal.settled()
        terminal.press(CONTROL_D)
        assert await terminal.ended() == 0


async def test_programs_do_not_share_what_they_are_given(tmp_path: Path, variables: dict[str, str]) -> None:
    """Two at once have each their own variables: nothing of one is left in the nursery for the next."""
    found = []
    for busy in ("queue", "interrupt"):
        given = {**variables, "HANSARD_BUSY": busy}
        async with await Program.fork("--home", tmp_path / busy, "config", "--json", variables=given) as program:
            assert await program.ended() == 0
        found.append(json.loads(program.output))
    assert found[0] != found[1]
