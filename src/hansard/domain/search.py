"""Search: how texts and queries become tokens, when they match (docs/use/search.md), and what is shown of a match.

Text is folded character by character (compatibility forms, case and diacritics go) and put together again where marks
stayed: syllables of Hangul and voiced kana are one character however they were written. Words are runs of letters,
digits and marks that take up space. A run of characters of a script without spaces (Han, kana, Hangul, Thai, …) becomes
its pairs of neighbours and its last character, so that any two characters that stand together are found. Symbols, emoji
among them, are tokens of their own. Everything else separates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

import msgspec

from hansard.domain.messages import Message, Part, Text, ToolCall, ToolResult

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


class Phrase(msgspec.Struct, frozen=True, kw_only=True):
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
            return Phrase(tokens=tuple(found), prefix=True)
    return Phrase(tokens=tuple(found), prefix=starred)


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
            required.append(Phrase(tokens=(element.lower(),)))
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
    joined = [f" {' '.join(field)} " for field in fields]

    def has(phrase: Phrase) -> bool:
        sought = f" {' '.join(phrase.tokens)}" + ("" if phrase.prefix else " ")
        return any(sought in field for field in joined)

    return any(
        all(map(has, clause.required)) and not any(map(has, clause.excluded)) for clause in query if clause.required
    )


WHITE_SPACE = re.compile(r"\s+")


class PlacedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token and the characters of the text that it came from; `middle` is where the first of a pair ends."""

    token: str
    start: int
    middle: int
    end: int


class Letter(NamedTuple):
    """A folded character, and the character of the text that it came from, with the marks after that one."""

    character: str
    start: int
    end: int


def highlights(query: str, text: str) -> list[tuple[int, int]]:
    """Return the spans of a text, as (start, end) in characters, in order, that a query looks for.

    A text that matches by itself shows all that the clauses which match require. Any other, such as one field of a
    message that matches by several, shows whatever of the query it has. A span never ends inside a word, nor between a
    letter and its marks.
    """
    clauses = parse_query(query)
    placed = place_tokens(text) if clauses else []
    found = {phrase: spans_of(phrase, placed) for clause in clauses for phrase in clause.required + clause.excluded}
    matching = [clause for clause in clauses if is_met(clause, found)]
    shown = {phrase for clause in matching or clauses for phrase in clause.required}
    return merge([span for phrase in shown for span in found[phrase]])


class ExcerptPart(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a text, and whether it is what was looked for."""

    text: str
    found: bool = False


def excerpt(query: str, message: Message, characters_max: int) -> list[ExcerptPart]:
    """Return a line of a message around the first thing that was found in it, cut at the marks.

    What its tools say is shown where nothing of what it says itself was looked for.
    """
    fields = fields_of(message.parts)
    text, spans = fields.said, highlights(query, fields.said)
    if not spans and fields.tools:
        text, spans = fields.tools, highlights(query, fields.tools)
        text, spans = (text, spans) if spans or not fields.said else (fields.said, [])
    first = max(0, spans[0][0] - characters_max // 3) if spans and len(text) > characters_max else 0
    last = min(len(text), max(first + characters_max, spans[0][1] if spans else 0))
    pieces = [ExcerptPart(text="…")] if first else []
    place = first
    for start, end in spans:
        if end <= last:
            pieces += [
                ExcerptPart(text=one_line(text[place:start])),
                ExcerptPart(text=one_line(text[start:end]), found=True),
            ]
            place = end
    pieces += [ExcerptPart(text=one_line(text[place:last])), ExcerptPart(text="…" if last < len(text) else "")]
    return [piece for piece in pieces if piece.text]


def one_line(text: str) -> str:
    """Return a text with one space for each run of white space, at its ends as well."""
    return WHITE_SPACE.sub(" ", text)


def is_met(clause: Clause, found: dict[Phrase, list[tuple[int, int]]]) -> bool:
    return all(found[phrase] for phrase in clause.required) and not any(found[phrase] for phrase in clause.excluded)


def place_tokens(text: str) -> list[PlacedToken]:
    placed: list[PlacedToken] = []
    word: list[Letter] = []
    for index, character in enumerate(text):
        folded = FOLDING[ord(character)]
        if not folded and word:
            word[-1] = word[-1]._replace(end=index + 1)
        elif not folded and placed and placed[-1].end == index:
            placed[-1] = msgspec.structs.replace(placed[-1], end=index + 1)
        for each in folded:
            if each != " ":
                word.append(Letter(each, index, index + 1))
            elif word:
                placed += tokens_of_word(word)
                word = []
    return placed + tokens_of_word(word)


def tokens_of_word(word: list[Letter]) -> list[PlacedToken]:
    """Return the tokens of what lies between two separators."""
    runs = groupby(compose(word), key=lambda piece: is_unspaced(piece.character))
    return [token for _, run in runs for token in tokens_of_run(list(run))]


def compose(word: list[Letter]) -> list[Letter]:
    """Return the pieces with those that make one character put together: jamo, kana and their marks."""
    composed: list[Letter] = []
    for piece in word:
        joined = unicodedata.normalize("NFC", composed[-1].character + piece.character) if composed else ""
        if len(joined) == 1:
            composed[-1] = Letter(joined, composed[-1].start, piece.end)
        else:
            composed.append(piece)
    whole = unicodedata.normalize("NFC", "".join(piece.character for piece in word))
    if "".join(piece.character for piece in composed) == whole:
        return composed
    # Marks in an order that no script uses: nobody can tell which character came from where.
    return [Letter(character, word[0].start, word[-1].end) for character in whole]


def tokens_of_run(run: list[Letter]) -> list[PlacedToken]:
    """Return the tokens of one run: a word, or each pair of neighbours and the last character alone."""
    parts = [run[place : place + 2] for place in range(len(run))] if is_unspaced(run[0].character) else [run]
    return [
        PlacedToken(
            token="".join(piece.character for piece in part), start=part[0].start, middle=part[0].end, end=part[-1].end
        )
        for part in parts
    ]


def spans_of(phrase: Phrase, placed: list[PlacedToken]) -> list[tuple[int, int]]:
    *first, last = phrase.tokens
    spans = []
    for start in range(len(placed) - len(first)):
        end = placed[start + len(first)]
        if end.token != last and not (phrase.prefix and end.token.startswith(last)):
            continue
        if all(placed[start + offset].token == token for offset, token in enumerate(first)):
            # A word is shown whole, of a pair only what was looked for.
            is_half = is_unspaced(last) and len(last) < len(end.token)
            spans.append((placed[start].start, end.middle if is_half else end.end))
    return spans


def merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
