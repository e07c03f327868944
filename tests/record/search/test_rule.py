"""The rule of docs/use/search.md: what Hansard makes of texts and queries is what the page says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hansard.domain.search import is_match, parse_query, tokens
from tests.record.search import oracle
from tests.record.search.samples import queries, texts


def test_the_oracle_stands_on_its_own() -> None:
    """The second implementation imports nothing of Hansard: it cannot be wrong in the same way."""
    tree = ast.parse(Path(oracle.__file__).read_text(encoding="utf-8"))
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert sorted(imported) == ["__future__", "collections.abc", "itertools", "typing", "unicodedata"]


@given(texts())
def test_tokens_of_any_text(text: str) -> None:
    """The tokens of a text are those that the page describes."""
    assert tokens(text) == [token.text for token in oracle.tokens_of(text)]


@given(st.characters(exclude_categories=[]))
def test_tokens_of_any_character(character: str) -> None:
    """Every character there is falls into one of the page's classes."""
    assert tokens(f"a{character}b 日{character}本") == [
        token.text for token in oracle.tokens_of(f"a{character}b 日{character}本")
    ]


@given(queries(), st.lists(texts(), min_size=1, max_size=2))
@example('NOT foo AND NOT bar OR "', ["not foo", "or"])
def test_matches_of_any_query(query: str, fields: list[str]) -> None:
    """A query matches a text just when the page says so."""
    assert is_match(parse_query(query), [tokens(field) for field in fields]) == oracle.matches(query, fields)


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        # Identifiers and paths as people type them.
        ("foo_bar.baz", "see foo_bar.baz(1)", True),
        ("foo_bar", "see foo_bar.baz(1)", True),
        ("bar.baz", "see foo_bar.baz(1)", True),
        ("baz.bar", "see foo_bar.baz(1)", False),
        ("/etc/hosts", "edit /etc/hosts now", True),
        ("etc/host", "edit /etc/hosts now", False),
        ("etc/host*", "edit /etc/hosts now", True),
        # Case, accents, widths and ligatures.
        ("CAFE", "the café", True),
        ("strasse", "Straße", True),
        ("foo", "ＦＯＯ", True),  # noqa: RUF001
        ("fin", "ﬁn", True),
        ("smør*", "Smørrebrød", True),
        ("sm*", "Smørrebrød", True),
        # Scripts without spaces, from two characters on, wherever they stand; and one.
        ("東京", "大東京都", True),
        ("京都", "大東京都", True),
        ("東都", "大東京都", False),
        ("京", "大東京都", True),
        ("都", "大東京都", True),
        ("東京 都に", "東京都に住む", True),
        ("한국", "저는한국어", True),
        ("ไทย", "ภาษาไทย", True),
        ("v2版", "新v2版本", True),
        # Hangul and kana in whichever way they were written; voicing makes another letter.
        ("한국", "저는\u1112\u1161\u11ab\u1100\u116e\u11a8어", True),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "저는한국어", True),
        ("하", "한국", False),
        ("ガラス", "ｶﾞﾗｽの", True),
        ("か\u3099き", "がき", True),
        ("ガラス", "カラス", False),
        ("カラス", "ガラス", False),
        ("か", "がき", False),
        # Vowel signs that take up space belong to the word.
        ("हिन्दी", "यह हिन्दी है", True),
        ("हिन", "यह हिन्दी है", False),
        ("हिन*", "यह हिन्दी है", True),
        ("न", "यह हिन्दी है", False),
        ("தமிழ்", "தமிழ் மொழி", True),
        ("ภาษา ไทย", "ภาษาไทย", True),
        ("မာ", "မြန်မာ", True),
        # Emoji.
        ("😀", "so😀so", True),
        ("🚀", "👩‍🚀", True),
        # Phrases, prefixes, operators.
        ('"the ferry"', "take the ferry", True),
        ('"ferry the"', "take the ferry", False),
        ("ferry take", "take the ferry", True),
        ("ferr", "take the ferry", False),
        ("ferr*", "take the ferry", True),
        ('"the fer"*', "take the ferry", True),
        ("bus OR ferry", "take the ferry", True),
        ("bus OR train", "take the ferry", False),
        ("take NOT ferry", "take the ferry", False),
        ("take NOT bus", "take the ferry", True),
        ("take AND NOT bus", "take the ferry", True),
        ("take bus OR the ferry", "take the ferry", True),
        # Stray quotes and operators are words, or nothing.
        ('"take', "take the ferry", True),
        ('take"', "take the ferry", True),
        ("NOT ferry", "take the ferry", False),
        ("NOT ferry", "do not ferry", True),
        ("OR", "this or that", True),
        ("take OR", "take the ferry", False),
        ("AND AND AND", "this and that", True),
        ("", "take the ferry", False),
        ('""', "take the ferry", False),
        ("*", "take the ferry", False),
        ("( ferry )", "take the ferry", True),
    ],
)
def test_examples(query: str, text: str, *, found: bool) -> None:
    """What people expect of each kind of query; both implementations agree with them."""
    assert oracle.matches(query, [text]) == found
    assert is_match(parse_query(query), [tokens(text)]) == found


def test_the_page_lists_the_same_scripts() -> None:
    """The ranges of scripts without spaces stand on the page as the second implementation has them."""
    page = (Path(__file__).parents[3] / "docs" / "use" / "search.md").read_text(encoding="utf-8")
    for first, last in oracle.SPACELESS:
        assert f"U+{first:04X}–{last:04X}" in page
