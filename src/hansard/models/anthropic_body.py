"""What was said, as Anthropic's Messages have it."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from hansard.domain.messages import Reasoning, Text, ToolCall, ToolOutcome
from hansard.domain.requests import AssistantSaid, UserSaid
from hansard.models.filling import NO_OUTPUT, NO_TEXT, arguments_object, filled

if TYPE_CHECKING:
    from hansard.domain.messages import Part, ToolResult
    from hansard.domain.requests import Request

Json = dict[str, Any]

REDACTED = "redacted_thinking"
"""The id of reasoning that the provider does not show: only its signature is kept."""

MARK = {"type": "ephemeral"}


def anthropic_messages(request: Request) -> list[Json]:
    """Return the messages, each with its blocks; the last block is marked for the cache."""
    messages: list[Json] = []
    for said in request.messages:
        if isinstance(said, UserSaid):
            images = [
                {
                    "type": "image",
                    "source": {
                        "type": "base64",
                        "media_type": image.media_type,
                        "data": b64encode(image.data).decode(),
                    },
                }
                for image in said.images
            ]
            messages.append({"role": "user", "content": [text_block(said.text), *images]})
        elif isinstance(said, AssistantSaid):
            blocks = [assistant_block(part) for part in said.parts]
            messages.append({"role": "assistant", "content": blocks or [text_block("")]})
        else:
            messages.append({"role": "user", "content": [result_block(result) for result in said.results]})
    if messages:
        last = messages[-1]["content"]
        last[-1] = {**last[-1], "cache_control": MARK}
    return messages


def text_block(text: str) -> Json:
    """Return words as a block; something stands for blank ones."""
    return {"type": "text", "text": filled(text, NO_TEXT)}


def assistant_block(part: Part) -> Json:
    """Return a part of what the model said, its reasoning as it was signed."""
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments_object(part.arguments)}
    if isinstance(part, Reasoning):
        if part.id == REDACTED:
            return {"type": REDACTED, "data": part.signature}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return text_block(part.text if isinstance(part, Text) else "")


def result_block(result: ToolResult) -> Json:
    """Return a tool's result."""
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": filled(result.text, NO_OUTPUT),
        "is_error": result.outcome is not ToolOutcome.OK,
    }
