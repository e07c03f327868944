"""Streaming Markdown, cut into blocks as soon as each is finished.

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
from typing import Final, NamedTuple

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


class Block(NamedTuple):
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
        """What belongs to no finished block yet."""
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
        """Return what is left as blocks: the text has ended."""
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
        """A line of code, or the end of it."""
        stripped = line.strip(" \t\r\n")
        closes = not inside and len(stripped) >= len(fence.mark) and set(stripped) == {fence.mark[0]}
        self._hold_line(
            line, BlockKind.CLOSE if closes and indentation(line) < fence.indent + CODE_INDENT else BlockKind.CODE
        )
        if self._kind is BlockKind.CLOSE:
            self._fence = None
        self._emit(blocks, indent=fence.indent, continued=inside)

    def _start(self, line: str, blocks: list[Block]) -> None:
        """Begin a block with this line, or wait for one."""
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
        blocks.append(Block(kind, "".join(self._held), offset, continued or self._cut))
        self._held, self._held_characters, self._kind, self._cut = [], 0, None, False


def is_blank(line: str) -> bool:
    """Whether a line is empty to a reader."""
    return not line.strip(" \t\r\n")


def indentation(line: str) -> int:
    """Return the column where the line's text begins."""
    text = line.lstrip(" \t")
    return len(line[: len(line) - len(text)].expandtabs(CODE_INDENT))


def content_offset(item: re.Match[str]) -> int:
    """Return the column where the content of a list item begins."""
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
