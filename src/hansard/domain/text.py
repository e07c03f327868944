"""The one table of what text and numbers cannot be recorded as they are, and what becomes of them (rule 16).

| input                           | becomes                      | because                                  |
| ------------------------------- | ---------------------------- | ---------------------------------------- |
| a surrogate pair in two halves  | the character it stands for  | it was cut by a 16-bit source            |
| a lone surrogate                | U+FFFD                       | UTF-8 cannot carry it                    |
| NUL                             | U+FFFD                       | databases and terminals cut text there   |
| NaN, Infinity, -Infinity        | their names, as text         | JSON has no such numbers                 |
| an integer beyond ±2^53         | its digits, as text          | most JSON readers would round it         |
| a key that is not text          | its text                     | JSON objects have text keys              |
| anything that is not JSON       | refused: InvalidInput        | a guess would be a lie                   |
"""

from __future__ import annotations

import math

from hansard.errors import InvalidInput, TooLarge

REPLACEMENT = "\ufffd"
INTEGER_MAX = 2**53
NESTING_MAX = 64
SHORT_CHARACTERS = 60
"""What is shown of a longer text where only its beginning has room."""


def clean_text(text: str) -> str:
    """Return the text as it can be recorded; nearly always the very same object."""
    if not isinstance(text, str):
        message = f"text must be str, not {type(text).__name__}"
        raise InvalidInput(message)
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def split_pending_surrogate(text: str) -> tuple[str, str]:
    """Split off a trailing first half of a surrogate pair: its second half may come with the next chunk."""
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""


def clean_value(value: object, depth: int = 0) -> object:
    """Return a JSON value as it can be recorded."""
    if depth > NESTING_MAX:
        message = f"a JSON value is nested deeper than {NESTING_MAX} levels"
        raise TooLarge(message)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        return value if -INTEGER_MAX <= value <= INTEGER_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, dict):
        return {clean_text(str(key)): clean_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(item, depth + 1) for item in value]
    message = f"a value of type {type(value).__name__} is not JSON"
    raise InvalidInput(message)


def clean_name(text: str, what: str, characters_max: int) -> str:
    """Return a one-line name; refuse what is empty, too long or holds control characters."""
    cleaned = clean_text(text)
    if not cleaned or not cleaned.isprintable():
        message = f"{what} must be printable text on one line, not {text[:80]!r}"
        raise InvalidInput(message)
    if len(cleaned) > characters_max:
        message = f"{what} has {len(cleaned)} characters; the limit is {characters_max}"
        raise TooLarge(message)
    return cleaned


def shorten(text: str, characters_max: int = SHORT_CHARACTERS) -> str:
    """Return the beginning of a text, on one line."""
    words = " ".join(text.split())
    return words if len(words) <= characters_max else f"{words[: characters_max - 1]}…"


def utf16_units(text: str) -> int:
    """Return how many code units of UTF-16 a text has: some platforms count so."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
