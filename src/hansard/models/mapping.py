"""A request in the words of pydantic-ai: the one place that knows how ours are said there.

What was said goes past the library, in the provider's own form, which `openai_body`, `anthropic_body` and `google_body`
make: the library would walk through every message of every request, and put in and leave out what it thinks best.
The form of a message depends on that message alone (and, for a result, on the call that it answers), never on what
follows it nor on the time: what was sent once is sent the same way in every later request, so that caches hit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from hansard.models.anthropic_body import anthropic_messages
from hansard.models.filling import NO_TEXT
from hansard.models.openai_body import chat_messages, responses_input

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition

    from hansard.domain.requests import Request, ToolSpec


def stand_in() -> list[ModelMessage]:
    """Return the message that the library is given in place of what was said."""
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    return [ModelRequest(parts=[UserPromptPart(content=NO_TEXT)])]


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
    """Return the limit, what was said, and Anthropic's cache marks after the system and the tools.

    Nothing is stored at OpenAI: what it has to know again, its own reasoning too, is sent again.
    """
    settings: dict[str, Any] = {}
    if request.output_tokens_max is not None:
        settings["max_tokens"] = request.output_tokens_max
    if style == "openai":
        settings["extra_body"] = {"messages": chat_messages(request)}
    elif style == "openai-responses":
        settings["extra_body"] = {"input": responses_input(request)}
        settings["openai_store"] = False
    elif style == "anthropic":
        settings["extra_body"] = {"messages": anthropic_messages(request)}
        settings |= {"anthropic_cache_instructions": True, "anthropic_cache_tool_definitions": True}
    return cast("ModelSettings", settings)
