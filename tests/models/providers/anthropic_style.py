"""Anthropic's Messages as they are on the wire, and the rules for requests that matter here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.models.providers.behaviour import Behaviour, Event

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MARKS_MAX = 4
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def last_text(body: dict[str, Any]) -> str:
    """Return what the person said last."""
    texts = [
        block["text"]
        for message in body.get("messages", [])
        if message.get("role") == "user"
        for block in blocks(message)
        if block["type"] == "text"
    ]
    return str(texts[-1]) if texts else ""


def event(behaviour: Behaviour, kind: str, **fields: object) -> bytes:
    """Return one event as it is on the wire."""
    data = json.dumps({"type": kind, **fields}, ensure_ascii=behaviour.escaped)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def events(behaviour: Behaviour, body: dict[str, Any], number: int) -> Iterator[Event]:
    """Yield the events of an answer."""
    yield Event(event(behaviour, "message_start", message=opening(behaviour, body, number)))
    for index, (block, deltas) in enumerate(content(behaviour, body)):
        yield Event(event(behaviour, "content_block_start", index=index, content_block=block))
        if index == 0:
            yield Event(event(behaviour, "ping"))
        for delta, text in deltas:
            yield Event(event(behaviour, "content_block_delta", index=index, delta=delta), text)
        yield Event(event(behaviour, "content_block_stop", index=index))
    if behaviour.finish is not None:
        auto = "tool_use" if behaviour.calls else "end_turn"
        ending = {"stop_reason": auto if behaviour.finish == "auto" else behaviour.finish, "stop_sequence": None}
        usage = {"output_tokens": behaviour.figures.output_tokens if behaviour.figures else 0}
        yield Event(event(behaviour, "message_delta", delta=ending, usage=usage))
    if behaviour.done:
        yield Event(event(behaviour, "message_stop"))


def content(behaviour: Behaviour, body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[tuple[Any, str]]]]:
    """Yield the blocks of an answer, each with its deltas and the words that these carry."""
    if behaviour.reasoning:
        deltas: list[tuple[Any, str]] = [
            ({"type": "thinking_delta", "thinking": piece}, "") for piece in behaviour.reasoning
        ]
        signed = ({"type": "signature_delta", "signature": "c2lnbmVk"}, "")
        yield {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signed]
    if behaviour.pieces:
        texts = [piece.replace("{last}", last_text(body)) for piece in behaviour.pieces]
        yield {"type": "text", "text": ""}, [({"type": "text_delta", "text": text}, text) for text in texts]
    for call in behaviour.calls:
        parts = ["", *call.pieces()]
        deltas = [({"type": "input_json_delta", "partial_json": part}, "") for part in parts]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def opening(behaviour: Behaviour, body: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the message of the first event. Here the API counts cached tokens apart."""
    figures = behaviour.figures
    usage = {"input_tokens": 0, "output_tokens": 1}
    if figures is not None:
        usage = {
            "input_tokens": figures.input_tokens - figures.cache_read_tokens - figures.cache_write_tokens,
            "cache_creation_input_tokens": figures.cache_write_tokens,
            "cache_read_input_tokens": figures.cache_read_tokens,
            "output_tokens": 1,
        }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def error_event(behaviour: Behaviour) -> bytes:
    """Return an error in the middle of a stream."""
    data = json.dumps(error(behaviour.message, 529, behaviour.code))
    return f"event: error\ndata: {data}\n\n".encode()


def error(message: str, status: int, code: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = code or TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_test"}


def models(name: str) -> dict[str, Any]:
    """Return the list of models."""
    model = {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
    return {"data": [model], "has_more": False, "first_id": name, "last_id": name}


def presented_key(headers: dict[str, str]) -> str:
    """Return the key that a request came with."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the content of a message as blocks."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def wrong_with(body: dict[str, Any]) -> str:
    """Return what the real API would refuse in a request; empty when nothing."""
    return next(problems(body), "")


def problems(body: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong, the plainest first; only the first is certain to be right."""
    if body.get("stream") is not True:
        yield "this server only streams"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens: field required"
    if not body.get("messages"):
        yield "messages: at least one message is required"
    if json.dumps(body).count('"cache_control"') > MARKS_MAX:
        yield f"a maximum of {MARKS_MAX} blocks with cache_control may be provided"
    for tool in body.get("tools", []):
        if not TOOL_NAME.fullmatch(tool["name"]) or tool["input_schema"].get("type") != "object":
            yield f"tools: {tool['name']!r} has no valid name or schema"
    system = body.get("system", [])
    texts = [{"text": system}] if isinstance(system, str) else system
    if any(not block["text"].strip() for block in texts):
        yield "system: text content blocks must be non-empty"
    for position, message in enumerate(body["messages"]):
        yield from message_problems(message, f"messages.{position}")
    yield from conversation_problems(combined(body["messages"]))


def message_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    """Yield what is wrong with one message, whatever stands around it."""
    if message["role"] not in {"user", "assistant"}:
        yield f"{place}: invalid role"
    if not blocks(message):
        yield f"{place}: content must be non-empty"
    for block in blocks(message):
        if block["type"] == "text" and not block["text"].strip():
            yield f"{place}: text content blocks must contain non-whitespace text"
        if block["type"] == "tool_result" and empty_result(block):
            yield f"{place}: text content blocks must be non-empty"
        if block["type"] == "tool_use" and (message["role"] != "assistant" or not isinstance(block["input"], dict)):
            yield f"{place}: tool_use belongs to the assistant and its input must be an object"


def combined(messages: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the turns: messages of one role in a row count as one, as the API does it."""
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for message in messages:
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(blocks(message))
        else:
            turns.append((message["role"], blocks(message)))
    return turns


def conversation_problems(turns: list[tuple[str, list[dict[str, Any]]]]) -> Iterator[str]:
    """Yield what is wrong with the order of turns, and with calls and their results."""
    if turns[0][0] != "user":
        yield "messages: first message must use the user role"
    asked: list[str] = []
    known: set[str] = set()
    for _, turn in turns:
        answered = [block["tool_use_id"] for block in turn if block["type"] == "tool_result"]
        if sorted(answered) != sorted(asked):
            yield f"tool_use ids {asked} were answered by tool_result blocks for {answered}"
        if any(block["type"] != "tool_result" for block in turn[: len(answered)]):
            yield "tool_result blocks must come first"
        asked = [block["id"] for block in turn if block["type"] == "tool_use"]
        if len(set(asked)) != len(asked) or known & set(asked):
            yield "tool_use ids must be unique"
        known.update(asked)
    if asked:
        yield f"tool_use ids {asked} were found without tool_result blocks"


def empty_result(block: dict[str, Any]) -> bool:
    """Whether a result has a text block that says nothing."""
    content = block.get("content") or []
    return not isinstance(content, str) and any(part["type"] == "text" and not part["text"] for part in content)
