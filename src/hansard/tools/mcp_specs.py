"""Tools of other servers as a model is told of them: names of their own, short words, a schema that providers take."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.domain.permissions import FOREIGN_PREFIX
from hansard.domain.requests import ToolSpec
from hansard.domain.text import clean_text, clean_value
from hansard.errors import HansardError

if TYPE_CHECKING:
    from collections.abc import Collection

NAME_CHARACTERS_MAX = 64
"""What every provider takes as the name of a tool."""

DIGEST_CHARACTERS = 6

DESCRIPTION_CHARACTERS_MAX = 1000
"""A server's own words about a tool: they are told to the model in every request, and they are not ours."""

SCHEMA_BYTES_MAX = 32_768
EMPTY_SCHEMA = '{"type":"object","properties":{}}'


def tool_name(server: str, own_name: str, taken: Collection[str] = ()) -> str:
    """Return `mcp__SERVER__TOOL`, of signs that every provider takes; one that is cut or taken ends with a digest."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", own_name) or "tool"
    name = f"{FOREIGN_PREFIX}{server}__{cleaned}"
    if len(name) <= NAME_CHARACTERS_MAX and name not in taken:
        return name
    digest = hashlib.sha256(own_name.encode(errors="replace")).hexdigest()[:DIGEST_CHARACTERS]
    return f"{name[: NAME_CHARACTERS_MAX - DIGEST_CHARACTERS - 1]}_{digest}"


def read_tool(server: str, tool: Any, taken: Collection[str]) -> tuple[ToolSpec, bool]:  # noqa: ANN401 - the library's
    """Return how a tool is described to a model, and whether it may be run twice, as its server says."""
    hints = tool.annotations
    repeatable = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    words = " ".join(
        "".join(sign if sign.isprintable() else " " for sign in clean_text(tool.description or "")).split()
    )
    description = words[:DESCRIPTION_CHARACTERS_MAX] or tool.name
    spec = ToolSpec(
        name=tool_name(server, tool.name, taken),
        description=f"From the server {server}: {description}",
        parameters=schema_of(tool.input_schema),
    )
    return spec, repeatable


def schema_of(schema: object) -> str:
    """Return a schema as text; one that is no object, or too large, is left out, and the server checks by itself."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return EMPTY_SCHEMA
    try:
        text = msgspec.json.encode(clean_value({**schema, "type": "object"})).decode()
    except HansardError:
        return EMPTY_SCHEMA
    return text if len(text) <= SCHEMA_BYTES_MAX else EMPTY_SCHEMA
