"""Highlights: what is shown as found is what was found, by the rule of docs/use/search.md."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain.search import highlights, place_tokens, tokens
from tests.record.search import oracle
from tests.record.search.samples import queries, texts

SENTINEL = "\u2612"
"""A symbol, and so a token, that no query has."""


@given(texts())
def test_tokens_in_their_places(text: str) -> None:
    """Tokens with places are the rule's tokens, in order, and each place alone gives its token again."""
    placed = place_tokens(text)
    assert [each.token for each in placed] == tokens(text)
    assert [each.start for each in placed] == sorted(each.start for each in placed)
    for each in placed:
        assert each.start < each.middle <= each.end <= len(text)
        assert each.token in tokens(text[each.start : each.end])


@given(st.data())
def test_a_match_is_shown(data: st.DataObject) -> None:
    """A text that matches has a span; each span holds what was looked for; nothing of it is left unshown."""
    text = data.draw(texts())
    query = data.draw(st.one_of(queries(), st.sampled_from(text.split() or ["x"])))
    spans = highlights(query, text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    clauses = oracle.clauses_of(query)
    matching = [clause for clause in clauses if is_met(clause, text)]
    assert bool(matching) == oracle.matches(query, [text])
    assert spans or not matching
    phrases = [phrase for clause in matching or clauses for phrase in clause.required]
    hidden = list(text)
    for start, end in spans:
        assert any(phrase.is_in(words(text[start:end])) for phrase in phrases)
        hidden[start:end] = SENTINEL * (end - start)
    assert not any(phrase.is_in(words("".join(hidden))) for phrase in phrases)


@given(st.data())
def test_nothing_else_is_shown(data: st.DataObject) -> None:
    """Every token of a span is part of something that was looked for."""
    text = data.draw(texts())
    query = data.draw(st.one_of(queries(), st.sampled_from(text.split() or ["x"])))
    phrases = [phrase for clause in oracle.clauses_of(query) for phrase in clause.required]
    for start, end in highlights(query, text):
        span = text[start:end]
        folded = (unicodedata.normalize("NFC", oracle.fold(each)) for each in unicodedata.normalize("NFC", span))
        if any(len(each) > 1 for each in folded):
            continue  # one character that stands for several is shown whole
        found = oracle.tokens_of(span)
        covered = [False] * len(found)
        for phrase in phrases:
            for place in range(len(found)):
                size = len(phrase.words)
                if phrase.is_in([token.text for token in found[place : place + size]]):
                    covered[place : place + size] = [True] * size
        for place, token in enumerate(found):
            follows_pair = place > 0 and token.spaceless and not found[place - 1].ends_run
            assert covered[place] or (follows_pair and covered[place - 1]), (span, token)


def words(text: str) -> list[str]:
    """The tokens of a text as the oracle compares them."""
    return [token.text for token in oracle.tokens_of(text)]


def is_met(clause: oracle.Clause, text: str) -> bool:
    """Whether a clause matches a text by itself."""
    found = words(text)
    return all(phrase.is_in(found) for phrase in clause.required) and not any(
        phrase.is_in(found) for phrase in clause.excluded
    )


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("ferry", "take the [ferry], not the ferryman"),
        ("ferr*", "take the [ferry], not the [ferryman]"),
        ('"the ferry"', "take [the ferry], the other ferry"),
        ("foo_bar", "see [foo_bar].baz and [foo-bar]"),
        ("/etc/hosts", "edit /[etc/hosts] now"),
        ("cafe", "the [café], the [cafe\u0301]'s [CAFE]"),
        ("東京", "大[東京]都"),
        ("京", "大東[京]都"),
        ("東京 京都", "大[東京都]"),
        ("東京 都", "大[東京][都]"),
        ("ไทย", "ภาษา[ไทย]"),
        ("がき", "[がき]と[か\u3099き]とかき"),
        ("が", "[か\u3099]き"),
        ("か", "がき"),
        ("ガラ", "[ｶﾞﾗ]ｽ"),
        ("한국", "[\u1112\u1161\u11ab\u1100\u116e\u11a8]\u110b\u1165"),
        ("हिन्दी", "यह [हिन्दी] है"),
        ("fi", "[ﬁ]"),
        ("f*", "[ﬁn]"),
        ("2", "1/[2], 1[½]"),
        ("😀", "so[😀]so"),
        ("☀", "the [☀\ufe0f]!"),
        ("bus OR ferry", "the [ferry]"),
        ("take bus OR the ferry", "take [the] [ferry]"),
        ("take NOT bus", "[take] the ferry"),
        ("NOT take", "[take] the ferry, do [not]"),
        ("nothing", "take the ferry"),
        ("", "take the ferry"),
        ('"', "take the ferry"),
        ("ferry bus", "take the [ferry]"),
    ],
)
def test_examples(query: str, marked: str) -> None:
    """What people see marked."""
    text = marked.replace("[", "").replace("]", "")
    shown, at = "", 0
    for start, end in highlights(query, text):
        shown += f"{text[at:start]}[{text[start:end]}]"
        at = end
    assert shown + text[at:] == marked
