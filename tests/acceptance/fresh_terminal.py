"""A person at a terminal: a shell in tmux, in which `hansard` is typed, and what the terminal shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import pytest

from tests.cli.terminal.tmux import ROOT, Terminal, is_there

WAIT_SECONDS_MAX = 120.0
"""For what takes a second on an idle machine."""

POLL_SECONDS = 0.05

PROMPT = re.compile(r"^\[(\d+)\] \$ ?$")
"""The shell's prompt: the exit code of the last command."""

CARRIED = re.compile(r"(?:PIP|SSL|UV)_\w+|\w+_proxy|\w+_PROXY|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|PATH|TMPDIR")
"""Variables that say how this machine reaches programs and packages; nothing else is taken over from it."""

needs_tmux = pytest.mark.skipif(
    not is_there() or shutil.which("bash") is None, reason="a real terminal needs tmux and bash"
)

START = 'cd "$1" && shift && exec env -i TMUX="$TMUX" TERM="$TERM" "$@"'
STARTED = '#!/bin/sh\necho $$ > "$SHELL_FOLDER/pid"\nexec {program} "$@"\n'
INPUTRC = "set enable-bracketed-paste off\nset bell-style none\n"


def machine(home: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a person on whose machine nothing is set up: no keys, no settings, nothing cached."""
    carried = {name: value for name, value in os.environ.items() if CARRIED.fullmatch(name)}
    if sys.dont_write_bytecode:
        # Compiling the libraries anew for every process takes longer than everything else together.
        carried["PYTHONPYCACHEPREFIX"] = str(ROOT / ".pytest_cache" / "bytecode")
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    return {**carried, **own, **variables}


class Shell(Terminal):
    """A shell that a person types into. Leaving closes the terminal, and with it what runs there."""

    def __init__(
        self, folder: Path, place: Path, variables: Mapping[str, str], *, columns: int = 80, rows: int = 24
    ) -> None:
        """`folder` is the test's own; `place` is where the shell begins."""
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, columns=columns, rows=rows)
        self.folder = folder
        self.written = folder / "written"
        (folder / "inputrc").write_text(INPUTRC)
        states = folder / "states"
        own = {
            "PS1": "[$?] $ ",
            "PS2": "",
            "PROMPT_COMMAND": f"stty -g >> {states}",
            "INPUTRC": str(folder / "inputrc"),
            "HISTFILE": "/dev/null",
            "SHELL_FOLDER": str(folder),
        }
        set_up = [f"{name}={value}" for name, value in {**variables, **own}.items()]
        bash = ["bash", "--noprofile", "--norc"]
        self._command = ["sh", "-c", START, "sh", str(place), *set_up, *bash]

    def __enter__(self) -> Self:
        """Open the terminal, keep every byte that is written to it, and wait for the shell."""
        super().__enter__()
        self.tmux("pipe-pane", "-o", f"cat >> '{self.written}'")
        self.prompt()
        return self

    def see(
        self, seen: str | Callable[[str], bool], *, everything: bool = False, seconds_max: float = WAIT_SECONDS_MAX
    ) -> str:
        """Wait until the screen shows something; return it."""
        until = time.monotonic() + seconds_max
        while True:
            text = self.everything() if everything else self.screen()
            if seen in text if isinstance(seen, str) else seen(text):
                return text
            assert time.monotonic() < until, f"never seen within {seconds_max:g} s: {seen}\n{self.everything()}"
            time.sleep(POLL_SECONDS)

    def prompt(self, *, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """Wait until the shell asks for the next command; return how the last one ended."""
        text = self.see(lambda screen: PROMPT.match(last_line(screen)) is not None, seconds_max=seconds_max)
        found = PROMPT.match(last_line(text))
        assert found is not None
        return int(found[1])

    def run(self, command: str, *, seconds_max: float = WAIT_SECONDS_MAX) -> int:
        """Type a command on a clean screen and wait for its end; return its exit code."""
        self.clear()
        self.type(command)
        self.see(lambda screen: PROMPT.match(last_line(screen)) is None or len(lines(screen)) > 1)
        return self.prompt(seconds_max=seconds_max)

    def clear(self) -> None:
        """Empty the screen and what was scrolled away, as a person does between two things."""
        self.keys("C-l")
        self.see(lambda screen: len(lines(screen)) == 1)
        self.tmux("clear-history")

    @property
    def pid(self) -> int:
        """The process that `hansard` was started as."""
        return int((self.folder / "pid").read_text())

    def strike(self, number: signal.Signals) -> None:
        """Send a signal to `hansard`."""
        os.kill(self.pid, number)

    def close(self) -> None:
        """Close the window, as a click on its corner does: the system tells what runs in it."""
        self.tmux("set", "-g", "exit-empty", "off", ";", "kill-pane")

    @property
    def raw(self) -> bytes:
        """Every byte that was written to the terminal since it was opened."""
        return self.written.read_bytes() if self.written.exists() else b""

    def assert_restored(self) -> None:
        """The terminal is as it was before the program: its modes, its cursor, and how it takes a paste."""
        states = (self.folder / "states").read_text().split()
        assert states[-1] == states[0]
        assert self.tmux("display-message", "-p", "#{cursor_flag}#{alternate_on}#{mouse_any_flag}").strip() == "100"
        assert self.raw.rfind(b"\x1b[?2004l") > self.raw.rfind(b"\x1b[?2004h") > 0
        assert self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
        assert self.raw.rfind(b"\x1b[?2026l") > self.raw.rfind(b"\x1b[?2026h")


def install(folder: Path, program: Path) -> str:
    """Put `hansard` into a folder of its own, for the path; it leaves its process id beside the shell."""
    folder.mkdir(parents=True, exist_ok=True)
    started = folder / "hansard"
    started.write_text(STARTED.format(program=program))
    started.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def lines(screen: str) -> list[str]:
    """Return the lines of a screen, without the empty ones below them."""
    return screen.rstrip().split("\n")


def last_line(screen: str) -> str:
    """Return the last line that is not empty."""
    return lines(screen)[-1]


def folded(text: str) -> str:
    """Return a text with every run of spaces and line ends as one space."""
    return " ".join(text.split())


def is_running(pid: int) -> bool:
    """Whether a process runs; one that ended and was not collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> None:
    """Wait until a process has ended."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while is_running(pid):
        assert time.monotonic() < until, f"process {pid} still runs"
        time.sleep(POLL_SECONDS)
