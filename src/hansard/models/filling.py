"""What stands in a request for what no provider takes: blank texts, and arguments that are no object."""

from __future__ import annotations

from typing import Any

import msgspec

NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
"""Providers refuse blank texts; these stand for them."""

UNREADABLE_ARGUMENTS = "arguments_as_written"
"""The key under which arguments are sent back that the model wrote and that are not a JSON object."""


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object; one that carries the text when the model wrote something else."""
    if not arguments.strip():
        return {}
    decoded = decode_object(arguments)
    return {UNREADABLE_ARGUMENTS: arguments} if decoded is None else decoded


def decode_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None when it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def filled(text: str, otherwise: str) -> str:
    """Return the text, or what stands for a blank one."""
    return text if text.strip() else otherwise
