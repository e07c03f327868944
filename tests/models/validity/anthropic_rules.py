"""What Anthropic's Messages refuse, from its public documentation. Written without a look at the engine's own rules."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.models.validity.signatures import signature_problem

Json = dict[str, Any]

TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
IMAGE_TYPES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
IMAGE_BASE64_MAX = 5 * 1024 * 1024
IMAGES_MAX = 100
REQUEST_BYTES_MAX = 32 * 1024 * 1024
MARKS_MAX = 4


def problems(body: Json, family: str) -> Iterator[str]:
    """Yield what is wrong with a request to a family of models."""
    messages = body["messages"]
    if not messages:
        yield "messages: at least one message is required"
        return
    yield from whole_problems(body)
    for place, message in enumerate(messages):
        if message["role"] not in {"user", "assistant"}:
            yield f"messages.{place}: role {message['role']}"
        if not message["content"]:
            yield f"messages.{place}: content must not be empty"
        for block in message["content"]:
            yield from (f"messages.{place}: {what}" for what in block_problems(block, message["role"], family))
    yield from order_problems(combined(messages), has_tools=bool(body.get("tools")))


def whole_problems(body: Json) -> Iterator[str]:
    """Yield what concerns the request as a whole."""
    text = json.dumps(body)
    if len(text.encode()) > REQUEST_BYTES_MAX:
        yield "request_too_large"
    if text.count('"cache_control"') > MARKS_MAX:
        yield "more than four blocks with cache_control"
    images = [block for message in body["messages"] for block in message["content"] if block["type"] == "image"]
    if len(images) > IMAGES_MAX:
        yield f"{len(images)} images"


def block_problems(block: Json, role: str, family: str) -> Iterator[str]:
    """Yield what is wrong with one block."""
    kind = block["type"]
    allowed = {
        "user": {"text", "image", "tool_result"},
        "assistant": {"text", "tool_use", "thinking", "redacted_thinking"},
    }
    if kind not in allowed[role]:
        yield f"{kind} in a message of the {role}"
    if kind == "text" and not block["text"].strip():
        yield "text content blocks must contain non-whitespace text"
    if kind == "tool_result" and not str(block["content"]).strip():
        yield "a result that says nothing"
    if kind == "tool_use":
        has_names = TOOL_ID.fullmatch(block["id"]) and TOOL_NAME.fullmatch(block["name"])
        if not has_names or not isinstance(block["input"], dict):
            yield f"tool_use {block['id']!r} {block['name']!r} {block['input']!r:.80}"
    if kind == "thinking":
        yield from signature_problem(block["signature"], family, block["thinking"])
    if kind == "redacted_thinking":
        yield from signature_problem(block["data"], family, "")
    if kind == "image":
        source = block["source"]
        if source["media_type"] not in IMAGE_TYPES or not 0 < len(source["data"]) <= IMAGE_BASE64_MAX:
            yield f"an image of {source['media_type']}, {len(source['data'])} characters"


def combined(messages: list[Json]) -> list[tuple[str, list[Json]]]:
    """Return the turns: messages of one role in a row are one, as the documentation says."""
    return [
        (role, [block for message in run for block in message["content"]])
        for role, run in itertools.groupby(messages, key=lambda message: str(message["role"]))
    ]


def order_problems(turns: list[tuple[str, list[Json]]], *, has_tools: bool) -> Iterator[str]:
    """Yield what is wrong with the order of turns, with calls and their results, with where thinking stands."""
    if turns[0][0] != "user":
        yield "the first message must be the user's"
    if turns[-1][0] != "user":
        yield "the last message is the model's own"
    asked: list[str] = []
    known: set[str] = set()
    for role, blocks in turns:
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(asked):
            yield f"tool_use {asked} was answered by tool_result {answered}"
        if any(block["type"] != "tool_result" for block in blocks[: len(answered)]):
            yield "tool_result blocks must come first"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if len(set(asked)) != len(asked) or known & set(asked):
            yield "tool_use ids must be unique"
        known.update(asked)
        if (asked or answered) and not has_tools:
            yield "tools must be defined where they were used"
        if role == "assistant" and blocks[-1]["type"] in {"thinking", "redacted_thinking"}:
            yield "the final block must not be thinking"
    if asked:
        yield f"tool_use {asked} without tool_result"
