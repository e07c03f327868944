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
    file: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, object]:
        """The options that are settings."""
        nobody = 0 if self.prompt is not None else None  # who asks one question is not there to answer another
        given = (("model", self.model), ("busy", self.busy), ("tools.ask_seconds", nobody))
        return {name: value for name, value in given if value is not None}
