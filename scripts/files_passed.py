"""Count the files of src/hansard that one message passes: `python scripts/files_passed.py [--list]`.

Three things are measured, each in a process of its own, once it is warm: a message in a chat (recording channel,
gateway, scripted model), a message typed in a terminal (scripted model), a search by `hansard search`, which opens the
record. A file is passed when one of its functions is called, or one of its coroutines goes on, between the message and
a moment after its answer, in any thread but those that run by a timer. Each is measured several times, and the files
that every time passes are counted. The channel and its platform, which stand for a real one, are not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner

import hansard
from hansard import Message, Record
from hansard.app.wiring import open_app
from hansard.cli.main import cli
from hansard.cli.main import main as run_hansard
from hansard.domain.settings import Channels, Settings
from hansard.domain.settings.channels import Matrix
from hansard.gateway.channel import Timing
from hansard.gateway.process import Gateway
from hansard.testing import Platform, RecordingChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

SOURCE = Path(hansard.__file__).parent
STAND_IN = SOURCE / "testing"
SCRIPT = '[[answers]]\ntext = "You said: {last}. That is all."\n'
WARM_TIMES = 2
TIMES = 9
AFTER_SECONDS = 0.3
"""How long after its answer a message may still pass files: the turn ends, the delivery is settled."""

WAIT_SECONDS_MAX = 120
TIMED_THREADS = frozenset({"hansard-keeper", "hansard-index", "hansard-watcher"})
"""Threads that run by a timer: they sync logs and bring the search index up to date whether or not somebody talks."""

ANN, AGENT = "@ann:example.org", "@agent:example.org"


class Passed:
    """The files that are passed, time by time."""

    def __init__(self) -> None:
        """Look on from now on, in this thread and in every thread that begins."""
        self._files: set[str] | None = None
        self.times: list[set[str]] = []
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        del event, argument
        if (files := self._files) is not None and threading.current_thread().name not in TIMED_THREADS:
            files.add(frame.f_code.co_filename)

    @staticmethod
    def stop() -> None:
        """Look no longer."""
        threading.settrace(None)
        sys.settrace(None)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is passed meanwhile."""
        self._files = set()
        yield
        files, self._files = self._files, None
        self.times.append(files)

    def files(self) -> list[str]:
        """Return what was passed every time, once everything was warm."""
        names = set.intersection(*self.times[WARM_TIMES:])
        paths = [Path(name) for name in names if name.startswith(f"{SOURCE}{os.sep}")]
        return sorted(path.relative_to(SOURCE).as_posix() for path in paths if STAND_IN not in path.parents)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the platform has no bell for whoever looks on
            await asyncio.sleep(0.01)


async def measure_chat(home: Path, passed: Passed) -> None:
    """Talk in a room of a platform in memory."""
    settings = Settings(
        model=f"scripted:{write_script(home)}", channels=Channels(matrix=Matrix(allow=("*:example.org",)))
    )
    platform = Platform()
    room = platform.create_room(ANN, AGENT)
    async with open_app(home, settings, {}, report) as app:
        stop = asyncio.Event()
        gateway = asyncio.create_task(Gateway(app, [RecordingChannel(platform, AGENT)], Timing()).run(stop))
        await until(lambda: platform.calls["poll"] > 1)
        for number in range(WARM_TIMES + TIMES):
            with passed.counting():
                platform.say(room, ANN, f"word {number}")
                await until(lambda: f"word {number}. That is all." in str(platform.seen(room)))  # noqa: B023
                await asyncio.sleep(AFTER_SECONDS)
            await asyncio.sleep(AFTER_SECONDS)
        stop.set()
        await gateway


def report(session_id: str, error: BaseException) -> None:
    """Nothing may go wrong here."""
    raise RuntimeError(session_id) from error


def write_script(home: Path) -> Path:
    """Write what the scripted model answers."""
    path = home.parent / "script.toml"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def measure_terminal(home: Path, passed: Passed) -> None:
    """Type in a terminal."""
    screen, terminal = pty.openpty()
    for number in (0, 1, 2):
        os.dup2(terminal, number)
    os.environ["TERM"] = "xterm"
    person = threading.Thread(target=type_words, args=(screen, passed))
    person.start()
    try:
        run_hansard(["--home", str(home), "-m", f"scripted:{write_script(home)}"])
    except SystemExit:
        person.join()


def type_words(screen: int, passed: Passed) -> None:
    """Be the person: type, and read until the answer is there."""
    shown = bytearray()
    reader = threading.Thread(target=keep_reading, args=(screen, shown), daemon=True)
    reader.start()
    wait_for(shown, b"lists the commands")
    for number in range(WARM_TIMES + TIMES):
        with passed.counting():
            os.write(screen, f"word{number}\r".encode())
            wait_for(shown, f"word{number}. That is all.".encode())
            time.sleep(AFTER_SECONDS)
        time.sleep(AFTER_SECONDS)
    os.write(screen, b"\x04")


def keep_reading(screen: int, shown: bytearray) -> None:
    """Keep what the terminal shows."""
    while data := os.read(screen, 65536):
        shown += data


def wait_for(shown: bytearray, words: bytes) -> None:
    """Wait until a terminal has shown something."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while words not in shown:
        if time.monotonic() > deadline:
            raise TimeoutError(words)
        time.sleep(0.01)


def measure_search(home: Path, passed: Passed) -> None:
    """Search by the command, in a record that has a few sessions."""
    asyncio.run(fill(home))
    for _ in range(WARM_TIMES + TIMES):
        with passed.counting():
            done = CliRunner().invoke(cli, ["--home", str(home), "search", "ferry"])
        assert done.exit_code == 0, done.output


async def fill(home: Path) -> None:
    """Say something that can be found."""
    async with Record.open(home) as record:
        for number in range(5):
            session = await record.create_session(source="cli", title=f"Session {number}")
            for word in ("ferry", "harbour", "timetable"):
                await record.append(session.id, Message.user(f"The {word} of day {number}"))


MEASURES = {"chat": measure_chat, "terminal": measure_terminal, "search": measure_search}


def measure(name: str, target: Path) -> None:
    """Measure one, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        passed = Passed()
        done = MEASURES[name](home, passed)
        if done is not None:
            asyncio.run(done)
    passed.stop()
    target.write_text(json.dumps(passed.files()), encoding="utf-8")


def main() -> None:
    """Measure all, each in a process of its own, and print what was found."""
    parser = argparse.ArgumentParser(description="Count the files of src/hansard that one message passes.")
    parser.add_argument("--list", action="store_true", help="print the files, too")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure[0], Path(arguments.measure[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in MEASURES:
            target = Path(folder) / name
            subprocess.run([sys.executable, __file__, "--measure", name, str(target)], check=True)  # noqa: S603
            files = json.loads(target.read_text(encoding="utf-8"))
            sys.stdout.write(f"{name}: {len(files)} files\n")
            sys.stdout.writelines(f"  {file}\n" for file in files if arguments.list)


if __name__ == "__main__":
    main()
