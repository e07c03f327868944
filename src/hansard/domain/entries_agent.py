"""Entries about what the agent is asked for, may do and remembers. A part of `hansard.domain.entries`, which see."""

from __future__ import annotations

from hansard.domain.entry_body import Body
from hansard.domain.permissions import Reason, Verdict
from hansard.domain.turns import By


class MemoryNoted(Body, frozen=True):
    """Something is to be remembered for an owner: told to the model in sessions that begin from now on."""

    note_id: str
    owner: str
    text: str
    by: str = ""


class MemoryEdited(Body, frozen=True):
    """A note says something else from now on."""

    note_id: str
    text: str
    by: str = ""


class MemoryForgotten(Body, frozen=True):
    """A note is told to no model any more."""

    note_id: str
    by: str = ""


class FileTranscribed(Body, frozen=True):
    """A voice note of a message was written down by a model; or, in `failure`, why it was not. It is tried once."""

    message_id: str
    blob: str
    text: str = ""
    model: str = ""
    failure: str = ""


class TurnAsked(Body, frozen=True):
    """More people ask for a turn that waits, or steer the one that runs. Their rights count from here on, too."""

    turn_id: str
    by: tuple[By, ...]


class QuestionAsked(Body, frozen=True):
    """A turn waits for a yes before it runs a call. `message_id` is the notice that asks.

    `people`: who may answer, and in which chat; both are empty at the terminal. `call_hash` is of the exact call,
    `scopes` are the answers that are offered. Questions of older versions have neither.
    """

    turn_id: str
    call_id: str
    message_id: str
    people: tuple[tuple[str, str], ...]
    tool: str = ""
    call_hash: str = ""
    code: str = ""
    scopes: tuple[str, ...] = ()


class QuestionShown(Body, frozen=True):
    """The terminal has drawn a question. In chats its delivery says so."""

    turn_id: str
    message_id: str


class ToolDecided(Body, frozen=True):
    """What becomes of a call, by the rules and askers of that moment, with a reason for each asker."""

    turn_id: str
    call_id: str
    tool: str
    verdict: Verdict
    reasons: tuple[Reason, ...] = ()


class QuestionAnswered(Body, frozen=True):
    """A question is over. `by` is who answered, in `message_id`; empty when nobody did in time.

    `number` counts the questions of the turn. `author` and `chat` are the person's, as the question named them.
    """

    turn_id: str
    call_id: str
    yes: bool
    by: str = ""
    message_id: str = ""
    reason: str = ""
    scope: str = ""
    number: int = 0
    tool: str = ""
    call_hash: str = ""
    author: str = ""
    chat: str = ""


class QuestionGuessed(Body, frozen=True):
    """Somebody gave a code that fits no question which waits for them."""

    person: str
    chat: str = ""


class PermissionGranted(Body, frozen=True):
    """A tool is allowed beyond one call: this tool, this person, this place; only in a session, if one is named."""

    permission_id: str
    tool: str
    person: str
    place: str
    session_id: str = ""
    by: str = ""


class PermissionRevoked(Body, frozen=True):
    """A permission counts no more."""

    permission_id: str
    by: str = ""
