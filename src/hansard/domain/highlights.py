"""Where in a text a query matched: spans of its own characters, to be shown. The rule is in docs/use/search.md."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.search import FOLDING, Clause, Phrase, fields_of, is_unspaced, parse_query

if TYPE_CHECKING:
    from hansard.domain.messages import Message

WHITE_SPACE = re.compile(r"\s+")


class PlacedToken(NamedTuple):
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


class ExcerptPart(NamedTuple):
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
    pieces = [ExcerptPart("…")] if first else []
    place = first
    for start, end in spans:
        if end <= last:
            pieces += [ExcerptPart(one_line(text[place:start])), ExcerptPart(one_line(text[start:end]), found=True)]
            place = end
    pieces += [ExcerptPart(one_line(text[place:last])), ExcerptPart("…" if last < len(text) else "")]
    return [piece for piece in pieces if piece.text]


def one_line(text: str) -> str:
    """Return a text with one space for each run of white space, at its ends as well."""
    return WHITE_SPACE.sub(" ", text)


def is_met(clause: Clause, found: dict[Phrase, list[tuple[int, int]]]) -> bool:
    """Return whether everything required is there, and nothing that is excluded."""
    return all(found[phrase] for phrase in clause.required) and not any(found[phrase] for phrase in clause.excluded)


def place_tokens(text: str) -> list[PlacedToken]:
    """Return a text's tokens, the same as the rule's, each with its place."""
    placed: list[PlacedToken] = []
    word: list[Letter] = []
    for index, character in enumerate(text):
        folded = FOLDING[ord(character)]
        if not folded and word:
            word[-1] = word[-1]._replace(end=index + 1)
        elif not folded and placed and placed[-1].end == index:
            placed[-1] = placed[-1]._replace(end=index + 1)
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
    if not is_unspaced(run[0].character):
        return [PlacedToken("".join(piece.character for piece in run), run[0].start, run[0].end, run[-1].end)]
    pairs = [run[place : place + 2] for place in range(len(run))]
    return [
        PlacedToken("".join(piece[0] for piece in pair), pair[0].start, pair[0].end, pair[-1].end) for pair in pairs
    ]


def spans_of(phrase: Phrase, placed: list[PlacedToken]) -> list[tuple[int, int]]:
    """Return every place where a phrase stands."""
    *first, last = phrase.tokens
    spans = []
    for start in range(len(placed) - len(first)):
        end = placed[start + len(first)]
        if end.token != last and not (phrase.prefix and end.token.startswith(last)):
            continue
        if all(placed[start + offset].token == token for offset, token in enumerate(first)):
            spans.append((placed[start].start, end_of(end, last)))
    return spans


def end_of(found: PlacedToken, sought: str) -> int:
    """Return where a match ends: a word is shown whole, of a pair only what was looked for."""
    return found.middle if is_unspaced(sought) and len(sought) < len(found.token) else found.end


def merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
