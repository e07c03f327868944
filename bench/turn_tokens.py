"""Tokens that tell their own times: what the measured side and the server have in common.

A token holds when its request had come and when it was sent, by CLOCK_MONOTONIC, which all processes here share.
"""

from __future__ import annotations

import time
from typing import NamedTuple

_STAMP_DIGITS = 12
TOKEN_BYTES = 2 * _STAMP_DIGITS + 2
PLACEHOLDER = "arrived-----.sent-------- "
"""Where the times go when a token is sent. As long as they are: the frame around it is made before."""

TOKENS_MAX = 100_000


class Wanted(NamedTuple):
    """An answer: how long and how fast. What is said asks the server for it."""

    tokens: int
    tokens_per_second: float

    @property
    def words(self) -> str:
        """What to say."""
        return f"tokens-{self.tokens}-rate-{self.tokens_per_second:g}"

    @property
    def seconds(self) -> float:
        """How long it takes from the first token to the last when nothing is late."""
        return (self.tokens - 1) / self.tokens_per_second

    @classmethod
    def of_words(cls, words: str) -> Wanted:
        """Return what is asked for."""
        _, tokens, _, rate = words.split("-")
        return cls(min(int(tokens), TOKENS_MAX), float(rate))


class Token(NamedTuple):
    """One token: when its request had come, when it was sent, when it was seen. Microseconds."""

    arrived_us: int
    sent_us: int
    seen_us: int


class Tokens:
    """Tokens out of text, however that was cut or joined on its way."""

    def __init__(self) -> None:
        self.seen: list[Token] = []
        self._rest = ""

    def take(self, text: str) -> None:
        """Take a piece of an answer that is seen now."""
        seen_us = now_us()
        text = self._rest + text
        whole = len(text) - len(text) % TOKEN_BYTES
        for at in range(0, whole, TOKEN_BYTES):
            arrived, _, sent = text[at : at + TOKEN_BYTES].partition(".")
            self.seen.append(Token(int(arrived, 16), int(sent, 16), seen_us))
        self._rest = text[whole:]


def stamp(arrived_us: int) -> str:
    """Return a token that is sent now."""
    return f"{arrived_us:0{_STAMP_DIGITS}x}.{now_us():0{_STAMP_DIGITS}x} "


def now_us() -> int:
    """Return the time that all processes share."""
    return time.monotonic_ns() // 1000


assert len(PLACEHOLDER) == len(stamp(0)) == TOKEN_BYTES
