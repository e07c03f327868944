"""Where the screen's bytes go: each drawing is one write, and the terminal is asked to show it at once."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TextIO

from prompt_toolkit.data_structures import Size
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from hansard.cli.terminal.text import cells

if TYPE_CHECKING:
    from prompt_toolkit.layout.screen import Screen as Drawing

SYNCHRONISED_BEGIN: Final = "\x1b[?2026h"
SYNCHRONISED_END: Final = "\x1b[?2026l"
ERASE_DOWN: Final = "\x1b[K\x1b7\x1b[B\x1b[J\x1b8"
"""To the end of the row; save the cursor; one row down; to the end of the screen; back."""
STYLED: Final = re.compile(r"\x1b\[([\d;]*)m")


class TerminalOutput(Vt100_Output):
    """A terminal that shows a drawing whole or not at all."""

    held = False

    @classmethod
    def on(cls, stdout: TextIO, *, colour: bool) -> TerminalOutput:
        """Return the terminal behind a stream. It is never asked for its cursor: the answer would come as input."""
        depth = ColorDepth.DEPTH_4_BIT if colour else ColorDepth.DEPTH_1_BIT

        def size() -> Size:
            try:
                columns, rows = os.get_terminal_size(stdout.fileno())
            except OSError:
                columns, rows = 0, 0
            return Size(rows=rows or 24, columns=columns or 80)

        return cls(stdout, size, term=os.environ.get("TERM"), default_color_depth=depth, enable_cpr=False)

    def hold_output(self) -> None:
        """Gather what is written from now on."""
        if not self.held:
            self.held = True
            self.write_raw(SYNCHRONISED_BEGIN)

    def release(self) -> None:
        """Show what was gathered."""
        if self.held:
            self.held = False
            self.write_raw(SYNCHRONISED_END)
            self.flush()

    def erase_down(self) -> None:
        """Erase this row and, from the one below it, the rest.

        Erased from the very first row on, some terminals keep a copy in the scrollback: it would be there twice.
        """
        self.write_raw(ERASE_DOWN)

    def disable_autowrap(self) -> None:
        """Leave it on: a row that the terminal takes after it got narrower is broken, not cut, as those before it were.

        So where a drawing begins depends on what was drawn and on the width now, not on which of them came first.
        """

    def flush(self) -> None:
        """Write, unless a drawing is being gathered."""
        if not self.held:
            super().flush()


def is_dumb(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal can only print lines, or there is none."""
    dumb = environment.get("TERM", "").lower() in ("dumb", "unknown", "")
    return dumb or not (sys.stdin.isatty() and sys.stdout.isatty())


def reflows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal breaks long lines anew when it gets narrower. Most do."""
    if "TMUX" in environment:
        return True
    return "XTERM_VERSION" not in environment and not environment.get("TERM", "").startswith(("linux", "screen"))


def rows_gained(drawing: Drawing, cursor_row: int, columns: int) -> int:
    """Return how many rows a drawing grew above its cursor when the terminal broke its lines anew."""
    gained = 0
    for row in range(cursor_row):
        line = drawing.data_buffer[row]
        width = max((column + cell.width for column, cell in line.items() if cell.char.strip()), default=0)
        gained += max(0, math.ceil(width / columns) - 1)
    return gained


def fragments(text: str) -> StyleAndTextTuples:
    """Return styled text as prompt_toolkit takes it. Faster than its own reader, which goes character by character."""
    found: StyleAndTextTuples = []
    style = ""
    for index, piece in enumerate(STYLED.split(text)):
        if index % 2:
            style = STYLES[piece] if piece in STYLES else _style(piece)
        elif piece:
            found.append((style, piece))
    return found


STYLES: Final[dict[str, str]] = {"": "", "0": ""}
"""The styles that were met, by the numbers that switch them on. Every styled run ends in a reset."""


def _style(numbers: str) -> str:
    STYLES[numbers] = to_formatted_text(ANSI(f"\x1b[{numbers}mx"))[0][0]
    return STYLES[numbers]


def tail_rows(text: str, *, columns: int, rows_max: int) -> str:
    """Return the last lines of a styled text that fit into so many rows, lines that the terminal wraps included."""
    lines = text.split("\n")
    rows = 0
    for index in range(len(lines) - 1, -1, -1):
        rows += max(1, math.ceil(cells(STYLED.sub("", lines[index])) / max(1, columns)))
        if rows > rows_max:
            return "\n".join(lines[index + 1 :]) or lines[-1]
    return text
