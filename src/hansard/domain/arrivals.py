"""What comes in: where it comes from, what was said and how, and what decisions about it go by.

Decisions that depend on the record are made there, in the commit that acts on them. So an origin brings along what the
settings say of a person.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from hansard.domain.access import Action, Standing
from hansard.domain.budgets import Quota
from hansard.domain.chats import Began, person_owner
from hansard.domain.messages import Message
from hansard.domain.notices import Wording
from hansard.domain.questions import Given
from hansard.domain.settings import Busy, Pairing, Resets


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an event comes from, and who caused it. The terminal has no event and no chat."""

    channel: str = ""
    account: str = ""
    event_id: str = ""
    """The platform's id: an event that has one is received once."""
    key: str = ""
    """Where the conversation takes place: it leads to the session. Empty: each message names its session."""
    chat: str = ""
    """Where it happened, and where people are told what has to be said about it."""
    owner: str = ""
    """The owner of a session that begins here."""
    identity: str = ""
    """The person, as the platform calls them."""
    standing: Standing = Standing.UNLISTED
    is_direct: bool = False
    """Whether only this person and the agent are in the chat."""
    cursor: str = ""
    """How far the platform's stream is received with this; empty: not yet further."""

    @property
    def is_local(self) -> bool:
        """Whether it comes from this machine: no chat leads to a session, so each message names its own."""
        return not self.key

    @property
    def event(self) -> tuple[str, str, str]:
        return self.channel, self.account, self.event_id

    @property
    def person(self) -> str:
        return person_owner(self.channel, self.identity)


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


UNANSWERED = frozenset({ArrivalKind.LATE, ArrivalKind.UNVERIFIED})
"""Nothing is done about what was said so, and people are told by the notice of the same name."""
SILENT = frozenset({ArrivalKind.OBSERVED, ArrivalKind.KEPT, ArrivalKind.ANSWER})
"""A stranger who speaks so is shown no code."""
ACTIONS = {
    ArrivalKind.ASK: Action.TALK,
    ArrivalKind.LATE: Action.TALK,
    ArrivalKind.KEPT: Action.TALK,
    ArrivalKind.UNVERIFIED: Action.TALK,
    ArrivalKind.OBSERVED: Action.BE_OBSERVED,
    ArrivalKind.COMMAND: Action.COMMAND,
    ArrivalKind.NEW: Action.COMMAND,
    ArrivalKind.ANSWER: Action.TALK,
}


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message that is still on the platform. `file` is its name in the message's part."""

    file: str
    reference: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was said: one message in a chat, or messages that name their sessions."""

    origin: Origin = Origin()
    said: tuple[tuple[str, Message], ...]
    """Each message with its session; empty: the one that the origin's key leads to."""
    kind: ArrivalKind = ArrivalKind.ASK
    busy: Busy = Busy.INTERRUPT
    title: str | None = None
    """Of the new session, with NEW."""
    new_ids: tuple[str, str] | None = None
    """Of the new session and of the notice about it. Whoever may send the same arrival again gives them."""
    told: str = ""
    """What the person is told of a new session, with {new} and {old}; empty: the chat's own wording."""
    notes: tuple[str, ...] = ()
    """What the person has to know about it, such as that a file was not kept."""
    files: tuple[Awaited, ...] = ()
    """Files of the message that are to be fetched."""
    answer: Given | None = None
    """What it answers, if a question waits for that; with ANSWER it is nothing else."""
    otherwise: ArrivalKind | None = None
    """How an ANSWER was said that answers no question; None: nothing of it is kept."""
    reopens: bool = False
    """Whether it is said in an ended session as well, which is open again then. In a chat it always is."""


class RouteChange(NamedTuple):
    """A conversation goes on in another session from now on."""

    reason: Began
    old: str
    new: str

    def told(self, words: Wording) -> str:
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


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """One inbound platform event; the three together are unique."""

    channel: str
    account: str
    event_id: str


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a platform's stream has been received."""

    channel: str
    account: str
    value: str
