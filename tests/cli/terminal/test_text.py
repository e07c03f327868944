"""What reaches a terminal cannot command it, and its lines fit."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.cli.terminal.text import CLOSING, cells, cut, safe, safe_line, wrap
from tests.cli.terminal.samples import CJK

ANY_TEXT = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\x1b\x9b\r\u202e\u200b\ud800\n\t"))
TEXT = st.text(st.sampled_from("ab  世界。，「」é🎉-\t\n"), max_size=200)  # noqa: RUF001 - full-width forms are meant


@given(ANY_TEXT)
def test_no_control_character_survives(text: str) -> None:
    """Newline and tab apart, nothing comes through that a terminal could obey, and all of it can be encoded."""
    result = safe(text)
    result.encode()
    assert {character for character in result if unicodedata.category(character) == "Cc"} <= {"\n", "\t"}
    assert not set(result) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2060\ufeff")


@given(ANY_TEXT, ANY_TEXT)
def test_a_cut_changes_nothing(first: str, second: str) -> None:
    """A sequence that was cut in two by a chunk is as harmless as one in a piece."""
    assert safe(first) + safe(second) == safe(first + second)


@pytest.mark.parametrize(
    "text",
    ["plain", "two\nlines\tand a tab", "Grüße, 世界, مرحبا", "👨\u200d👩\u200d👧", "می\u200cخواهم"],  # noqa: RUF001
)
def test_what_people_write_is_untouched(text: str) -> None:
    """Accents, other scripts, joiners and emoji come through as the very same object."""
    assert safe(text) is text


def test_an_escape_sequence_is_made_visible() -> None:
    """A person sees that something was tried."""
    assert safe("a\x1b[2Jb\x07c\x7f\x9b") == "a␛[2Jb␇c␡\ufffd"


def test_windows_line_ends_become_plain_ones() -> None:
    """A carriage return neither shows nor writes over the line."""
    assert safe("one\r\ntwo\rthree") == "one\ntwothree"


def test_one_line_is_one_line() -> None:
    """A title cannot bring lines of its own."""
    assert safe_line(" a\n\n b\u2028c\t") == "a b c"


def test_it_needs_neither_library() -> None:
    """One-shot output cleans its text without paying for prompt_toolkit or rich."""
    program = (
        "import sys; import hansard.cli.terminal.text; "
        "print([name for name in ('prompt_toolkit', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"


@given(TEXT, st.integers(2, 40))
def test_every_line_fits_and_no_character_is_lost(text: str, width: int) -> None:
    """Lines are no wider than asked for; only spaces go, where lines were broken."""
    lines = wrap(text, width)
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.text(st.sampled_from("ab 世界é"), max_size=120), st.integers(4, 20))
def test_growing_text_moves_no_earlier_line(text: str, width: int) -> None:
    """All lines but the last two are the same when more comes: one word may still move to its own line."""
    full = wrap(text, width)
    for end in range(len(text)):
        part = wrap(text[:end], width)
        assert part[:-2] == full[: max(0, len(part) - 2)]


def test_chinese_fills_the_line_and_keeps_its_punctuation() -> None:
    """Lines break between characters, are full but for a character or two, and never begin with a comma."""
    lines = wrap(CJK.strip(), 40)
    assert not any(line[0] in CLOSING for line in lines)
    assert all(cells(line) >= 34 for line in lines[:-1])


def test_one_line_is_cut_to_its_width() -> None:
    """What is left out is marked, and wide characters are not cut in half."""
    assert cut("short", 10) == "short"
    assert cut("rather long", 8) == "rather…"
    assert cells(cut("世界世界世界", 6)) <= 6
