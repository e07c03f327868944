"""What of a conversation the demo model is sent: always little enough, always the newest, and stable at its front."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.messages import ToolCall, ToolOutcome, ToolResult
from hansard.domain.requests import AssistantSaid, Request, ToolSpec, ToolsSaid, UserSaid
from hansard.models.demo import (
    HISTORY_TOKENS_MAX,
    LEFT_OUT,
    MARK_TOKENS,
    MESSAGE_TOKENS_MAX,
    OUTPUT_TOKENS,
    OUTPUT_TOKENS_MAX,
    SYSTEM_TOKENS_MAX,
    count_bytes,
    estimate_tokens,
    fit,
    shorten,
)

TEXTS = st.one_of(
    st.text(max_size=300), st.builds(lambda text, times: text * times, st.text(max_size=20), st.integers(0, 900))
)


def conversation(texts: list[str], system: str = "Be brief.") -> Request:
    """A conversation that alternates and ends with a person."""
    kinds = (UserSaid, AssistantSaid)
    texts = texts if len(texts) % 2 else texts[1:]
    return Request(system=system, messages=tuple(kinds[index % 2](text) for index, text in enumerate(texts)))


def said(request: Request) -> list[str]:
    """The words of the messages."""
    return [message.text for message in request.messages if not isinstance(message, ToolsSaid)]


@pytest.mark.parametrize("counter", [estimate_tokens, count_bytes])
@given(texts=st.lists(TEXTS, min_size=2, max_size=30), system=TEXTS)
def test_a_request_fits_whatever_was_said(counter: Callable[[str], int], texts: list[str], system: str) -> None:
    """Whatever was said, the request is within the limits, keeps the newest message and begins with a person."""
    request = conversation(texts, system)
    sent = fit(request, counter)
    assert counter(sent.system) <= SYSTEM_TOKENS_MAX
    assert sum(counter(text) + MARK_TOKENS for text in said(sent)) <= HISTORY_TOKENS_MAX
    assert isinstance(sent.messages[0], UserSaid)
    assert said(sent)[-1] == shorten(said(request)[-1], MESSAGE_TOKENS_MAX, counter)
    assert sent.output_tokens_max == OUTPUT_TOKENS


def test_a_short_conversation_is_sent_whole() -> None:
    """What fits is sent as it was said."""
    request = conversation(["Hello!", "Hello there.", "How are you?"])
    assert fit(request, estimate_tokens).messages == request.messages
    assert fit(request, estimate_tokens).system == "Be brief."


def test_the_oldest_messages_are_left_out() -> None:
    """What is sent of a long conversation is its end, without a gap."""
    texts = [f"{number} " + "words and words " * 10 for number in range(101)]
    sent = said(fit(conversation(texts), estimate_tokens))
    assert sent == texts[-len(sent) :]
    assert 5 < len(sent) < 101


def test_most_requests_begin_as_the_one_before_did() -> None:
    """The front moves in steps: the server has read the beginning of nearly every request before."""
    texts = [f"{number} " + "words and words " * 5 for number in range(301)]
    requests = [said(fit(conversation(texts[:end]), estimate_tokens)) for end in range(1, 302, 2)]
    pairs = list(itertools.pairwise(requests))
    moved = sum(later[: len(earlier)] != earlier for earlier, later in pairs)
    assert 0 < moved < len(pairs) / 5
    assert len(requests[-1]) < 301


def test_the_middle_of_a_long_message_is_left_out() -> None:
    """Of a message that is too long the beginning and the end are sent, and a mark says so."""
    text = "The first words. " + "between " * 5000 + "The last words."
    (sent,) = said(fit(conversation([text]), estimate_tokens))
    assert sent.startswith("The first words. between")
    assert sent.endswith("between The last words.")
    assert sent.count(LEFT_OUT) == 1
    assert estimate_tokens(sent) <= MESSAGE_TOKENS_MAX


def test_tools_are_told_in_words() -> None:
    """A conversation with another model's tool calls is sent without tools, and says that they were called."""
    call = ToolCall(id="1", name="session_search", arguments='{"q": "x"}')
    results = (ToolResult(call_id="1", text="found it"), ToolResult(call_id="2", outcome=ToolOutcome.UNKNOWN))
    request = Request(
        system="",
        tools=(ToolSpec(name="session_search", description="Search."),),
        messages=(UserSaid("Search x."), AssistantSaid("", (call,)), ToolsSaid(results)),
    )
    sent = fit(request, estimate_tokens)
    assert sent.tools == ()
    assert sent.messages == (
        UserSaid("Search x."),
        AssistantSaid("\n[called session_search]"),
        UserSaid("[result: found it]\n[result: unknown]"),
    )


@pytest.mark.parametrize(("asked", "sent"), [(None, OUTPUT_TOKENS), (7, 7), (10**6, OUTPUT_TOKENS_MAX)])
def test_the_answer_has_a_limit(asked: int | None, sent: int) -> None:
    """A request's own limit is kept, up to what the context has room for."""
    request = Request(system="", messages=(UserSaid("Hi"),), output_tokens_max=asked)
    assert fit(request, estimate_tokens).output_tokens_max == sent


def test_a_request_without_messages_is_sent_as_it_is() -> None:
    """Nothing is made up."""
    assert fit(Request(system="x"), estimate_tokens).messages == ()
