"""What is searched: seeded messages of about 650 bytes, a tenth of them Chinese, with words of known frequency planted.

The same for every subject, made anew in each process from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

TEXT_BYTES = 650
CJK_EVERY = 10
VOCABULARY = 20_000
HAN = [chr(0x4E00 + 7 * number) for number in range(2000)]
TERMS = 8
"""Different queries of each kind, asked in turn."""

_SYLLABLES = ("ba", "con", "de", "fi", "gra", "hel", "in", "ja", "ko", "lim", "mo", "nor", "pa", "qui", "ras", "ten")
KINDS = ("rare term", "common term", "two terms", "phrase", "prefix", "two CJK characters", "four CJK characters")


class Line(NamedTuple):
    """One message."""

    session: str
    id: str
    role: str
    text: str


def planted(kind: str, term: int) -> str:
    """The words of one query of a kind, as they stand in texts."""
    name = "abcdefgh"[term]
    return {
        "rare term": f"zyrare{name}x",
        "common term": f"zycommon{name}",
        "two terms": f"zyfirst{name} zysecond{name}",
        "phrase": f"zyone{name} zytwo{name} zythree{name}",
        "prefix": f"zyprefix{name}tail",
        "two CJK characters": f"龘{chr(0x9F00 + term)}",
        "four CJK characters": f"龖{chr(0x9F20 + term)}龗{chr(0x9F40 + term)}",
    }[kind]


EVERY = {
    "rare term": 20_000,
    "common term": 8,
    "two terms": 400,
    "phrase": 500,
    "prefix": 500,
    "two CJK characters": 300,
    "four CJK characters": 1000,
}
"""One message of so many has each term; CJK ones are counted among the CJK messages' numbers."""


def query(kind: str, term: int) -> str:
    """What is typed to find them."""
    words = planted(kind, term)
    if kind == "phrase":
        return f'"{words}"'
    return words.removesuffix("tail") + "*" if kind == "prefix" else words


def corpus(messages: int, sessions: int, seed: int = 1) -> Iterator[Line]:
    """Every message, session after session."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(VOCABULARY)]
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]
    each = messages // sessions
    for number in range(each * sessions):
        chinese = number % CJK_EVERY == 0
        extra = [
            planted(kind, term)
            for kind in KINDS
            for term in range(TERMS)
            if ("CJK" in kind) == chinese and draw.random() < rate(kind, chinese=chinese)
        ]
        if chinese:
            parts = ["".join(draw.choices(HAN, k=70)) for _ in range(3)] + extra
            draw.shuffle(parts)
            text = "".join(parts)
        else:
            parts = draw.choices(words, weights, k=86) + extra
            draw.shuffle(parts)
            text = " ".join(parts)
        yield Line(f"s{number // each}", f"m{number}", ("user", "assistant")[number % 2], text)


def rate(kind: str, *, chinese: bool) -> float:
    """How likely a message has a term."""
    return (CJK_EVERY if chinese else 1) / EVERY[kind]
