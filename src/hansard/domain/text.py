"""The one table of what text and numbers cannot be recorded as they are, and what becomes of them (rule 16).

| input                           | becomes                      | because                                  |
| ------------------------------- | ---------------------------- | ---------------------------------------- |
| a surrogate pair in two halves  | the character it stands for  | it was cut by a 16-bit source            |
| a lone surrogate                | U+FFFD, and an escape        | UTF-8 cannot carry it                    |
| NUL                             | U+FFFD, and an escape        | databases and terminals cut text there   |
| NaN, Infinity, -Infinity        | their names, as text         | JSON has no such numbers                 |
| an integer beyond ±2^53         | its digits, as text          | most JSON readers would round it         |
| a key that is not text          | its text                     | JSON objects have text keys              |
| anything that is not JSON       | refused: InvalidInput        | a guess would be a lie                   |

An escape says which U+FFFD of a text stands for which code unit. It lies beside the text, in the part of the message
(`escaped`), so that text is never misread: a U+FFFD without an escape is one that somebody wrote. Views show the text
and need not know of escapes; `restore_text` gives what came in. Format 1 is `1|FIELD=RUNS|FIELD=RUNS…`; a run is
`SKIPPED:UNIT`, with `*COUNT` for several in a row: how many characters lie before it since the last run, the code
unit in hexadecimal, and how often it stands there. Runs are joined by commas.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import cache
from typing import TypeVar

import msgspec

from hansard.domain.limits import NAME_CHARACTERS_MAX
from hansard.errors import InvalidInput, TooLarge

Struct = TypeVar("Struct", bound=msgspec.Struct)
State = TypeVar("State", bound=StrEnum)

REPLACEMENT = "\ufffd"
ESCAPE_FORMAT = "1"
UNCARRIED = re.compile("[\0\ud800-\udfff]")
UNCARRIED_RUN = re.compile("([\0\ud800-\udfff])\\1*")
RUN = re.compile(r"([0-9]{1,9}):([0-9a-f]{1,4})(?:\*([0-9]{1,9}))?")
INTEGER_MAX = 2**53
NESTING_MAX = 64
SHORT_CHARACTERS = 60
"""What is shown of a longer text where only its beginning has room."""


def clean_text(text: str) -> str:
    """Return the text as it can be recorded; nearly always the very same object."""
    if not isinstance(text, str):
        raise InvalidInput(f"text must be str, not {type(text).__name__}")
    return text if is_clean(text) else UNCARRIED.sub(REPLACEMENT, join_halves(text))


def is_clean(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def join_halves(text: str) -> str:
    """Return the text with the character in place of each surrogate pair that stands in two halves."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def escape_text(text: str) -> tuple[str, str]:
    """Return the text as it can be recorded, and the runs of what could not be; those are nearly always empty."""
    cleaned = clean_text(text)
    if cleaned is text:
        return text, ""
    runs: list[str] = []
    end = 0
    for found in UNCARRIED_RUN.finditer(join_halves(text)):
        count = found.end() - found.start()
        runs.append(f"{found.start() - end}:{ord(found[1]):x}" + (f"*{count}" if count > 1 else ""))
        end = found.end()
    return cleaned, ",".join(runs)


def restore_text(text: str, runs: str) -> str:
    """Return what came in, from the text and its runs. Runs that do not fit the text are left out."""
    pieces: list[str] = []
    end = 0
    for run in runs.split(",") if runs else ():
        fits = RUN.fullmatch(run)
        if fits is None:
            break
        start = end + int(fits[1])
        count = int(fits[3] or 1)
        unit = chr(int(fits[2], 16))
        fits_text = start + count <= len(text) and not text[start : start + count].strip(REPLACEMENT)
        if not fits_text or UNCARRIED.fullmatch(unit) is None:
            break
        pieces += [text[end:start], unit * count]
        end = start + count
    return "".join([*pieces, text[end:]])


def join_escapes(runs: dict[str, str]) -> str:
    """Return the escapes of several fields as one text; empty when there are none."""
    fields = [f"{name}={each}" for name, each in runs.items() if each]
    return "|".join([ESCAPE_FORMAT, *fields]) if fields else ""


def split_escapes(escaped: str) -> dict[str, str]:
    """Return the runs of each field; none of a format that is not known."""
    version, *fields = escaped.split("|")
    if version != ESCAPE_FORMAT:
        return {}
    return {name: runs for name, _, runs in (field.partition("=") for field in fields)}


def split_pending_surrogate(text: str) -> tuple[str, str]:
    """Split off a trailing first half of a surrogate pair: its second half may come with the next chunk."""
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""


def clean_value(value: object, depth: int = 0) -> object:
    if depth > NESTING_MAX:
        raise TooLarge(f"a JSON value is nested deeper than {NESTING_MAX} levels")
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
    raise InvalidInput(f"a value of type {type(value).__name__} is not JSON")


def clean_name(text: str, what: str, characters_max: int) -> str:
    """Return a one-line name; refuse what is empty, too long or holds control characters."""
    cleaned = clean_text(text)
    if not cleaned or not cleaned.isprintable():
        raise InvalidInput(f"{what} must be printable text on one line, not {text[:80]!r}")
    if len(cleaned) > characters_max:
        hint = "Give a shorter one. Nothing was changed."
        raise TooLarge(f"{what} has {len(cleaned)} characters; the limit is {characters_max}", hint)
    return cleaned


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a kind of value; msgspec reads its annotations anew each time."""
    return msgspec.structs.fields(kind)


def clean_struct(value: Struct) -> Struct:
    """Return a value of names with every text as it can be recorded; only fields with a default may be empty."""
    changes = {}
    for field in fields_of(type(value)):
        text = getattr(value, field.name)
        if isinstance(text, str) and not isinstance(text, StrEnum) and (text or field.required):
            changes[field.name] = clean_name(text, f"a {field.name.replace('_', ' ')}", NAME_CHARACTERS_MAX)
    return msgspec.structs.replace(value, **changes)


def read_state(states: type[State], text: str) -> State:
    try:
        return states(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is none of {', '.join(states)}") from None


def shorten(text: str, characters_max: int = SHORT_CHARACTERS) -> str:
    words = " ".join(text.split())
    return words if len(words) <= characters_max else f"{words[: characters_max - 1]}…"


def utf16_units(text: str) -> int:
    """Return how many code units of UTF-16 a text has: some platforms count so."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
