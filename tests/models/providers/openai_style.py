"""OpenAI's Chat Completions as they are on the wire, and the rules for requests that matter here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.models.providers.behaviour import Behaviour, Event, Figures

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
TYPES = {400: "invalid_request_error", 401: "invalid_request_error", 429: "rate_limit_error"}


def last_text(body: dict[str, Any]) -> str:
    """Return what the person said last."""
    said = [message["content"] for message in body.get("messages", []) if message.get("role") == "user"]
    return said[-1] if said and isinstance(said[-1], str) else ""


def events(behaviour: Behaviour, body: dict[str, Any], number: int) -> Iterator[Event]:
    """Yield the events of an answer."""

    def chunk(choices: list[dict[str, Any]], **more: object) -> bytes:
        value = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1_790_000_000 + number,
            "model": body["model"],
            "system_fingerprint": "fp_test",
            "choices": choices,
            **more,
        }
        return b"data: " + json.dumps(value, ensure_ascii=behaviour.escaped).encode() + b"\n\n"

    def delta(fields: dict[str, Any], finish: str | None = None) -> bytes:
        return chunk([{"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}])

    for fields, text in deltas(behaviour, body):
        yield Event(delta(fields), text)
    if behaviour.finish is not None:
        auto = "tool_calls" if behaviour.calls else "stop"
        yield Event(delta({}, auto if behaviour.finish == "auto" else behaviour.finish))
        if behaviour.figures is not None and (body.get("stream_options") or {}).get("include_usage"):
            yield Event(chunk([], usage=usage(behaviour.figures)))
    if behaviour.done:
        yield Event(b"data: [DONE]\n\n")


def deltas(behaviour: Behaviour, body: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the deltas of an answer, each with the words that it carries."""
    yield {"role": "assistant", "content": "", "refusal": None}, ""
    for piece in behaviour.reasoning:
        yield {"reasoning_content": piece}, ""
    for piece in behaviour.pieces:
        text = piece.replace("{last}", last_text(body))
        yield {"content": text}, text
    for piece in behaviour.refusal:
        yield {"refusal": piece}, piece
    for index, call in enumerate(behaviour.calls):
        head = {"name": call.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": head}]}, ""
        for part in call.pieces():
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}, ""


def usage(figures: Figures) -> dict[str, Any]:
    """Return the usage in the words of this API."""
    return {
        "prompt_tokens": figures.input_tokens,
        "completion_tokens": figures.output_tokens,
        "total_tokens": figures.input_tokens + figures.output_tokens,
        "prompt_tokens_details": {"cached_tokens": figures.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def error_event(behaviour: Behaviour) -> bytes:
    """Return an error in the middle of a stream."""
    return b"data: " + json.dumps(error(behaviour.message, 500, behaviour.code or "server_error")).encode() + b"\n\n"


def error(message: str, status: int, code: str | None) -> dict[str, Any]:
    """Return the body of an error."""
    kind = TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def models(name: str) -> dict[str, Any]:
    """Return the list of models."""
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 1_790_000_000, "owned_by": "test"}]}


def presented_key(headers: dict[str, str]) -> str:
    """Return the key that a request came with."""
    return headers.get("authorization", "").removeprefix("Bearer ")


def wrong_with(body: dict[str, Any]) -> str:
    """Return what the real API would refuse in a request; empty when nothing."""
    return next(problems(body), "")


def problems(body: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong, the plainest first; only the first is certain to be right."""
    if body.get("stream") is not True:
        yield "this server only streams"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: at least one is required"
    for tool in body.get("tools", []):
        if not TOOL_NAME.fullmatch(tool["function"]["name"]):
            yield f"tools: invalid name {tool['function']['name']!r}"
    waiting: list[str] = []
    for position, message in enumerate(body["messages"]):
        place = f"messages[{position}]"
        if message["role"] == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"{place}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"{place}: an assistant message with 'tool_calls' must be followed by tool messages: {waiting}"
        yield from message_problems(message, place)
        waiting = [call["id"] for call in message.get("tool_calls") or []]
    if waiting:
        yield f"the calls {waiting} have no response"


def message_problems(message: dict[str, Any], place: str) -> Iterator[str]:
    """Yield what is wrong with one message, whatever stands around it."""
    if message["role"] not in {"system", "developer", "user", "assistant"}:
        yield f"{place}: invalid role"
    calls = message.get("tool_calls") or []
    if message.get("content") is None and not calls:
        yield f"{place}: content or tool_calls is required"
    if any(not isinstance(call["function"]["arguments"], str) for call in calls):
        yield f"{place}: arguments must be a string"
