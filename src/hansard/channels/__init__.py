"""Channels: one folder a platform, each behind `hansard.ports.channel.Channel`. None of them sees the record.

    matrix          an account on a homeserver, with end-to-end encryption
    telegram        a bot, by the Bot API

DESIGN.md says why they are as they are. This module has what both share. Platforms write JSON of any shape: `text_of`
and its neighbours read one field at a time and return an empty value for a field of another type.
"""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]
"""A JSON object. Whoever reads a field checks its type: `text_of`, `object_of`, `list_of`, `number_of`."""


def text_of(value: Json, *names: str) -> str:
    """The text at the end of a path of names; empty when there is none."""
    found = at(value, names)
    return found if isinstance(found, str) else ""


def object_of(value: Json, *names: str) -> Json:
    """The object at the end of a path of names; empty when there is none."""
    found = at(value, names)
    return found if isinstance(found, dict) else {}


def list_of(value: Json, *names: str) -> list[Any]:
    """The list at the end of a path of names; empty when there is none."""
    found = at(value, names)
    return found if isinstance(found, list) else []


def objects_of(value: Json, *names: str) -> list[Json]:
    """The objects in a list at the end of a path of names."""
    return [item for item in list_of(value, *names) if isinstance(item, dict)]


def number_of(value: Json, *names: str) -> int:
    """The whole number at the end of a path of names; 0 when there is none."""
    found = at(value, names)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def at(value: Json, names: tuple[str, ...]) -> object:
    """What stands at the end of a path of names, or None."""
    found: object = value
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted names, no spaces, UTF-8. What Matrix signs, and what it counts the size of."""
    return msgspec.json.encode(value, order="deterministic")
