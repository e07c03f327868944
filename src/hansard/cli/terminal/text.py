"""Text for a terminal: made safe, and broken into lines that fit.

Untrusted text becomes text that cannot command a terminal, nor look like what it is not (`safe`):

| input                                         | becomes           | because                                     |
| --------------------------------------------- | ----------------- | ------------------------------------------- |
| newline, tab                                  | itself            | they are layout                             |
| carriage return                               | nothing           | it would write over the line                |
| other C0 controls and delete                  | their picture: ␛  | escape sequences start there                |
| C1 controls                                   | U+FFFD            | some terminals obey them as well            |
| line and paragraph separators                 | a newline         | terminals do not know them                  |
| embeddings, overrides and isolates of writing | nothing           | the line would read in another order        |
| zero-width spaces, fillers and tag letters    | nothing           | words would hide, or hide in other words    |
| halves of surrogate pairs                     | U+FFFD            | they cannot be encoded                      |

In JSON each of these is written as its escape, so that a program still reads what was said.
Joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji are written with them. Each character is judged alone,
so text that was cut anywhere comes out the same.

Lines are measured in terminal cells: CJK and emoji take two. They are filled greedily from the left, so text that is
still growing never moves what stands on an earlier line. Chinese and Japanese may break between any two characters;
closing punctuation never starts a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Final

REPLACEMENT: Final = "\ufffd"

# U+2400 and on: a picture of each control character.
PICTURES_START: Final = 0x2400
DELETE: Final = 0x7F
DELETE_PICTURE: Final = "\u2421"
SPACE: Final = 0x20

DROPPED: Final = (
    "\r"
    "\u00ad\u034f\u061c\u180e"
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\u115f\u1160\u3164\uffa0"
    "\ufeff\ufff9-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""What vanishes, as the inside of a character class."""

UNSAFE: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{DROPPED}]")
GONE: Final = re.compile(f"[{DROPPED}]")


def safe(text: str) -> str:
    """Return the text as a terminal may have it; nearly always the very same object."""
    return text if UNSAFE.search(text) is None else UNSAFE.sub(_harmless, text)


def safe_line(text: str) -> str:
    """Return the text on one line: every run of white space is one space."""
    return " ".join(safe(text).split())


def safe_json(text: str) -> str:
    """Return JSON that says the same, and of which a terminal is given nothing unsafe: escapes stand for it."""
    return text if UNSAFE.search(text) is None else UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))


def _harmless(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if GONE.match(character):
        return ""
    if code < SPACE:
        return chr(PICTURES_START + code)
    if code == DELETE:
        return DELETE_PICTURE
    return "\n" if character in "\u2028\u2029" else REPLACEMENT


STYLED: Final = re.compile(r"\x1b\[([\d;]*)m")
"""What switches a style on or off."""

ELLIPSIS: Final = "…"

ID_ENDING_CHARACTERS: Final = 6
"""Of a session's id, where there is no room for all of it: the ending tells sessions apart."""

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
    return len(text) if text.isascii() else _cell_len()(text)


@cache
def _cell_len() -> Callable[[str], int]:
    from rich.cells import cell_len  # noqa: PLC0415 - slow, and most commands print ASCII only

    return cell_len


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


def tail_rows(text: str, *, columns: int, rows_max: int) -> str:
    """Return the last lines of a styled text that fit into so many rows, lines that the terminal wraps included."""
    lines = text.split("\n")
    rows = 0
    for index in range(len(lines) - 1, -1, -1):
        rows += max(1, math.ceil(cells(STYLED.sub("", lines[index])) / max(1, columns)))
        if rows > rows_max:
            return "\n".join(lines[index + 1 :]) or lines[-1]
    return text
