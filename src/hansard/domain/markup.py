"""Markdown as HTML that does nothing but be read. Everything that is not known to be harmless is text, escaped.

What a page or a platform wants otherwise is said by its `Dialect`. The parser takes long to import, and is loaded with
the first text.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SCHEMES: Final = frozenset({"https", "http", "ftp", "mailto", "magnet"})
"""What a link may begin with: what Matrix allows, and nothing that runs."""

TAGS: Final = frozenset(
    {"p", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"}
    | {"table", "thead", "tbody", "tr", "th", "td"}
)
"""Blocks that are written as such."""

LINE_TAGS: Final = {
    "softbreak": "<br>\n",
    "hardbreak": "<br>\n",
    "strong_open": "<strong>",
    "strong_close": "</strong>",
    "em_open": "<em>",
    "em_close": "</em>",
    "s_open": "<del>",
    "s_close": "</del>",
}
"""Within lines. A line break of the writer stays one: words in a chat are read as they were set."""

NESTING_MAX: Final = 20
"""Deeper than this, quotes and lists are not told apart any more; and tags would outgrow the words."""

HEADING_MAX: Final = 6

CELLS_MAX: Final = 100_000
"""A row of a table has as many cells as its heading, written or not: a few lines could ask for millions."""

LEAD: Final = "\ue000 "
"""Put before a text that begins in the middle of a line, and taken away again: a sign of no meaning, and a space."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from one reader of HTML to another."""

    link_attributes: str = ""
    """What stands in every link besides its address, with a space before it."""
    headings_below: int = 0
    """How many levels of headings belong to the page itself: those of a text begin below them."""
    numbers: bool = False
    """Whether each item of a numbered list says its number: as it was written, in whichever order."""


PLAIN: Final = Dialect()


@cache
def parser(*, tables: bool = True) -> MarkdownIt:
    """The parser: CommonMark with tables and strikethrough; HTML is text."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - slow, and most who start never need it

    made = MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING_MAX})
    # A definition such as `[1]: https://a.b` stays text: a reader would not see it, and it may stand in another post.
    made.disable("reference")
    return made.enable(["table", "strikethrough"] if tables else ["strikethrough"])


def parse(markdown: str, *, within_line: bool = False) -> list[Token]:
    """Return the tokens of a text.

    `within_line`: the text begins in the middle of a line. Then a `>`, `#` or `-` at its beginning is a sign like any
    other, and not the beginning of a quote, a heading or a list.
    """
    lines = markdown.splitlines()
    cells = len(lines) * max((line.count("|") for line in lines), default=0)
    found = parser(tables=cells <= CELLS_MAX).parse(LEAD + markdown if within_line else markdown)
    return without_lead(found) if within_line else found


def without_lead(tokens: list[Token]) -> list[Token]:
    """Take the word that `parse` put before a text out of its tokens: it is in the first words that the text has."""
    for token in (child for each in tokens for child in each.children or ()):
        if token.content.startswith(LEAD[0]):
            token.content = token.content.removeprefix(LEAD[0]).removeprefix(LEAD[1])
            break
    return tokens


def visible(tokens: Sequence[Token]) -> str:
    """Return the signs that a reader sees of a text, without white space: its words, code, and rules."""
    inner = (child for token in tokens for child in token.children or (token,))
    return "".join("".join((each.markup if each.type == "hr" else each.content).split()) for each in inner)


def html_of(tokens: Sequence[Token], dialect: Dialect = PLAIN) -> str:
    return "".join(block(token, tokens, place, dialect) for place, token in enumerate(tokens)).strip()


def block(token: Token, tokens: Sequence[Token], place: int, dialect: Dialect) -> str:
    if token.type == "inline":
        children = token.children or []
        return "".join(inline(child, children, number, dialect) for number, child in enumerate(children))
    if token.type in {"fence", "code_block"}:
        language = token.info.split()[0] if token.info.split() else ""
        kind = f' class="language-{escape(language)}"' if language else ""
        return f"<pre><code{kind}>{text(token.content)}</code></pre>\n"
    if token.hidden or token.tag not in TAGS:
        # A tight list's paragraphs have no tags of their own; two in one item still need a space between.
        more_follows = place + 1 < len(tokens) and tokens[place + 1].nesting >= 0
        return "\n" if token.type == "paragraph_close" and more_follows else text(token.content)
    is_heading = token.type in {"heading_open", "heading_close"}
    tag = f"h{min(int(token.tag[1]) + dialect.headings_below, HEADING_MAX)}" if is_heading else token.tag
    if token.nesting < 0:
        return f"</{tag}>\n"
    return "<hr>\n" if tag == "hr" else f"<{tag}{number_of(token, dialect)}>"


def number_of(token: Token, dialect: Dialect) -> str:
    """With which number a list begins, or an item of it: an attribute, with a space before it."""
    if token.tag == "ol" and (start := token.attrGet("start")) is not None:
        return f' start="{int(start)}"'
    if token.tag == "li" and dialect.numbers and token.info.isdecimal():
        return f' value="{int(token.info)}"'
    return ""


def inline(token: Token, tokens: Sequence[Token], place: int, dialect: Dialect) -> str:
    if token.type in LINE_TAGS:
        return LINE_TAGS[token.type]
    if token.type == "code_inline":
        return f"<code>{text(token.content)}</code>"
    if token.type == "image":
        # No picture is shown: it is a link, so that nothing is fetched unasked.
        address = str(token.attrGet("src") or "")
        label = text(token.content or address)
        return f"{opened(address, dialect)}{label}</a>" if is_allowed(address) else f"{label} ({text(address)})"
    if token.type == "link_open":
        address = str(token.attrGet("href") or "")
        return opened(address, dialect) if is_allowed(address) else ""
    if token.type == "link_close":
        opening = opening_link(tokens, place)
        address = str(opening.attrGet("href") or "") if opening else ""
        return "</a>" if is_allowed(address) else f" ({text(address)})"
    return text(token.content)


def opened(address: str, dialect: Dialect) -> str:
    return f'<a href="{escape(address)}"{dialect.link_attributes}>'


def opening_link(tokens: Sequence[Token], place: int) -> Token | None:
    """Where the link began that ends here. Links do not nest."""
    return next((token for token in reversed(tokens[:place]) if token.type == "link_open"), None)


def is_allowed(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in SCHEMES
    except ValueError:
        return False


def text(words: str) -> str:
    return escape(words, quote=False)
