"""The rules themselves: each can fail; and what they call valid is what the providers' own libraries call valid.

The libraries are imported by the tests that need them: whoever collects this file waits for none of them.
"""

from __future__ import annotations

import importlib
import random
import warnings
from typing import Any

import pytest

from hansard.engine.requests import build_request
from hansard.record.conversation import Conversation
from hansard.record.sessions import SessionFrozen
from tests.models.validity import anthropic_rules, google_rules
from tests.models.validity.bodies import STYLES, TOOLS, with_data
from tests.models.validity.inventor import invent
from tests.models.validity.openai_rules import chat_problems, responses_problems
from tests.models.validity.signatures import sign

SAMPLE = 40

USER = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
USE = {"type": "tool_use", "id": "a", "name": "echo", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x", "is_error": False}
FAMILY = "anthropic:claude-sonnet-5"


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    """A message of Anthropic's."""
    return {"role": role, "content": list(blocks)}


THOUGHT = {"type": "thinking", "thinking": "t", "signature": sign(FAMILY, "t")}
WORDS = {"type": "text", "text": "yes"}

BAD_ANTHROPIC: dict[str, list[dict[str, Any]]] = {
    "at least one": [],
    "first message": [said("assistant", WORDS), USER],
    "last message": [USER, said("assistant", WORDS)],
    "must not be empty": [said("user")],
    "non-whitespace": [said("user", {"type": "text", "text": " "})],
    "without tool_result": [USER, said("assistant", USE)],
    "was answered by": [USER, said("assistant", USE), USER],
    "must come first": [USER, said("assistant", USE), said("user", WORDS, RESULT)],
    "must be unique": [
        USER,
        said("assistant", USE),
        said("user", RESULT),
        said("assistant", USE),
        said("user", RESULT),
    ],
    "final block": [USER, said("assistant", WORDS, THOUGHT), USER],
    "were changed": [USER, said("assistant", {**THOUGHT, "thinking": "u"}, WORDS), USER],
    "was sent to": [USER, said("assistant", {**THOUGHT, "signature": sign("other:m", "t")}, WORDS), USER],
    "an image of": [
        said("user", {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "aa"}})
    ],
    "in a message of": [said("user", USE)],
}


@pytest.mark.parametrize("fault", BAD_ANTHROPIC)
def test_anthropic_rules_can_fail(fault: str) -> None:
    """Each rule finds what it is for."""
    found = list(anthropic_rules.problems({"messages": BAD_ANTHROPIC[fault], "tools": ["echo"]}, FAMILY))
    assert any(fault in problem for problem in found), found


CALL = {"id": "a", "type": "function", "function": {"name": "echo", "arguments": "{}"}}
ASKS = {"role": "user", "content": "hello"}

BAD_CHAT: dict[str, list[dict[str, Any]]] = {
    "must not be empty": [],
    "nothing to answer": [ASKS, {"role": "assistant", "content": "x"}],
    "blank content": [{"role": "user", "content": " "}],
    "no content and no calls": [ASKS, {"role": "assistant", "content": None}, ASKS],
    "without an answer": [ASKS, {"role": "assistant", "content": None, "tool_calls": [CALL]}, ASKS],
    "answers no call": [ASKS, {"role": "tool", "tool_call_id": "a", "content": "x"}],
    "the call": [ASKS, {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "x" * 41}]}],
    "fields": [ASKS, {"role": "assistant", "content": "x", "reasoning_content": "t"}, ASKS],
}


@pytest.mark.parametrize("fault", BAD_CHAT)
def test_chat_rules_can_fail(fault: str) -> None:
    """Each rule finds what it is for."""
    found = list(chat_problems({"messages": BAD_CHAT[fault]}, ""))
    assert any(fault in problem for problem in found), found


THINKS = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sign(FAMILY, "")}
CALLS = {"type": "function_call", "call_id": "a", "name": "echo", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}

BAD_RESPONSES: dict[str, list[dict[str, Any]]] = {
    "must not be empty": [],
    "required following item": [ASKS, THINKS, ASKS],
    "no tool output": [ASKS, CALLS, ASKS],
    "no tool call": [ASKS, OUTPUT],
    "signature is missing": [ASKS, {**THINKS, "encrypted_content": ""}, CALLS, OUTPUT],
    "a call twice": [ASKS, CALLS, OUTPUT, CALLS, OUTPUT],
    "nothing to answer": [ASKS, {"role": "assistant", "content": "x"}],
}


@pytest.mark.parametrize("fault", BAD_RESPONSES)
def test_responses_rules_can_fail(fault: str) -> None:
    """Each rule finds what it is for."""
    found = list(responses_problems({"input": BAD_RESPONSES[fault]}, FAMILY))
    assert any(fault in problem for problem in found), found


MADE = {"function_call": {"name": "echo", "args": {}, "id": "a"}, "thought_signature": google_rules.DUMMY}
GAVE = {"function_response": {"name": "echo", "id": "a", "response": {"output": "x"}}}


def content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """A content of Google's."""
    return {"role": role, "parts": list(parts)}


HELLO = content("user", {"text": "hello"})

BAD_GOOGLE: dict[str, list[dict[str, Any]]] = {
    "not specified": [],
    "begins and ends": [content("model", {"text": "x"})],
    "must not be empty": [content("user", {"text": ""})],
    "comes after a user turn": [HELLO, content("model", {"text": "x"}), content("model", {"text": "y"}), HELLO],
    "are followed by": [HELLO, content("model", MADE), HELLO],
    "stand beside": [HELLO, content("model", MADE), content("user", GAVE, {"text": "x"})],
    "missing a thought_signature": [
        HELLO,
        content("model", {"function_call": MADE["function_call"]}),
        content("user", GAVE),
    ],
    "0 parts": [content("user")],
    "was sent to": [HELLO, content("model", {**MADE, "thought_signature": b"other:m|0"}), content("user", GAVE)],
}


@pytest.mark.parametrize("fault", BAD_GOOGLE)
def test_google_rules_can_fail(fault: str) -> None:
    """Each rule finds what it is for."""
    found = list(google_rules.problems({"contents": BAD_GOOGLE[fault]}, "google:g"))
    assert any(fault in problem for problem in found), found


def sample(seed: int, style: str) -> list[dict[str, Any]]:
    """Bodies of invented journals, at their ends."""
    found = []
    for number in range(SAMPLE):
        conversation = Conversation()
        for entry in invent(random.Random(f"{seed}/{number}")):
            conversation.add(entry)
        frozen = SessionFrozen(system="s", tools=TOOLS)
        request = build_request(conversation, frozen, None, STYLES[style].rules)
        found.append(STYLES[style].body(with_data(request)))
    return found


def test_google_types(seed: int) -> None:
    """Every content is one of google-genai's, which knows no field besides its own."""
    with warnings.catch_warnings():
        # The package has escapes in its texts that Python warns of when it compiles them.
        warnings.simplefilter("ignore")
        types = importlib.import_module("google.genai.types")
    for body in sample(seed, "google"):
        for each in body["contents"]:
            types.Content.model_validate(each)


def unknown_fields(value: dict[str, Any], kind: Any) -> set[str]:  # noqa: ANN401
    """Return the fields of a value that a library's type does not have, and those that it requires and misses."""
    return (set(value) - set(kind.__annotations__)) | (set(kind.__required_keys__) - set(value))


def test_openai_types(seed: int) -> None:
    """Every message has the fields of the library's type for its role, and no others."""
    chat = importlib.import_module("openai.types.chat")
    types = {
        "system": chat.ChatCompletionSystemMessageParam,
        "user": chat.ChatCompletionUserMessageParam,
        "assistant": chat.ChatCompletionAssistantMessageParam,
        "tool": chat.ChatCompletionToolMessageParam,
    }
    for body in sample(seed, "openai"):
        for message in body["messages"]:
            assert not unknown_fields(message, types[message["role"]])


def test_anthropic_types(seed: int) -> None:
    """Every block has the fields of the library's type for its kind, and no others."""
    types = importlib.import_module("anthropic.types")
    roles = {"user": types.UserMessageParam, "assistant": types.AssistantMessageParam}
    blocks = {
        "text": types.TextBlockParam,
        "image": types.ImageBlockParam,
        "tool_use": types.ToolUseBlockParam,
        "tool_result": types.ToolResultBlockParam,
        "thinking": types.ThinkingBlockParam,
        "redacted_thinking": types.RedactedThinkingBlockParam,
    }
    seen = set()
    for body in sample(seed, "anthropic"):
        for message in body["messages"]:
            kind = roles[message["role"]]
            assert not unknown_fields(message, kind)
            for block in message["content"]:
                seen.add(block["type"])
                assert not unknown_fields(block, blocks[block["type"]])
    assert {"text", "tool_use", "tool_result"} <= seen


def test_responses_types(seed: int) -> None:
    """Every item has the fields of the library's type for its kind, and no others."""
    responses = importlib.import_module("openai.types.responses")
    kinds = {
        "message": responses.EasyInputMessageParam,
        "function_call": responses.ResponseFunctionToolCallParam,
        "function_call_output": responses.response_input_param.FunctionCallOutput,
        "reasoning": responses.ResponseReasoningItemParam,
    }
    for body in sample(seed, "openai-responses"):
        for item in body["input"]:
            assert not unknown_fields(item, kinds[item.get("type", "message")])
