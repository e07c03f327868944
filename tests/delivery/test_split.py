"""Long replies are cut where a reader would pause, and the parts add up to the text."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from hansard.delivery.split import Post, fence_at, joins, show_bytes, split

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


def joined(text: str, posts: list[Post]) -> str:
    """Return what the stretches add up to."""
    data = text.encode()
    return b"".join(data[post.start : post.end] for post in posts).decode()


@hypothesis.given(text=TEXTS, bytes_max=st.integers(100, 400))
def test_the_parts_give_the_text_and_each_fits(text: str, bytes_max: int) -> None:
    """Stretches follow one another without a gap, none is empty, each fits, and no cut is inside a character."""
    posts = split(text, bytes_max)
    assert joined(text, posts) == text
    assert [post.start for post in posts[1:]] == [post.end for post in posts[:-1]]
    assert all(len(post.shown.encode()) <= bytes_max for post in posts)
    assert all(post.end > post.start for post in posts) or not text
    assert all(show_bytes(text, post.start, post.end) == post.shown for post in posts)


@hypothesis.given(text=TEXTS, bytes_max=st.integers(200, 400))
def test_no_cut_is_inside_of_what_is_seen_as_one(text: str, bytes_max: int) -> None:
    """A family, a flag, an accent and a syllable stay whole."""
    data = text.encode()
    for post in split(text, bytes_max)[:-1]:
        assert not joins(text, len(data[: post.end].decode()))


@hypothesis.given(text=TEXTS, bytes_max=st.integers(100, 400))
def test_a_fence_is_closed_and_opened_again(text: str, bytes_max: int) -> None:
    """No part but the last leaves a fence open, and code stays code in the next part."""
    posts = split(text, bytes_max)
    for post in posts[:-1]:
        assert fence_at(post.shown, len(post.shown)) is None


@hypothesis.given(text=TEXTS)
def test_a_text_that_fits_is_shown_as_it_is(text: str) -> None:
    """Nothing is added to, or taken from, a text that needs no cut."""
    assert [post.shown for post in split(text, 100_000)] == [text]


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
    assert [post.shown for post in split(text, 30)] == expected


def test_code_goes_on_as_code() -> None:
    """The language of a fence is repeated when it is opened again."""
    text = "Look:\n\n```python\n" + "".join(f"line_{n} = {n}\n" for n in range(20)) + "```\nDone."
    first, second, *_ = [post.shown for post in split(text, 150)]
    assert first.endswith("\n```")
    assert second.startswith("```python\nline_")
