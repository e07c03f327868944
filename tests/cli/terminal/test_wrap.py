"""Lines that fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hansard.cli.terminal.wrap import CLOSING, cells, cut, wrap
from tests.cli.terminal.samples import CJK

TEXT = st.text(st.sampled_from("ab  世界。，「」é🎉-\t\n"), max_size=200)  # noqa: RUF001 - full-width forms are meant


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
