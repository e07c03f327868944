"""Google's generateContent as it is on the wire, and the rules for requests that matter here."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from tests.models.providers.behaviour import Behaviour, Event
from tests.models.validity.google_rules import problems

SIGNATURE = base64.b64encode(b"a thought").decode()
"""What every call and every text of this server is signed with."""

STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED"}
SNAKES = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "mimeType": "mime_type",
    "thoughtSignature": "thought_signature",
}


def events(behaviour: Behaviour, body: dict[str, Any], number: int) -> Iterator[Event]:
    """Yield the events of an answer."""
    del body

    def chunk(parts: list[dict[str, Any]], **more: object) -> bytes:
        candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        value: dict[str, Any] = {"candidates": [candidate], "modelVersion": "test", "responseId": f"r{number}"}
        if (figures := behaviour.figures) is not None:
            value["usageMetadata"] = {
                "promptTokenCount": figures.input_tokens,
                "candidatesTokenCount": figures.output_tokens,
                "totalTokenCount": figures.input_tokens + figures.output_tokens,
            }
        return b"data: " + json.dumps(value, ensure_ascii=behaviour.escaped).encode() + b"\r\n\r\n"

    for piece in behaviour.reasoning:
        yield Event(chunk([{"text": piece, "thought": True}]))
    for piece in behaviour.pieces:
        yield Event(chunk([{"text": piece}]), piece)
    if behaviour.pieces and behaviour.reasoning:
        yield Event(chunk([{"text": "", "thoughtSignature": SIGNATURE}]))
    for call in behaviour.calls:
        made = {"name": call.name, "args": json.loads(call.arguments), "id": call.id}
        yield Event(chunk([{"functionCall": made, "thoughtSignature": SIGNATURE}]))
    if behaviour.finish is not None:
        yield Event(chunk([{"text": ""}], finishReason="STOP" if behaviour.finish == "auto" else behaviour.finish))


def error_event(behaviour: Behaviour) -> bytes:
    """Return an error in the middle of a stream."""
    return b"data: " + json.dumps(error(behaviour.message, 503, behaviour.code)).encode() + b"\r\n\r\n"


def error(message: str, status: int, code: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    return {"error": {"code": status, "message": message, "status": code or STATUSES.get(status, "INTERNAL")}}


def models(name: str) -> dict[str, Any]:
    """Return the list of models."""
    return {"models": [{"name": f"models/{name}"}]}


def presented_key(headers: dict[str, str]) -> str:
    """Return the key that a request came with."""
    return headers.get("x-goog-api-key", "")


def snake(value: Any) -> Any:  # noqa: ANN401
    """Return a body with the names that the rules use; bytes as they are."""
    if isinstance(value, list):
        return [snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {SNAKES.get(key, key): snake(item) for key, item in value.items()}
    for name in ("thought_signature", "data"):
        if isinstance(found.get(name), str):
            found[name] = base64.urlsafe_b64decode(found[name])
    return found


def wrong_with(body: dict[str, Any]) -> str:
    """Return what the real API would refuse in a request; empty when nothing. Whose a signature is, others check."""
    contents = snake(body.get("contents", []))
    found = problems({"contents": contents}, "")
    return next((problem for problem in found if "signature" not in problem or "missing" in problem), "")
