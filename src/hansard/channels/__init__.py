"""Channels: one folder a platform, each behind `hansard.ports.channel.Channel`. None of them sees the record.

    matrix          an account on a homeserver, with end-to-end encryption
    telegram        a bot, by the Bot API

DESIGN.md says why they are as they are. This module has what both share. Platforms write JSON of any shape: `text_of`
and its neighbours read one field at a time and return an empty value for a field of another type.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.tasks import HALF, backoff_seconds

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS_BITS: Final = 0o077

Json = dict[str, Any]
"""A JSON object. Its fields are read with a check of their type: `text_of`, `object_of`, `list_of`, `number_of`."""


def text_of(value: Json, *names: str) -> str:
    """The text at the end of a path of names; empty when there is none."""
    found = at(value, names)
    return found if isinstance(found, str) else ""


def object_of(value: Json, *names: str) -> Json:
    found = at(value, names)
    return found if isinstance(found, dict) else {}


def list_of(value: Json, *names: str) -> list[Any]:
    found = at(value, names)
    return found if isinstance(found, list) else []


def objects_of(value: Json, *names: str) -> list[Json]:
    return [item for item in list_of(value, *names) if isinstance(item, dict)]


def number_of(value: Json, *names: str) -> int:
    """The whole number at the end of a path of names; 0 when there is none."""
    found = at(value, names)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def at(value: Json, names: tuple[str, ...]) -> object:
    found: object = value
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


class RetryTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait between attempts to reach a platform: doubled each time, up to half of it left out by lot."""

    retry_seconds_min: float = 1.0
    retry_seconds_max: float = 60.0

    def retry_seconds(self, failures: int) -> float:
        return backoff_seconds(failures, self.retry_seconds_min, self.retry_seconds_max, spread=HALF)


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted names, no spaces, UTF-8. What Matrix signs, and what it counts the size of."""
    return msgspec.json.encode(value, order="deterministic")


def remember(known: dict[Any, Any], key: object, value: object, count_max: int) -> None:
    """Keep a value, and forget the oldest ones beyond a number."""
    known[key] = value
    while len(known) > count_max:
        del known[next(iter(known))]


def write_whole(path: Path, data: bytes) -> None:
    """Replace a private file whole, durably: after a crash it has its old content or its new one."""
    draft = path.with_name(f".{path.name}.new")
    descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
