"""What a channel brings, as the record takes it: values between intake and record.

Decisions that depend on what is in the record are made there, in the commit that acts on them; so an arrival brings
along what the settings say.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from hansard.domain.access import Standing
from hansard.domain.budgets import Quota
from hansard.domain.chats import Began
from hansard.domain.messages import Message
from hansard.domain.notices import Wording
from hansard.domain.questions import Given
from hansard.domain.settings import Busy, Pairing, Resets


class ArrivalKind(StrEnum):
    """How something was said, and so what becomes of it."""

    ASK = "ask"
    """To the agent: a turn is to answer it."""
    LATE = "late"
    """To the agent, too long ago: it is recorded, and the person is told that nobody answers it."""
    KEPT = "kept"
    """To the agent, and not of a kind that is answered: it is recorded."""
    OBSERVED = "observed"
    """Among people."""
    UNVERIFIED = "unverified"
    """To the agent, by an unverified sender: it is recorded, and the chat is told that nothing is done about it."""
    COMMAND = "command"
    """To Hansard: what it does follows in other commits."""
    NEW = "new"
    """To Hansard: a new session is to begin, in this commit."""
    ANSWER = "answer"
    """To Hansard: what a turn asks is answered, in this commit."""


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message that is still on the platform. `file` is its name in the message's part."""

    file: str
    reference: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person said in a chat."""

    channel: str
    account: str
    event_id: str
    key: str
    """Where the conversation takes place: it leads to the session."""
    chat: str
    """Where it was said, and where people are told what has to be said about it."""
    owner: str
    """Whom a session belongs to that begins here."""
    identity: str
    """Who said it."""
    standing: Standing = Standing.UNLISTED
    message: Message
    manner: ArrivalKind = ArrivalKind.ASK
    busy: Busy = Busy.INTERRUPT
    title: str | None = None
    """Of the new session, with NEW."""
    notes: tuple[str, ...] = ()
    """What the person has to know about it, such as that a file was not kept."""
    files: tuple[Awaited, ...] = ()
    """Files of the message that are to be fetched."""
    cursor: str = ""
    """How far the platform's stream is received with this; empty: not yet further."""
    answer: Given | None = None
    """What it answers, if a question waits for that; with ANSWER it is nothing else."""
    is_direct: bool = False
    """Whether only this person and the agent are in the chat."""
    otherwise: ArrivalKind | None = None
    """How an ANSWER was said that answers no question; None: nothing of it is kept."""


class RouteChange(NamedTuple):
    """A chat leads to another session from now on."""

    reason: Began
    old: str
    new: str

    def told(self, words: Wording) -> str:
        """Return what people in the chat are told of it."""
        template: str = getattr(words, f"session_{self.reason}")
        began = template.format(new=self.new)
        return f"{began} {words.session_kept.format(old=self.old)}" if self.old else began


class IntakeRules(NamedTuple):
    """What decisions in the record go by."""

    resets: Resets = Resets()
    pairing: Pairing = Pairing()
    quota: Quota = Quota()


class ArrivalOutcome(StrEnum):
    """What became of an arrival."""

    TAKEN = "taken"
    KNOWN = "known"
    """It was received before; this is what it became then."""
    ASKED = "asked"
    """By a stranger, who was shown a code."""
    REFUSED = "refused"
    """By somebody who may not: nothing of it was recorded."""


class Received(NamedTuple):
    """What became of an arrival, and the turn that waits to answer it."""

    outcome: ArrivalOutcome
    session_id: str = ""
    message_id: str = ""
    turn_id: str = ""
    moved: RouteChange | None = None


class MessageChange(msgspec.Struct, frozen=True, kw_only=True):
    """A person edited or deleted, on the platform, what they had said."""

    channel: str
    account: str
    event_id: str
    about: str
    """The event that it changes."""
    identity: str
    standing: Standing = Standing.UNLISTED
    text: str = ""
    cursor: str = ""


class HeldEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that cannot be read yet."""

    channel: str
    account: str
    event_id: str
    chat: str
    raw: str
    identity: str
    standing: Standing = Standing.UNLISTED
    tells: bool = False
    """Whether people in the chat are told that something could not be read: once, until it is."""
    cursor: str = ""


class Invited(NamedTuple):
    """Somebody who asked the agent into a chat and may not: the channel, who, and what the settings say of them."""

    channel: str
    identity: str
    standing: Standing


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody asks the agent into a chat, or gave a chat up for another one."""

    channel: str
    account: str
    event_id: str
    chat: str
    """Where the agent is to come to."""
    identity: str
    standing: Standing = Standing.UNLISTED
    replaces: str = ""
    """The chat that was given up for it; empty when somebody just invites."""
    cursor: str = ""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a command: its reply, and where the chat leads afterwards."""

    key: str
    chat: str
    owner: str
    session_id: str
    reply_id: str
    reply: str = ""
    reason: str = ""
    """Why the chat leads elsewhere; empty: it stays where it is."""
    channel: str
    account: str
    event_id: str
    """The event in which the command came."""
    identity: str = ""
    """Who gave it."""
    cursor: str = ""


class Passing(msgspec.Struct, frozen=True, kw_only=True):
    """An event of which nothing is kept, but maybe something is told about it in its chat."""

    channel: str
    account: str
    event_id: str = ""
    chat: str = ""
    text: str = ""
    cursor: str = ""
    is_told_at_home: bool = False
    """The chat's session cannot be written, so that the text is recorded in the home journal."""
