"""A terminal in memory: bytes in, rows of text out. It knows what the program writes, and refuses all else.

One drawing of the program is one synchronised update: at the end of each the rows are looked at, so that what stood on
the screen for the twentieth part of a second counts as shown.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from wcwidth import wcwidth

TOKEN = re.compile(
    r"\x1b\[(?P<numbers>[0-9;?]*)(?P<command>[ !]?[@-~])"
    r"|\x1b\](?P<title>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    r"|\x1b(?P<cursor>[78])"
    r"|(?P<control>[\r\n\b\x07])"
    r"|(?P<text>[^\x1b\r\n\b\x07]+)"
)
SYNCHRONISED_END = "?2026l"
IGNORED = frozenset({"m", "h", "l", " q", "t"})
"""Styles, modes and shapes of the cursor: they move and change no text."""


class Paper:
    """Rows of cells, the cursor, and what has scrolled away."""

    def __init__(self, columns: int, rows: int, seen: Callable[[], None]) -> None:
        """`seen` is called whenever a drawing is complete."""
        self.columns, self.rows = columns, rows
        self.history: list[str] = []
        self._seen = seen
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""
        self._cells = [self._blank() for _ in range(rows)]
        self._row = self._column = 0
        self._kept = (0, 0)
        self._wraps = True
        self._commands: dict[str, Callable[[int, list[int]], None]] = {
            "A": lambda count, _: self._move(self._row - count, self._column),
            "B": lambda count, _: self._move(self._row + count, self._column),
            "C": lambda count, _: self._move(self._row, self._column + count),
            "D": lambda count, _: self._move(self._row, min(self._column, self.columns - 1) - count),
            "G": lambda count, _: self._move(self._row, count - 1),
            "H": lambda count, numbers: self._move(count - 1, (numbers[1:] or [1])[0] - 1),
            "J": lambda _, numbers: self._erase_rows((numbers or [0])[0]),
            "K": lambda _, numbers: self._erase_row((numbers or [0])[0]),
        }

    @property
    def screen(self) -> list[str]:
        """The rows that can be seen, without the space at their ends."""
        return ["".join(cells).rstrip() for cells in self._cells]

    def feed(self, data: bytes) -> None:
        """Write what the program wrote."""
        text = self._rest + self._decode(data)
        place = 0
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is None:
                break
            self._take(found)
            place = found.end()
        self._rest = text[place:]
        assert len(self._rest) < 100, f"unknown to this terminal: {self._rest[:40]!r}"

    def _take(self, found: re.Match[str]) -> None:
        if found["text"]:
            for character in found["text"]:
                self._write(character)
        elif found["control"]:
            self._control(found["control"])
        elif found["cursor"] == "7":
            self._kept = (self._row, self._column)
        elif found["cursor"] == "8":
            self._move(*self._kept)
        elif found["command"]:
            numbers = [int(number or 1) for number in found["numbers"].lstrip("?").split(";") if number]
            self._command(found["numbers"] + found["command"], found["command"], numbers)

    def _command(self, whole: str, name: str, numbers: list[int]) -> None:
        if whole == SYNCHRONISED_END:
            self._seen()
        elif whole in {"?7h", "?7l"}:
            self._wraps = whole == "?7h"
        elif name not in IGNORED:
            assert name in self._commands, f"unknown to this terminal: {whole!r}"
            self._commands[name]((numbers or [1])[0], numbers)

    def _control(self, character: str) -> None:
        if character == "\n":
            self._feed_line()
        elif character == "\r":
            self._column = 0
        elif character == "\b":
            self._move(self._row, self._column - 1)

    def _write(self, character: str) -> None:
        width = wcwidth(character)
        if width <= 0:
            before = max(0, min(self._column, self.columns) - 1)
            self._cells[self._row][before] += character
            return
        if self._column + width > self.columns:
            if self._wraps:
                self._column = 0
                self._feed_line()
            else:
                self._column = self.columns - width
        cells = self._cells[self._row]
        cells[self._column] = character
        if width > 1:
            cells[self._column + 1] = ""
        self._column += width

    def _feed_line(self) -> None:
        if self._row < self.rows - 1:
            self._row += 1
            return
        self.history.append("".join(self._cells.pop(0)).rstrip())
        self._cells.append(self._blank())

    def _move(self, row: int, column: int) -> None:
        self._row = max(0, min(row, self.rows - 1))
        self._column = max(0, min(column, self.columns - 1))

    def _erase_rows(self, what: int) -> None:
        if what == 0:
            self._erase_row(0)
            self._cells[self._row + 1 :] = [self._blank() for _ in range(self._row + 1, self.rows)]
        elif what == 2:
            self._cells = [self._blank() for _ in range(self.rows)]

    def _erase_row(self, what: int) -> None:
        cells = self._cells[self._row]
        column = min(self._column, self.columns)
        begin, end = {0: (column, self.columns), 1: (0, column + 1), 2: (0, self.columns)}[what]
        cells[begin:end] = [" "] * (end - begin)

    def _blank(self) -> list[str]:
        return [" "] * self.columns
