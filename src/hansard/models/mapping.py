"""A request in the words of pydantic-ai: the one place that knows how ours are said there.

The mapping of a message depends on that message alone (and, for a result, on the call that it answers), never on what
follows it nor on the time: what was sent once is sent the same way in every later request, so that provider caches hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from hansard.domain.messages import ToolOutcome, ToolResult
from hansard.domain.requests import AssistantSaid, Request, ToolSpec, ToolsSaid, UserSaid

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

NO_TEXT = "(no text)"
NO_OUTPUT = "(no output)"
"""Providers refuse blank texts; these stand for them."""

UNREADABLE_ARGUMENTS = "arguments_as_written"
"""The key under which arguments are sent back that the model wrote and that are not a JSON object."""

OUTCOMES: dict[ToolOutcome, Literal["success", "failed", "interrupted"]] = {
    ToolOutcome.OK: "success",
    ToolOutcome.ERROR: "failed",
    ToolOutcome.NOT_STARTED: "interrupted",
    ToolOutcome.UNKNOWN: "interrupted",
}


def map_messages(request: Request, style: str) -> list[ModelMessage]:
    """Return what was said, one message for each of ours; for OpenAI only the last, because all of it is a setting."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    if style == "openai":
        return [ModelRequest(parts=[UserPromptPart(content=NO_TEXT)])]
    messages: list[ModelMessage] = []
    names: dict[str, str] = {}
    for said in request.messages:
        if isinstance(said, UserSaid):
            messages.append(ModelRequest(parts=[UserPromptPart(content=filled(said.text, NO_TEXT))]))
        elif isinstance(said, AssistantSaid):
            names = {call.id: call.name for call in said.calls}
            messages.append(map_assistant(said))
        else:
            messages.append(map_results(said, names))
    return messages


def map_assistant(said: AssistantSaid) -> ModelResponse:
    """Return what the model said. Beside calls a blank text is left out; alone it is filled: roles alternate."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    parts: list[Any] = [TextPart(content=said.text)] if said.text.strip() else []
    parts += [
        ToolCallPart(tool_name=call.name, args=arguments_object(call.arguments), tool_call_id=call.id)
        for call in said.calls
    ]
    if not parts:
        parts = [TextPart(content=NO_TEXT)]
    return ModelResponse(parts=parts)


def map_results(said: ToolsSaid, names: dict[str, str]) -> ModelMessage:
    """Return the results of the calls just before, named as those were."""
    from pydantic_ai.messages import ModelRequest, ToolReturnPart

    def part(result: ToolResult) -> ToolReturnPart:
        return ToolReturnPart(
            tool_name=names.get(result.call_id, "tool"),
            content=filled(result.text, NO_OUTPUT),
            tool_call_id=result.call_id,
            outcome=OUTCOMES[result.outcome],
        )

    return ModelRequest(parts=[part(result) for result in said.results])


def map_parameters(request: Request) -> ModelRequestParameters:
    """Return the system prompt and the tools."""
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters

    return ModelRequestParameters(
        function_tools=[map_tool(tool) for tool in request.tools],
        instruction_parts=[InstructionPart(content=request.system)] if request.system.strip() else [],
    )


def map_tool(tool: ToolSpec) -> ToolDefinition:
    """Return a tool, its schema as it was frozen. Strict modes would rewrite the schema, so they stay off."""
    from pydantic_ai.tools import ToolDefinition

    schema = msgspec.json.decode(tool.parameters, type=dict[str, Any])
    return ToolDefinition(
        name=tool.name, description=tool.description, parameters_json_schema=schema, strict=False, sequential=False
    )


def map_settings(request: Request, style: str) -> ModelSettings:
    """Return the limits, Anthropic's cache marks (after the system, the tools, on the last message), OpenAI's messages.

    OpenAI's own library walks through every message of every request, a quarter of a millisecond each; what is given
    as `extra_body` it sends as it is.
    """
    settings: dict[str, Any] = {}
    if style == "openai":
        settings["extra_body"] = {"messages": openai_messages(request)}
    if request.output_tokens_max is not None:
        settings["max_tokens"] = request.output_tokens_max
    if style == "anthropic":
        settings |= {
            "anthropic_cache_instructions": True,
            "anthropic_cache_tool_definitions": True,
            "anthropic_cache_messages": True,
        }
    return cast("ModelSettings", settings)


def openai_messages(request: Request) -> list[dict[str, Any]]:
    """Return the messages as Chat Completions has them."""
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for said in request.messages:
        if isinstance(said, UserSaid):
            messages.append({"role": "user", "content": filled(said.text, NO_TEXT)})
        elif isinstance(said, AssistantSaid):
            messages.append(openai_assistant(said))
        else:
            messages += [
                {"role": "tool", "tool_call_id": result.call_id, "content": filled(result.text, NO_OUTPUT)}
                for result in said.results
            ]
    return messages


def openai_assistant(said: AssistantSaid) -> dict[str, Any]:
    """Return what the model said. Arguments are sent as an object's text, whatever the model wrote."""
    if not said.calls:
        return {"role": "assistant", "content": filled(said.text, NO_TEXT)}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": msgspec.json.encode(arguments_object(call.arguments)).decode(),
            },
        }
        for call in said.calls
    ]
    return {"role": "assistant", "content": said.text if said.text.strip() else None, "tool_calls": calls}


def arguments_object(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object; one that carries the text when the model wrote something else."""
    if not arguments.strip():
        return {}
    decoded = decode_object(arguments)
    return {UNREADABLE_ARGUMENTS: arguments} if decoded is None else decoded


def decode_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None when it is none."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def filled(text: str, otherwise: str) -> str:
    """Return the text, or what stands for a blank one."""
    return text if text.strip() else otherwise
