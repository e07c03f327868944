"""Starting: `hansard --help`, and `hansard` until its prompt can be seen in a terminal."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from environments import ROOT
from harness.figures import percentile
from turn_scene import Scene
from turn_threads import process_seconds

from hansard.cli.terminal.view import MARKER

PROMPT_SECONDS_MAX = 20.0
LEAVE_SECONDS_MAX = 10.0
ROWS, COLUMNS = 24, 80

ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*(?:\x07|\x1b\\)|[@-Z\\-_])")
WHERE_IS_THE_CURSOR, TOP_LEFT = b"\x1b[6n", b"\x1b[1;1R"
CONTROL_D = b"\x04"

PASS, CLICK, HELP = "python -c pass", "python -c 'import click'", "hansard --help"
BARE_PROMPT, PROMPT, PROMPT_KEY = "bare prompt_toolkit prompt", "hansard", "hansard, with a key set"
BARE_PROGRAM = "from prompt_toolkit import PromptSession; PromptSession('$ ').prompt()"


class NoPromptError(Exception):
    """A program did not show its prompt."""


class Taken(NamedTuple):
    """What a start took: by the clock, and of the processor, which a busy machine does not change much."""

    wall_ms: float
    processor_ms: float


def measure_start(scene: Scene) -> dict[str, Any]:
    """Each command once a round. The first time of each is not counted: modules are compiled then."""
    home = scene.new_home()
    environment = _environment(scene.homes, home)
    with_key = {**environment, "OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": scene.base_url}
    hansard = _hansard()
    cases: dict[str, Callable[[], Taken]] = {
        PASS: lambda: _run([sys.executable, "-c", "pass"], environment),
        CLICK: lambda: _run([sys.executable, "-c", "import click"], environment),
        HELP: lambda: _run([*hansard, "--help"], environment),
        BARE_PROMPT: lambda: _prompt([sys.executable, "-c", BARE_PROGRAM], environment, "$ "),
        PROMPT: lambda: _prompt(hansard, environment, MARKER),
        PROMPT_KEY: lambda: _prompt(hansard, with_key, MARKER),
    }
    times: dict[str, list[Taken]] = {}
    problems: dict[str, str] = {}
    for number in range(scene.settings.start_rounds + 1):
        for name, measure in cases.items():
            if name in problems:
                continue
            try:
                taken = measure()
            except NoPromptError as error:
                problems[name] = str(error)
            else:
                times.setdefault(name, []).extend([taken] if number else [])
    figures = {name: _figures(each) for name, each in times.items() if each and name not in problems}
    return {"commands": figures, "problems": problems}


def _figures(rounds: list[Taken]) -> dict[str, Any]:
    walls = [each.wall_ms for each in rounds]
    return {
        "ms": statistics.median(walls),
        "p95_ms": percentile(walls, 0.95),
        "best_ms": min(walls),
        "processor_ms": statistics.median(each.processor_ms for each in rounds),
        "rounds_ms": walls,
    }


def _hansard() -> list[str]:
    """The installed command; the module where there is none."""
    command = Path(sys.executable).with_name("hansard")
    return [str(command)] if command.exists() else [sys.executable, "-m", "hansard.cli.main"]


def _environment(person: Path, home: Path) -> dict[str, str]:
    """No settings of the person who runs this, and nothing of theirs can be found."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    own = {"HOME": str(person), "HANSARD_HOME": str(home), "TERM": "xterm-256color", "PYTHONPATH": str(ROOT / "src")}
    return {"LC_ALL": "C.UTF-8", **kept, **own}


def _run(command: list[str], environment: dict[str, str]) -> Taken:
    """Run a program to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=PROMPT_SECONDS_MAX)
    taken_ms = (time.perf_counter() - began) * 1000
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Taken(taken_ms, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000)


def _prompt(command: list[str], environment: dict[str, str], marker: str) -> Taken:
    """Start a program in a terminal of its own and wait until its prompt is there; then leave it."""
    terminal, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.perf_counter()
    program = subprocess.Popen(
        command, env=environment, stdin=inside, stdout=inside, stderr=inside, start_new_session=True
    )
    os.close(inside)
    try:
        seen_at = _see(terminal, marker, began + PROMPT_SECONDS_MAX)
        return Taken((seen_at - began) * 1000, process_seconds(program.pid) * 1000)
    finally:
        _leave(terminal, program)
        os.close(terminal)


def _see(terminal: int, marker: str, deadline: float) -> float:
    """Return when the marker was there. Questions for the cursor's place are answered, as a terminal does."""
    shown = b""
    while True:
        data = _read(terminal, deadline)
        seen_at = time.perf_counter()
        if not data:
            words = ESCAPES.sub(b"", shown)[-400:].decode(errors="replace")
            message = f"no prompt within {PROMPT_SECONDS_MAX:g} s; there was: {' '.join(words.split())}"
            raise NoPromptError(message)
        if WHERE_IS_THE_CURSOR in data:
            os.write(terminal, TOP_LEFT)
        shown += data
        if marker.strip() in ESCAPES.sub(b"", shown).decode(errors="replace"):
            return seen_at


def _read(terminal: int, deadline: float) -> bytes:
    """Return what comes; nothing when the program has left or the time is over."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.perf_counter()))
    try:
        return os.read(terminal, 65536) if ready else b""
    except OSError:  # nobody holds the other side any more
        return b""


def _leave(terminal: int, program: subprocess.Popen[bytes]) -> None:
    """Leave as a person does; a program that stays is ended."""
    deadline = time.perf_counter() + LEAVE_SECONDS_MAX
    try:
        os.write(terminal, CONTROL_D)
        while program.poll() is None and _read(terminal, deadline):
            pass
        program.wait(timeout=max(0.1, deadline - time.perf_counter()))
    except (OSError, subprocess.TimeoutExpired):
        program.kill()
    program.wait()
