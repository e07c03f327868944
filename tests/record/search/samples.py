"""Texts and queries of every kind of script, for tests that draw: few words, so that queries find something."""

from __future__ import annotations

from hypothesis import strategies as st

WORDS = (
    # English, and letters that do not fall apart into ASCII and a mark.
    "the", "ferry", "Ferries", "café", "cafe\u0301", "naïve", "smørrebrød", "sm", "Łódź", "straße",
    "STRASSE", "İstanbul", "don't", "and", "or", "not", "1234", "3.14", "½", "x²",
    # Code and paths.
    "foo_bar.baz", "foo", "bar", "/etc/hosts", "~/.bashrc", "getHTTPResponse", "a->b", "C++", "--since=2d",
    "#include<x>", "key:value", "SELECT*FROM", "~736d", "100%",
    # Chinese, Japanese, Korean, Thai, Lao, Khmer, Myanmar.
    "東京", "東京都", "京都", "日", "日本語", "本", "中文搜索", "𠮷野家", "々", "ひらがな", "カタカナ",
    "ｶﾞﾗｽ", "ガラス", "カラス", "がき", "か\u3099き", "かき", "ぱ", "は\u309a", "あ\u3099", "か゛",
    "한국어", "한국", "국", "ㅎㅎ", "하다", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "ㄱㅏ", "하\u11ab",
    "ภาษาไทย", "ไทย", "ກິນ", "ភាសា", "မြန်မာ", "㈱", "㍿", "⼀",
    # From right to left, and Indic scripts.
    "שלום", "שָׁלוֹם", "مرحبا", "مَرْحَبًا", "\u202bمرحبا\u202c", "हिन्दी", "हिन", "தமிழ்",  # noqa: RUF001
    # Widths, ligatures and shapes.
    "ＦＯＯ", "ﬁn", "fin", "ﬀ", "Ⅳ", "ⓐ", "𝐟𝐨𝐨", "ǆ", "ŉ",  # noqa: RUF001
    # Symbols.
    "😀", "👩‍🚀", "👍🏽", "🇩🇪", "©", "→", "★", "1️⃣", "\ufffd", "€", "°C",
    # Combining marks that stand alone, joiners, and runs of two scripts.
    "\u0301", "a\u0301\u0323", "\u200d", "\ufe0f", "日本語abc", "abc日本語", "日1本", "v2版", "フォー foo",
)  # fmt: skip
JOINERS = (" ", "  ", "", "\n", "-", "_", ".", "、", "\u3000", "\u00a0", "\t", "\u200b", "'", "/")

words = st.sampled_from(WORDS)
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
pieces = st.one_of(words, words, words, words, st.sampled_from(WORDS).map(lambda word: word[:2]), anything)


@st.composite
def texts(draw: st.DrawFn, words_max: int = 8) -> str:
    """A text of words of any script, joined in any way."""
    text = ""
    for piece in draw(st.lists(pieces, max_size=words_max)):
        text += piece + draw(st.sampled_from(JOINERS))
    return text


@st.composite
def elements(draw: st.DrawFn) -> str:
    """One element of a query: a word, a phrase, an operator, or noise."""
    kind = draw(st.sampled_from(("word", "word", "word", "prefix", "phrase", "phrase", "operator", "part", "noise")))
    if kind == "word":
        return draw(words)
    if kind == "prefix":
        word = draw(words)
        return word[: draw(st.integers(1, max(1, len(word))))] + "*"
    if kind == "phrase":
        return f'"{draw(texts(3))}"' + draw(st.sampled_from(("", "", "*")))
    if kind == "operator":
        return draw(st.sampled_from(("AND", "OR", "NOT", "NOT", "OR", "AND NOT")))
    if kind == "part":
        word = draw(words)
        start = draw(st.integers(0, len(word) - 1))
        return word[start : draw(st.integers(start + 1, len(word)))]
    return draw(st.sampled_from(('"', '""', "*", '"*', "(", ")", "-", "^", ":", "NEAR(", "{", "said:", "'", "\\", "")))


@st.composite
def queries(draw: st.DrawFn) -> str:
    """A query, well made or not."""
    drawn = draw(st.lists(elements(), min_size=1, max_size=5))
    return draw(st.sampled_from((" ", " ", " ", ""))).join(drawn)
