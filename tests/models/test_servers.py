"""The servers that the tests of models rely on: strict where the real ones are, and alive as programs of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.domain.messages import ToolCall, ToolResult
from hansard.domain.requests import AssistantSaid, FailureKind, Request, ToolsSaid, UserSaid
from hansard.models.pydantic import open_provider
from tests.models.helpers import CLOCK, KEY, STALL_SECONDS, WAIT_SECONDS_MAX, ask, asking
from tests.models.providers import anthropic_style, openai_style
from tests.models.providers.behaviour import Behaviour
from tests.models.providers.server import Provider

CALL = ToolCall(id="a", name="clock", arguments="{}")
RESULT = ToolResult(call_id="a", text="9")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((UserSaid("q"), AssistantSaid("", (CALL,)), UserSaid("x")), id="call without its result"),
        pytest.param((UserSaid("q"), AssistantSaid("", (CALL,))), id="call at the end"),
        pytest.param((UserSaid("q"), AssistantSaid("x"), ToolsSaid((RESULT,))), id="result without its call"),
        pytest.param(
            (UserSaid("q"), AssistantSaid("", (CALL,)), ToolsSaid((RESULT, RESULT))), id="two results for one call"
        ),
        pytest.param(
            (UserSaid("q"), AssistantSaid("", (CALL,)), UserSaid("x"), ToolsSaid((RESULT,))), id="result too late"
        ),
    ],
)
async def test_calls_and_results_must_match(style: str, said: tuple[Any, ...]) -> None:
    """A conversation whose calls and results do not match is refused, as the real API does it."""
    async with Provider(style) as provider, asking(provider) as model:
        failure = (await ask(model, Request(system="s", tools=(CLOCK,), messages=said))).failure
    assert failure.kind is FailureKind.REFUSED
    assert provider.answers[0].error
    assert provider.answers[0].error[:40] in failure.text


def body(*messages: dict[str, Any], **more: object) -> dict[str, Any]:
    """Return the body of a request."""
    return {"model": "m", "stream": True, "max_tokens": 10, "messages": list(messages), **more}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Return what a person says to Anthropic."""
    return {"role": "user", "content": list(blocks)}


TEXT = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (body({"role": "assistant", "content": "x"}), "first message"),
        (body(user()), "non-empty"),
        (body(user({"type": "text", "text": " "})), "non-whitespace"),
        (body(user({"type": "tool_result", "tool_use_id": "a"})), "tool_result"),
        ({**body(user(TEXT)), "max_tokens": None}, "max_tokens"),
        (body(), "at least one"),
        (body(user(TEXT), system=""), "system"),
        (body(user(*[{**TEXT, "cache_control": {}}] * 5)), "cache_control"),
        (body({"role": "system", "content": "x"}), "role"),
        (body(user(TEXT), tools=[{"name": "a b", "input_schema": {"type": "object"}}]), "tools"),
        ({**body(user(TEXT)), "stream": False}, "streams"),
    ],
)
def test_anthropic_refuses(value: dict[str, Any], reason: str) -> None:
    """Each rule of Anthropic's that matters here is kept."""
    assert reason in anthropic_style.wrong_with(value)
    assert anthropic_style.wrong_with(body(user(TEXT), user(TEXT))) == ""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (body(), "at least one"),
        (body({"role": "assistant", "content": None}), "content or tool_calls"),
        (body({"role": "tool", "tool_call_id": "a", "content": "x"}), "preceding message"),
        (body({"role": "stranger", "content": "x"}), "role"),
        (body({"role": "user", "content": "x"}, tools=[{"function": {"name": "a b"}}]), "tools"),
        ({**body({"role": "user", "content": "x"}), "stream": False}, "streams"),
    ],
)
def test_openai_refuses(value: dict[str, Any], reason: str) -> None:
    """Each rule of OpenAI's that matters here is kept."""
    assert reason in openai_style.wrong_with(value)
    assert openai_style.wrong_with(body({"role": "user", "content": "x"})) == ""


async def test_list_of_models(style: str) -> None:
    """The list of models can be asked for."""
    async with Provider(style) as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            content = json.loads(await reader.readexactly(size))
        writer.close()
    assert [model["id"] for model in content["data"]] == ["test-model"]


async def test_behaviours_in_order(style: str) -> None:
    """Each request takes the next behaviour, and the last one repeats; what a person said can be echoed."""
    behaviours = [Behaviour(pieces=("one",)), Behaviour(pieces=("two: ", "{last}"))]
    async with Provider(style, behaviours) as provider, asking(provider) as model:
        texts = [(await ask(model)).text for _ in range(3)]
    assert texts == ["one", "two: hello", "two: hello"]
    assert [exchange.sent_text for exchange in provider.answers] == texts
    assert provider.answers[1].text_bytes == len("two: hello")


async def test_server_as_a_program(style: str, tmp_path: Path) -> None:
    """The server runs as a program, outlives its clients, writes down what it is asked, and ends with its input."""
    script, log = tmp_path / "script.json", tmp_path / "log.jsonl"
    script.write_bytes(msgspec.json.encode([Behaviour(pieces=("one",)), Behaviour(status=429)]))
    arguments = ["--style", style, "--script", str(script), "--log", str(log), "--seconds", "60"]
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.models.providers.serve",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        port = int(await program.stdout.readline())
        base_url = f"http://127.0.0.1:{port}" + ("/v1" if style == "openai" else "")
        for expected in ("one", FailureKind.BUSY):
            model = open_provider(f"{style}:m", key=KEY, base_url=base_url, stall_seconds=STALL_SECONDS)
            answer = await ask(model)
            await model.close()
            assert expected in (answer.text, getattr(getattr(answer.ending, "failure", None), "kind", None))
        program.stdin.close()
        assert await program.wait() == 0
    assert [json.loads(line)["body"]["model"] for line in log.read_text().splitlines()] == ["m", "m"]
