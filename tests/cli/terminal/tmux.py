"""A real terminal for tests: a private tmux server with one window."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[3]
WAIT_SECONDS = 90.0
POLL_SECONDS = 0.05
HISTORY_LINES = 50_000


def is_there() -> bool:
    """Whether tmux is installed."""
    return shutil.which("tmux") is not None


class Terminal:
    """One window, driven by keys and read as a person reads it."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        """Start the driver in a window of this size."""
        self.log = folder / "log"
        self._socket = str(folder / "tmux")
        self._columns, self._rows = columns, rows
        self._command = [sys.executable, "-m", "tests.cli.terminal.driver", str(self.log), *arguments]
        self._environment = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", **environment}

    def __enter__(self) -> Self:
        """Start the server."""
        setting = [part for name, value in self._environment.items() for part in ("-e", f"{name}={value}")]
        options = ["start-server", ";", "set", "-g", "history-limit", str(HISTORY_LINES), ";"]
        options += ["set", "-g", "remain-on-exit", "on", ";"]
        size = ["-x", str(self._columns), "-y", str(self._rows)]
        self.tmux(*options, "new-session", "-d", *size, *setting, "-c", str(ROOT), *self._command)
        return self

    def __exit__(self, *error: object) -> None:
        """End the server that this test started."""
        self.tmux("kill-server")

    def tmux(self, *arguments: str, text: str | None = None) -> str:
        """Run one tmux command on the private server."""
        command = ["tmux", "-u", "-f", "/dev/null", "-S", self._socket, *arguments]
        environment = {name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR")}
        environment |= {"LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, input=text, timeout=WAIT_SECONDS, env=environment
        )
        return done.stdout

    def keys(self, *names: str) -> None:
        """Press keys."""
        self.tmux("send-keys", *names)

    def type(self, text: str, *, enter: bool = True) -> None:
        """Type a line, and send it."""
        self.tmux("send-keys", "-l", text)
        if enter:
            self.keys("Enter")

    def paste(self, text: str) -> None:
        """Paste as a terminal does, in brackets."""
        self.tmux("load-buffer", "-b", "pasted", "-", text=text)
        self.tmux("paste-buffer", "-p", "-r", "-b", "pasted")

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def go_on(self) -> None:
        """Let a play that waits in the middle play on."""
        self.log.with_suffix(".go").touch()

    def processor_seconds(self) -> float:
        """Processor time that the driver has used."""
        fields = Path(f"/proc/{self.tmux('display-message', '-p', '#{pane_pid}').strip()}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def screen(self, *, styled: bool = False) -> str:
        """What is visible now."""
        return self.tmux("capture-pane", "-p", *(["-e"] if styled else []))

    def everything(self, *, joined: bool = True) -> str:
        """What is visible and what was scrolled away; lines that the terminal wrapped are joined."""
        return self.tmux("capture-pane", "-p", "-S", "-", *(["-J"] if joined else []))

    def wait(self, seen: Callable[[str], bool] | str, *, everything: bool = False) -> str:
        """Wait until the screen shows something; return it."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            text = self.everything() if everything else self.screen()
            if seen in text if isinstance(seen, str) else seen(text):
                return text
            assert time.monotonic() < until, f"never seen: {seen}\n{text}"
            time.sleep(POLL_SECONDS)

    def logged(self, count: int) -> list[str]:
        """Wait until the driver wrote so many lines; return them as they are."""
        until = time.monotonic() + WAIT_SECONDS
        while True:
            lines = self.log.read_text().splitlines() if self.log.exists() else []
            if len(lines) >= count:
                return lines
            assert time.monotonic() < until, f"the driver wrote {len(lines)} of {count} lines\n{self.screen()}"
            time.sleep(POLL_SECONDS)
