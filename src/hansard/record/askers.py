"""Whose permission the calls of a turn need: pure rules over a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.messages import Role
from hansard.domain.turns import How, joined
from hansard.record.conversation import askers_of, is_said

if TYPE_CHECKING:
    from hansard.domain.messages import Message
    from hansard.domain.turns import By
    from hansard.record.conversation import Conversation


def needed_of(conversation: Conversation, turn_id: str) -> tuple[By, ...]:
    """Return whose permission the calls of a turn need: everybody who asked for it or said what it answers.

    The two differ when somebody repeats another person's request (`/retry`). A turn that answers only messages without
    an author, or imported ones, gives an empty result: it has nobody's rights, and no tool is run.
    """
    by = conversation.by.get(turn_id, ())
    answered = answered_by(conversation, turn_id)
    authors = askers_of(answered)
    return joined(by, authors) if authors or not answered else ()


def is_unattributed(conversation: Conversation, turn_id: str) -> bool:
    """Return whether a turn answers only what was said before Hansard recorded who says something."""
    by = conversation.by.get(turn_id, ())
    if not by:
        return turn_id in conversation.unattributed
    answered = answered_by(conversation, turn_id)
    is_again = any(each.how is How.RETRY for each in by)
    return is_again and bool(answered) and not any(message.author or message.is_imported for message in answered)


def answered_by(conversation: Conversation, turn_id: str) -> list[Message]:
    """Return what people said to the agent right before a turn's own words: what it answers, maybe once more."""
    placed = conversation.placed
    own = (index for index, each in enumerate(placed) if each.turn_id == turn_id and not is_said(each.message))
    end = start = next(own, len(placed))
    while start and is_said(placed[start - 1].message):
        start -= 1
    said = [each.message for each in placed[start:end]]
    return [message for message in said if message.role == Role.USER and not message.is_observed]
