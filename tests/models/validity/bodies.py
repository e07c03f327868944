"""What is sent to each provider, as its own rules see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from hansard.domain.requests import ModelRules, Request, Said, ToolSpec, UserSaid
from hansard.models.bodies import anthropic_messages, chat_messages, google_contents, responses_input
from hansard.models.rules import rules_of
from tests.models.validity import anthropic_rules, google_rules
from tests.models.validity.openai_rules import chat_problems, responses_problems

Json = dict[str, Any]


class Style(NamedTuple):
    """A protocol: its models, how a request is said in it, what it refuses."""

    name: str
    model: str
    body: Callable[[Request], Json]
    problems: Callable[[Json, str], Iterator[str]]

    @property
    def rules(self) -> ModelRules:
        """The rules of its model."""
        return rules_of(self.name, self.model, is_own=True)


def tools_of(request: Request) -> list[str]:
    """The tools that are offered; only whether there are any matters here."""
    return [tool.name for tool in request.tools]


STYLES = {
    style.name: style
    for style in (
        Style("openai", "gpt-5", lambda r: {"messages": chat_messages(r), "tools": tools_of(r)}, chat_problems),
        Style(
            "openai-responses",
            "gpt-5",
            lambda r: {"input": responses_input(r), "tools": tools_of(r)},
            responses_problems,
        ),
        Style(
            "anthropic",
            "claude-sonnet-5",
            lambda r: {"messages": anthropic_messages(r), "tools": tools_of(r)},
            anthropic_rules.problems,
        ),
        Style(
            "google",
            "gemini-3.5-flash",
            lambda r: {"contents": google_contents(r), "tools": tools_of(r)},
            google_rules.problems,
        ),
    )
}


def with_data(request: Request) -> Request:
    """Return a request with bytes in its pictures, as many as were recorded."""

    def filled(said: Said) -> Said:
        if not isinstance(said, UserSaid) or not said.images:
            return said
        images = tuple(msgspec.structs.replace(image, data=bytes(image.size_bytes)) for image in said.images)
        return UserSaid(said.text, images)

    return msgspec.structs.replace(request, messages=tuple(map(filled, request.messages)))


def wrong_with(request: Request, style: Style, family: str) -> list[str]:
    """Return what a provider would refuse in a request."""
    return list(style.problems(style.body(with_data(request)), family))


TOOLS = (ToolSpec(name="echo", description="Says it again."),)
