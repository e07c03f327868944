"""The screen where there is no terminal, or one that can only print lines."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

from tests.cli.terminal.tmux import ROOT, WAIT_SECONDS


def driver(log: Path) -> list[str]:
    """Return the command of the driver."""
    return [sys.executable, "-m", "tests.cli.terminal.driver", str(log)]


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    """Lines in are messages; what comes out has no escape sequence, and the end of the input leaves."""
    log = tmp_path / "log"
    done = subprocess.run(
        driver(log), input=b"hello\n\nlast", check=True, capture_output=True, cwd=ROOT, timeout=WAIT_SECONDS
    )
    out = done.stdout.decode()
    assert out.replace("\u203a", ">") == "ready\n\n> hello\n\n> last\ngoodbye\n"
    assert [json.loads(line) for line in log.read_text().splitlines()] == ["hello", "last", "left"]
    assert done.stderr == b""


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    """A file cannot be waited for, and need not be."""
    log, lines = tmp_path / "log", tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    with lines.open("rb") as file:
        subprocess.run(driver(log), stdin=file, check=True, capture_output=True, cwd=ROOT, timeout=WAIT_SECONDS)
    assert [json.loads(line) for line in log.read_text().splitlines()] == ["one", "two", "left"]


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    """With TERM=dumb nothing is drawn, and Ctrl-C, a signal there, leaves when nothing runs."""
    log = tmp_path / "log"
    master, slave = pty.openpty()
    process = subprocess.Popen(
        driver(log), stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=os.environ | {"TERM": "dumb"}
    )
    os.close(slave)
    try:
        out = b""
        while b"ready" not in out:
            out += os.read(master, 4096)
        os.write(master, b"hello\n")
        while b"\xe2\x80\xba hello" not in out:
            out += os.read(master, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
        assert b"\x1b" not in out
        assert [json.loads(line) for line in log.read_text().splitlines()] == ["hello", "left"]
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
        os.close(master)
