"""Reasoning on its way: from a provider's stream into the record's parts, and back to the model that made it alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hansard.domain.messages import SIGNS_TEXT, Reasoning, Role, Text, ToolCall, ToolResult
from hansard.domain.requests import AssistantSaid, Image, Request, ToolsSaid, UserSaid
from hansard.models.pydantic import open_provider
from hansard.ports.model import Model
from hansard.testing.fakes import Echo, tools_by_name
from tests.engine.stage import stage
from tests.models.helpers import CLOCK, KEY, STALL_SECONDS, THINKS, ask, asking, sent_signature
from tests.models.providers import google_style, responses_style
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import STYLES, Provider

ALL = sorted(STYLES)
SIGNING = sorted(set(STYLES) - {"openai"})


@pytest.mark.parametrize("style", ALL)
async def test_every_protocol_is_spoken(style: str) -> None:
    """Words, reasoning, calls and figures come through, and a conversation with all of that is accepted."""
    async with Provider(style, [THINKS]) as provider, asking(provider) as model:
        answer = await ask(model, Request(system="s", tools=(CLOCK,), messages=(UserSaid("hello"),)))
        assert (answer.text, answer.reasoning) == ("Let me see.", "I think.")
        assert [(call.id, call.name) for call in answer.calls] == [("call_a", "echo")]
        assert (answer.finished.usage.input_tokens, answer.finished.usage.output_tokens) == (20, 7)
    assert provider.answers[0].error == ""


@pytest.mark.parametrize("style", SIGNING)
async def test_parts_are_given_as_the_provider_gave_them(style: str) -> None:
    """The order stays, each stretch of reasoning has its signature, and the model that made it is named."""
    async with Provider(style, [THINKS]) as provider, asking(provider) as model:
        parts = (await ask(model)).finished.parts
    name = f"{style}:test-model"
    call = ToolCall(id="call_a", name="echo", arguments='{"text":"hello"}')
    expected = {
        "anthropic": (Reasoning(text="I think.", signature="c2lnbmVk", model=name), Text("Let me see."), call),
        "google": (
            Reasoning(text="I think."),
            Text("Let me see."),
            Reasoning(text="", signature=google_style.SIGNATURE, model=name, id=SIGNS_TEXT),
            ToolCall(id="call_a", name="echo", arguments=call.arguments, signature=google_style.SIGNATURE, model=name),
        ),
        "openai-responses": (
            Reasoning(
                text="I think.",
                signature=responses_style.SECRET,
                model=name,
                id=responses_style.REASONING_ID,
            ),
            Text("Let me see."),
            call,
        ),
    }
    assert parts == expected[style]


async def test_nothing_is_signed_where_nobody_signs() -> None:
    """Chat Completions has no signatures: what was streamed is recorded as it was."""
    async with Provider("openai", [THINKS]) as provider, asking(provider) as model:
        assert (await ask(model)).finished.parts == ()


@pytest.mark.loss("C7", "N3")
@pytest.mark.parametrize("style", SIGNING)
async def test_round_trip_and_switch(home: Path, style: str) -> None:
    """Through the record and back: the model that thought is given its reasoning again, any other only the words."""
    behaviours = [THINKS, Behaviour(pieces=("Done.",))]
    async with Provider(style, behaviours) as first, Provider("openai") as second, Provider("anthropic") as third:
        opened: list[Model] = [
            open_provider(f"{each.style}:{name}", key=KEY, base_url=each.base_url, stall_seconds=STALL_SECONDS)
            for each, name in ((first, "test-model"), (second, "other"), (third, "another"))
        ]
        try:
            async with stage(home, opened[0], tools=tools_by_name(Echo())) as on:
                await on.ask("one")
                session_id = on.session_id
                said = (await on.transcript(Role.ASSISTANT))[0]
                assert [type(part) for part in said.parts][:2] == [Reasoning, Text]
            assert sent_signature(style, json.dumps(first.answers[1].body))
            for model, provider in zip(opened[1:], (second, third), strict=True):
                async with stage(home, model, tools=tools_by_name(Echo()), session_id=session_id) as on:
                    await on.ask("two")
                    await on.check()
                body = json.dumps(provider.answers[-1].body)
                assert provider.answers[-1].error == ""
                assert not sent_signature(style, body)
                assert "Let me see." in body
                assert "I think." not in body
            async with stage(home, opened[0], tools=tools_by_name(Echo()), session_id=session_id) as on:
                await on.ask("three")
            assert first.answers[-1].error == ""
            assert sent_signature(style, json.dumps(first.answers[-1].body))
        finally:
            for model in opened:
                await model.close()


@pytest.mark.loss("N4")
@pytest.mark.parametrize("style", ALL)
async def test_pictures_are_sent(style: str) -> None:
    """A picture stands in the message that it belongs to, after its words, in the provider's own form."""
    image = Image(blob="b", media_type="image/png", size_bytes=4, name="p.png", data=b"\x89PNG")
    request = Request(system="s", messages=(UserSaid("look", (image,)),))
    async with Provider(style) as provider, asking(provider) as model:
        assert (await ask(model, request)).text == "Hello, world."
    body = json.dumps(provider.answers[0].body)
    assert "iVBORw==" in body
    assert body.index("look") < body.index("iVBORw==")


@pytest.mark.parametrize("style", ALL)
async def test_a_long_conversation_is_accepted(style: str) -> None:
    """Calls, results of all outcomes, blank texts and unreadable arguments: no server has anything to refuse."""
    call = ToolCall(id="a", name="clock", arguments="[1]")
    said = (
        UserSaid(" "),
        AssistantSaid("", (call,)),
        ToolsSaid((ToolResult(call_id="a"),)),
        UserSaid("and"),
        AssistantSaid(""),
        UserSaid("so?"),
    )
    async with Provider(style) as provider, asking(provider) as model:
        assert (await ask(model, Request(system="s", tools=(CLOCK,), messages=said))).text == "Hello, world."
