"""What was typed before, in a file that only its owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

ENTRY_CHARACTERS_MAX: Final = 64 * 1024
"""What is longer was pasted, and is in the record; nobody looks for it with the arrow keys."""

READ_BYTES_MAX: Final = 1024 * 1024
"""The end of the file that is read: the prompt does not wait for years of typing."""

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

    def load_history_strings(self) -> Iterable[str]:
        """Return what was typed, the latest first. The lines of one message start with a plus."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES_MAX))
                text = file.read().decode(errors="replace")
        except OSError:
            return []
        typed: list[list[str]] = [[]]
        for line in text.split("\n"):
            if line.startswith("+"):
                typed[-1].append(line[1:])
            elif typed[-1]:
                typed.append([])
        return ["\n".join(lines) for lines in reversed(typed) if lines]

    def store_string(self, string: str) -> None:
        """Keep what was typed, if it can be kept."""
        if len(string) > ENTRY_CHARACTERS_MAX:
            return
        try:
            super().store_string(string)
        except OSError:
            return


def open_history(path: Path | None) -> tuple[History, str]:
    """Return the history in a file, or of this run only; and why the file cannot be used."""
    if path is None:
        return InMemoryHistory(), ""
    try:
        return PrivateHistory(path), ""
    except OSError as error:
        return InMemoryHistory(), f"What you type is not kept for the arrow keys: {path}: {error.strerror}."
