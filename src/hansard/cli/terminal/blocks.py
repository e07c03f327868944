"""Streaming Markdown, cut into blocks as soon as each is finished, and what stands between blocks that are drawn.

A block is finished when nothing that may still come can change it, so it can be printed for good. Decisions are taken
a whole line at a time: however the text is cut into pieces, the blocks are the same. The blocks and what is left over,
put together, are the text, character for character.

Every list item is a block, and every line of fenced code, so that neither a long list nor a long listing stays
unfinished. What goes on without an end is cut at a limit; the pieces after the first are `continued`.
"""

from __future__ import annotations

import copy
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from hansard.cli.terminal.text import TAB_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.cli.terminal.render import Highlighter, Renderer

BLOCK_CHARACTERS_MAX: Final = 16 * 1024
"""An unfinished block is drawn again and again; this bounds what one drawing costs."""

TABLE_CHARACTERS_MAX: Final = 64 * 1024
"""A table's columns depend on all of its rows, so it is kept together for longer."""

CODE_INDENT: Final = 4
"""Spaces that make a line code."""

FENCE: Final = re.compile(r"[ \t]*(?P<mark>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<info>[^\n]*)")
ITEM: Final = re.compile(r"(?P<lead> {0,3})(?P<marker>[-+*]|\d{1,9}[.)])(?P<space>[ \t]+|$)(?P<content>.*)")
HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
UNDERLINE: Final = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
RULE: Final = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
QUOTE: Final = re.compile(r" {0,3}>")
DELIMITERS: Final = re.compile(r" {0,3}(?=.*\|)(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$")
UNDECIDED: Final = re.compile(r"(?:[-*+_=#`~>|:\s]+|\s*\d{1,9}[.)]?\s*)$")
"""The beginning of a line that may yet become anything: shown a moment later, it does not turn into something else."""

LIVE_CODE_CHARACTERS_MAX: Final = 2_000
"""A line of code that is longer and not finished shows only its end."""

TRAILING_BLANK: Final = re.compile(r"\n[ \t]*\n\Z")
LEADING_BLANKS: Final = re.compile(r"\A(?:[ \t]*\n)+")
CODE_MARGIN: Final = "  "


class BlockKind(StrEnum):
    """What a block is."""

    TEXT = "text"
    HEADING = "heading"
    ITEM = "item"
    REST = "rest"
    """More of a list item, after code in it."""
    QUOTE = "quote"
    TABLE = "table"
    RULE = "rule"
    FENCE = "fence"
    """The line that opens fenced code."""
    CODE = "code"
    """A line of fenced code."""
    CLOSE = "close"
    """The line that closes fenced code."""
    INDENTED = "indented"
    """A line of code made by indentation."""


LOOSE_KINDS: Final = frozenset({BlockKind.HEADING, BlockKind.TABLE, BlockKind.RULE})
CODE_KINDS: Final = frozenset({BlockKind.FENCE, BlockKind.CODE, BlockKind.CLOSE})


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A finished block, with the empty lines before it and the one that ended it."""

    kind: BlockKind
    text: str
    indent: int = 0
    """How far the list item is indented that this belongs to; for code, the fence itself."""
    continued: bool = False
    """Whether it continues a block that was cut at a limit."""


class BlockFence(NamedTuple):
    """The fence that is open."""

    mark: str
    indent: int


class Splitter:
    """Cuts one text into blocks while it comes."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._held_characters = 0
        self._partial = ""
        self._kind: BlockKind | None = None
        self._fence: BlockFence | None = None
        self._offset = 0
        self._cut = False
        self._inside_line = False

    @property
    def rest(self) -> str:
        return "".join(self._held) + self._partial

    def feed(self, text: str) -> list[Block]:
        """Take more text; return the blocks that it finished."""
        blocks: list[Block] = []
        start, buffer = 0, self._partial + text
        while start < len(buffer):
            newline = buffer.find("\n", start, start + BLOCK_CHARACTERS_MAX)
            if newline >= 0:
                end = newline + 1
            elif len(buffer) - start >= BLOCK_CHARACTERS_MAX:
                space = buffer.rfind(" ", start + BLOCK_CHARACTERS_MAX // 2, start + BLOCK_CHARACTERS_MAX)
                end = space + 1 if space >= 0 else start + BLOCK_CHARACTERS_MAX
            else:
                break
            self._take_line(buffer[start:end], blocks)
            start = end
        self._partial = buffer[start:]
        return blocks

    def flush(self) -> list[Block]:
        """Return what is left as blocks, finished or not, and go on: open code stays open."""
        blocks: list[Block] = []
        if self._partial:
            partial, self._partial = self._partial, ""
            self._take_line(partial, blocks)
        self._emit(blocks)
        return blocks

    def finish(self) -> list[Block]:
        blocks = self.flush()
        self._fence, self._offset, self._cut, self._inside_line = None, 0, False, False
        return blocks

    def preview(self) -> list[Block]:
        """Return what is left as the blocks that it would be if nothing more came."""
        ahead = copy.copy(self)
        ahead._held = list(self._held)  # noqa: SLF001 - a copy of this very object
        if UNDECIDED.match(self._partial) and not self._inside_line:
            ahead._partial = ""  # noqa: SLF001 - as above
        return ahead.finish()

    def _take_line(self, line: str, blocks: list[Block]) -> None:
        """Decide about one line, or about a piece of one that is too long."""
        inside, self._inside_line = self._inside_line, not line.endswith("\n")
        if self._fence is not None:
            self._take_code(self._fence, line, blocks, inside=inside)
            return
        if inside:
            self._cut = self._cut or not self._held
            self._hold_line(line, self._kind or BlockKind.TEXT)
        elif self._kind is None:
            self._start(line, blocks)
        else:
            self._continue(line, self._kind, blocks)
        limit = TABLE_CHARACTERS_MAX if self._kind is BlockKind.TABLE else BLOCK_CHARACTERS_MAX
        if self._held_characters >= limit:
            following = {BlockKind.ITEM: BlockKind.REST, BlockKind.TABLE: BlockKind.TEXT}.get(
                self._kind or BlockKind.TEXT, self._kind
            )
            self._emit(blocks)
            self._kind, self._cut = following, following is not None

    def _take_code(self, fence: BlockFence, line: str, blocks: list[Block], *, inside: bool) -> None:
        stripped = line.strip(" \t\r\n")
        closes = not inside and len(stripped) >= len(fence.mark) and set(stripped) == {fence.mark[0]}
        self._hold_line(
            line, BlockKind.CLOSE if closes and indentation(line) < fence.indent + CODE_INDENT else BlockKind.CODE
        )
        if self._kind is BlockKind.CLOSE:
            self._fence = None
        self._emit(blocks, indent=fence.indent, continued=inside)

    def _start(self, line: str, blocks: list[Block]) -> None:
        if is_blank(line):
            self._hold_line(line, None)
            return
        depth = indentation(line)
        self._offset = self._offset if depth >= self._offset else 0
        bare = line.rstrip("\r\n")
        fence = FENCE.match(bare)
        if fence is not None and (self._offset or depth < CODE_INDENT):
            self._hold_line(line, BlockKind.FENCE)
            self._emit(blocks, indent=self._offset)
            self._fence = BlockFence(fence["mark"], depth)
        elif self._offset:
            self._hold_line(line, BlockKind.REST)
        elif depth >= CODE_INDENT:
            self._hold_line(line, BlockKind.INDENTED)
            self._emit(blocks)
        elif HEADING.match(bare) or RULE.match(bare):
            self._hold_line(line, BlockKind.HEADING if HEADING.match(bare) else BlockKind.RULE)
            self._emit(blocks)
        elif item := ITEM.match(bare):
            self._hold_line(line, BlockKind.ITEM)
            self._offset = content_offset(item)
        else:
            self._hold_line(line, BlockKind.QUOTE if QUOTE.match(bare) else BlockKind.TEXT)

    def _continue(self, line: str, kind: BlockKind, blocks: list[Block]) -> None:
        """Add this line to the block that is open, or end the block before it or with it."""
        bare = line.rstrip("\r\n")
        if kind in (BlockKind.ITEM, BlockKind.REST):
            if self._ends_item(line, bare):
                self._emit(blocks)
                self._start(line, blocks)
            else:
                self._hold_line(line, kind)
        elif is_blank(line):
            self._hold_line(line, kind)
            self._emit(blocks)
        elif kind is BlockKind.TEXT and UNDERLINE.match(bare) and not self._cut:
            self._hold_line(line, BlockKind.HEADING)
            self._emit(blocks)
        elif kind is BlockKind.TEXT and self._held and "|" in self._held[-1] and DELIMITERS.match(bare):
            self._hold_line(line, BlockKind.TABLE)
        elif interrupts(bare, in_list=False) and not (kind is BlockKind.QUOTE and QUOTE.match(bare)):
            self._emit(blocks)
            self._start(line, blocks)
        else:
            self._hold_line(line, kind)

    def _ends_item(self, line: str, bare: str) -> bool:
        """Whether a line is not part of the list item that is open, or is code in it."""
        if is_blank(line):
            return False
        if indentation(line) >= self._offset:
            return FENCE.match(bare) is not None
        after_blank = bool(self._held) and is_blank(self._held[-1])
        return after_blank or interrupts(bare, in_list=True)

    def _hold_line(self, line: str, kind: BlockKind | None) -> None:
        self._held.append(line)
        self._held_characters += len(line)
        self._kind = kind

    def _emit(self, blocks: list[Block], *, indent: int | None = None, continued: bool = False) -> None:
        """Finish what is held. Empty lines wait for the block that they precede; at the end they are one."""
        if not self._held:
            self._kind = None
            return
        kind = self._kind or BlockKind.TEXT
        offset = self._offset if indent is None else indent
        blocks.append(Block(kind=kind, text="".join(self._held), indent=offset, continued=continued or self._cut))
        self._held, self._held_characters, self._kind, self._cut = [], 0, None, False


def is_blank(line: str) -> bool:
    return not line.strip(" \t\r\n")


def indentation(line: str) -> int:
    text = line.lstrip(" \t")
    return len(line[: len(line) - len(text)].expandtabs(CODE_INDENT))


def content_offset(item: re.Match[str]) -> int:
    before = len(item["lead"]) + len(item["marker"])
    spaces = len(item["space"].expandtabs(CODE_INDENT))
    return before + (spaces if item["content"] and spaces <= CODE_INDENT else 1)


def interrupts(bare: str, *, in_list: bool) -> bool:
    """Whether a line begins a block although the one before it has not ended."""
    if indentation(bare) >= CODE_INDENT:
        return False
    if FENCE.match(bare) or HEADING.match(bare) or QUOTE.match(bare) or RULE.match(bare):
        return True
    item = ITEM.match(bare)
    if item is None:
        return False
    return in_list or (bool(item["content"]) and item["marker"] in ("-", "+", "*", "1.", "1)"))


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
        self._highlighter: Highlighter | None = None
        self._apart = False
        self._written = False

    def lift(self) -> None:
        """Something else was written in between: what comes next stands apart from it."""
        self._apart = True

    def preview(self, renderer: Renderer, blocks: Sequence[Block]) -> list[str]:
        """Return the lines of blocks that are not finished, as if they were the last."""
        return copy.copy(self).write(renderer, blocks, live=True)

    def write(self, renderer: Renderer, blocks: Sequence[Block], *, live: bool = False) -> list[str]:
        lines: list[str] = []
        index = 0
        while index < len(blocks):
            block = blocks[index]
            index += 1
            if block.kind is BlockKind.FENCE:
                gap, label = self._gap(block), self._open(renderer, block)
                lines += [*gap, label] if label else []
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
                    block = msgspec.structs.replace(block, text=LEADING_BLANKS.sub("", block.text))
                lines += renderer.block(block, live=live and index == len(blocks))
            self._written = self._written or bool(lines)
            self._remember(block)
        return lines

    def _remember(self, block: Block) -> None:
        """Keep the block for the next one's sake; empty lines count as the end of the block before them."""
        if not is_blank(block.text) or block.kind in CODE_KINDS:
            self._before = block
        elif self._before is not None:
            self._before = msgspec.structs.replace(self._before, text=self._before.text + block.text)

    def _open(self, renderer: Renderer, block: Block) -> str:
        """Begin a listing. Its language is seen in its colours; what else the fence says is a line of its own."""
        info = block.text.strip().lstrip("`~").strip()
        words = info.split(maxsplit=1)
        self._highlighter = renderer.highlighter(words[0].strip("{}.").lower() if words else "")
        self._margin = " " * block.indent + CODE_MARGIN
        return self._margin + renderer.styled(info, "dim") if len(words) > 1 else ""

    def _code(self, renderer: Renderer, run: Sequence[Block], *, live: bool) -> list[str]:
        """Return the lines of a run of code, coloured as the lines before them ask for."""
        assert self._highlighter is not None, "code follows the fence that opens it"
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
