"""Long replies are cut where a reader would pause, and the parts add up to the text."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from hansard.delivery.split import PostSpace, PostStretch, fence_at, joins, show_bytes
from hansard.domain.text import utf16_units
from tests.delivery.splitting import split

PIECES = st.sampled_from(
    [
        "word ",
        "A sentence. ",
        "\n\n",
        "\n",
        "```python\n",
        "```\n",
        "~~~\n",
        "x = 1\n",
        "    indented\n",
        "Grüße ",
        "👩‍👩‍👧‍👦",
        "🇩🇪🇫🇷",
        "e\u0301",
        "각",
        "字。",
        "unbrokenunbrokenunbroken",
        "🤦🏽‍♂️ ",
    ]
)
TEXTS = st.lists(PIECES, max_size=80).map("".join) | st.text(max_size=200)


def in_bytes(size_max: int) -> PostSpace:
    """Room that is counted in bytes of UTF-8."""
    return PostSpace(size_max, lambda text: len(text.encode()))


def in_units(size_max: int) -> PostSpace:
    """Room that is counted in code units of UTF-16."""
    return PostSpace(size_max, utf16_units)


def joined(text: str, posts: list[PostStretch]) -> str:
    """Return what the stretches add up to."""
    data = text.encode()
    return b"".join(data[post.start : post.end] for post in posts).decode()


@hypothesis.given(text=TEXTS, bytes_max=st.integers(100, 400))
def test_the_parts_give_the_text_and_each_fits(text: str, bytes_max: int) -> None:
    """Stretches follow one another without a gap, none is empty, each fits, and no cut is inside a character."""
    posts = split(text, in_bytes(bytes_max))
    assert joined(text, posts) == text
    assert [post.start for post in posts[1:]] == [post.end for post in posts[:-1]]
    assert all(len(post.shown.encode()) <= bytes_max for post in posts)
    assert all(post.end > post.start for post in posts) or not text
    assert all(show_bytes(text, post.start, post.end) == post.shown for post in posts)


@hypothesis.given(text=TEXTS, units_max=st.integers(100, 400))
def test_units_of_utf16_are_counted_where_the_platform_does(text: str, units_max: int) -> None:
    """The parts give the text, and none has more code units than fit: an emoji is two, a letter of any script one."""
    posts = split(text, in_units(units_max))
    assert joined(text, posts) == text
    assert all(len(post.shown.encode("utf-16-le")) <= 2 * units_max for post in posts)


def test_a_post_is_as_full_as_the_unit_allows() -> None:
    """A hundred letters of three bytes fit into a hundred units; of emojis, fifty do."""
    assert len(split("字" * 100, in_units(100))) == 1
    assert len(split("字" * 100, in_bytes(100))) == 4
    assert [post.shown for post in split("😀" * 60, in_units(100))] == ["😀" * 50, "😀" * 10]


@hypothesis.given(text=TEXTS, bytes_max=st.integers(200, 400))
def test_no_cut_is_inside_of_what_is_seen_as_one(text: str, bytes_max: int) -> None:
    """A family, a flag, an accent and a syllable stay whole."""
    data = text.encode()
    for post in split(text, in_bytes(bytes_max))[:-1]:
        assert not joins(text, len(data[: post.end].decode()))


@hypothesis.given(text=TEXTS, bytes_max=st.integers(100, 400))
def test_a_fence_is_closed_and_opened_again(text: str, bytes_max: int) -> None:
    """No part but the last leaves a fence open, and code stays code in the next part."""
    posts = split(text, in_bytes(bytes_max))
    for post in posts[:-1]:
        assert fence_at(post.shown, len(post.shown)) is None


@hypothesis.given(text=TEXTS)
def test_a_text_that_fits_is_shown_as_it_is(text: str) -> None:
    """Nothing is added to, or taken from, a text that needs no cut."""
    assert [post.shown for post in split(text, in_bytes(100_000))] == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("First paragraph of words.\n\nSecond one.", ["First paragraph of words.", "Second one."]),
        ("First sentence of it. Then the second one.", ["First sentence of it.", "Then the second one."]),
        ("several words without any sign at all here", ["several words without any", "sign at all here"]),
        ("x" * 40, ["x" * 30, "x" * 10]),
    ],
)
def test_the_best_pause_is_taken(text: str, expected: list[str]) -> None:
    """A paragraph's end before a sentence's, that before a word's, and a word is cut only when it is too long."""
    assert [post.shown for post in split(text, in_bytes(30))] == expected


def test_code_goes_on_as_code() -> None:
    """The language of a fence is repeated when it is opened again."""
    text = "Look:\n\n```python\n" + "".join(f"line_{n} = {n}\n" for n in range(20)) + "```\nDone."
    first, second, *_ = [post.shown for post in split(text, in_bytes(150))]
    assert first.endswith("\n```")
    assert second.startswith("```python\nline_")
