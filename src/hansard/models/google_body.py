"""What was said, as Google's generateContent has it, and the model that sends it so."""

from __future__ import annotations

import binascii
from base64 import b64decode
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from hansard.domain.messages import SIGNS_TEXT, Reasoning, Text, ToolCall, ToolOutcome
from hansard.domain.requests import AssistantSaid, Request, UserSaid
from hansard.models.filling import NO_OUTPUT, NO_TEXT, arguments_object, filled

if TYPE_CHECKING:
    from hansard.domain.messages import ToolResult

Json = dict[str, Any]

NOT_SIGNED: Final = b"skip_thought_signature_validator"
"""Google's own word for a call that it did not sign: made by another model, or before signatures were kept."""

ASKED: ContextVar[Request] = ContextVar("hansard_google_request")
"""The request that the present task is opening. Set and reset without a yield in between."""


def google_contents(request: Request) -> list[Json]:
    """Return the contents. Results stand in one of their own: beside words they would be taken for the model's."""
    contents: list[Json] = []
    names: dict[str, str] = {}
    for said in request.messages:
        if isinstance(said, UserSaid):
            images = [{"inline_data": {"data": image.data, "mime_type": image.media_type}} for image in said.images]
            contents.append({"role": "user", "parts": [{"text": filled(said.text, NO_TEXT)}, *images]})
        elif isinstance(said, AssistantSaid):
            names = {call.id: call.name for call in said.calls}
            contents.append({"role": "model", "parts": model_parts(said)})
        else:
            parts = [response_part(result, names.get(result.call_id, "tool")) for result in said.results]
            contents.append({"role": "user", "parts": parts})
    return contents


def model_parts(said: AssistantSaid) -> list[Json]:
    """Return what the model said. The first call of a step carries a signature; the others only one of their own."""
    parts: list[Json] = []
    needs_signature = True
    for part in said.parts:
        if isinstance(part, Text):
            parts.append({"text": part.text})
        elif isinstance(part, ToolCall):
            signature = decoded(part.signature) or (NOT_SIGNED if needs_signature else b"")
            needs_signature = False
            call = {"name": part.name, "args": arguments_object(part.arguments), "id": part.id}
            parts.append({"function_call": call, **signed(signature)})
        elif isinstance(part, Reasoning) and part.id == SIGNS_TEXT:
            if parts and "text" in parts[-1] and "thought" not in parts[-1]:
                parts[-1] |= signed(decoded(part.signature))
        elif isinstance(part, Reasoning) and part.text:
            parts.append({"text": part.text, "thought": True, **signed(decoded(part.signature))})
    return parts or [{"text": NO_TEXT}]


def response_part(result: ToolResult, name: str) -> Json:
    """Return a tool's result under the name of its call."""
    key = "output" if result.outcome is ToolOutcome.OK else "error"
    response = {"name": name, "id": result.call_id, "response": {key: filled(result.text, NO_OUTPUT)}}
    return {"function_response": response}


def signed(signature: bytes) -> Json:
    """Return a signature as a field of a part; none when there is none."""
    return {"thought_signature": signature} if signature else {}


def decoded(signature: str) -> bytes:
    """Return the bytes of a signature; none when it is not what it should be."""
    try:
        return b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return b""
