"""What was said, as OpenAI's two protocols have it: Chat Completions and Responses."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.domain.messages import Reasoning, Text, ToolCall
from hansard.domain.requests import AssistantSaid, UserSaid
from hansard.models.filling import NO_OUTPUT, NO_TEXT, arguments_object, filled

if TYPE_CHECKING:
    from hansard.domain.requests import Image, Request

Json = dict[str, Any]


def data_address(image: Image) -> str:
    """Return a picture as an address that holds it."""
    return f"data:{image.media_type};base64,{b64encode(image.data).decode()}"


def arguments_text(call: ToolCall) -> str:
    """Return arguments as an object's text, whatever the model wrote."""
    return msgspec.json.encode(arguments_object(call.arguments)).decode()


def chat_messages(request: Request) -> list[Json]:
    """Return the messages as Chat Completions has them. It takes no reasoning back."""
    messages: list[Json] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for said in request.messages:
        if isinstance(said, UserSaid):
            messages.append({"role": "user", "content": chat_content(said)})
        elif isinstance(said, AssistantSaid):
            messages.append(chat_assistant(said))
        else:
            messages += [
                {"role": "tool", "tool_call_id": result.call_id, "content": filled(result.text, NO_OUTPUT)}
                for result in said.results
            ]
    return messages


def chat_content(said: UserSaid) -> str | list[Json]:
    """Return what people said: a text, or a text and pictures."""
    text = filled(said.text, NO_TEXT)
    if not said.images:
        return text
    shown = [{"type": "image_url", "image_url": {"url": data_address(image)}} for image in said.images]
    return [{"type": "text", "text": text}, *shown]


def chat_assistant(said: AssistantSaid) -> Json:
    """Return what the model said."""
    if not said.calls:
        return {"role": "assistant", "content": filled(said.text, NO_TEXT)}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
        for call in said.calls
    ]
    return {"role": "assistant", "content": said.text if said.text.strip() else None, "tool_calls": calls}


def responses_input(request: Request) -> list[Json]:
    """Return the items as Responses has them; the system prompt is sent apart."""
    items: list[Json] = []
    for said in request.messages:
        if isinstance(said, UserSaid):
            items.append({"role": "user", "content": responses_content(said)})
        elif isinstance(said, AssistantSaid):
            items += responses_assistant(said)
        else:
            items += [
                {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": filled(result.text, NO_OUTPUT),
                }
                for result in said.results
            ]
    return items


def responses_content(said: UserSaid) -> str | list[Json]:
    """Return what people said: a text, or a text and pictures."""
    text = filled(said.text, NO_TEXT)
    if not said.images:
        return text
    shown = [{"type": "input_image", "detail": "auto", "image_url": data_address(image)} for image in said.images]
    return [{"type": "input_text", "text": text}, *shown]


def responses_assistant(said: AssistantSaid) -> list[Json]:
    """Return what the model said, one item after the other. Reasoning stands before what it led to."""
    items: list[Json] = []
    for part in said.parts:
        if isinstance(part, Text):
            items.append(responses_words(part.text))
        elif isinstance(part, ToolCall):
            call = {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments_text(part)}
            items.append(call)
        elif isinstance(part, Reasoning):
            add_reasoning(items, part)
    return items or [responses_words(NO_TEXT)]


def responses_words(text: str) -> Json:
    """Return words of the model, in the long form: servers of one's own know no other."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def add_reasoning(items: list[Json], part: Reasoning) -> None:
    """Add a stretch of reasoning, to the item that it belongs to."""
    if not items or items[-1].get("type") != "reasoning" or items[-1]["id"] != part.id:
        items.append({"type": "reasoning", "id": part.id, "summary": [], "encrypted_content": part.signature})
    if part.text:
        items[-1]["summary"].append({"type": "summary_text", "text": part.text})
