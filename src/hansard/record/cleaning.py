"""Values that callers give, checked and cleaned before anything is written."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TypeVar

import msgspec

from hansard.domain.deliveries import Cursor, Delivery, Intake
from hansard.domain.limits import (
    NAME_CHARACTERS_MAX,
)
from hansard.domain.text import clean_name
from hansard.errors import InvalidInput

Value = TypeVar("Value", Intake, Cursor, Delivery)

State = TypeVar("State", bound=StrEnum)


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a kind of value; msgspec reads its annotations anew each time."""
    return msgspec.structs.fields(kind)


def clean_struct(value: Value) -> Value:
    """Return a value of names with every text as it can be recorded; only fields with a default may be empty."""
    changes = {}
    for field in fields_of(type(value)):
        text = getattr(value, field.name)
        if isinstance(text, str) and not isinstance(text, StrEnum) and (text or field.required):
            changes[field.name] = clean_name(text, f"a {field.name.replace('_', ' ')}", NAME_CHARACTERS_MAX)
    return msgspec.structs.replace(value, **changes)


def one_of(states: type[State], text: str | None) -> State | None:
    """Return a state by its name."""
    if text is None:
        return None
    try:
        return states(text)
    except ValueError:
        message = f"{text!r} is none of {', '.join(states)}"
        raise InvalidInput(message) from None
