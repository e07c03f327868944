"""What an event of a chat says, and what it answers. Whether an answer counts is decided by the record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.arrivals import ArrivalKind
from hansard.domain.chats import message_id_of
from hansard.domain.messages import Message, Part, Role, Text, TextForm
from hansard.domain.questions import CHOICES, Given, read_command, read_words
from hansard.intake.commands import unescaped
from hansard.ports.channel import EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hansard.intake.chat_commands import Origin
    from hansard.intake.commands import CommandLine
    from hansard.ports.channel import Event

COMMANDS = frozenset({"yes", "no"})
"""Commands that answer. They are carried out in the commit that records them."""


def answers(event: Event, parsed: CommandLine | None) -> bool:
    """Return whether an event can be nothing but an answer: a choice beside a post, or a command."""
    return event.kind is EventKind.ANSWER or (parsed is not None and parsed.name in COMMANDS)


def read_answer(event: Event, parsed: CommandLine | None, manner: ArrivalKind, account: str) -> Given | None:
    """Return what an event answers; None when it says something else. What was edited or passed on answers nothing."""
    if manner not in {ArrivalKind.ASK, ArrivalKind.ANSWER} or event.kind is EventKind.EDIT or event.is_forwarded:
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


def mention_of(account: str) -> re.Pattern[str]:
    """Return how a command begins that is said to the agent by its name."""
    localpart = account.removeprefix("@").partition(":")[0]
    names = "|".join(re.escape(name) for name in (account, localpart) if name)
    return re.compile(rf"\s*@?(?:{names})\s*[:,]?\s+(?=/)", re.IGNORECASE)


def by_room(events: Sequence[Event]) -> list[list[Event]]:
    """Return events by the room in which they happened, its threads included; in each, in their order."""
    rooms: dict[str, list[Event]] = {}
    for event in events:
        rooms.setdefault(event.chat.partition(":thread:")[0], []).append(event)
    return list(rooms.values())


def message_of(event: Event, place: Origin, parts: list[Part], manner: ArrivalKind, *, is_command: bool) -> Message:
    """Return the message that an event becomes."""
    return Message(
        id=message_id_of(place.channel, place.account, event.id),
        role=Role.NOTICE if is_command or event.is_unverified else Role.USER,
        parts=tuple(parts),
        at_microseconds=event.sent_at_ms * 1000,
        author=event.sender,
        chat=event.chat,
        event_id=event.id,
        is_observed=manner is ArrivalKind.OBSERVED,
        is_unverified=event.is_unverified,
    )


def text_parts(event: Event) -> list[Part]:
    """Return what an event says, all of it; nothing for a file without a caption."""
    if not event.text and event.files:
        return []
    quoted = [Text(event.quoted, TextForm.QUOTED)] if event.quoted else []
    formatted = [Text(f"\n\n{event.formatted}", TextForm.FORMATTED)] if event.formatted else []
    said = Text(event.words, TextForm.FORWARDED) if event.is_forwarded else Text(unescaped(event.words))
    return [*quoted, said, *formatted]
