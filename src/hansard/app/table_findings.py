"""What is wrong with a section such as `[mcp.NAME]`: which key, in which line, and what it must be.

Pure. msgspec says where in a value it found something wrong; here that becomes the words of a finding. A value is never
repeated: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import Final, NamedTuple

import msgspec

from hansard.app.home_files import short
from hansard.domain.settings import bare_type, metas

PLACE: Final = re.compile(r" - at `(?P<path>\$[^`]*)`\Z")
STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<number>[0-9]+)\]|\[(?P<any>\.\.\.)\]")
FIELD: Final = re.compile(r"Object (?P<what>contains unknown|missing required) field `(?P<name>[^`]*)`")
EXPECTED: Final = re.compile(r"Expected `(?P<types>[^`]*)`(?P<limit> [^,]*)?")

NOUNS: Final = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a section",
}
"""How people call what msgspec calls so."""


class Wrong(NamedTuple):
    """Something wrong within a section: the names that lead to it, and what to say of it."""

    path: tuple[str, ...]
    what: str


def explain_error(error: msgspec.ValidationError, kind: type[msgspec.Struct], key: str) -> Wrong:
    text = str(error)
    place = PLACE.search(text)
    steps = list(STEP.finditer(place["path"] if place else ""))
    path = tuple(step["name"] or step["number"] or "" for step in steps)
    name = ".".join([key, *(short(step["name"]) for step in steps if step["name"])])
    about = FIELD.match(text)
    if about is not None and about["what"] == "missing required":
        return Wrong(path, f"{name} must have {about['name']}{allowed_of(kind, about['name'], ' = ')}")
    if about is not None:
        names = [field.encode_name for field in msgspec.structs.fields(kind)] if not path else []
        near = close_matches(about["name"], names, 1)
        known = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}" if names else ""
        return Wrong((*path, about["name"]), f"{name}.{short(about['name'])} is not a setting{known}")
    field = path[0] if path else ""
    return Wrong(path, f"{name} must be {allowed_of(kind, field) or expected_in(text)}")


def allowed_of(kind: type[msgspec.Struct], field: str, before: str = "") -> str:
    """Return what may be written for a field, where its type says so; empty otherwise."""
    for each in msgspec.structs.fields(kind):
        if each.name == field:
            bare = bare_type(each.type)
            texts = [meta.extra["allowed"] for meta in metas(each.type) if meta.extra]
            if texts:
                return f"{before}{texts[-1]}"
            if isinstance(bare, type) and issubclass(bare, StrEnum):
                return f"{before}{', '.join(list(bare)[:-1])} or {list(bare)[-1]}"
    return ""


def expected_in(text: str) -> str:
    found = EXPECTED.match(PLACE.sub("", text))
    if found is None:
        return "otherwise: docs/run/configuration.md tells how"
    nouns = [NOUNS.get(name, name) for name in found["types"].split(" | ") if name != "null"]
    limit = (found["limit"] or "").strip()
    if "regex" in limit:
        return "in the form that docs/run/configuration.md tells"
    return " ".join([" or ".join(nouns), *([limit] if limit else [])])


def close_matches(word: str, names: list[str], count_max: int, likeness_min: float = 0.6) -> list[str]:
    """Return the names most like a word. The library is loaded when something is misspelt, not with every command."""
    found: list[str] = import_module("difflib").get_close_matches(word, names, count_max, likeness_min)
    return found


def line_of(lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> int:
    """Return the line of a key, or of the nearest section that it lies in; 0 when none is known."""
    names = tuple(name for name in path if not name.isdecimal())
    return next((lines[names[:end]] for end in range(len(names), 0, -1) if names[:end] in lines), 0)


def line_in_list(text: str, key: str, number: int, field: str) -> int:
    """Return the line of a field in a list of sections such as `[[tools.rules]]`, or of the section; 0: none.

    `number`: which of the sections, from 0.
    """
    name = r"[ \t]*\.[ \t]*".join(map(re.escape, key.split(".")))
    headers = list(re.finditer(rf"^[ \t]*\[\[[ \t]*{name}[ \t]*\]\]", text, re.MULTILINE))
    if number >= len(headers):
        return 0
    start = headers[number].end()
    after = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, start)
    assigned = re.compile(rf"^[ \t]*{re.escape(field)}[ \t]*=", re.MULTILINE)
    found = assigned.search(text, start, after.start() if after else len(text))
    return text.count("\n", 0, found.start() if found else start) + 1
