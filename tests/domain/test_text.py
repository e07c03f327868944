"""The table of text and numbers that cannot be recorded as they are (rule 16)."""

from __future__ import annotations

import json
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hansard.domain.messages import Text, ToolCall, clean_part
from hansard.domain.text import (
    INTEGER_MAX,
    NESTING_MAX,
    clean_name,
    clean_text,
    clean_value,
    escape_text,
    restore_text,
    split_pending_surrogate,
)
from hansard.errors import InvalidInput, TooLarge
from tests.domain.originals import original

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
"""Text with everything that Python allows in a str: lone surrogates and NUL included."""

TABLE = [
    ("plain", "plain"),
    ("", ""),
    ("\0", "\ufffd"),
    ("a\0b\0", "a\ufffdb\ufffd"),
    ("é\0", "é\ufffd"),
    ("\ud800", "\ufffd"),
    ("\udfff", "\ufffd"),
    ("a\ud800b", "a\ufffdb"),
    ("\ud834\udd1e", "\U0001d11e"),
    ("\udd1e\ud834", "\ufffd\ufffd"),
    ("\ud834\ud834\udd1e", "\ufffd\U0001d11e"),
    ("\ufffe\uffff\u2028", "\ufffe\uffff\u2028"),
]


@pytest.mark.loss("C11")
@pytest.mark.parametrize(("given_text", "kept"), TABLE)
def test_the_table_of_text(given_text: str, kept: str) -> None:
    """Each row of the table for text holds."""
    assert clean_text(given_text) == kept


@given(ANY_TEXT)
def test_cleaned_text_can_be_carried(text: str) -> None:
    """Whatever text comes in, what goes on is valid UTF-8 without NUL, and cleaning it again changes nothing."""
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    assert "\0" not in cleaned
    assert clean_text(cleaned) == cleaned
    assert json.loads(json.dumps(cleaned)) == cleaned


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_good_text_is_the_same_object(text: str) -> None:
    """Text that can be carried is not even copied."""
    assert clean_text(text) is text


@given(st.lists(ANY_TEXT, max_size=6))
def test_chunks_clean_to_the_same_as_the_whole(pieces: list[str]) -> None:
    """However a text is cut into chunks, pairs in two halves included, the cleaned chunks are the cleaned text."""
    kept, pending = "", ""
    for piece in pieces:
        whole, pending = split_pending_surrogate(pending + piece)
        kept += clean_text(whole)
    assert kept + clean_text(pending) == clean_text("".join(pieces))


@pytest.mark.parametrize("value", [None, 1, b"bytes", ["a"]])
def test_text_must_be_text(value: object) -> None:
    """Anything but str is refused with our own error."""
    with pytest.raises(InvalidInput):
        clean_text(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (INTEGER_MAX, INTEGER_MAX),
        (INTEGER_MAX + 1, str(INTEGER_MAX + 1)),
        (-INTEGER_MAX - 1, str(-INTEGER_MAX - 1)),
        (1.5, 1.5),
        (True, True),
        (None, None),
        ({1: "a", None: "\0"}, {"1": "a", "None": "\ufffd"}),
        ((1, [math.nan]), [1, ["NaN"]]),
    ],
)
def test_the_table_of_values(value: object, kept: object) -> None:
    """Numbers that JSON has not become text; keys become text; the rest stays."""
    assert clean_value(value) == kept
    assert type(clean_value(value)) is type(kept)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), 1j])
def test_what_is_not_json_is_refused(value: object) -> None:
    """A guess would be a lie."""
    with pytest.raises(InvalidInput):
        clean_value({"a": [value]})


def test_nesting_is_bounded() -> None:
    """A value that is nested without end is refused before the stack ends."""
    value: list[object] = []
    for _ in range(NESTING_MAX - 1):
        value = [value]
    assert clean_value(value)
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(TooLarge):
        clean_value(endless)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_cleaned_values_survive_json(value: object) -> None:
    """Whatever value comes in, what goes on is strict JSON and comes back equal."""
    cleaned = clean_value(value)
    assert json.loads(json.dumps(cleaned, allow_nan=False)) == cleaned


@pytest.mark.parametrize("name", ["", "two\nlines", "tab\t", "\x1b[31m", "\u2028", "\x7f"])
def test_a_name_is_one_printable_line(name: str) -> None:
    """Names that would break a list or a terminal are refused."""
    with pytest.raises(InvalidInput):
        clean_name(name, "a title", 10)


def test_a_name_has_a_limit() -> None:
    """The limit counts characters, and is exact."""
    assert clean_name("é" * 10, "a title", 10) == "é" * 10
    with pytest.raises(TooLarge, match="a title has 11 characters; the limit is 10"):
        clean_name("é" * 11, "a title", 10)


@given(ANY_TEXT)
@pytest.mark.loss("C11")
def test_nothing_of_a_text_is_lost(text: str) -> None:
    """Text and runs give what came in, with halves that meet joined; so does text that holds escapes and U+FFFD."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    shown, runs = escape_text(text)
    assert shown == clean_text(text)
    assert restore_text(shown, runs) == joined
    part = clean_part(ToolCall(id="1", name="t", arguments=text))
    assert original(part, "arguments") == joined
    assert clean_part(part) == part
    assert original(clean_part(Text(f"{part.escaped}\ufffd{text}"))) == f"{part.escaped}\ufffd{joined}"


@pytest.mark.parametrize(
    "escaped",
    ["2|text=0:0", "1|text=5:0", "1|text=0:41", "1|text=0:0*999999999", "1|text=x", "1|other=0:0", "|", "1|text=1:0"],
)
def test_escapes_that_do_not_fit_are_left_out(escaped: str) -> None:
    """An import cannot claim what was not said: an escape stands for a U+FFFD, or for nothing."""
    assert clean_part(Text("\ufffdab", escaped=escaped)) == Text("\ufffdab")


def test_an_escape_that_fits_is_kept() -> None:
    """A part that was cleaned before, and came by an export, stays as it is."""
    assert original(clean_part(Text("\ufffdab", escaped="1|text=0:0"))) == "\0ab"
