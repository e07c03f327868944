"""The `hansard` command. One file a command; they are loaded by name, so that none pays for another.

- `main`: options that all commands share, and which way to talk
- `process`: the table of commands, exit codes, signals, standard output
- `printing`: what commands print: JSON, headings, progress; the numbers that they take
- `existing`: opening a record that must be there already
- `talk`: a conversation at the command line, which three modules have: `chat` in a terminal (`terminal/` draws it),
  `lines` through pipes, `once` for `hansard -p`

Slash commands such as `/new` are `hansard.intake.commands`: they are the same in a terminal and in chats.
"""

from __future__ import annotations

import os
import signal
from importlib import import_module

TYPE_CHECKING = False  # Not imported from typing: until Ctrl-C is handled, nothing more is imported.
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn


def start() -> None:
    """Run the command that this process was started for. Ctrl-C is handled before anything else is imported."""
    end_at_interrupt()
    load("hansard.cli.main").main()


def end_at_interrupt() -> None:
    """Let Ctrl-C end this process at once, unless it was started with Ctrl-C ignored.

    Python's own way is an exception at any line of any import, which some swallow and others show as a traceback. What
    opens anything, or makes files to be removed, runs in `process.run` or `process.ended_by_signals`, which clean up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_process)


def end_process(number: int, frame: FrameType | None) -> None:
    del frame
    leave_at_once(128 + number, "hansard: interrupted")


def leave_at_once(code: int, words: str) -> NoReturn:
    """End this process as a kill would, which the record survives."""
    try:  # noqa: SIM105 - contextlib would be one more import before Ctrl-C is handled
        os.write(2, f"{words}\n".encode())
    except OSError:
        pass
    os._exit(code)


def load(module: str) -> Any:  # noqa: ANN401 - a module
    return import_module(module)
