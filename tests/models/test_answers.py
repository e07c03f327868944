"""What a provider says arrives as it was said: words, thoughts, calls, figures and the reason for the end."""

from __future__ import annotations

import pytest

from hansard.domain.messages import ToolCall
from hansard.domain.requests import Delta, FinishReason, Request, UserSaid
from tests.models.helpers import CLOCK, ask, asking
from tests.models.providers.behaviour import Behaviour, Call, Figures
from tests.models.providers.server import Provider

PIECES = {
    "plain": ("Hello", " world"),
    "leading white space": ("\n\n", "  ", "\tHello", "\n"),
    "white space only": (" ", "\n"),
    "one leading newline": ("\nHello",),
    "think tags": ("<think>", "so", "</think>", "\n\nyes", "<think>"),
    "thinking tags within": ("a <think>b</think>", " <thinking>", "</thinking>"),
    "characters beyond the plane": ("\N{GRINNING FACE}", "e\u0301", "\u200d", "\N{FAMILY}", "\ufeff"),
    "done in the text": ("[DONE]", "data: [DONE]\n\n", "\ndata: [DONE]"),
    "control characters": ("\x00a", "\x1b[31m", "\r\n", "\x7f", "\u2028", "\x85"),
    "json in the text": ('{"error": "no"}', '"}]}', "\\n"),
}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES.keys())
async def test_text_is_exact(style: str, pieces: tuple[str, ...], escaped: bool) -> None:  # noqa: FBT001
    """The pieces are what the provider sent, one for one: nothing is trimmed, joined or taken for a tag."""
    async with Provider(style, [Behaviour(pieces=pieces, escaped=escaped)]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.text == "".join(pieces) == provider.answers[0].sent_text
    assert [event.text for event in answer.events if isinstance(event, Delta)] == list(pieces)
    assert answer.finished.reason is FinishReason.STOP


async def test_halves_of_a_character_are_joined(style: str) -> None:
    """A character that is cut in two halves over two pieces comes whole; every piece can be encoded."""
    pieces = ("a\ud83d", "\ude00b", "\ud83d", "c", "\ude00")
    async with Provider(style, [Behaviour(pieces=pieces, escaped=True)]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.text == "a\N{GRINNING FACE}b\ufffdc\ufffd"
    assert "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace") == answer.text


async def test_last_half_is_not_dropped(style: str) -> None:
    """Half a character at the very end is given as a replacement, not swallowed."""
    async with (
        Provider(style, [Behaviour(pieces=("a", "\ud83d"), escaped=True)]) as provider,
        asking(provider) as model,
    ):
        assert (await ask(model)).text == "a\ufffd"


async def test_reasoning_is_told_apart(style: str) -> None:
    """Thoughts come as thoughts, exact as well, and before the words."""
    behaviour = Behaviour(reasoning=("\nHm", ", ", "yes "), pieces=("Yes",))
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert (answer.reasoning, answer.text) == ("\nHm, yes ", "Yes")


@pytest.mark.parametrize(
    ("calls", "arguments"),
    [
        pytest.param((Call(id="a", name="clock", arguments='{"zone": "UTC"}'),), ['{"zone": "UTC"}'], id="one"),
        pytest.param(
            (
                Call(id="a", name="clock", arguments='{"zone": "\N{GRINNING FACE}"}', piece_characters=1),
                Call(id="b", name="clock", arguments='{ "zone":"B" }', piece_characters=100),
            ),
            ['{"zone": "\N{GRINNING FACE}"}', '{ "zone":"B" }'],
            id="two",
        ),
        pytest.param((Call(id="a", name="clock", arguments=""),), ["{}"], id="no arguments"),
        pytest.param((Call(id="a", name="clock", arguments='{"zone": oops}'),), ['{"zone": oops}'], id="not JSON"),
        pytest.param((Call(id="a", name="unheard-of", arguments="[1]"),), ["[1]"], id="unknown tool, no object"),
    ],
)
async def test_calls_come_whole(style: str, calls: tuple[Call, ...], arguments: list[str]) -> None:
    """Calls come after the words, in order, with the arguments as the model wrote them."""
    request = Request(system="", tools=(CLOCK,), messages=(UserSaid("time?"),))
    async with Provider(style, [Behaviour(calls=calls)]) as provider, asking(provider) as model:
        answer = await ask(model, request)
    expected = [
        ToolCall(id=call.id, name=call.name, arguments=text) for call, text in zip(calls, arguments, strict=True)
    ]
    assert answer.calls == expected
    assert answer.text == "Hello, world."
    assert answer.finished.reason is FinishReason.TOOLS


async def test_calls_without_words(style: str) -> None:
    """A model may call and say nothing."""
    behaviour = Behaviour(pieces=(), calls=(Call(id="a", name="clock", arguments="{}"),))
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert (answer.text, len(answer.calls)) == ("", 1)


@pytest.mark.loss("C2")
async def test_call_that_the_limit_cut_is_not_given(style: str) -> None:
    """When the output limit falls into arguments, the calls before are given and that one is not."""
    calls = (Call(id="a", name="clock", arguments="{}"), Call(id="b", name="clock", arguments='{"zone": "U'))
    finish = {"openai": "length", "anthropic": "max_tokens"}[style]
    async with Provider(style, [Behaviour(calls=calls, finish=finish)]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert [call.id for call in answer.calls] == ["a"]
    assert answer.finished.reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"openai": "stop", "anthropic": "end_turn"}, FinishReason.STOP),
        ({"openai": "length", "anthropic": "max_tokens"}, FinishReason.LENGTH),
        ({"openai": "content_filter", "anthropic": "refusal"}, FinishReason.FILTER),
        ({"openai": "eos", "anthropic": "something_new"}, FinishReason.STOP),
    ],
)
async def test_reasons(style: str, words: dict[str, str], reason: FinishReason) -> None:
    """The provider's word for the end becomes ours; one that nobody knows is an end all the same."""
    async with Provider(style, [Behaviour(finish=words[style])]) as provider, asking(provider) as model:
        assert (await ask(model)).finished.reason is reason


async def test_refusal_is_said() -> None:
    """The words in which OpenAI's models decline are part of the answer."""
    behaviour = Behaviour(pieces=(), refusal=("I can't", " do that."))
    async with Provider("openai", [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert answer.text == "I can't do that."
    assert answer.finished.reason is FinishReason.FILTER


async def test_usage(style: str) -> None:
    """Figures are kept, those of the cache too; a server of one's own has no price."""
    figures = Figures(input_tokens=1000, output_tokens=50, cache_read_tokens=600)
    async with Provider(style, [Behaviour(figures=figures)]) as provider, asking(provider) as model:
        usage = (await ask(model)).finished.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (1000, 50, 600)
    assert usage.cost_micros is None


async def test_cache_writes() -> None:
    """Anthropic tells what was put into the cache."""
    figures = Figures(input_tokens=1000, output_tokens=50, cache_read_tokens=600, cache_write_tokens=300)
    async with Provider("anthropic", [Behaviour(figures=figures)]) as provider, asking(provider) as model:
        usage = (await ask(model)).finished.usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (1000, 600, 300)


async def test_no_figures() -> None:
    """A server that reports none is no failure."""
    async with Provider("openai", [Behaviour(figures=None)]) as provider, asking(provider) as model:
        usage = (await ask(model)).finished.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cost_micros) == (0, 0, None)


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_every_framing(style: str, framing: str) -> None:
    """However the body is delimited, a whole answer is whole."""
    behaviour = Behaviour(framing=framing)  # type: ignore[arg-type]
    async with Provider(style, [behaviour]) as provider, asking(provider) as model:
        answer = await ask(model)
    assert (answer.text, answer.finished.reason) == ("Hello, world.", FinishReason.STOP)
