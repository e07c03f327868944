"""What a text of a part was as it came in."""

from __future__ import annotations

from hansard.domain.messages import Part
from hansard.domain.text import restore_text, split_escapes


def original(part: Part, name: str = "text") -> str:
    """Return a text of a part as it came in, with what a record cannot carry as it is."""
    value: str = getattr(part, name)
    return restore_text(value, split_escapes(part.escaped).get(name, "")) if part.escaped else value
