"""What reaches a terminal cannot command it."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.cli.terminal.sanitize import safe, safe_line

ANY_TEXT = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\x1b\x9b\r\u202e\u200b\ud800\n\t"))


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
        "import sys; import hansard.cli.terminal.sanitize; "
        "print([name for name in ('prompt_toolkit', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]"
