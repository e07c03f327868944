"""The matching rule of search: how texts and queries become tokens, and when they match (docs/use/search.md).

Text is folded character by character (compatibility forms, case and diacritics go) and put together again where marks
stayed: syllables of Hangul and voiced kana are one character however they were written. Words are runs of letters,
digits and marks that take up space. A run of characters of a script without spaces (Han, kana, Hangul, Thai, …) becomes
its pairs of neighbours and its last character, so that any two characters that stand together are found. Symbols, emoji
among them, are tokens of their own. Everything else separates.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.messages import Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hansard.domain.messages import Part

RULE = f"4, Unicode {unicodedata.unidata_version}"
"""Which rule made an index: its number here, which grows with each change, and the tables that Python has."""

QUERY_CHARACTERS_MAX = 1000
"""Longer queries are pastes; what lies beyond is not looked for."""

UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul jamo
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han iteration mark and zero
    (0x3021, 0x3029),  # Hangzhou numerals
    (0x3041, 0x30FF),  # kana
    (0x3105, 0x312F),  # bopomofo
    (0x3131, 0x318E),  # Hangul compatibility jamo
    (0x31F0, 0x31FF),  # kana extensions
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),  # Han
    (0xAC00, 0xD7A3),  # Hangul
    (0xF900, 0xFAFF),  # Han compatibility
    (0x20000, 0x3FFFF),  # Han
)
"""Scripts that do not put spaces between words."""

VOICING = "\u3099\u309a"
"""The marks that make か into が, and は into ぱ: another letter, not an accent."""

RUNS = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in UNSPACED)}]+|"
    f"[^{''.join(f'{chr(first)}-{chr(last)}' for first, last in UNSPACED)}]+"
)


class Folding(dict[int, str]):
    """What each character becomes; found out when it is first seen."""

    def __missing__(self, code: int) -> str:
        """Fold one character: what words consist of to itself, symbols to a word of their own, others to a space."""
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", chr(code)).casefold())
        pieces = []
        for character in folded:
            category = unicodedata.category(character)
            if category[0] in "LN" or category == "Mc" or character in VOICING:
                pieces.append(character)
            elif category == "So":
                pieces.append(f" {character} ")
            elif category not in {"Mn", "Me"}:
                pieces.append(" ")
        self[code] = result = "".join(pieces)
        return result


FOLDING = Folding()


def tokens(text: str) -> list[str]:
    """Return a text's tokens, in order."""
    folded = text.translate(FOLDING)
    if folded.isascii():
        return folded.split()
    found: list[str] = []
    for word in unicodedata.normalize("NFC", folded).split():
        if word.isascii():
            found.append(word)
        else:
            for run in RUNS.findall(word):
                found.extend(pairs(run) if is_unspaced(run) else (run,))
    return found


def is_unspaced(run: str) -> bool:
    """Return whether a run is of a script without spaces; all of it is, or none."""
    code = ord(run[0])
    return any(first <= code <= last for first, last in UNSPACED)


def pairs(run: str) -> list[str]:
    """Return each character of a run with the one after it, and the last one alone."""
    return [run[index : index + 2] for index in range(len(run))]


class Phrase(NamedTuple):
    """Tokens that have to stand one after the other; the last may be the beginning of one."""

    tokens: tuple[str, ...]
    prefix: bool = False


class Clause(NamedTuple):
    """What has to be there, and what must not."""

    required: tuple[Phrase, ...]
    excluded: tuple[Phrase, ...] = ()


Query = tuple[Clause, ...]
"""Any of these."""

ELEMENT = re.compile(r'"([^"]*)"(\*?)|(\S+)')


def phrase_of(text: str, *, starred: bool = False) -> Phrase | None:
    """Return what an element of a query looks for; None when it holds nothing that can be looked for."""
    found = tokens(text)
    if not found:
        return None
    last = found[-1]
    if is_unspaced(last):
        previous = found[-2] if len(found) > 1 else ""
        if len(previous) == 2 and previous[1] == last and is_unspaced(previous):  # noqa: PLR2004 - a pair
            found.pop()
        else:
            return Phrase(tuple(found), prefix=True)
    return Phrase(tuple(found), starred)


def parse_query(text: str) -> Query:
    """Return what a query asks for. Operators that have nothing to join are words; nothing is an error."""
    elements: list[str | Phrase] = []
    for match in ELEMENT.finditer(text[:QUERY_CHARACTERS_MAX]):
        quoted, star, bare = match.groups()
        if bare in {"AND", "OR", "NOT"}:
            elements.append(bare)
            continue
        body = quoted if bare is None else bare
        found = phrase_of(body, starred=bool(star) or (bare is not None and bare.endswith("*")))
        if found is not None:
            elements.append(found)
    return join(elements)


def join(elements: list[str | Phrase]) -> Query:
    """Return the clauses that operators and phrases make: NOT binds closest, then AND, which may be left out."""
    clauses: list[Clause] = []
    required: list[Phrase] = []
    excluded: list[Phrase] = []
    place = 0
    while place < len(elements):
        element, rest = elements[place], elements[place + 1 : place + 3]
        place += 1
        if isinstance(element, Phrase):
            required.append(element)
        elif not required or not rest or not (isinstance(rest[0], Phrase) or is_and_not(element, rest)):
            required.append(Phrase((element.lower(),)))
        elif element == "NOT" and isinstance(rest[0], Phrase):
            excluded.append(rest[0])
            place += 1
        elif element == "OR":
            clauses.append(Clause(tuple(required), tuple(excluded)))
            required, excluded = [], []
    if required:
        clauses.append(Clause(tuple(required), tuple(excluded)))
    return tuple(clauses)


def is_and_not(element: str, rest: list[str | Phrase]) -> bool:
    """Return whether AND stands before a NOT that excludes something: it is then left out."""
    return element == "AND" and rest[0] == "NOT" and isinstance(rest[-1], Phrase)


class Fields(NamedTuple):
    """What of a message is looked into: what it says, and what its tools say."""

    said: str
    tools: str


def fields_of(parts: Iterable[Part]) -> Fields:
    """Return the fields of a message's parts."""
    said: list[str] = []
    tools: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            said.append(part.text)
        elif isinstance(part, ToolCall):
            tools += [part.name, part.arguments]
        elif isinstance(part, ToolResult):
            tools.append(part.text)
    return Fields("\n".join(said), "\n".join(tools))


def is_match(query: Query, fields: list[list[str]]) -> bool:
    """Return whether a message of these fields, each as tokens, is what a query asks for."""
    joined = [f" {' '.join(field)} " for field in fields]

    def has(phrase: Phrase) -> bool:
        sought = f" {' '.join(phrase.tokens)}" + ("" if phrase.prefix else " ")
        return any(sought in field for field in joined)

    return any(
        all(map(has, clause.required)) and not any(map(has, clause.excluded)) for clause in query if clause.required
    )
