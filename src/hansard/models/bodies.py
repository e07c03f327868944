"""What was said, as each provider has it: OpenAI's two protocols, Anthropic's and Google's."""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from hansard.domain.messages import SIGNS_TEXT, Part, Reasoning, Text, ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import AssistantSaid, Image, Request, UserSaid

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
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def filled(text: str, otherwise: str) -> str:
    return text if text.strip() else otherwise


Json = dict[str, Any]


def data_address(image: Image) -> str:
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
            images = [{"type": "image_url", "image_url": {"url": data_address(image)}} for image in said.images]
            messages.append({"role": "user", "content": user_content(said, "text", images)})
        elif isinstance(said, AssistantSaid):
            messages.append(chat_assistant(said))
        else:
            messages += [
                {"role": "tool", "tool_call_id": result.call_id, "content": filled(result.text, NO_OUTPUT)}
                for result in said.results
            ]
    return messages


def user_content(said: UserSaid, text_type: str, images: list[Json]) -> str | list[Json]:
    """Return what people said, as both of OpenAI's protocols have it: a text, or a text and pictures."""
    text = filled(said.text, NO_TEXT)
    return [{"type": text_type, "text": text}, *images] if images else text


def chat_assistant(said: AssistantSaid) -> Json:
    if not said.calls:
        return {"role": "assistant", "content": filled(said.text, NO_TEXT)}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}
        for call in said.calls
    ]
    return {"role": "assistant", "content": said.text if said.text.strip() else None, "tool_calls": calls}


def responses_input(request: Request) -> list[Json]:
    items: list[Json] = []
    for said in request.messages:
        if isinstance(said, UserSaid):
            images = [
                {"type": "input_image", "detail": "auto", "image_url": data_address(image)} for image in said.images
            ]
            items.append({"role": "user", "content": user_content(said, "input_text", images)})
        elif isinstance(said, AssistantSaid):
            items += responses_assistant(said)
        else:
            items += [
                {"type": "function_call_output", "call_id": result.call_id, "output": filled(result.text, NO_OUTPUT)}
                for result in said.results
            ]
    return items


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
    if not items or items[-1].get("type") != "reasoning" or items[-1]["id"] != part.id:
        items.append({"type": "reasoning", "id": part.id, "summary": [], "encrypted_content": part.signature})
    if part.text:
        items[-1]["summary"].append({"type": "summary_text", "text": part.text})


REDACTED = "redacted_thinking"
"""The id of reasoning that the provider does not show: only its signature is kept."""


def anthropic_messages(request: Request) -> list[Json]:
    """Return the messages, each with its blocks; the last block is marked for the cache."""
    messages: list[Json] = []
    for said in request.messages:
        if isinstance(said, UserSaid):
            images = [image_block(image) for image in said.images]
            messages.append({"role": "user", "content": [text_block(said.text), *images]})
        elif isinstance(said, AssistantSaid):
            blocks = [assistant_block(part) for part in said.parts]
            messages.append({"role": "assistant", "content": blocks or [text_block("")]})
        else:
            messages.append({"role": "user", "content": [result_block(result) for result in said.results]})
    if messages:
        last = messages[-1]["content"]
        last[-1] = {**last[-1], "cache_control": {"type": "ephemeral"}}
    return messages


def image_block(image: Image) -> Json:
    source = {"type": "base64", "media_type": image.media_type, "data": b64encode(image.data).decode()}
    return {"type": "image", "source": source}


def text_block(text: str) -> Json:
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
    return {
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": filled(result.text, NO_OUTPUT),
        "is_error": result.outcome is not ToolOutcome.OK,
    }


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
            call = {"name": part.name, "args": arguments_object(part.arguments), "id": part.id}
            parts.append({"function_call": call, **signed(part.signature, NOT_SIGNED if needs_signature else b"")})
            needs_signature = False
        elif isinstance(part, Reasoning) and part.id == SIGNS_TEXT:
            if parts and "text" in parts[-1] and "thought" not in parts[-1]:
                parts[-1] |= signed(part.signature)
        elif isinstance(part, Reasoning) and part.text:
            parts.append({"text": part.text, "thought": True, **signed(part.signature)})
    return parts or [{"text": NO_TEXT}]


def response_part(result: ToolResult, name: str) -> Json:
    key = "output" if result.outcome is ToolOutcome.OK else "error"
    response = {"name": name, "id": result.call_id, "response": {key: filled(result.text, NO_OUTPUT)}}
    return {"function_response": response}


def signed(signature: str, otherwise: bytes = b"") -> Json:
    """Return a signature as a field of a part; none when there is none that can be read."""
    found = otherwise
    with suppress(ValueError):
        found = b64decode(signature, validate=True) or otherwise
    return {"thought_signature": found} if found else {}
