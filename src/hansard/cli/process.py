"""What every `hansard` shares: the table of what is imported late, the options of a talk, signals and exit codes."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from typing_extensions import Buffer


EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_COULD_NOT_RUN = 2
SIGNAL_EXIT_BASE = 128

STANDARD_OUTPUT = "standard output"

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SIGNALS_TO_LEAVE: Final = 2
"""The first signal ends what is under way; at this one it is waited for no longer than LEAVE_SECONDS."""

LEAVE_SECONDS: Final = 2.0

LEFT_AT_ONCE: Final = (
    "hansard: left without waiting for the record. What was shown is recorded; the next hansard ends what is left open."
)


def run(main: Callable[[], Coroutine[None, None, int]], signals: tuple[signal.Signals, ...] = ENDING_SIGNALS) -> int:
    """Run to the end; a signal cancels, which ends turns in the record, and becomes the exit code."""
    code = asyncio.run(_run(main, signals))
    if code == SIGNAL_EXIT_BASE + signal.SIGHUP:
        silence_stdout()
    return code


def silence_stdout() -> None:
    """Nobody reads standard output any more: let what Python still flushes at its end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


def leave(code: int) -> None:
    """End this process as a kill would, which the record survives."""
    with suppress(OSError):
        os.write(2, f"{LEFT_AT_ONCE}\n".encode())
    os._exit(code)


async def _run(main: Callable[[], Coroutine[None, None, int]], signals: tuple[signal.Signals, ...]) -> int:
    received: list[signal.Signals] = []
    leaving: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    at_interrupt = signal.getsignal(signal.SIGINT)

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()
        if len(received) == SIGNALS_TO_LEAVE:
            leaving.append(loop.call_later(LEAVE_SECONDS, leave, SIGNAL_EXIT_BASE + received[0]))

    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return SIGNAL_EXIT_BASE + received[0]
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
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
        given = (("model", self.model), ("busy", self.busy), ("tools.ask_seconds", nobody))
        return {name: value for name, value in given if value is not None}
