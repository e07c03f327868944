"""The words that docs/build/glossary.md bars do not occur in names, docstrings and comments of the package."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.repository.repository import ROOT, text_files

GLOSSARY = ROOT / "docs" / "build" / "glossary.md"


def barred_words() -> list[str]:
    """Return the words that the glossary bars."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Words that are not used")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| \w", table, re.MULTILINE)
    return [word for row in rows for word in row.split(", ") if word != "not"]


def pattern(word: str) -> re.Pattern[str]:
    """Return what finds a word, or several in a row, in prose and in names; endings of the plural count."""
    return re.compile(rf"(?<![a-z]){word.replace(' ', '[ _]')}(?:s|es)?(?![a-z])")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names, comments and docstrings of a module, each with its line, in small letters and on one line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.NAME, tokenize.COMMENT}:
            yield token.start[0], re.sub(r"(?<=[a-z])(?=[A-Z])", "_", token.string).lower()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.lower().split())


def occurrences(path: str, text: str, words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each barred word of a module, with ``path:line``."""
    pieces = list(prose(text))
    for word in words:
        finds = pattern(word)
        yield from ((word, f"{path}:{line}") for line, piece in pieces if finds.search(piece))


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Where each barred word occurs in the package, by its name in the glossary."""
    words = barred_words()
    places: dict[str, list[str]] = {word: [] for word in words}
    for path, text in text_files():
        if path.startswith("src/hansard/") and path.endswith(".py"):
            for word, place in occurrences(path, text, words):
                places[word].append(place)
    return places


@pytest.mark.parametrize(
    "sample",
    ["class ChatLedger: ...", "x.make_room()", '"""Sum\nup."""', "a = 1  # the wishes of people", "import workshop"],
)
def test_a_barred_word_is_found(sample: str) -> None:
    """In names of all kinds, in docstrings and in comments; in the plural, and over the end of a line."""
    assert list(occurrences("a.py", sample, ["ledger", "make room", "sum up", "wish", "workshop"]))


@pytest.mark.parametrize("sample", ["x = 'a ledger in a string'", "# bookkeeper, wishful", "seldomterms = 1"])
def test_other_words_are_not(sample: str) -> None:
    """Longer words that begin or end like a barred one, and strings that people are shown, are free."""
    assert not list(occurrences("a.py", sample, ["ledger", "book", "wish", "terms"]))


def test_barred_words_do_not_occur(found: dict[str, list[str]]) -> None:
    """No name, docstring or comment of the package has one of them."""
    assert {word: places for word, places in found.items() if places} == {}
