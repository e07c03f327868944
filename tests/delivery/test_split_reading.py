"""A text that is cut into posts shows in them every sign that it shows as a whole, wherever the cuts are."""

from __future__ import annotations

import re
from html import unescape

import hypothesis
import hypothesis.strategies as st
import pytest

from hansard.channels.matrix.contents import html_of as matrix_html
from hansard.channels.telegram.html import RULE
from hansard.channels.telegram.html import html_of as telegram_html
from hansard.delivery.split import PostSpace, read_as
from hansard.ports.channel import Reading
from tests.delivery.splitting import split

PIECES = st.sampled_from(
    [
        *("5 > 3 ", "# ", "- ", "+ ", "* ", "1. ", "12) ", "> ", "---", "===", "word ", "words of more letters. "),
        *(
            "\n",
            "\n\n",
            "    ",
            "**",
            "*",
            "_",
            "~~",
            "`",
            "a*b*c ",
            "snake_case_name ",
            "\\*",
            "&amp; ",
            "| a | b |\n",
        ),
        *(
            "|---|---|\n",
            "[link](https://a.b/c) ",
            "[1]: https://a.b ",
            "```\n",
            "```python\n",
            "x = 1\n",
            "<b>",
            "字。",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join)


def in_characters(size_max: int) -> PostSpace:
    """Room that is counted in characters."""
    return PostSpace(size_max, len)


def telegram(words: str, reading: Reading) -> str:
    """Return the signs that a reader of Telegram sees of a post; dots of lists and rules are ours."""
    return seen(telegram_html(words, reading), words).replace("•", "").replace(RULE, "")


def matrix(words: str, reading: Reading) -> str:
    """Return the signs that a reader of Matrix sees of a post."""
    return seen(matrix_html(words, reading), words)


def seen(html: str, words: str) -> str:
    """Return what is seen of HTML, or of the words themselves where there is none; without white space."""
    return "".join((unescape(re.sub(r"<[^>]*>", "", html)) if html else words).split())


def posts_of(text: str, size_max: int) -> list[tuple[str, Reading]]:
    """Return the posts of a text as a channel gets them."""
    posts = split(text, in_characters(size_max))
    return [(post.shown, read_as(text, post.start, post.end)) for post in posts]


def is_within(signs: str, others: str) -> bool:
    """Return whether all signs are among the others, in their order."""
    left = iter(others)
    return all(sign in left for sign in signs)


@pytest.mark.parametrize("platform", [telegram, matrix])
@hypothesis.given(text=TEXTS, size_max=st.integers(60, 200))
@hypothesis.example(text="word " * 18 + "5 > 3", size_max=92)
@hypothesis.example(text="`" + "a*b*c " * 30 + "`", size_max=100)
@hypothesis.example(text="> ```\n" + "> a*b*c\n" * 30 + "> ```", size_max=100)
@hypothesis.example(text="# " + "5 > 3 " * 10 + "\n12) ", size_max=60)
@hypothesis.example(text="5 > 3 " * 5 + "words of more letters. \n\n    a*b*c ", size_max=60)
def test_no_sign_is_lost_by_a_cut(platform: object, text: str, size_max: int) -> None:
    """What is seen of the whole text is seen of its posts, in the same order, wherever it had to be cut."""
    show = telegram if platform is telegram else matrix
    shown = "".join(show(words, reading) for words, reading in posts_of(text, size_max))
    assert is_within(show(text, Reading.MARKDOWN), shown)


@pytest.mark.parametrize("sign", ["> 3", "# 3", "- 3", "+ 3", "* 3", "7. 3", "--- 3", "=== 3", "``` 3", "    3", "| 3"])
@pytest.mark.parametrize("show", [telegram, matrix])
def test_a_sign_in_mid_line_stays_a_sign(sign: str, show: object) -> None:
    """Whatever begins a block at the beginning of a line is text in the middle of one, also if a post begins there."""
    text = "word " * 18 + "5 " + sign
    posts = posts_of(text, 92)
    assert posts[1] == (sign.lstrip(), Reading.CONTINUED) or "    " in sign
    seen_of = telegram if show is telegram else matrix
    assert "".join(seen_of(*each) for each in posts) == text.replace(" ", "")


@pytest.mark.parametrize("span", ["**{}**", "_{}_", "`{}`", "[{}](https://example.org/)", "~~{}~~"])
def test_a_cut_is_not_inside_of_what_belongs_together(span: str) -> None:
    """Bold words, code and links that would be cut are left to the next post, and formatted there."""
    text = "plain word " * 6 + span.format("some words that belong together") + " and the end of it all"
    posts = posts_of(text, 90)
    assert "".join(matrix(*each) for each in posts) == matrix(text, Reading.MARKDOWN)
    assert "".join(telegram(*each) for each in posts) == telegram(text, Reading.MARKDOWN)
    assert telegram_html(*posts[1])


def test_a_post_that_goes_on_keeps_its_own_formatting() -> None:
    """A post that begins in the middle of a line has its bold words, and a list after that line is a list."""
    html = telegram_html("> 3 is _so_ and **bold**\n\n- one\n- two", Reading.CONTINUED)
    assert html == "&gt; 3 is <i>so</i> and <b>bold</b>\n\n• one\n• two"
    assert matrix_html("# no heading, **bold**", Reading.CONTINUED) == "<p># no heading, <strong>bold</strong></p>"


def test_a_number_alone_is_shown() -> None:
    """A line such as `1984.` is an item of a list without words: its number is shown."""
    assert telegram_html("**When?**\n\n1984.") == "<b>When?</b>\n\n1984."
