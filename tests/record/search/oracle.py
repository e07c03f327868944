"""A second implementation of search, written from docs/use/search.md alone: it reads everything, and is slow and plain.

It imports nothing of Hansard, so that it cannot be wrong in the same way.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

QUERY_CHARACTERS_MAX = 1000
RANGES = """
0E00-0EFF 1000-109F 1100-11FF 1780-17FF 2E80-2FDF 3005-3007 3021-3029 3041-30FF 31F0-31FF 3105-312F 3131-318E
3400-4DBF 4E00-9FFF F900-FAFF 20000-3FFFF AC00-D7A3
"""
SPACELESS = [tuple(int(end, 16) for end in each.split("-")) for each in RANGES.split()]
FOUND_ROLES = {"user", "assistant", "tool", "system"}


class Version(NamedTuple):
    """What a message says after an edit."""

    said: str
    tools: str = ""
    called: tuple[str, ...] = ()


class Marks(NamedTuple):
    """How a message is shown that was found."""

    undone: bool
    edited: bool
    deleted: bool
    words: str


class Said(NamedTuple):
    """A message with its first words, and what its session is."""

    session_id: str
    message_id: str
    role: str
    said: str
    tools: str = ""
    called: tuple[str, ...] = ()
    at: int = 0
    undone: bool = False
    owner: str = "person:admin"
    source: str = "test"
    title: str | None = None
    edits: tuple[Version, ...] = ()
    edits_before_deletion: int = 0
    deleted: bool = False

    @property
    def versions(self) -> list[Version]:
        """Everything that it ever said."""
        return [Version(self.said, self.tools, self.called), *self.edits]

    @property
    def marks(self) -> Marks:
        """How it is shown: its words now, or the last that it had."""
        count = self.edits_before_deletion if self.deleted else len(self.edits)
        return Marks(self.undone, count > 0, self.deleted, self.versions[count].said)

    @property
    def place(self) -> tuple[str, str]:
        """What a hit is compared by."""
        return self.session_id, self.message_id


class Asked(NamedTuple):
    """A query and its filters."""

    query: str
    role: str | None = None
    owner: str | None = None
    source: str | None = None
    session_id: str | None = None
    title: str | None = None
    tool: str | None = None
    since: int | None = None
    until: int | None = None
    tools: bool = False
    everything: bool = False


class Token(NamedTuple):
    """A token; `whole` is False for the pairs that do not end their run."""

    text: str
    spaceless: bool
    ends_run: bool


def is_spaceless(character: str) -> bool:
    """Whether a script without spaces has this character."""
    return any(first <= ord(character) <= last for first, last in SPACELESS)


def fold(character: str) -> str:
    """One character without its case, its width and its shape."""
    decomposed = unicodedata.normalize("NFKD", character)
    return unicodedata.normalize("NFKD", decomposed.casefold())


def words_of(text: str) -> Iterator[str]:
    """The words of a text, put together again, and its single symbols."""
    word = ""
    for original in text:
        for character in fold(original):
            category = unicodedata.category(character)
            if category[0] in {"L", "N"} or category == "Mc" or character in {"\u3099", "\u309a"}:
                word += character
            elif category not in {"Mn", "Me"}:
                yield unicodedata.normalize("NFC", word)
                word = ""
                if category == "So":
                    yield character
    yield unicodedata.normalize("NFC", word)


def runs_of(text: str) -> Iterator[str]:
    """The runs of a text: of words, of scripts without spaces, and single symbols."""
    for word in words_of(text):
        run = ""
        for character in word:
            if run and is_spaceless(run[-1]) != is_spaceless(character):
                yield run
                run = ""
            run += character
        if run:
            yield run


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, in order."""
    tokens = []
    for run in runs_of(text):
        if not is_spaceless(run[0]):
            tokens.append(Token(run, spaceless=False, ends_run=True))
            continue
        tokens.extend(Token(one + two, spaceless=True, ends_run=False) for one, two in pairwise(run))
        tokens.append(Token(run[-1], spaceless=True, ends_run=True))
    return tokens


class Phrase(NamedTuple):
    """Words in a row, whose last may go on."""

    words: tuple[str, ...]
    open_end: bool = False

    def is_in(self, words: list[str]) -> bool:
        """Whether these words stand in a row somewhere."""
        size = len(self.words)
        for start in range(len(words) - size + 1):
            window = words[start : start + size]
            if window[:-1] != list(self.words[:-1]):
                continue
            if window[-1] == self.words[-1] or (self.open_end and window[-1].startswith(self.words[-1])):
                return True
        return False


class Clause(NamedTuple):
    """What one side of an OR asks for."""

    required: list[Phrase]
    excluded: list[Phrase]


def elements_of(query: str) -> Iterator[tuple[str, bool, bool]]:
    """The elements of a query: their text, whether they are quoted, and whether a star ends them."""
    rest = query[:QUERY_CHARACTERS_MAX].lstrip()
    while rest:
        closing = rest.find('"', 1) if rest[0] == '"' else -1
        if closing > 0:
            body, rest = rest[1:closing], rest[closing + 1 :]
            starred = rest.startswith("*")
            yield body, True, starred
            rest = rest[1:] if starred else rest
        else:
            size = next((place for place, each in enumerate(rest) if each.isspace()), len(rest))
            yield rest[:size], False, rest[size - 1] == "*"
            rest = rest[size:]
        rest = rest.lstrip()


def phrase_of(text: str, *, starred: bool) -> Phrase | None:
    """The phrase of an element, if there is anything in it."""
    tokens = tokens_of(text)
    if not tokens:
        return None
    open_end = starred
    if tokens[-1].spaceless:
        if len(tokens) > 1 and tokens[-2].spaceless and not tokens[-2].ends_run:
            tokens.pop()
        else:
            open_end = True
    return Phrase(tuple(token.text for token in tokens), open_end)


def clauses_of(query: str) -> list[Clause]:
    """What a query asks for: any of these."""
    elements: list[str | Phrase] = []
    for text, quoted, starred in elements_of(query):
        if not quoted and text in {"AND", "OR", "NOT"}:
            elements.append(text)
        elif phrase := phrase_of(text, starred=starred):
            elements.append(phrase)
    clauses = [Clause([], [])]
    while elements:
        element = elements.pop(0)
        if not isinstance(element, str):
            clauses[-1].required.append(element)
            continue
        joins = bool(clauses[-1].required)
        follows = bool(elements) and isinstance(elements[0], Phrase)
        if element == "AND" and joins and len(elements) > 1 and elements[0] == "NOT" and is_phrase(elements[1]):
            continue
        if not joins or not follows:
            clauses[-1].required.append(Phrase((element.lower(),)))
        elif element == "OR":
            clauses.append(Clause([], []))
        elif element == "NOT":
            excluded = elements.pop(0)
            assert isinstance(excluded, Phrase)
            clauses[-1].excluded.append(excluded)
    return [clause for clause in clauses if clause.required]


def is_phrase(element: str | Phrase) -> bool:
    """Whether an element is no operator."""
    return isinstance(element, Phrase)


def matches(query: str, fields: list[str]) -> bool:
    """Whether a message of these fields is what a query asks for."""
    words = [[token.text for token in tokens_of(field)] for field in fields]

    def has(phrase: Phrase) -> bool:
        return any(phrase.is_in(each) for each in words)

    return any(
        all(has(phrase) for phrase in clause.required) and not any(has(phrase) for phrase in clause.excluded)
        for clause in clauses_of(query)
    )


def lower_ascii(text: str) -> str:
    """A text without the case of ASCII letters."""
    return "".join(each.lower() if each.isascii() else each for each in text)


def passes(each: Said, asked: Asked) -> bool:
    """Whether a message is among those that the filters leave."""
    return (
        (each.role == asked.role if asked.role is not None else each.role in FOUND_ROLES)
        and asked.owner in {None, each.owner}
        and asked.source in {None, each.source}
        and asked.session_id in {None, each.session_id}
        and (asked.title is None or (each.title is not None and lower_ascii(asked.title) in lower_ascii(each.title)))
        and (asked.since is None or each.at >= asked.since)
        and (asked.until is None or each.at <= asked.until)
        and (asked.everything or not (each.undone or each.deleted))
    )


def is_found(version: Version, asked: Asked) -> bool:
    """Whether one version of a message is what is looked for."""
    if asked.tool and asked.tool not in version.called:
        return False
    tools = asked.tools or bool(asked.tool) or asked.role == "tool"
    return matches(asked.query, [version.said, version.tools] if tools else [version.said])


def scan(everything: Iterable[Said], asked: Asked) -> dict[tuple[str, str], Marks]:
    """Every message that search has to find, and how it is shown."""
    return {
        each.place: each.marks
        for each in everything
        if passes(each, asked) and any(is_found(version, asked) for version in each.versions)
    }
