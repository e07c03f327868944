"""Streaming Markdown, cut into blocks."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.cli.terminal.blocks import BLOCK_CHARACTERS_MAX, Block, BlockKind, Splitter
from tests.cli.terminal.samples import RICH

HOSTILE_SIZE = BLOCK_CHARACTERS_MAX - 16
MEASURES_MAX = 10
"""The cheapest of each are compared. On a busy machine more of them are made."""

MARKS = [
    "\n",
    "\n\n",
    " ",
    "    ",
    "\t",
    "# ",
    "- ",
    "* ",
    "1. ",
    "12) ",
    "> ",
    "```",
    "~~~",
    "```py\n",
    "|",
    "|-|-|",
    "---",
]
MARKS += ["===", "***", "a", "word", "<b>", "`", "**", "世界", "\r\n", "  - "]
MARKDOWN = st.lists(st.sampled_from(MARKS), max_size=60).map("".join)


def split(text: str) -> list[Block]:
    """Return the blocks of a whole text."""
    splitter = Splitter()
    return splitter.feed(text) + splitter.finish()


def kinds(text: str) -> list[BlockKind]:
    """Return what a text consists of."""
    return [block.kind for block in split(text)]


@given(MARKDOWN, st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_any_cut_gives_the_same_blocks(text: str, sizes: list[int]) -> None:
    """However a text is cut into pieces, the blocks are the same, and together they are the text."""
    splitter = Splitter()
    blocks: list[Block] = []
    start = 0
    while start < len(text):
        size = sizes[start % len(sizes)]
        blocks += splitter.feed(text[start : start + size])
        start += size
        splitter.preview()
        assert "".join(block.text for block in blocks) + splitter.rest == text[:start]
    blocks += splitter.finish()
    assert blocks == split(text)
    assert "".join(block.text for block in blocks) == text
    assert splitter.rest == ""


@given(st.text(st.sampled_from("ab \n`"), max_size=50), st.integers(0, 3 * BLOCK_CHARACTERS_MAX), st.data())
def test_what_never_ends_is_cut_at_a_limit(start: str, count: int, data: st.DataObject) -> None:
    """No block and no rest grows without bound, and where it is cut does not depend on the pieces."""
    text = start + "x" * count
    at = data.draw(st.integers(0, len(text)))
    splitter = Splitter()
    blocks = splitter.feed(text[:at]) + splitter.feed(text[at:])
    assert len(splitter.rest) <= 2 * BLOCK_CHARACTERS_MAX
    blocks += splitter.finish()
    assert blocks == split(text)
    assert "".join(block.text for block in blocks) == text


@pytest.mark.parametrize("start", ["", "# ", "- ", "> ", "```\n", "a\n"])
def test_the_pieces_of_what_was_cut_know_it(start: str) -> None:
    """Only the first piece of a line without an end stands for itself; the others continue it."""
    blocks = split(start + "x" * (3 * BLOCK_CHARACTERS_MAX))
    pieces = [block for block in blocks if "x" in block.text]
    assert len(pieces) >= 3
    assert [block.continued for block in pieces] == [False, *[True] * (len(pieces) - 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree", [BlockKind.TEXT, BlockKind.TEXT]),
        ("# a\nb\n", [BlockKind.HEADING, BlockKind.TEXT]),
        ("a\n---\nb\n===\n", [BlockKind.HEADING, BlockKind.HEADING]),
        ("- a\n- b\n  more\n\n  still\n- c\n", [BlockKind.ITEM, BlockKind.ITEM, BlockKind.ITEM]),
        ("7. a\n8. b\n", [BlockKind.ITEM, BlockKind.ITEM]),
        ("a\n- b\n1. c\n", [BlockKind.TEXT, BlockKind.ITEM, BlockKind.ITEM]),
        ("year\n1984. was it\n", [BlockKind.TEXT]),
        ("> a\nlazy\n> b\n\nc\n", [BlockKind.QUOTE, BlockKind.TEXT]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\nc | d\n\ne\n", [BlockKind.TABLE, BlockKind.TEXT]),
        ("* * *\n---\n___\n", [BlockKind.RULE, BlockKind.RULE, BlockKind.RULE]),
        ("<div>\nx\n</div>\n", [BlockKind.TEXT]),
        (
            "```py\na\n\nb\n```\nc\n",
            [BlockKind.FENCE, BlockKind.CODE, BlockKind.CODE, BlockKind.CODE, BlockKind.CLOSE, BlockKind.TEXT],
        ),
        ("~~~\n```\n~~~\n", [BlockKind.FENCE, BlockKind.CODE, BlockKind.CLOSE]),
        ("````\n```\n````\n", [BlockKind.FENCE, BlockKind.CODE, BlockKind.CLOSE]),
        ("```\nnever closed", [BlockKind.FENCE, BlockKind.CODE]),
        ("a ``` b\n", [BlockKind.TEXT]),
        (
            "- a\n  ```\n  x\n  ```\n  b\n- c\n",
            [BlockKind.ITEM, BlockKind.FENCE, BlockKind.CODE, BlockKind.CLOSE, BlockKind.REST, BlockKind.ITEM],
        ),
        ("a\n\n    x\n\n    y\nb\n", [BlockKind.TEXT, BlockKind.INDENTED, BlockKind.INDENTED, BlockKind.TEXT]),
        ("\n\n\na\n", [BlockKind.TEXT]),
    ],
)
def test_blocks_are_what_they_are(text: str, expected: list[BlockKind]) -> None:
    """Each construct of Markdown is found, and ends where it ends."""
    assert kinds(text) == expected


def test_finished_blocks_do_not_wait() -> None:
    """A paragraph is finished by its empty line, an item by the next one, a line of code by itself."""
    splitter = Splitter()
    assert [block.text for block in splitter.feed("one\n\n")] == ["one\n\n"]
    assert splitter.feed("- a\n") == []
    assert [block.text for block in splitter.feed("- b\n```\n")] == ["- a\n", "- b\n", "```\n"]
    assert [block.text for block in splitter.feed("code\nmore")] == ["code\n"]
    assert splitter.rest == "more"


def test_a_preview_does_not_guess() -> None:
    """The sign that may begin a list, underline a heading or open a fence is not shown as something else first."""
    for sign in ("-", "--", "=", "#", "`", "``", "1", "1.", ">", "|", "|--"):
        splitter = Splitter()
        splitter.feed(f"a paragraph\n{sign}")
        assert [block.text for block in splitter.preview()] == ["a paragraph\n"], sign
        assert splitter.rest == f"a paragraph\n{sign}"


def test_indented_code_in_an_item_knows_where_it_stands() -> None:
    """The fence's own column is taken off its lines; the item's is where they are drawn."""
    blocks = split("1. a\n\n   ```py\n   x\n   ```\n")
    assert [(block.kind, block.indent) for block in blocks[1:3]] == [(BlockKind.FENCE, 3), (BlockKind.CODE, 3)]


def processor_seconds(text: str) -> float:
    """What it costs to split a text that comes at once."""
    begun = time.process_time()
    splitter = Splitter()
    splitter.feed(text)
    splitter.preview()
    splitter.finish()
    return time.process_time() - begun


@pytest.mark.parametrize(
    ("begin", "again", "end"),
    [
        ("", " ", "x"),
        ("|-", " ", "x"),
        ("a|b\n|", " ", "-x"),
        ("", "`", ""),
        ("", "* ", ""),
        ("", "\n", ""),
    ],
)
def test_hostile_lines_are_read_in_time(begin: str, again: str, end: str) -> None:
    """Text made to be slow to judge costs by its length, not by the square of it, which would be 64 times as much."""
    small = large = float("inf")
    for _ in range(MEASURES_MAX):
        small = min(small, processor_seconds(begin + again * (HOSTILE_SIZE // 8) + end))
        large = min(large, processor_seconds(begin + again * HOSTILE_SIZE + end))
        if large < small * 24:
            break
    assert large < small * 24


def test_a_sample_as_models_write_it() -> None:
    """The sample of the other tests has every kind of block but one."""
    assert set(kinds(RICH)) == set(BlockKind) - {BlockKind.INDENTED}
