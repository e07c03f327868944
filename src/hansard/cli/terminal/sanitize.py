"""Untrusted text becomes text that cannot command a terminal, nor look like what it is not.

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
"""

from __future__ import annotations

import re
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
