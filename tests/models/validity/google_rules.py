"""What Google's generateContent refuses, from its public documentation and from known refusals."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from tests.models.validity.signatures import signature_problem

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
IMAGE_TYPES = {"image/jpeg", "image/png", "image/webp", "image/heic", "image/heif"}
REQUEST_BYTES_MAX = 20 * 1024 * 1024
DUMMY = b"skip_thought_signature_validator"


def problems(body: Json, family: str) -> Iterator[str]:
    """Yield what is wrong with a request."""
    contents = body["contents"]
    if not contents:
        yield "contents is not specified"
        return
    if contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        yield "the conversation begins and ends with the user"
    size = sum(len(part["inline_data"]["data"]) for each in contents for part in each["parts"] if "inline_data" in part)
    if size * 4 // 3 > REQUEST_BYTES_MAX:
        yield "request payload size exceeds the limit"
    before: Json = {"role": "", "parts": []}
    for place, content in enumerate(contents):
        for what in content_problems(content, before, family):
            yield f"contents.{place}: {what}"
        before = content
    if calls_of(before):
        yield "function calls without their responses"


def calls_of(content: Json) -> list[Json]:
    """Return the calls of a content."""
    return [part["function_call"] for part in content["parts"] if "function_call" in part]


def content_problems(content: Json, before: Json, family: str) -> Iterator[str]:
    """Yield what is wrong with one content, by what stands before it."""
    responses = [part["function_response"] for part in content["parts"] if "function_response" in part]
    if content["role"] not in {"user", "model"} or not content["parts"]:
        yield f"role {content['role']}, {len(content['parts'])} parts"
    if content["role"] == "model" and before["role"] != "user":
        yield "a model's turn comes after a user turn or after a function response turn"
    asked = [(call["id"], call["name"]) for call in calls_of(before)]
    answered = [(response["id"], response["name"]) for response in responses]
    if asked != answered:
        yield f"function calls {asked} are followed by function responses {answered}"
    if responses and len(responses) != len(content["parts"]):
        yield "function responses stand beside something else"
    if responses and content["role"] != "user":
        yield "a function response of the model"
    if calls_of(content) and content["role"] != "model":
        yield "a function call of the user"
    is_first = True
    for part in content["parts"]:
        yield from part_problems(part, family, is_first=is_first)
        is_first = is_first and "function_call" not in part


def part_problems(part: Json, family: str, *, is_first: bool) -> Iterator[str]:
    """Yield what is wrong with a part. `is_first`: no call came before it."""
    signature = part.get("thought_signature")
    if len(set(part) - {"thought", "thought_signature"}) != 1:
        yield f"a part of {sorted(part)}"
    if "text" in part and not part["text"].strip():
        yield "a text parameter must not be empty"
    if "function_call" in part:
        call = part["function_call"]
        if not NAME.fullmatch(call["name"]) or not isinstance(call["args"], dict):
            yield f"the function call {call['name']!r}"
        if is_first and not signature:
            yield "function call is missing a thought_signature"
    if "function_response" in part and not isinstance(part["function_response"]["response"], dict):
        yield "a response that is no object"
    if "inline_data" in part and (
        part["inline_data"]["mime_type"] not in IMAGE_TYPES or not part["inline_data"]["data"]
    ):
        yield f"an image of {part['inline_data']['mime_type']}"
    if signature is not None and signature != DUMMY:
        yield from signature_problem(base64.b64encode(signature).decode(), family, None)
