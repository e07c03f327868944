"""One block of Markdown as rich draws it, with this terminal's own choices.

Nothing is left out: HTML, images and link definitions are shown as the text that they are, line breaks stay where the
writer put them, and lines are filled so that growing text never moves what stands on an earlier line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.segment import Segment
from rich.text import Text
from rich.theme import Theme

from hansard.cli.terminal.highlight import Highlighter
from hansard.cli.terminal.wrap import TAB_COLUMNS, breaks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

CODE_MARGIN: Final = "  "
RULE_COLUMNS: Final = 40
THEME: Final = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold underline",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.h5": "bold italic",
        "markdown.h6": "italic",
        "markdown.h7": "italic",
        "markdown.block_quote": "italic",
        "markdown.item.bullet": "bold",
        "markdown.item.number": "bold",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)

BROKEN: Final = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a library may raise over text that it cannot draw; the text is then shown as it is."""


class Paragraph(rich_markdown.Paragraph):
    """A paragraph, wrapped so that growing text never moves earlier lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        yield from fitted(self.text, options.max_width)


class Heading(rich_markdown.Heading):
    """A heading, on the left; without colour its level is written out."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        if console.color_system is None:
            text = Text("#" * int(self.tag[1:]) + " ").append_text(text)
        yield from fitted(text, options.max_width)


class CodeBlock(rich_markdown.CodeBlock):
    """Code inside a list item or a quotation."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        code = str(self.text).rstrip().expandtabs(TAB_COLUMNS)
        for line in Highlighter(self.lexer_name).add(code.split("\n")):
            text = Text(CODE_MARGIN)
            for piece in line:
                text.append(piece.text, piece.style)
            for fit in text.divide(range(options.max_width, len(text), max(1, options.max_width))):
                fit.no_wrap = True
                yield fit


class Rule(rich_markdown.HorizontalRule):
    """A break between themes. It does not touch the edge, so that a narrower window does not break it in two."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.hr", default="none")
        yield Text("─" * min(RULE_COLUMNS, options.max_width), style)


class Items(rich_markdown.ListElement):
    """A list whose numbers keep their sign: 1. or 1)."""

    sign = "."

    @classmethod
    def create(cls, markdown: rich_markdown.Markdown, token: Token) -> Items:
        """Remember the sign that the writer used."""
        del markdown
        made = cls(token.type, int(token.attrs.get("start", 1)))
        made.sign = token.markup
        return made

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, item in enumerate(self.items, self.list_start or 0):
            bullet = self.list_type == "bullet_list_open"
            marker = "• " if bullet else f"{number}{self.sign} "
            style = console.get_style("markdown.item.bullet" if bullet else "markdown.item.number", default="none")
            inner = options.update(width=max(1, options.max_width - len(marker)))
            lines = console.render_lines(item.elements, inner, style=item.style, pad=False)
            for index, line in enumerate(lines or [[]]):
                yield Segment(marker if index == 0 else " " * len(marker), style)
                yield from line
                yield Segment("\n")


class Markdown(rich_markdown.Markdown):
    """One block of Markdown, as this terminal draws it."""

    elements = rich_markdown.Markdown.elements | {
        "paragraph_open": Paragraph,
        "heading_open": Heading,
        "fence": CodeBlock,
        "code_block": CodeBlock,
        "hr": Rule,
        "bullet_list_open": Items,
        "ordered_list_open": Items,
    }

    def __init__(self, markup: str, *, live: bool) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = markup
        self.parsed = PARSER.parse(markup)
        for token in self.parsed:
            if token.children:
                token.children = list(plain_links(token.children))
        if live:
            close_last(self.parsed)


PARSER: Final = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")


def plain_links(tokens: list[Token]) -> Iterator[Token]:
    """Give what is in a line, with images as text, links to themselves as text, and line breaks kept."""
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        if token.type == "image":
            yield text_token(f"{token.content} ({token.attrs.get('src', '')})")
        elif not (token.type in {"link_open", "link_close"} and token.markup == "autolink"):
            yield token


def text_token(text: str) -> Token:
    """Return words as the parser gives them."""
    return Token("text", "", 0, content=text)


def close_last(tokens: Sequence[Token]) -> None:
    """Treat strong words and code that are still being written as closed: their marks do not show and then vanish."""
    inline = next((token for token in reversed(tokens) if token.type == "inline"), None)
    children = (inline.children if inline else None) or []
    for index, token in enumerate(children):
        if token.type != "text":
            continue
        for mark, tag in (("`", "code"), ("**", "strong")):
            before, found, after = token.content.partition(mark)
            if not found or after[:1] in ("", " ", mark[0]) or before.endswith(mark[0]):
                continue
            rest = [text_token(after), *children[index + 1 :]]
            if tag == "code":
                inner = "".join(each.content for each in rest)
                closed = [Token("code_inline", "code", 0, content=inner)]
            else:
                closed = [Token("strong_open", "strong", 1), *rest, Token("strong_close", "strong", -1)]
            children[index:] = [text_token(before), *closed]
            return


def fitted(text: Text, width: int) -> Iterator[Text]:
    """Give a text as lines no wider than the width."""
    text.expand_tabs(TAB_COLUMNS)
    for line in text.split("\n", allow_blank=True):
        for piece in line.divide(breaks(line.plain, width)):
            piece.rstrip()
            piece.no_wrap = True
            yield piece
