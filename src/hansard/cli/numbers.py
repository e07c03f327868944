"""Numbers on the command line: one type, which always has both bounds."""

from __future__ import annotations

from typing import Any, Final

import click

NUMBER_MAX: Final = 1_000_000_000
"""The largest number that a command takes: more than a record has of anything, and every layer below can hold it."""

QUOTED_CHARACTERS_MAX: Final = 40
"""Of a word that is no number, or no good one, where the usage error quotes it."""


class WholeNumber(click.IntRange):
    """A whole number from `least` to `most`, both included. Anything else is a usage error."""

    def __init__(self, least: int = 1, most: int = NUMBER_MAX) -> None:
        """Everything has a limit: there is no number without bounds."""
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the number; what cannot be one is refused unread, however long it is."""
        if isinstance(value, str) and len(value) > QUOTED_CHARACTERS_MAX:
            self.fail(f"{value[:QUOTED_CHARACTERS_MAX]}… is not in the range {self._describe_range()}.", param, ctx)
        return int(super().convert(value, param, ctx))
