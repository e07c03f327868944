"""OpenAI's Responses as they are on the wire, and the rules for requests that matter here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.models.providers import openai_style
from tests.models.providers.behaviour import Behaviour, Event
from tests.models.validity.openai_rules import responses_problems

SECRET = "gAAAAsecret"  # noqa: S105 - what stands for encrypted reasoning
REASONING_ID = "rs_test"

error = openai_style.error
error_event = openai_style.error_event
models = openai_style.models
presented_key = openai_style.presented_key


class Writer:
    """Numbers the events of one answer."""

    def __init__(self, behaviour: Behaviour) -> None:
        """Nothing was sent."""
        self._behaviour = behaviour
        self._number = 0
        self.output: list[dict[str, Any]] = []

    def event(self, kind: str, **fields: object) -> Event:
        """Return one event as it is on the wire, and the words that it carries."""
        value = {"type": kind, "sequence_number": self._number, **fields}
        text = str(fields["delta"]) if kind == "response.output_text.delta" else ""
        self._number += 1
        data = json.dumps(value, ensure_ascii=self._behaviour.escaped)
        return Event(f"event: {kind}\ndata: {data}\n\n".encode(), text)


def response(number: int, body: dict[str, Any], status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response that events speak of."""
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "model": body.get("model", "m"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
    }


def events(behaviour: Behaviour, body: dict[str, Any], number: int) -> Iterator[Event]:
    """Yield the events of an answer."""
    writer = Writer(behaviour)
    yield writer.event("response.created", response=response(number, body, "in_progress", []))
    if behaviour.reasoning:
        yield from reasoning_events(behaviour, writer)
    if behaviour.pieces:
        yield from text_events(behaviour, writer)
    for call in behaviour.calls:
        index = len(writer.output)
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": call.id, "name": call.name}
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield writer.event("response.output_item.added", output_index=index, item=begun)
        for piece in call.pieces():
            yield writer.event(
                "response.function_call_arguments.delta", output_index=index, item_id=f"fc_{index}", delta=piece
            )
        done = {**item, "arguments": call.arguments, "status": "completed"}
        yield writer.event("response.output_item.done", output_index=index, item=done)
        writer.output.append(done)
    if behaviour.finish is not None:
        whole = response(number, body, "completed", writer.output)
        if (figures := behaviour.figures) is not None:
            whole["usage"] = {
                "input_tokens": figures.input_tokens,
                "input_tokens_details": {"cached_tokens": figures.cache_read_tokens},
                "output_tokens": figures.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": figures.input_tokens + figures.output_tokens,
            }
        yield writer.event("response.completed", response=whole)


def reasoning_events(behaviour: Behaviour, writer: Writer) -> Iterator[Event]:
    """Yield a summary of what was thought, and what is encrypted of it."""
    item: dict[str, Any] = {"type": "reasoning", "id": REASONING_ID, "summary": []}
    where: dict[str, object] = {"item_id": REASONING_ID, "output_index": 0, "summary_index": 0}
    yield writer.event("response.output_item.added", output_index=0, item=item)
    part = {"type": "summary_text", "text": ""}
    yield writer.event("response.reasoning_summary_part.added", **where, part=part)
    for piece in behaviour.reasoning:
        yield writer.event("response.reasoning_summary_text.delta", **where, delta=piece)
    summary = [{"type": "summary_text", "text": "".join(behaviour.reasoning)}]
    done = {**item, "summary": summary, "encrypted_content": SECRET}
    yield writer.event("response.output_item.done", output_index=0, item=done)
    writer.output.append(done)


def text_events(behaviour: Behaviour, writer: Writer) -> Iterator[Event]:
    """Yield a message."""
    index = len(writer.output)
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    where: dict[str, object] = {"item_id": "msg_1", "output_index": index, "content_index": 0}
    yield writer.event("response.output_item.added", output_index=index, item=item)
    empty = {"type": "output_text", "text": "", "annotations": []}
    yield writer.event("response.content_part.added", **where, part=empty)
    for piece in behaviour.pieces:
        yield writer.event("response.output_text.delta", **where, delta=piece, logprobs=[])
    text = {"type": "output_text", "text": "".join(behaviour.pieces), "annotations": []}
    yield writer.event("response.output_text.done", **where, text=text["text"], logprobs=[])
    done = {**item, "status": "completed", "content": [text]}
    yield writer.event("response.output_item.done", output_index=index, item=done)
    writer.output.append(done)


def wrong_with(body: dict[str, Any]) -> str:
    """Return what the real API would refuse in a request; empty when nothing. Whose a signature is, others check."""
    if body.get("stream") is not True:
        return "this server only streams"
    found = responses_problems(body, "")
    return next((problem for problem in found if "signature" not in problem or "missing" in problem), "")
