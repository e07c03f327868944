"""What a person asked for on the command line when they want to talk."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Options(NamedTuple):
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

    @property
    def settings(self) -> dict[str, object]:
        """The options that are settings."""
        return {name: value for name, value in (("model", self.model), ("busy", self.busy)) if value is not None}
