"""What is written: seeded English-like messages of about 200 bytes, the same for every subject.

Words vary, so that a peer's full-text index does the work that it does in life.
"""

import random
from collections.abc import Iterator

from worker_subject import Line

TEXT_BYTES = 200
_SYLLABLES = ("ba", "con", "de", "fi", "gra", "hel", "in", "ja", "ko", "lim", "mo", "nor", "pa", "qui", "ras", "ten")


def texts(seed: int) -> Iterator[str]:
    """Endless messages; the same seed gives the same ones."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(2000)]
    while True:
        text = " ".join(draw.choices(words, k=40))
        yield text[:TEXT_BYTES].ljust(TEXT_BYTES, ".")


def lines(count: int, *, seed: int, prefix: str) -> list[Line]:
    """This many messages of a conversation, user and assistant in turn."""
    source = texts(seed)
    return [(f"{prefix}-{n}", ("user", "assistant")[n % 2], next(source)) for n in range(count)]
