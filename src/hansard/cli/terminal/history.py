"""What was typed before, in a file that only its owner may read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory, ThreadedHistory

ENTRY_CHARACTERS_MAX: Final = 64 * 1024
"""What is longer was pasted, and is in the record; nobody looks for it with the arrow keys."""

MODE: Final = 0o600


class PrivateHistory(FileHistory):
    """A convenience: when the disk refuses it, the conversation goes on without it."""

    def __init__(self, path: Path) -> None:
        """Create the file for its owner alone, or make it so."""
        super().__init__(path)
        self.path = path
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(descriptor, MODE)
        finally:
            os.close(descriptor)

    def store_string(self, string: str) -> None:
        """Keep what was typed, if it can be kept."""
        if len(string) > ENTRY_CHARACTERS_MAX:
            return
        try:
            super().store_string(string)
        except OSError:
            return


def open_history(path: Path | None) -> History:
    """Return the history in a file; without one, or where none can be made, of this run only."""
    if path is None:
        return InMemoryHistory()
    try:
        return ThreadedHistory(PrivateHistory(path))
    except OSError:
        return InMemoryHistory()
