"""What every `hansard` shares: the table of what is imported late, the options of a talk, signals and exit codes."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO, TypeVar

import msgspec

from hansard.cli import leave_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

    from typing_extensions import Buffer

Result = TypeVar("Result")


EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_COULD_NOT_RUN = 2
SIGNAL_EXIT_BASE = 128

EXIT_READER_GONE = SIGNAL_EXIT_BASE + signal.SIGPIPE
"""As a shell reports a program that was ended by a closed pipe."""

STANDARD_OUTPUT = "standard output"

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SIGNALS_TO_LEAVE: Final = 2
"""The first signal ends what is under way; at this one it is waited for no longer than LEAVE_SECONDS."""

LEAVE_SECONDS: Final = 2.0

LEFT_AT_ONCE: Final = (
    "hansard: left without waiting for the record. What was shown is recorded; the next hansard ends what is left open."
)


def run(main: Callable[[], Coroutine[None, None, Result]]) -> Result:
    """Run to the end. A signal cancels, which ends turns and closes the record; then it ends this process.

    `asyncio.run` alone does not do: Ctrl-C would end the process at once (`hansard.cli.end_at_interrupt`), and leave
    behind what is closed at the end.
    """
    received: list[signal.Signals] = []
    try:
        return asyncio.run(_run(main, received))
    except asyncio.CancelledError:
        if received:
            exit_by(received[0])
        raise


def signals_to_catch() -> list[signal.Signals]:
    """Return the signals that end this process. It may have been started so that it ignores some: by `nohup`.

    Python lets the main thread handle signals, and no other.
    """
    if threading.current_thread() is not threading.main_thread():
        return []
    return [number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def exit_by(number: int) -> NoReturn:
    """Raise the end of this process with the exit code of a signal."""
    if number == signal.SIGHUP:
        silence_stdout()
    sys.exit(SIGNAL_EXIT_BASE + number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Do the same for work without an event loop: a signal raises SystemExit in it, so that it cleans up."""

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        exit_by(number)

    before = {number: signal.signal(number, end) for number in signals_to_catch()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def silence_stdout() -> None:
    """Nobody reads standard output any more: let what Python still flushes at its end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def ending_without_reader() -> Iterator[None]:
    """End the process where the reader of standard output goes away. click would end it with 1, as for findings."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError as error:
        if error.filename != STANDARD_OUTPUT:
            raise
        silence_stdout()
        sys.exit(EXIT_READER_GONE)


def fill_standard_streams() -> bool:
    """Put the null device where a standard stream is closed; return whether standard output was.

    Otherwise the next file that is opened would get its number, and be written to or read in its place.
    """
    closed = [number for number in (0, 1, 2) if not is_descriptor(number)]
    for number in closed:
        opened = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
    # Python leaves a stream out that was closed when it began.
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays until the end
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = named_stdout()
    return 1 in closed


def named_stdout() -> TextIO:
    """Return standard output as it is, but for the name in its errors."""
    buffer = io.BufferedWriter(StandardOutput(1, "w", closefd=False))
    old = sys.stdout
    if not isinstance(old, io.TextIOWrapper):
        return io.TextIOWrapper(buffer, encoding="utf-8")
    return io.TextIOWrapper(
        buffer,
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )


class StandardOutput(io.FileIO):
    """Standard output whose errors say what they are about: of a full disk, otherwise, nobody could tell which file."""

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def is_descriptor(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


async def _run(main: Callable[[], Coroutine[None, None, Result]], received: list[signal.Signals]) -> Result:
    leaving: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    at_interrupt = signal.getsignal(signal.SIGINT)

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()
        if len(received) == SIGNALS_TO_LEAVE:
            code = SIGNAL_EXIT_BASE + received[0]
            leaving.append(loop.call_later(LEAVE_SECONDS, leave_at_once, code, LEFT_AT_ONCE))

    signals = signals_to_catch()
    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if signal.SIGINT in signals:
            signal.signal(signal.SIGINT, at_interrupt)  # the loop has put Python's own in its place
        for timer in leaving:
            timer.cancel()


COMMANDS: Final = {
    "audit": ("hansard.cli.audit", "Compare what a room shows with what the record holds."),
    "config": ("hansard.cli.config", "Show or check the settings, and where each comes from."),
    "deliveries": ("hansard.cli.deliveries", "List what was not shown in a chat; try it again, or drop it."),
    "explain": ("hansard.cli.explain", "Say why a turn's tools were run or not, or whether one would be."),
    "export": ("hansard.cli.export", "Write sessions out: jsonl, markdown, html, chat."),
    "gateway": ("hansard.cli.gateway", "Run the channels that are configured; tell how they do."),
    "import": ("hansard.cli.importing", "Take conversations from Hermes, or from an export, into the record."),
    "memory": ("hansard.cli.memory", "Show and change what the agent remembers."),
    "models": ("hansard.cli.models", "Show which model would answer; install the demo model."),
    "pair": ("hansard.cli.pair", "Show who may talk to the agent in chats; allow and bar people."),
    "people": ("hansard.cli.people", "Show who is one person in several chats; link and part them."),
    "permissions": ("hansard.cli.permissions", "Show what people allowed beyond one call; revoke it."),
    "search": ("hansard.cli.search", "Find what was said, in all sessions."),
    "sessions": ("hansard.cli.sessions", "List sessions; show, title, end, fork or undo one."),
    "verify": ("hansard.cli.verify", "Prove that database, logs and projections agree."),
}
"""Each command's module, and what help says of it without importing it."""

TALKS: Final = {
    "once": "hansard.cli.once",
    "chat": "hansard.cli.chat",
    "lines": "hansard.cli.lines",
}
"""What `hansard` does without a command: one question, a conversation in a terminal, or one through pipes."""

PARTS: Final = {
    "show": "hansard.cli.sessions_show",
    "settings": "hansard.app.config",
    "secrecy": "hansard.app.secrecy",
}
"""Parts of commands that only some of their calls need."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `hansard` without a command. None: not given; an empty text: given without a value."""

    home: Path
    debug: bool = False
    resume: str | None = None
    continued: bool = False
    prompt: str | None = None
    model: str | None = None
    busy: str | None = None
    follow: bool = False
    json: bool = False
    file: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, object]:
        nobody = 0 if self.prompt is not None else None  # who asks one question is not there to answer another
        return {"model": self.model, "busy": self.busy, "tools.ask_seconds": nobody}
