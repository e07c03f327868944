"""What a person says: whether it is a command, and how words get into a session that the person names.

A text is a command only if its first word is a slash and letters; everything else is said to the model. Sessions are
named at the terminal, by a command, by `hansard -p`; what is said in a chat comes by `hansard.intake.receive`.

Reads: the session's setting `busy`. Writes: the message, the queued turn and what becomes of the running one, in one
commit (L2); an ended session is open again in the same one.
Invariants: whoever is told that a message was taken finds it in the record.
On crash: the message and its queued turn are there, or neither is and nobody was told otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from hansard.domain.arrivals import Arrival
from hansard.domain.messages import Message, join_own_text
from hansard.domain.settings import Busy
from hansard.errors import OutcomeUnknown
from hansard.record.api import Record
from hansard.record.intake.events import Received
from hansard.record.questions import read_words

FIRST_WORD = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?\Z", re.DOTALL)

ATTEMPTS_MAX = 2
"""Tries while nobody knows whether a message was written; each waits as long as the record's patience."""


class CommandLine(NamedTuple):
    """A line that is a command."""

    name: str
    argument: str


def parse(text: str) -> CommandLine | None:
    """Return the command that a text is, or None when it is meant for the model."""
    match = FIRST_WORD.fullmatch(text.strip())
    return None if match is None else CommandLine(match[1].lower(), (match[2] or "").strip())


def unescaped(text: str) -> str:
    """Return a text as it is meant: two slashes at its beginning stand for one that begins no command."""
    return text[1:] if text.startswith("//") else text


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """What was said is recorded: the position before it, and the turn that answers it.

    `waits`: another turn ran at that moment. There is no turn when it answered a question of the one that runs.
    """

    after: str
    turn_id: str
    waits: bool = False


async def speak(
    record: Record, session_id: str, messages: Sequence[Message], busy: Busy, *, answers: bool = False
) -> Spoken:
    """Record messages and ask for a turn. An ended session is reopened.

    `answers`: whoever speaks sees the session, so that a plain yes answers what its turn asks.
    """
    said = tuple((session_id, message) for message in messages)
    given = read_words(join_own_text(messages[0].parts)) if answers and len(messages) == 1 else None
    received = await receive_once(record, Arrival(said=said, busy=busy, answer=given, reopens=True))
    first = (*received.told, *received.entries)[0]
    return Spoken(after=str(first.seq - 1), turn_id=received.turn_id, waits=received.waits)


async def receive_once(record: Record, arrival: Arrival) -> Received:
    """Record it, once: whether it was written after all is settled by repeating the same ids (L7)."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await record.intake.receive(arrival)
        except OutcomeUnknown:
            continue
    return await record.intake.receive(arrival)


async def busy_of(record: Record, session_id: str, otherwise: Busy) -> Busy:
    """Return what this session does with messages that come while a turn runs."""
    setting = (await record.conversation(session_id)).settings.get("busy", "")
    return Busy(setting) if setting in set(Busy) else otherwise
