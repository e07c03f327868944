"""A list of sessions on a terminal: a heading, no column that says the same in every line, no line that wraps."""

from __future__ import annotations

from typing import Final

from hansard.cli.terminal.wrap import cells, cut

NAMES: Final = ("id", "last active", "msgs", "state", "source", "owner", "about")
OFTEN_THE_SAME: Final = frozenset({"source", "owner"})
BETWEEN: Final = "  "


def table(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Return the lines of a list, the heading first."""
    shown = [
        place for place, name in enumerate(NAMES) if name not in OFTEN_THE_SAME or len({row[place] for row in rows}) > 1
    ]
    lines = [[each[place] for place in shown] for each in (NAMES, *rows)]
    widths = [max(cells(line[place]) for line in lines) for place in range(len(shown))]
    return [cut(BETWEEN.join(map(padded, line, widths)).rstrip(), width) for line in lines]


def padded(text: str, width: int) -> str:
    """Return a cell as wide as its column; numbers stand at its right."""
    space = " " * (width - cells(text))
    return space + text if text.isdecimal() else text + space
