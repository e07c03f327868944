"""Long work shows how far it is, and Ctrl-C leaves things whole: `hansard export` and `hansard import`."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from itertools import count
from pathlib import Path

import pytest

from hansard import Record
from hansard.cli.printing import CLEAR, Meter
from hansard.interop.hermes_parts import session_id_of
from tests.counts import only_long
from tests.interop.hermes_homes import database, says
from tests.journal.helpers_logs import write_logs
from tests.record.helpers_process import rebuild

EXIT_INTERRUPTED = 130
MESSAGES = 12_000
"""Enough for an import to last a second or more."""

TEXTS = [f"message {number} {'word ' * 20}" for number in range(MESSAGES)]


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    def isatty(self) -> bool:
        """A person looks at it."""
        return True


def shown_by(stream: io.StringIO, seconds: float, *, quiet: bool = False) -> str:
    """What six steps of work show that come so many seconds apart."""
    times = count(0.0, seconds)
    with redirect_stderr(stream), Meter(quiet=quiet, clock=lambda: next(times)) as meter:
        for number in range(1, 7):
            meter.show(f"step {number}")
    return stream.getvalue()


def test_progress_on_a_terminal_is_one_line_that_goes_away() -> None:
    """It is written over twice a second and cleared at the end, so that the result stands alone."""
    assert shown_by(Terminal(), 0.25) == f"{CLEAR}step 2{CLEAR}step 4{CLEAR}step 6{CLEAR}"


def test_progress_through_a_pipe_is_a_line_now_and_then() -> None:
    """Every five seconds, without anything that commands a terminal."""
    assert shown_by(io.StringIO(), 2.5) == "step 2\nstep 4\nstep 6\n"


def test_short_work_and_what_is_itself_on_the_terminal_show_no_progress() -> None:
    """Nothing flickers for a moment, and nothing is written between the lines of a result."""
    assert shown_by(Terminal(), 0.05) == ""
    assert shown_by(Terminal(), 9, quiet=True) == ""


def test_an_interruption_clears_the_line() -> None:
    """What comes after Ctrl-C begins on a line of its own."""
    stream, times = Terminal(), count(0.0, 1.0)

    def work() -> None:
        with Meter(clock=lambda: next(times)) as meter:
            meter.show("half")
            raise KeyboardInterrupt

    with redirect_stderr(stream), pytest.raises(KeyboardInterrupt):
        work()
    assert stream.getvalue() == f"{CLEAR}half{CLEAR}"


def write_export(path: Path) -> list[str]:
    """An export of one long session, as another Hansard would have written it; return how to import it."""
    lines: list[dict[str, object]] = [
        {"type": "hansard", "version": 1},
        {"type": "session", "id": "long", "source": "cli", "owner": "person:admin", "title": "Long"},
    ]
    for number, text in enumerate(TEXTS):
        said = {"type": "message", "session_id": "long", "id": f"m{number}", "role": "user"}
        lines.append({**said, "parts": [{"type": "text", "text": text}]})
    lines.append({"type": "end", "session_id": "long", "messages": MESSAGES})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return ["import", "hansard", str(path)]


def beyond_progress(written: bytes) -> list[str]:
    """What was written besides how far it is, which a slow machine is told even off a terminal."""
    progress = r"[\d,]+ of [\d,]+ sessions?, |\d+ % of [\d,]+ bytes"
    return [line for line in written.decode().splitlines() if not re.match(progress, line)]


def write_hermes(path: Path) -> list[str]:
    """A home of Hermes with one long session; return how to import it."""
    database(path, {"long": [says("user", text) for text in TEXTS]})
    return ["import", "hermes", str(path), "--owner", "person:admin"]


FROM_HANSARD = (write_export, "long")
FROM_HERMES = (write_hermes, session_id_of("long"))


@pytest.mark.drawn(1)
@pytest.mark.loss("M4")
@pytest.mark.parametrize(
    ("write", "session_id", "number", "code"),
    [
        pytest.param(*FROM_HANSARD, signal.SIGKILL, -9, id="hansard, killed"),
        pytest.param(*FROM_HERMES, signal.SIGINT, EXIT_INTERRUPTED, id="hermes, interrupted"),
        pytest.param(*FROM_HANSARD, signal.SIGINT, EXIT_INTERRUPTED, id="hansard, interrupted", marks=only_long),
        pytest.param(*FROM_HERMES, signal.SIGKILL, -9, id="hermes, killed", marks=only_long),
    ],
)
async def test_an_import_that_is_interrupted_is_completed_by_the_next(  # noqa: PLR0917 - parameters come by name
    home: Path,
    tmp_path: Path,
    write: Callable[[Path], list[str]],
    session_id: str,
    number: signal.Signals,
    code: int,
) -> None:
    """Ended or killed in the middle: what is there is whole, and the same command does the rest."""
    arguments = write(tmp_path / "source")
    process = subprocess.Popen(
        [sys.executable, "-m", "hansard.cli.main", "--home", str(home), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(os.environ),
    )
    deadline = time.monotonic() + 120
    while sum(path.stat().st_size for path in (home / "sessions").rglob("*.jsonl")) < 100_000:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, beyond_progress(err)) == (code, b"", [])
    async with Record.open(home) as record:
        taken = [message.text for message in await record.load_transcript(session_id)]
        assert 0 < len(taken) < MESSAGES
        assert taken == TEXTS[: len(taken)]
        assert (await record.verify()).ok
    again = subprocess.run(process.args, capture_output=True, check=False, env=dict(os.environ), timeout=120)
    assert (again.returncode, beyond_progress(again.stderr)) == (0, [])
    assert f"{MESSAGES - len(taken):,} new" in again.stdout.decode()
    async with Record.open(home) as record:
        assert [message.text for message in await record.load_transcript(session_id)] == TEXTS
        assert (await record.verify()).ok


def test_a_rebuild_shows_how_far_it_is(tmp_path: Path) -> None:
    """A command that waits for another process to rebuild the record says on standard error how far that is."""
    write_logs(tmp_path / "home", sessions=1_000, messages=1)
    with rebuild(tmp_path / "home", 30, pause_seconds=0.05) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Rebuilding the record")
        terminal, inside = os.openpty()
        command = [sys.executable, "-m", "hansard.cli.main", "--home", str(tmp_path / "home"), "sessions", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=inside, text=True) as listing:
            os.close(inside)
            shown = ""
            while "of 1,000 sessions" not in shown:
                shown += os.read(terminal, 65_536).decode()
            process.kill()  # the other one goes on where it was
            with suppress(OSError):  # the terminal's other end is closed
                while data := os.read(terminal, 65_536):
                    shown += data.decode()
            listed, _ = listing.communicate(timeout=120)
        os.close(terminal)
    assert re.search(rf"Waiting for process {process.pid}, which is rebuilding .*: [\d,]+ of 1,000 sessions", shown)
    assert shown.endswith(CLEAR)
    assert listing.returncode == 0
    assert "s000999" in listed
