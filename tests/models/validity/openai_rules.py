"""What OpenAI's Chat Completions and Responses refuse, from the public documentation and from known refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.models.validity.signatures import signature_problem

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID_CHARACTERS_MAX = 40
CALL_ID_CHARACTERS_MAX_RESPONSES = 64
IMAGES_MAX = 500
REQUEST_BYTES_MAX = 50 * 1024 * 1024
DATA_ADDRESS = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+=*")


def chat_problems(body: Json, _family: str) -> Iterator[str]:
    """Yield what is wrong with a request for a chat completion."""
    messages = body["messages"]
    if not messages:
        yield "messages must not be empty"
        return
    yield from size_problems(body)
    if [message["role"] for message in messages].count("system") > 1 or messages[-1]["role"] == "assistant":
        yield "a second system prompt, or nothing to answer"
    waiting: list[str] = []
    known: set[str] = set()
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages.{place}: a tool message that answers no call before it"
            else:
                waiting.remove(message["tool_call_id"])
            if not message["content"]:
                yield f"messages.{place}: no content"
            continue
        if waiting:
            yield f"messages.{place}: tool_calls {waiting} without an answer"
        yield from (f"messages.{place}: {what}" for what in message_problems(message))
        waiting = [call["id"] for call in message.get("tool_calls", [])]
        if known & set(waiting) or len(set(waiting)) != len(waiting):
            yield f"messages.{place}: ids of calls must be unique"
        known |= set(waiting)
    if waiting:
        yield f"tool_calls {waiting} without an answer"


def message_problems(message: Json) -> Iterator[str]:
    """Yield what is wrong with one message that is not a tool's."""
    if message["role"] not in {"system", "user", "assistant"}:
        yield f"role {message['role']}"
    if set(message) - {"role", "content", "tool_calls"}:
        yield f"fields {sorted(message)}"
    content = message["content"]
    if content is None:
        if not message.get("tool_calls"):
            yield "no content and no calls"
    elif isinstance(content, str):
        if not content.strip():
            yield "blank content"
    else:
        yield from content_problems(content, {"text": "text", "image_url": "image"})
    if "tool_calls" in message:
        yield from call_problems(message["tool_calls"])


def call_problems(calls: list[Json]) -> Iterator[str]:
    """Yield what is wrong with calls."""
    if not calls:
        yield "an empty list of calls"
    for call in calls:
        if not 0 < len(call["id"]) <= CALL_ID_CHARACTERS_MAX or not NAME.fullmatch(call["function"]["name"]):
            yield f"the call {call['id']!r} {call['function']['name']!r}"
        if not isinstance(json.loads(call["function"]["arguments"]), dict):
            yield "arguments that are no object"


def content_problems(content: list[Json], kinds: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with parts of content."""
    if not content:
        yield "empty content"
    for part in content:
        what = kinds.get(part["type"])
        if what is None:
            yield f"a part {part['type']}"
        if what == "text" and not part["text"].strip():
            yield "a blank part"
        if what == "image":
            address = part["image_url"]["url"] if isinstance(part["image_url"], dict) else part["image_url"]
            if not DATA_ADDRESS.fullmatch(address):
                yield f"an image {address[:60]}"


def size_problems(body: Json) -> Iterator[str]:
    """Yield what is too much."""
    text = json.dumps(body)
    if len(text) > REQUEST_BYTES_MAX:
        yield "the request is too large"
    if text.count("data:image/") > IMAGES_MAX:
        yield "too many images"


def responses_problems(body: Json, family: str) -> Iterator[str]:
    """Yield what is wrong with a request for a response."""
    items = body["input"]
    if not items:
        yield "input must not be empty"
        return
    yield from size_problems(body)
    calls = Calls()
    for place, item in enumerate(items):
        after = items[place + 1] if place + 1 < len(items) else {}
        kind = item.get("type", "message")
        if kind == "message":
            found = [*item_problems(item), *calls.meet(item)]
        elif kind == "reasoning":
            found = list(reasoning_problems(item, after, family))
        elif kind in {"function_call", "function_call_output"}:
            found = list(calls.take(item))
        else:
            found = [kind]
        yield from (f"input.{place}: {what}" for what in found)
    if calls.waiting:
        yield f"no tool output found for {calls.waiting}"
    if items[-1].get("type", "message") == "message" and items[-1]["role"] != "user":
        yield "nothing to answer"


class Calls:
    """The calls of a request, and which of them have no output yet."""

    def __init__(self) -> None:
        """None was made."""
        self.waiting: list[str] = []
        self._known: set[str] = set()

    def meet(self, item: Json) -> Iterator[str]:
        """Yield what is wrong when a message follows."""
        if self.waiting and item["role"] == "user":
            yield f"no tool output found for {self.waiting}"

    def take(self, item: Json) -> Iterator[str]:
        """Yield what is wrong with a call or an output."""
        call_id = item["call_id"]
        if item["type"] == "function_call_output":
            if call_id not in self.waiting or not item["output"]:
                yield f"no tool call found for {call_id}, or no output"
            else:
                self.waiting.remove(call_id)
            return
        if not 0 < len(call_id) <= CALL_ID_CHARACTERS_MAX_RESPONSES or not NAME.fullmatch(item["name"]):
            yield f"the call {call_id!r} {item['name']!r}"
        if call_id in self._known or not isinstance(json.loads(item["arguments"]), dict):
            yield "a call twice, or arguments that are no object"
        self.waiting.append(call_id)
        self._known.add(call_id)


def reasoning_problems(item: Json, after: Json, family: str) -> Iterator[str]:
    """Yield what is wrong with reasoning, by what follows it."""
    yield from signature_problem(item["encrypted_content"], family, None)
    if after.get("type") not in {"reasoning", "function_call"} and after.get("role") != "assistant":
        yield "reasoning without its required following item"
    if not item["id"].startswith("rs_") or any(not part["text"] for part in item["summary"]):
        yield f"reasoning {item['id']!r} {item['summary']}"


def item_problems(item: Json) -> Iterator[str]:
    """Yield what is wrong with a message."""
    if item["role"] not in {"user", "assistant"}:
        yield f"role {item['role']}"
    content = item["content"]
    if isinstance(content, str):
        if not content.strip():
            yield "blank content"
    else:
        kinds = {"input_text": "text", "input_image": "image"}
        yield from content_problems(content, {"output_text": "text"} if item["role"] == "assistant" else kinds)
