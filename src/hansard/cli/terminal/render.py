"""Blocks become styled lines. Loaded when the first Markdown block is drawn, for rich's imports are slow.

Colours are the sixteen of the terminal's own theme; without colour there are no escape sequences at all.
"""

from __future__ import annotations

import copy
import io
import re
from typing import TYPE_CHECKING, Final

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment

from hansard.cli.terminal.blocks import CODE_INDENT, Block, BlockKind, is_blank
from hansard.cli.terminal.markdown import BROKEN, CODE_MARGIN, THEME, Highlighter, Line, Markdown, StyledText
from hansard.cli.terminal.text import TAB_COLUMNS, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIVE_CODE_CHARACTERS_MAX: Final = 2_000
"""A line of code that is longer and not finished shows only its end."""

TABLE_COLUMN_CELLS_MIN: Final = 6
"""A table with less room for each column is shown as it was written."""

LIVE_TEXT_LINES_MAX: Final = 40
"""Lines of a paragraph that are drawn while it is written; of a longer one only its end."""

CODES: Final = {
    "bold": "1",
    "dim": "2",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
    "bright_red": "91",
    "bright_green": "92",
    "bright_blue": "94",
    "bright_cyan": "96",
}
"""What switches a style of code on, in a terminal's own numbers."""

TRAILING_BLANK: Final = re.compile(r"\n[ \t]*\n\Z")
LEADING_BLANKS: Final = re.compile(r"\A(?:[ \t]*\n)+")
LOOSE_KINDS: Final = frozenset({BlockKind.HEADING, BlockKind.TABLE, BlockKind.RULE})
CODE_KINDS: Final = frozenset({BlockKind.FENCE, BlockKind.CODE, BlockKind.CLOSE})


class Renderer:
    """Draws blocks at one width."""

    def __init__(self, *, width: int, colour: bool) -> None:
        """Without colour, nothing but text comes out."""
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
        if block.kind is BlockKind.TABLE and self._is_cramped(text):
            lines = wrap(text, width)
        else:
            lines = self._markdown(text, width, live=live)
        return [" " * lead + line if line else line for line in lines]

    def code(self, line: Line) -> str:
        """Return a line of code, as long as it is: a terminal wraps it so that it can be copied whole."""
        return "".join(
            f"\x1b[{CODES[piece.style]}m{piece.text}\x1b[0m" if piece.style and self.colour else piece.text
            for piece in line
        )

    def _is_cramped(self, text: str) -> bool:
        return max(line.count("|") for line in text.split("\n")) * TABLE_COLUMN_CELLS_MIN > self.width

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


def dedent(text: str, columns: int) -> str:
    """Return the text with up to so many leading columns of each line gone."""
    lines = []
    for line in text.split("\n"):
        bare = line.lstrip(" \t")
        lead = line[: len(line) - len(bare)].expandtabs(CODE_INDENT)
        lines.append(lead[columns:] + bare)
    return "\n".join(lines)


class Pen:
    """Writes the blocks of one message, one below the other: what stands between them depends on both."""

    def __init__(self) -> None:
        self._before: Block | None = None
        self._margin = CODE_MARGIN
        self._highlighter = Highlighter("")
        self._apart = False
        self._written = False

    def lift(self) -> None:
        """Something else was written in between: what comes next stands apart from it."""
        self._apart = True

    def write(self, renderer: Renderer, blocks: Sequence[Block]) -> list[str]:
        """Return the lines of finished blocks."""
        return self._lines(renderer, blocks, live=False)

    def preview(self, renderer: Renderer, blocks: Sequence[Block]) -> list[str]:
        """Return the lines of blocks that are not finished, as if they were the last."""
        ahead = copy.copy(self)
        return ahead._lines(renderer, blocks, live=True)  # noqa: SLF001 - a copy of this very object

    def _lines(self, renderer: Renderer, blocks: Sequence[Block], *, live: bool) -> list[str]:
        lines: list[str] = []
        index = 0
        while index < len(blocks):
            block = blocks[index]
            index += 1
            if block.kind is BlockKind.FENCE:
                gap, label = self._gap(block), self._open(block, colour=renderer.colour)
                lines += [*gap, renderer.code(label)] if label else []
                # A fence that is not drawn still separates what is.
                self._apart = bool(gap) and not label
            elif block.kind is BlockKind.CODE:
                run = [block]
                while index < len(blocks) and blocks[index].kind is BlockKind.CODE:
                    run.append(blocks[index])
                    index += 1
                lines += [*self._gap(block), *self._code(renderer, run, live=live)]
                block = run[-1]
            elif block.kind is not BlockKind.CLOSE and not is_blank(block.text):
                lines += self._gap(block)
                if self._before is None or self._before.kind is not BlockKind.INDENTED:
                    # Between lines of indented code, empty lines are its own.
                    block = block._replace(text=LEADING_BLANKS.sub("", block.text))
                lines += renderer.block(block, live=live and index == len(blocks))
            self._written = self._written or bool(lines)
            self._remember(block)
        return lines

    def _remember(self, block: Block) -> None:
        """Keep the block for the next one's sake; empty lines count as the end of the block before them."""
        if not is_blank(block.text) or block.kind in CODE_KINDS:
            self._before = block
        elif self._before is not None:
            self._before = self._before._replace(text=self._before.text + block.text)

    def _open(self, block: Block, *, colour: bool) -> Line:
        """Begin a listing. Its language is seen in its colours; what else the fence says is a line of its own."""
        info = block.text.strip().lstrip("`~").strip()
        words = info.split(maxsplit=1)
        self._highlighter = Highlighter(words[0].strip("{}.").lower() if words and colour else "")
        self._margin = " " * block.indent + CODE_MARGIN
        return (StyledText(self._margin, ""), StyledText(info, "dim")) if len(words) > 1 else ()

    def _code(self, renderer: Renderer, run: Sequence[Block], *, live: bool) -> list[str]:
        """Return the lines of a run of code, coloured as the lines before them ask for."""
        code = [dedent(block.text.rstrip("\n"), block.indent).expandtabs(TAB_COLUMNS) for block in run]
        if live:
            # Finished lines of code are never live, so there is but one.
            lines = [self._highlighter.highlight_unfinished(line[-LIVE_CODE_CHARACTERS_MAX:]) for line in code]
        else:
            lines = self._highlighter.add(code)
        return [(self._margin + renderer.code(line)).rstrip(" ") for line in lines]

    def _gap(self, block: Block) -> list[str]:
        """Return the empty line before a block, if there is one."""
        before, apart, self._apart = self._before, self._apart, False
        if apart:
            return [""]
        if before is None or not self._written or block.continued:
            return []
        if block.kind in CODE_KINDS and before.kind in CODE_KINDS and block.kind is not BlockKind.FENCE:
            return []
        if BlockKind.INDENTED is block.kind is before.kind:
            return []
        outer = any(each.kind in CODE_KINDS and not each.indent for each in (before, block))
        loose = before.kind in LOOSE_KINDS or block.kind in LOOSE_KINDS or outer
        spaced = TRAILING_BLANK.search(before.text) is not None or is_blank(block.text.split("\n", 1)[0])
        return [""] if loose or spaced else []
