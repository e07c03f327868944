"""Markdown to the HTML that Telegram reads: a few tags within lines, and blocks told apart by empty lines.

Every word of the Markdown is in it. What has no tag of its own is shown by signs: lists by dots and numbers, tables as
they were written. A name with an @ is set as code: so nobody is called by what the agent says.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import TYPE_CHECKING, Final

from hansard.domain import markup
from hansard.ports.channel import Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

MENTION: Final = re.compile(r"(?<![\w@/.])@[A-Za-z][A-Za-z0-9_]{2,31}(?!\w)")
TAG: Final = re.compile(r"<[^>]*>")
INLINE: Final = {
    "strong_open": "<b>",
    "strong_close": "</b>",
    "em_open": "<i>",
    "em_close": "</i>",
    "s_open": "<s>",
    "s_close": "</s>",
    "softbreak": "\n",
    "hardbreak": "\n",
}
RULE: Final = "———"
INDENT: Final = "  "


def html_of(markdown: str, reading: Reading = Reading.MARKDOWN) -> str:
    """Return the HTML of a text; empty when it would say no more than the text itself."""
    if reading is Reading.LITERAL:
        return ""
    writer = HtmlWriter(markdown.splitlines())
    for token in markup.parse(markdown, within_line=reading is Reading.CONTINUED):
        writer.write_token(token)
    html = "".join(writer.out).strip()
    return html if html != escape(markdown.strip(), quote=False) and text_of(html).strip() else ""


def text_of(html: str) -> str:
    return unescape(TAG.sub("", html))


def mentions(text: str) -> list[tuple[int, int]]:
    """Return where names with an @ stand in a text: first and end, in characters."""
    return [found.span() for found in MENTION.finditer(text)]


def words(text: str) -> str:
    """Words that stay words, and call nobody."""
    return MENTION.sub(r"<code>\g<0></code>", escape(text, quote=False))


class HtmlWriter:
    """Writes blocks one after another."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._numbered: list[bool] = []
        self._quotes = 0
        self._lines_due = 0
        self._prefix = ""
        self._in_table = 0
        self._in_heading = False
        self.out: list[str] = []

    def write_token(self, token: Token) -> None:
        if token.type in {"table_open", "table_close"}:
            self._table(token)
        elif self._in_table:
            return
        elif token.type == "inline":
            self._begin()
            children = token.children or []
            self.out += [self._inline(child, children, place) for place, child in enumerate(children)]
        elif token.type in {"fence", "code_block"}:
            self._code(token)
        elif token.type == "hr":
            self._begin()
            self.out.append(RULE)
            self._lines_due = 2
        else:
            self._edge(token)

    def _edge(self, token: Token) -> None:
        kind = token.tag if token.type != "list_item_open" else "item"
        if kind in {"ul", "ol"}:
            self._list(token)
        elif kind == "item":
            sign = f"{token.info}{token.markup} " if self._numbered[-1] else "• "
            self._prefix = INDENT * (len(self._numbered) - 1) + sign
        elif token.type == "list_item_close" and self._prefix:
            self._begin()  # an item without words: a line such as "1984." is read as one
            self._lines_due = 1
        elif kind == "blockquote":
            self._quote(token)
        elif token.type == "heading_open":
            self._begin()
            self.out.append("<b>")
            self._in_heading = True
        elif token.type == "heading_close":
            self.out.append("</b>")
            self._in_heading = False
            self._lines_due = 2
        elif token.type == "paragraph_close":
            self._lines_due = 1 if token.hidden else 2

    def _list(self, token: Token) -> None:
        if token.nesting > 0:
            self._numbered.append(token.tag == "ol")
            return
        self._numbered.pop()
        self._lines_due = 1 if self._numbered else 2

    def _quote(self, token: Token) -> None:
        """Begin or end a quote. Telegram knows none within another."""
        if token.nesting > 0 and self._quotes == 0:
            self._begin()
            self.out.append("<blockquote>")
        self._quotes += token.nesting
        if token.nesting < 0 and self._quotes == 0:
            self.out.append("</blockquote>")

    def _begin(self) -> None:
        """Leave the lines free that are due, and write the sign of an item."""
        if self.out and self.out[-1] != "<blockquote>":
            self.out.append("\n" * self._lines_due)
        self._lines_due = 0
        if self._prefix:
            self.out.append(self._prefix)
            self._prefix = ""

    def _code(self, token: Token) -> None:
        self._begin()
        language = token.info.split()[0] if token.info.split() else ""
        code = escape(token.content.removesuffix("\n"), quote=False)
        if language:
            code = f'<code class="language-{escape(language)}">{code}</code>'
        self.out.append(f"<pre>{code}</pre>")
        self._lines_due = 2

    def _table(self, token: Token) -> None:
        self._in_table += token.nesting
        if token.type == "table_open" and token.map is not None:
            self._begin()
            table = "\n".join(line.strip() for line in self._lines[slice(*token.map)])
            self.out.append(f"<pre>{escape(table, quote=False)}</pre>")
        self._lines_due = 2

    def _inline(self, token: Token, tokens: Sequence[Token], place: int) -> str:
        if token.type in INLINE:
            is_bold = self._in_heading and token.tag == "strong"
            return "" if is_bold else INLINE[token.type]
        if token.type == "code_inline":
            return f"<code>{escape(token.content, quote=False)}</code>"
        if token.type in {"image", "link_open", "link_close"}:
            return link(token, tokens, place)
        return words(token.content)


def link(token: Token, tokens: Sequence[Token], place: int) -> str:
    """A link's beginning or end, or a picture, which is a link here. What may be none is told in words."""
    opening = markup.opening_link(tokens, place) if token.type == "link_close" else token
    address = str(opening.attrGet("src" if token.type == "image" else "href") or "") if opening else ""
    is_allowed = markup.is_allowed(address)
    begin, end = (f'<a href="{escape(address)}">', "</a>") if is_allowed else ("", f" ({words(address)})")
    if token.type == "image":
        return f"{begin}{escape(token.content or address, quote=False)}{end}"
    return begin if token.type == "link_open" else end
