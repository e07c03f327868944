"""`hansard` in a real terminal."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.acceptance.stories_program import Hansard
from tests.cli.terminal.tmux import Terminal

READY = "record: in order"
"""In the status line once a person can type."""


class ChatTerminal(Terminal):
    """A window in which a shell runs `hansard`, and says how it ended."""

    def __init__(self, folder: Path, hansard: Hansard, *arguments: str) -> None:
        """Start it in a window that is wide enough for a session's id and a folder's name."""
        super().__init__(folder, columns=160, rows=40)
        program = [sys.executable, "-m", "hansard.cli.main", "--home", str(hansard.home), "-m", hansard.model]
        self._command = ["sh", "-c", f"{shlex.join([*program, *arguments])}; echo left with $?"]

    def leave(self) -> None:
        """Leave as a person does, and wait until the program has ended well."""
        self.keys("C-d")
        self.wait("left with 0")
