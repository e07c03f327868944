"""What is sent: valid for the provider, the same way every time, and nothing besides."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from hansard.domain.messages import ToolCall, ToolResult
from hansard.domain.requests import AssistantSaid, FailureKind, Request, ToolSpec, ToolsSaid, UserSaid
from hansard.models.bodies import NO_OUTPUT, NO_TEXT, UNREADABLE_ARGUMENTS
from tests.models.helpers import CLOCK, HELLO, ask, asking, conversation
from tests.models.providers.behaviour import Behaviour, Exchange
from tests.models.providers.server import Provider

TURNS = 6


async def bodies_of(style: str, requests: list[Request]) -> list[dict[str, Any]]:
    """Send requests, see to it that none is refused, and return their bodies."""
    async with Provider(style) as provider, asking(provider) as model:
        for request in requests:
            answer = await ask(model, request)
            assert answer.text == "Hello, world.", provider.answers[-1].error
    return [exchange.body for exchange in provider.answers]


def unmarked(value: Any) -> Any:  # noqa: ANN401
    """Return a JSON value without cache marks."""
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


async def test_prefix_is_stable(style: str) -> None:
    """System, tools and messages of each request begin those of the next, as bytes, cache marks aside."""
    whole = conversation(TURNS)
    ends = [count for count, said in enumerate(whole.messages, 1) if not isinstance(said, AssistantSaid)]
    requests = [msgspec.structs.replace(whole, messages=whole.messages[:end]) for end in ends]
    bodies = [unmarked(body) for body in await bodies_of(style, requests)]
    assert len(bodies) == TURNS * 2 + 1
    for earlier, later in pairwise(bodies):
        for name in ("system", "tools", "messages"):
            before, after = json.dumps(earlier.get(name, [])), json.dumps(later.get(name, []))
            assert after.startswith(before.removesuffix("]"))
        assert len(later["messages"]) > len(earlier["messages"])
        rest = {name: value for name, value in earlier.items() if name != "messages"}
        assert rest == {name: value for name, value in later.items() if name != "messages"}


async def test_same_request_same_bytes(style: str) -> None:
    """Nothing random and no time gets into a body."""
    first, second = await bodies_of(style, [conversation(3)] * 2)
    assert json.dumps(first) == json.dumps(second)


async def test_one_message_each(style: str) -> None:
    """What was said apart is sent apart, so that a later message cannot change an earlier one."""
    request = Request(system="s", messages=(UserSaid("a"), UserSaid("b"), AssistantSaid("c"), UserSaid("d")))
    (body,) = await bodies_of(style, [request])
    messages = [message for message in body["messages"] if message["role"] != "system"]
    assert [message["role"] for message in messages] == ["user", "user", "assistant", "user"]


async def test_message_after_results(style: str) -> None:
    """A person who speaks while tools run is heard after their results."""
    call = ToolCall(id="a", name="clock", arguments="{}")
    said = (
        UserSaid("time?"),
        AssistantSaid("", (call,)),
        ToolsSaid((ToolResult(call_id="a", text="9"),)),
        UserSaid("stop"),
    )
    (body,) = await bodies_of(style, [Request(system="s", tools=(CLOCK,), messages=said)])
    assert len([message for message in body["messages"] if message["role"] != "system"]) == 4


@pytest.mark.parametrize("arguments", ['{"zone": "U', "", "  ", "null", "[1]", '"x"', "{'a': 1}", '{"a": NaN}'])
async def test_unreadable_arguments_can_be_sent(style: str, arguments: str) -> None:
    """Arguments that are no JSON object are sent as an object that carries them; blank ones as none."""
    call = ToolCall(id="a", name="clock", arguments=arguments)
    said = (UserSaid("time?"), AssistantSaid("x", (call,)), ToolsSaid((ToolResult(call_id="a", text="no"),)))
    (body,) = await bodies_of(style, [Request(system="s", tools=(CLOCK,), messages=said)])
    if style == "openai":
        sent = json.loads(body["messages"][2]["tool_calls"][0]["function"]["arguments"])
    else:
        sent = body["messages"][1]["content"][1]["input"]
    assert sent == ({UNREADABLE_ARGUMENTS: arguments} if arguments.strip() else {})


async def test_blank_texts_are_filled(style: str) -> None:
    """Providers refuse blank texts: something stands for them, except beside calls, where nothing need."""
    call = ToolCall(id="a", name="clock")
    said = (
        UserSaid(" "),
        AssistantSaid("\n", (call,)),
        ToolsSaid((ToolResult(call_id="a", text=""),)),
        AssistantSaid(""),
        UserSaid("hm"),
    )
    (body,) = await bodies_of(style, [Request(system="", messages=said)])
    text = json.dumps(body["messages"])
    assert text.count(json.dumps(NO_TEXT)) == 2
    assert text.count(json.dumps(NO_OUTPUT)) == 1
    assert "system" not in {message["role"] for message in body["messages"]}
    assert "system" not in body


async def test_schemas_are_sent_as_they_are(style: str) -> None:
    """A tool's schema is not rewritten for anybody's strict mode."""
    schema = '{"type":"object","$defs":{"z":{"type":"string"}},"title":"T","properties":{"z":{"$ref":"#/$defs/z"}}}'
    tools = (CLOCK, ToolSpec(name="other", description="", parameters=schema))
    (body,) = await bodies_of(style, [msgspec.structs.replace(HELLO, tools=tools)])
    sent = [tool["function"]["parameters"] if style == "openai" else tool["input_schema"] for tool in body["tools"]]
    assert [json.dumps(value, separators=(",", ":")) for value in sent] == [CLOCK.parameters, schema]
    assert "strict" not in json.dumps(body)


async def test_texts_are_sent_as_they_are(style: str) -> None:
    """Every character of what was said reaches the provider."""
    text = "\n \N{GRINNING FACE}\t\x00\x1b<think>é\u2028 "
    said = (UserSaid(text), AssistantSaid(text), UserSaid(text))
    (body,) = await bodies_of(style, [Request(system=text, messages=said)])
    assert json.dumps(body).count(json.dumps(text)) == 4


async def test_cache_marks() -> None:
    """Anthropic's cache is marked after the tools, after the system and on the last message, and nowhere else."""
    (body,) = await bodies_of("anthropic", [conversation(2)])
    assert "cache_control" in body["system"][-1]
    assert "cache_control" in body["tools"][-1]
    assert "cache_control" in body["messages"][-1]["content"][-1]
    assert json.dumps(body).count("cache_control") == 3


async def test_limit_of_output(style: str) -> None:
    """The limit is sent under the name that servers know; without one only Anthropic's protocol needs a number."""
    limited = msgspec.structs.replace(HELLO, output_tokens_max=123)
    first, second = await bodies_of(style, [limited, HELLO])
    assert first["max_tokens"] == 123
    assert ("max_tokens" in second) is (style == "anthropic")
    assert style == "openai" or second["max_tokens"] >= 4096


async def test_usage_is_asked_for() -> None:
    """OpenAI's protocol reports figures only when asked."""
    (body,) = await bodies_of("openai", [HELLO])
    assert body["stream_options"] == {"include_usage": True}


async def test_server_that_refuses_to_be_asked_for_usage() -> None:
    """A server that does not know the wish for figures is asked again without it, and from then on always without."""
    refusal = Behaviour(status=400, message="Unrecognized request argument supplied: stream_options")
    async with Provider("openai", [refusal, Behaviour()]) as provider, asking(provider) as model:
        assert (await ask(model)).text == "Hello, world."
        assert (await ask(model)).text == "Hello, world."
    assert ["stream_options" in exchange.body for exchange in provider.answers] == [True, False, False]


async def test_nothing_besides(style: str) -> None:
    """A body holds what was asked and what the protocol needs, and no account of the machine or the person."""
    (body,) = await bodies_of(style, [HELLO])
    needed = {"model", "messages", "stream"}
    assert set(body) == needed | ({"stream_options"} if style == "openai" else {"system", "max_tokens"})


async def test_packing_is_not_asked_for(style: str) -> None:
    """A packed stream would be held back until there is enough of it to pack."""
    async with Provider(style) as provider, asking(provider) as model:
        await ask(model)
    assert provider.answers[0].headers["accept-encoding"] == "identity"


async def test_request_that_cannot_be_made(style: str) -> None:
    """A request that cannot be put into words is refused for good, and nobody is asked."""
    broken = ToolSpec(name="x", description="", parameters="no schema")
    async with Provider(style) as provider, asking(provider) as model:
        failure = (await ask(model, msgspec.structs.replace(HELLO, tools=(broken,)))).failure
    assert failure.kind is FailureKind.REFUSED
    assert provider.answers == []


async def test_many_first_refusals_to_be_asked_for_usage() -> None:
    """Turns that meet the refusal at the same time all get their answers."""

    class Figureless(Provider):
        """A server that does not know the wish for figures."""

        async def take(self, exchange: Exchange) -> Behaviour:
            behaviour = await super().take(exchange)
            refusal = Behaviour(status=400, message="stream_options: extra inputs are not permitted")
            return refusal if "stream_options" in exchange.body else behaviour

    async with Figureless("openai") as provider, asking(provider) as model:
        answers = await asyncio.gather(*(ask(model) for _ in range(8)))
    assert [answer.text for answer in answers] == ["Hello, world."] * 8
