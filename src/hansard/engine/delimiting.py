"""What somebody else wrote, so that a model can tell it from what it is asked: quoted, marked, or made harmless.

Pure functions of texts and ids: what was sent once is sent the same way in every later request.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hansard.domain.requests import ToolSpec

FORGED = re.compile(r"\[(\s*)Hansard(\s*):", re.IGNORECASE)
"""How Hansard's own notes to the model begin, in whichever spelling a model might read as one."""

MARK_CHARACTERS = 8
NAME_CHARACTERS_MAX = 200


def harmless(text: str) -> str:
    """Return a text in which nothing passes for a note by the program."""
    return FORGED.sub(r"[\1not Hansard\2:", text) if "hansard" in text.lower() else text


def harmless_spec(spec: ToolSpec) -> ToolSpec:
    """Return a tool as a model is told of it: what its server says of it passes for no note either.

    In the schema, a bracket before that name can only stand inside of a text.
    """
    return msgspec.structs.replace(spec, description=harmless(spec.description), parameters=harmless(spec.parameters))


def named(text: str) -> str:
    """Return a name on one line, cut to a length, with nothing that ends the note in which it stands."""
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text[:NAME_CHARACTERS_MAX]).split())
    return words.replace("[", "(").replace("]", ")")


def said_by(author: str, text: str) -> str:
    """Return what one of several people said: each line is quoted, so that nobody speaks in another's name."""
    return f"{named(author)} says:\n{quote(text)}"


def quote(text: str) -> str:
    """Return a text in lines that nothing in it can leave."""
    return "\n".join(f"> {line}" for line in harmless(text).splitlines() or [""])


def data_of(text: str, message_id: str) -> str:
    """Return a tool's result, told in words, between marks that the tool cannot know: they come from the message's id.

    In its own role a result needs none.
    """
    mark = hashlib.sha256(f"data {message_id}".encode()).hexdigest()[:MARK_CHARACTERS]
    return f"[Hansard: data {mark} begins]\n{harmless(text)}\n[Hansard: data {mark} ends]"
