"""Code in colour, line by line as it comes.

A line's colours depend on what stands before it: a string or a comment may span several. So each new line is read
together with the lines since the last one that surely began afresh, and never with all of them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

# Pygments carries no types.
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Token, _TokenType  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

CONTEXT_LINES_MAX: Final = 80
"""Lines before a new one that are read again for its colours."""

LINE_CHARACTERS_MAX: Final = 2_000
"""Longer lines are data, not code that anyone reads; they are left plain."""

FRESH: Final = re.compile(r"[\w@#<$]")
"""How a line begins that starts something new: at the left edge, and not by closing a bracket."""

STYLES: Final[dict[_TokenType, str]] = {
    Token.Comment: "dim",
    Token.Comment.Preproc: "cyan",
    Token.Keyword: "bright_blue",
    Token.Keyword.Type: "bright_cyan",
    Token.Operator.Word: "bright_blue",
    Token.Name.Builtin: "bright_cyan",
    Token.Name.Function: "bright_green",
    Token.Name.Class: "bright_green",
    Token.Name.Decorator: "magenta",
    Token.Name.Exception: "bright_cyan",
    Token.Name.Variable: "bright_red",
    Token.Name.Tag: "bright_blue",
    Token.Name.Attribute: "bright_cyan",
    Token.Literal.String: "yellow",
    Token.Literal.Number: "bright_blue",
    Token.Generic.Deleted: "bright_red",
    Token.Generic.Inserted: "bright_green",
    Token.Generic.Heading: "bold",
    Token.Generic.Subheading: "magenta",
    Token.Generic.Prompt: "dim",
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
                spans.append(kind in Token.Literal.String or (kind in Token.Comment and inside))
                rows.append([StyledText(text, style)])
        rows += [[] for _ in range(len(everything) - len(rows))]
        spans += [False] * (len(everything) - len(spans))
        return [
            tuple(piece for piece in row if piece.text) for row in rows[len(self._context) : len(everything)]
        ], spans


@lru_cache(maxsize=64)
def find_lexer(language: str) -> Lexer | None:
    """Return what reads a language; None when nothing does."""
    if not language:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=True)
    except ClassNotFound:
        return None


def style_of(kind: _TokenType) -> str:
    """Return the style of a kind of token."""
    found: _TokenType | None = kind
    while found is not None:
        if found in STYLES:
            return STYLES[found]
        found = found.parent
    return ""
