"""Questions to people about tool calls: what counts as a yes, and what as a no."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import msgspec

YES: Final = frozenset({"yes", "y", "yes please", "ok", "okay", "allow", "ja", "oui", "si", "sí", "👍"})
NO: Final = frozenset({"no", "n", "no thanks", "deny", "nein", "non", "nope", "👎"})
"""Words that answer, on their own, whatever their case and the point after them. Anything else is something else."""

WORDS_CHARACTERS_MAX: Final = 20
"""A longer text is not looked at: it says something else."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """How a question ended. `by` is who answered; empty when time was over, or the turn."""

    yes: bool
    by: str = ""
    reason: str = ""


@cache
def address_of(account: str) -> re.Pattern[str]:
    """Return how a message begins that names the agent: by its account, or by the first part of it."""
    name = account.removeprefix("@")
    names = {name, name.partition(":")[0]}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"\s*@?(?:{either})(?:\s*[:,]\s*|\s+)", re.IGNORECASE)


def answer_of(text: str, account: str = "") -> bool | None:
    """Return whether a text says yes or no, maybe to the agent by its name; None when it says something else."""
    if account:
        text = address_of(account).sub("", text, count=1) if address_of(account).match(text) else text
    if len(text) > WORDS_CHARACTERS_MAX:
        return None
    words = " ".join(text.lower().replace(",", " ").split()).strip(" .!")
    return True if words in YES else False if words in NO else None
