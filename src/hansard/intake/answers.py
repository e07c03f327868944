"""What an event of a chat answers, as far as it says so. Whether that counts is decided by the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.domain.arrivals import Manner
from hansard.domain.questions import CHOICES, Given, read_command, read_words
from hansard.ports.channel import EventKind

if TYPE_CHECKING:
    from hansard.intake.commands import Parsed
    from hansard.ports.channel import Event

COMMANDS = frozenset({"yes", "no"})
"""Commands that answer. They are carried out in the commit that records them."""


def answers(event: Event, parsed: Parsed | None) -> bool:
    """Return whether an event can be nothing but an answer: a choice beside a post, or a command."""
    return event.kind is EventKind.ANSWER or (parsed is not None and parsed.name in COMMANDS)


def read_answer(event: Event, parsed: Parsed | None, manner: Manner, account: str) -> Given | None:
    """Return what an event answers; None when it says something else. What was edited or passed on answers nothing."""
    if manner not in {Manner.ASK, Manner.ANSWER} or event.kind is EventKind.EDIT or event.is_forwarded:
        return None
    if event.kind is EventKind.ANSWER:
        return Given(scope=CHOICES[event.choice], about=event.about, is_plain=False)
    if parsed is not None:
        return read_command(parsed.argument, yes=parsed.name == "yes")
    given = read_words(event.words, account)
    return msgspec.structs.replace(given, about=event.reply_to) if given is not None else None


def is_choice(event: Event) -> bool:
    """Return whether a choice is one that questions offer."""
    return event.choice in CHOICES
