"""Running a coroutine as a process: signals end it in order, and the exit code says how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_COULD_NOT_RUN = 2
SIGNAL_EXIT_BASE = 128

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(main: Callable[[], Coroutine[None, None, int]], signals: tuple[signal.Signals, ...] = ENDING_SIGNALS) -> int:
    """Run to the end; a signal cancels, which ends turns in the record, and becomes the exit code."""
    code = asyncio.run(_run(main, signals))
    if code == SIGNAL_EXIT_BASE + signal.SIGHUP:
        silence_stdout()
    return code


def silence_stdout() -> None:
    """Nobody reads standard output any more: let what Python still flushes at its end go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _run(main: Callable[[], Coroutine[None, None, int]], signals: tuple[signal.Signals, ...]) -> int:
    received: list[signal.Signals] = []
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())

    def end(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

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
