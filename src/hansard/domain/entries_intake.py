"""Entries about what is still to be done on a platform. A part of `hansard.domain.entries`, which see."""

from __future__ import annotations

from hansard.domain.entry_body import Body


class InvitationReceived(Body, frozen=True):
    """Somebody asked the agent into a chat, and so it is to be answered. `reason` is said with a refusal.

    `source`: whose answers this one takes turns with. `replaces`: the chat that was given up for this one, and whose
    people are told.
    """

    channel: str
    account: str
    event_id: str
    chat: str
    identity: str
    accept: bool
    reason: str = ""
    source: str = ""
    replaces: str = ""


class InvitationAnswered(Body, frozen=True):
    """An invitation waits no longer. `failure`: why it could not be answered; empty when it was."""

    channel: str
    account: str
    event_id: str
    failure: str = ""
