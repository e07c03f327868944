"""Blocks become styled lines, drawn by rich. Loaded when the first block is drawn, for rich's imports are slow.

Nothing is left out: HTML, images and link definitions are shown as the text that they are, line breaks stay where the
writer put them, and lines are filled so that growing text never moves what stands on an earlier line. Colours are the
sixteen of the terminal's own theme; without colour there are no escape sequences at all.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token as Pygment  # type: ignore[import-untyped]
from pygments.token import _TokenType
from pygments.util import ClassNotFound  # type: ignore[import-untyped]
from rich import markdown as rich_markdown
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from hansard.cli.terminal.blocks import CODE_INDENT, CODE_MARGIN, Block, BlockKind, dedent
from hansard.cli.terminal.text import TAB_COLUMNS, breaks, wrap

TABLE_COLUMN_CELLS_MIN: Final = 6
"""A table with less room for each column is shown as it was written."""

LIVE_TEXT_LINES_MAX: Final = 40
"""Lines of a paragraph that are drawn while it is written; of a longer one only its end."""

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
    text.expand_tabs(TAB_COLUMNS)
    for line in text.split("\n", allow_blank=True):
        for piece in line.divide(breaks(line.plain, width)):
            piece.rstrip()
            piece.no_wrap = True
            yield piece


CONTEXT_LINES_MAX: Final = 80
"""Lines before a new one that are read again for its colours."""

LINE_CHARACTERS_MAX: Final = 2_000
"""Longer lines are data, not code that anyone reads; they are left plain."""

FRESH: Final = re.compile(r"[\w@#<$]")
"""How a line begins that starts something new: at the left edge, and not by closing a bracket."""

STYLES: Final[dict[_TokenType, str]] = {
    Pygment.Comment: "dim",
    Pygment.Comment.Preproc: "cyan",
    Pygment.Keyword: "bright_blue",
    Pygment.Keyword.Type: "bright_cyan",
    Pygment.Operator.Word: "bright_blue",
    Pygment.Name.Builtin: "bright_cyan",
    Pygment.Name.Function: "bright_green",
    Pygment.Name.Class: "bright_green",
    Pygment.Name.Decorator: "magenta",
    Pygment.Name.Exception: "bright_cyan",
    Pygment.Name.Variable: "bright_red",
    Pygment.Name.Tag: "bright_blue",
    Pygment.Name.Attribute: "bright_cyan",
    Pygment.Literal.String: "yellow",
    Pygment.Literal.Number: "bright_blue",
    Pygment.Generic.Deleted: "bright_red",
    Pygment.Generic.Inserted: "bright_green",
    Pygment.Generic.Heading: "bold",
    Pygment.Generic.Subheading: "magenta",
    Pygment.Generic.Prompt: "dim",
}
"""Colours of the terminal's own sixteen, by what a word is; what is not named here takes its parent's."""


class StyledText(NamedTuple):
    """Some characters of one line, and the style that they are drawn in."""

    text: str
    style: str


Line = tuple[StyledText, ...]


class Highlighter:
    """Colours one listing."""

    def __init__(self, language: str) -> None:
        """A language that nobody knows is left plain."""
        self._lexer = find_lexer(language)
        self._context: list[str] = []

    def add(self, lines: list[str]) -> list[Line]:
        """Return finished lines in colour, and keep what the next ones depend on."""
        coloured, spans = self._read(lines)
        context = self._context + lines
        start = max(0, len(context) - CONTEXT_LINES_MAX)
        for index in range(len(context) - 1, start, -1):
            if FRESH.match(context[index]) and not spans[index - 1]:
                start = index
                break
        self._context = context[start:]
        return coloured

    def highlight_unfinished(self, line: str) -> Line:
        """Return a line that is not finished in the colours it has so far."""
        return self._read([line])[0][0]

    def _read(self, lines: list[str]) -> tuple[list[Line], list[bool]]:
        """Return the new lines in colour; and for all, with those of the context, whether a token spans their end."""
        everything = self._context + lines
        if self._lexer is None or any(len(line) > LINE_CHARACTERS_MAX for line in lines):
            return [(StyledText(line, ""),) for line in lines], [False] * len(everything)
        rows: list[list[StyledText]] = [[]]
        spans: list[bool] = []
        for kind, value in self._lexer.get_tokens("\n".join(everything)):
            style = style_of(kind)
            first, *others = value.split("\n")
            rows[-1].append(StyledText(first, style))
            for index, text in enumerate(others):
                # The newline that ends a comment may be its last character; a string's newline is inside the string.
                inside = index < len(others) - 1 or bool(text)
                spans.append(kind in Pygment.Literal.String or (kind in Pygment.Comment and inside))
                rows.append([StyledText(text, style)])
        rows += [[] for _ in range(len(everything) - len(rows))]
        spans += [False] * (len(everything) - len(spans))
        return [
            tuple(piece for piece in row if piece.text) for row in rows[len(self._context) : len(everything)]
        ], spans


@lru_cache(maxsize=64)
def find_lexer(language: str) -> Lexer | None:
    if not language:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None


def style_of(kind: _TokenType) -> str:
    found: _TokenType | None = kind
    while found is not None:
        if found in STYLES:
            return STYLES[found]
        found = found.parent
    return ""


class Renderer:
    """Draws blocks at one width."""

    def __init__(self, *, width: int, colour: bool) -> None:
        self.width = width
        self.colour = colour
        self._console = Console(
            file=io.StringIO(),
            width=width,
            force_terminal=colour,
            color_system="standard" if colour else None,
            theme=THEME,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )

    def block(self, block: Block, *, live: bool = False) -> list[str]:
        """Return the lines of a block that is not code by a fence."""
        text = block.text.strip("\n")
        if block.kind is BlockKind.INDENTED:
            code = dedent(block.text.rstrip("\n"), CODE_INDENT).expandtabs(TAB_COLUMNS)
            return [(CODE_MARGIN + line).rstrip() for line in code.split("\n")]
        lead = 0
        if block.kind is BlockKind.ITEM:
            lead = len(text) - len(text.lstrip(" "))
            text = dedent(text, lead)
        elif block.kind is BlockKind.REST:
            lead = block.indent
            text = dedent(text, lead)
        width = max(1, self.width - lead)
        if live and block.kind is BlockKind.TEXT:
            text = tail(text, LIVE_TEXT_LINES_MAX * width)
        columns = max(line.count("|") for line in text.split("\n"))
        if block.kind is BlockKind.TABLE and columns * TABLE_COLUMN_CELLS_MIN > self.width:
            lines = wrap(text, width)
        else:
            lines = self._markdown(text, width, live=live)
        return [" " * lead + line if line else line for line in lines]

    def highlighter(self, language: str) -> Highlighter:
        return Highlighter(language if self.colour else "")

    def code(self, line: Line) -> str:
        """Return a line of code, as long as it is: a terminal wraps it so that it can be copied whole."""
        return "".join(self.styled(piece.text, piece.style) for piece in line)

    def styled(self, text: str, style: str) -> str:
        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD) if style and self.colour else text

    def _markdown(self, text: str, width: int, *, live: bool) -> list[str]:
        try:
            options = self._console.options.update(width=width)
            rows = self._console.render_lines(Markdown(text, live=live), options, pad=False)
        except BROKEN:
            return wrap(text, width)
        lines = [self._ansi(row) for row in rows]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        return lines

    def _ansi(self, row: Iterable[Segment]) -> str:
        """Return one line as a terminal understands it, without spaces at its end."""
        segments = [segment for segment in Segment.simplify(row) if segment.text]
        while segments and not segments[-1].text.strip(" \n"):
            segments.pop()
        if segments:
            segments[-1] = segments[-1]._replace(text=segments[-1].text.rstrip(" \n"))
        if not self.colour:
            return "".join(segment.text for segment in segments)
        return "".join(
            segment.style.render(segment.text, color_system=ColorSystem.STANDARD) if segment.style else segment.text
            for segment in segments
        )


def tail(text: str, characters_max: int) -> str:
    """Return the end of a long text. Where it begins moves in steps of half the limit, so it seldom jumps."""
    step = characters_max // 2
    start = max(0, (len(text) - step) // step - 1) * step if len(text) > characters_max else 0
    space = text.find(" ", start, start + step)
    return text[max(start, space + 1) :] if start else text
