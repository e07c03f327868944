"""Texts in which every word is said once, so that finding a word proves that this very word was kept."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

LETTERS = "abcdefghijkmnpqrstuvwxyz"
CODE_LETTERS = 4
FOREIGN = ("ä", "ß", "é", "漢字", "かな", "ещё", "नी", "한글", "عم", "\U00020bb7")
SIGNS = ("🙂", "👩\u200d🚀", "…", "→", "—", "½")
RAW = ("\x1b[31m", "\r\n", "\u2028", "\t", "\x07", "\ufeff", "\u202e")
"""What a pipe is given as it is; a terminal is given something harmless instead, which is tested elsewhere."""


class Words:
    """The words of one conversation; no two are equal."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._codes = codes(draw)

    def word(self) -> str:
        """Return a word that was never said."""
        word = next(self._codes)
        chance = self._draw.random()
        if chance < 0.2:
            word += self._draw.choice(FOREIGN)
        elif chance < 0.25:
            word += self._draw.choice(SIGNS)
        return word

    def question(self) -> str:
        """Return what a person asks, on one line."""
        return f"{self.sentence(self._draw.randint(2, 6))}?"

    def sentence(self, length: int) -> str:
        """Return words with spaces between them."""
        return " ".join(self.word() for _ in range(length))

    def markdown(self, blocks: int, *, raw: bool) -> str:
        """Return an answer in Markdown; `raw` adds what only a pipe is given unchanged."""
        return "\n\n".join(self._block(raw=raw) for _ in range(blocks))

    def _block(self, *, raw: bool) -> str:
        words = self.sentence(self._draw.randint(3, 14))
        plain = [
            words,
            f"# {self.sentence(3)}",
            f"{self.word()} **{words}** *{self.word()}* `{self.word()}`",
            "\n".join(f"- {self.sentence(2)}" for _ in range(3)),
            "\n".join(f"{number}. {self.sentence(2)}" for number in (1, 2)),
            f"```\n{self.sentence(2)}\n    {self.word()}\n```",
            f"> {words}",
        ]
        block = self._draw.choice(plain)
        return block + self._draw.choice(RAW) + self.word() if raw and self._draw.random() < 0.3 else block

    def pieces(self, text: str) -> tuple[str, ...]:
        """Return a text as a model may stream it: pieces that end anywhere."""
        pieces: list[str] = []
        start = 0
        while start < len(text):
            end = start + self._draw.choice((1, 3, 5, 8, 8, 13, 40))
            pieces.append(text[start:end])
            start = end
        return tuple(pieces)


def codes(draw: random.Random) -> Iterator[str]:
    """Yield letters that stand for no other word, in no order that could be guessed."""
    size = len(LETTERS) ** CODE_LETTERS
    step = draw.randrange(1, size)
    while math.gcd(step, size) > 1:
        step += 1
    begin = draw.randrange(size)
    for number in range(size):
        yield spelled((begin + number * step) % size)


def spelled(number: int) -> str:
    """Return a number in letters."""
    letters = []
    for _ in range(CODE_LETTERS):
        number, letter = divmod(number, len(LETTERS))
        letters.append(LETTERS[letter])
    return "".join(letters)


def letters(text: str) -> str:
    """Return what of a text no rendering changes: its letters and digits, without spaces, marks and signs."""
    return "".join(filter(str.isalnum, text))
