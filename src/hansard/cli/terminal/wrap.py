"""Text becomes lines that fit, and rows become a table. Widths are those of terminal cells: CJK and emoji take two.

Lines are filled greedily from the left, so text that is still growing never moves what stands on an earlier line.
Chinese and Japanese may break between any two characters; closing punctuation never starts a line.
"""

from __future__ import annotations

import re
from typing import Final

from rich.cells import cell_len

ELLIPSIS: Final = "…"
TAB_COLUMNS: Final = 4

OPENING: Final = "「『【〔〈《（［｛〖〘〚"  # noqa: RUF001 - the full-width forms are meant
CLOSING: Final = "」』】〕〉》）］｝〗〙〛、。，．：；！？ー々…‥・"  # noqa: RUF001 - as above
JOINED: Final = "\u200c\u200d\ufe00-\ufe0f\u0300-\u036f\u3099\u309a"
BREAKING: Final = (
    "\u2e80-\u3029\u3030-\u303e\u3041-\u3096\u309b-\u33ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff01-\uff60\U00020000-\U0003fffd"
)
ATOM: Final = re.compile(rf"(?:[{OPENING}]*[{BREAKING}][{CLOSING}{JOINED}]*|[^ {BREAKING}]+[{CLOSING}{JOINED}]*) *| +")
"""What is never broken unless it is wider than the line, with the spaces after it."""


def cells(text: str) -> int:
    """Return how many cells the text takes."""
    return len(text) if text.isascii() else cell_len(text)


def breaks(text: str, width: int) -> list[int]:
    """Return where to break one line of text so that each piece fits; spaces at the breaks may hang over."""
    if len(text) <= width and text.isascii():
        return []
    offsets: list[int] = []
    column = 0
    for found in ATOM.finditer(text):
        word = found[0].rstrip(" ")
        taken = cells(word)
        if column and column + taken > width:
            offsets.append(found.start())
            column = 0
        column = column + taken if taken <= width else _fold(word, found.start(), width, offsets)
        column += len(found[0]) - len(word)
    return offsets


def _fold(word: str, start: int, width: int, offsets: list[int]) -> int:
    """Break inside a word that is wider than a line; return the column where it ends."""
    column = 0
    for index, character in enumerate(word, start):
        taken = cells(character)
        if column and column + taken > width:
            offsets.append(index)
            column = 0
        column += taken
    return column


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text, each no wider than the width. Spaces that lead a line stay."""
    lines: list[str] = []
    for line in text.expandtabs(TAB_COLUMNS).split("\n"):
        start = 0
        for end in [*breaks(line, max(1, width)), len(line)]:
            lines.append(line[start:end].rstrip(" "))
            start = end
    return lines


def cut(text: str, width: int) -> str:
    """Return one line of text, cut where it would be wider than the width."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    column = cells(ELLIPSIS)
    for character in text:
        column += cells(character)
        if column > width:
            break
        kept.append(character)
    return "".join(kept).rstrip(" ") + ELLIPSIS


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
