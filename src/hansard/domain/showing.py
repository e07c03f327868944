"""How a tool call is shown to people who are asked about it: decoded, sorted, complete, and as nothing else.

A sign that changes how others are shown, or that nobody sees, is written as its number. What is shown is read from
the bytes that the tool is given, by the same reader, so nothing that is run is missing from it.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

import msgspec

from hansard.domain.text import utf16_units

TEXT_UNITS_MAX: Final = 2500
"""Arguments that stand in the question itself, in units of UTF-16: with the words around them they are one post."""

FILE_BYTES_MAX: Final = 1_000_000
"""Arguments that are attached as a file. Nobody reads more than that before saying yes."""

TERMINAL_CHARACTERS_MAX: Final = 100_000
"""Arguments that are printed at a terminal."""

UNSEEN: Final = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE10),
        *range(0xE0000, 0xE0080),
        *range(0xE0100, 0xE01F0),
    ]
)
"""Signs that nobody sees, whatever Unicode calls them: fillers, blanks, variation selectors and tags."""

MARKS_MAX: Final = 4
"""Combining marks on one sign that are shown. No language needs more; a tower of them covers other lines."""


def show_arguments(arguments: str) -> str:
    """Return the arguments of a call as people read them. ValueError: they are no JSON object, so no tool takes them.

    It is JSON again, so that nothing in a text can be taken for another argument.
    """
    try:
        decoded = msgspec.json.decode(arguments or "{}", type=dict[str, object])
        text = json.dumps(decoded, indent=2, sort_keys=True, ensure_ascii=False)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return "\n".join(map(show_line, text.split("\n")))


def show_line(text: str) -> str:
    """Return a text in one line, such as a tool's name. Signs that nobody sees, or that hide others, are numbers."""
    shown, marks = [], 0
    for sign in text:
        marks = marks + 1 if is_mark(sign) else 0
        is_shown = is_plain(sign) and marks <= MARKS_MAX
        shown.append(sign if is_shown else escape(sign))
    return "".join(shown)


def is_plain(sign: str) -> bool:
    """Return whether people see a sign, and it turns no others."""
    return sign.isprintable() and ord(sign) not in UNSEEN


def is_mark(sign: str) -> bool:
    """Return whether a sign is drawn over, under or around the one before it."""
    return unicodedata.category(sign) in {"Mn", "Me"}


def escape(sign: str) -> str:
    """Return a sign as its number, as JSON writes it."""
    data = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{data[place]:02x}{data[place + 1]:02x}" for place in range(0, len(data), 2))


def fits_in_post(shown: str) -> bool:
    """Return whether arguments stand in the question itself."""
    return utf16_units(shown) + 4 * shown.count("\n") <= TEXT_UNITS_MAX
