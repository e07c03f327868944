"""Entries about what waits for a platform, and what people brought. A part of `hansard.domain.entries`, which see."""

from __future__ import annotations

from hansard.domain.entry_body import Body


class IntakeHeld(Body, frozen=True):
    """An event came that cannot be read yet, as its keys are missing. It is kept whole, and tried again."""

    channel: str
    account: str
    event_id: str
    chat: str
    raw: str
    identity: str = ""


class InvitationReceived(Body, frozen=True):
    """Somebody asked the agent into a chat, and so it is to be answered. `text` is said with a refusal.

    `source`: whose answers this one takes turns with. `replaces`: the chat that was given up for this one, and whose
    people are told.
    """

    channel: str
    account: str
    event_id: str
    chat: str
    identity: str
    accept: bool
    text: str = ""
    source: str = ""
    replaces: str = ""


class InvitationAnswered(Body, frozen=True):
    """An invitation waits no longer. `failure`: why it could not be answered; empty when it was."""

    channel: str
    account: str
    event_id: str
    failure: str = ""


class FileAwaited(Body, frozen=True):
    """A file of a message is still on the platform, and is to be fetched. Of the home journal.

    `reference` is the channel's own, with keys if the file is encrypted: it stands here alone, and in no export.
    `chat`: where people are told when it cannot be fetched; empty: nobody is.
    """

    channel: str
    account: str
    session_id: str
    message_id: str
    file: str
    person: str
    reference: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size_bytes: int = 0
    chat: str = ""


class FileSettled(Body, frozen=True):
    """A file waits no longer: it was fetched, or it cannot be. What became of it stands in its session."""

    session_id: str
    message_id: str
    file: str
    person: str = ""
    size_bytes: int = 0


class FileFetched(Body, frozen=True):
    """A file of a message is kept from now on, in `blob`; or, in `failure`, why it is not. `file`: which one."""

    message_id: str
    file: str
    blob: str = ""
    size_bytes: int = 0
    failure: str = ""


class QuotaUsed(Body, frozen=True):
    """A person brought files, or began sessions. So much of it is allowed in an hour."""

    person: str
    files: int = 0
    sessions: int = 0
