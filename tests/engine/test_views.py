"""What one model is shown: pictures, sizes, and words in place of calls; in steps, so that caches keep hitting."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hansard.domain.messages import ToolCall, ToolResult
from hansard.domain.requests import AssistantSaid, Image, ModelRules, Request, Said, ToolsSaid, UserSaid
from hansard.engine.context import as_text
from hansard.engine.requests import cut_middle, fit, fit_images, fit_window, said_tokens
from tests.engine.validator import assert_valid

WORDS = "Some words that are said. " * 8


def exchanges(count: int) -> list[Said]:
    """So many exchanges, every third with a tool, and a question at the end."""
    said: list[Said] = []
    for number in range(count):
        said.append(UserSaid(f"question {number} {WORDS}"))
        if number % 3 == 0:
            call = ToolCall(id=f"c{number}", name="echo")
            said += [AssistantSaid("", (call,)), ToolsSaid((ToolResult(call_id=call.id, text=WORDS),))]
        said.append(AssistantSaid(f"answer {number} {WORDS}"))
    return [*said, UserSaid("and now?")]


def test_a_window_is_kept_in_steps() -> None:
    """Whatever its length, what is sent fits, is valid and has the end; most requests begin with the one before."""
    sent = [fit_window(exchanges(count), 4000) for count in range(100)]
    for messages in sent:
        assert sum(map(said_tokens, messages)) <= 4000
        assert_valid(messages)
        assert isinstance(messages[-1], UserSaid)
        assert "and now?" in messages[-1].text
    assert "are left out here" in str(sent[-1][0])
    stable = [later[: len(earlier) - 1] == earlier[:-1] for earlier, later in pairwise(sent)]
    assert stable.count(False) * 3 < len(stable)


@pytest.mark.loss("N2")
def test_the_newest_result_says_something() -> None:
    """One exchange that is far too large by itself is shortened, its beginnings and ends kept, none to nothing."""
    call = ToolCall(id="c", name="echo")
    said: list[Said] = [
        UserSaid("read it"),
        AssistantSaid("", (call,)),
        ToolsSaid((ToolResult(call_id="c", text=f"BEGIN {WORDS * 500} END"),)),
    ]
    fitted = fit_window(said, 400)
    last = fitted[-1]
    assert isinstance(last, ToolsSaid)
    assert last.results[0].text.startswith("BEGIN")
    assert last.results[0].text.endswith("END")
    assert "is left out" in last.results[0].text
    assert sum(map(said_tokens, fitted)) <= 400


def image(number: int, size: int = 10, kind: str = "image/png") -> Image:
    """A picture."""
    return Image(blob=f"b{number}", media_type=kind, size_bytes=size, name=f"{number}.png")


def shown(messages: list[Said]) -> list[str]:
    """The names of the pictures that are shown."""
    return [each.name for said in messages if isinstance(said, UserSaid) for each in said.images]


@pytest.mark.loss("C9", "C10")
def test_the_newest_pictures_are_shown() -> None:
    """Of too many the oldest are left out, several at a time, and each is named where it stood."""
    rules = ModelRules(images_max=4, image_bytes_max=100)
    for count in range(12):
        messages: list[Said] = []
        for number in range(count):
            messages += [UserSaid(f"look {number}", (image(number),)), AssistantSaid("I see.")]
        fitted = fit_images([*messages, UserSaid("?")], rules)
        names = shown(fitted)
        assert len(names) <= 4
        assert names == [f"{number}.png" for number in range(count - len(names), count)]
        assert len(names) >= min(count, 3)
        for number in range(count - len(names)):
            assert f"the picture {number}.png is not shown" in str(fitted)


def test_pictures_are_bounded_in_bytes() -> None:
    """A request never holds more than a provider takes, however few pictures that leaves."""
    rules = ModelRules(images_max=50, image_bytes_max=1000, request_bytes_max=8000)
    messages: list[Said] = [UserSaid("look", tuple(image(number, 900) for number in range(20)))]
    fitted = fit(Request(system="", messages=tuple(messages)), rules)
    names = shown(list(fitted.messages))
    assert 0 < len(names) * 900 <= 3000
    assert names[-1] == "19.png"


def test_words_in_place_of_calls() -> None:
    """The tool, what it was called with and what it gave are told; nobody speaks twice in a row."""
    told = as_text(exchanges(7))
    assert_valid(told)
    assert not any(isinstance(said, ToolsSaid) for said in told)
    assert "the tool echo was called with {}" in str(told)


def test_a_text_is_cut_in_its_middle() -> None:
    """Its beginning and its end stay; a short one stays as it is."""
    assert cut_middle("short", 100) == "short"
    cut = cut_middle("a" * 500 + "z" * 500, 300)
    assert (cut[0], cut[-1], len(cut) <= 300) == ("a", "z", True)
