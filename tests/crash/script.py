"""What the crash ring's programs say: every text follows from the run's seed and the message's id alone.

So a check can tell what a message must hold without having been told by the process that died.
"""

from __future__ import annotations

import random

SESSIONS = ("20260101-120000-alpha", "20260102-120000-bravo", "shared-charlie")
"""Shared by every writer of a round; two with a date in their id, one without."""

SPARE = tuple(f"spare-{number}" for number in range(1, 6))
"""Created by every writer and then left alone: only an opening of the record repairs their logs."""

ROUTED = "routed-start"
KEY = "matrix:room:!crash:example.org"
CHANNEL = "matrix"
ROUTE_OWNER = "room:matrix:!crash:example.org"

WORDS = ("Hansard", "records", "naïve", "Übung", "記録", "🗳️", "\n", "\u2028", '"quoted"', "\\n", "tab\t", "…", "end.")

LARGE_SHARE = 0.03
LARGE_TIMES = 300
"""A few messages are so large that a kill can cut the one write that logs them."""


def said(seed: int, message_id: str) -> str:
    """Return what a person says in a message."""
    draw = random.Random(f"{seed} said {message_id}")
    words = " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 30)))
    return f"{message_id}: " + words * (LARGE_TIMES if draw.random() < LARGE_SHARE else 1)


def pieces(seed: int, message_id: str) -> list[str]:
    """Return the pieces in which a reply is streamed."""
    draw = random.Random(f"{seed} pieces {message_id}")
    words = [draw.choice(WORDS) for _ in range(draw.randint(5, 60))]
    return [f"{message_id}: ", *(f"{word} " for word in words)]


def reply(seed: int, message_id: str) -> str:
    """Return the whole of a reply that nothing interrupted."""
    return "".join(pieces(seed, message_id))
