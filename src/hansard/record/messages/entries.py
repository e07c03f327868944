"""The entries of messages. The order of fields is hashed: it never changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.messages import File, Part, Reasoning, Role, Status, Text, ToolResult, join_text
from hansard.journal.concepts import Body, Concept, Seal
from hansard.journal.follow import Shapes

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES = Concept("messages", "hansard.record")

SHOWN_ROLES = frozenset({Role.ASSISTANT, Role.NOTICE})
"""What is said to people."""


def count_message(body: MessageAdded | MessageOpened) -> int:
    """Notices are not counted as messages."""
    return int(body.role != Role.NOTICE)


def is_projected(body: MessageAdded) -> bool:
    """Return whether a whole message changes a table: most have no chat, and nothing runs for them."""
    return not body.imported and (bool(body.chat) or bool(body.author) or body.role in SHOWN_ROLES)


def list_blobs(body: MessageAdded | MessageSealed) -> list[str]:
    """Return the blobs of a message's files and results."""
    return [part.blob for part in body.parts if isinstance(part, File | ToolResult)]


def streamed_pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the (part kind, text) pieces of a sealed message that were streamed as chunks, in order."""
    return [
        ("text" if isinstance(part, Text) else "reasoning", part.text)
        for part in parts
        if isinstance(part, Text | Reasoning)
    ]


def read_seal(body: MessageSealed) -> Seal:
    """Return which stream a seal ends, and its text."""
    return Seal(body.message_id, streamed_pieces(body.parts))


@MESSAGES.entry(
    "message.added",
    labels={"said_at": 0, "imported": False, "follows": False},
    counts=count_message,
    projected_if=is_projected,
    keeps_memo=True,
    blobs=list_blobs,
)
class MessageAdded(Body, frozen=True):
    """A whole message. `said_at` is the time of the event where it differs from the time of writing."""

    role: Role
    parts: tuple[Part, ...]
    status: Status = Status.COMPLETE
    said_at: int = 0
    author: str = ""
    chat: str = ""
    """Where it was said, or where it is to be shown: a chat of a channel. Empty: in a terminal or by a program."""
    event_id: str = ""  # what the platform calls the event in which a person said it
    observed: bool = False  # it was said among people, not to the agent
    imported: bool = False  # said elsewhere, it came by an import: nobody is shown it, or answered, in its chat
    follows: bool = False
    """Whether its chat only follows the session: it is shown there if, at that moment, the chat still does."""
    unverified: bool = False  # nobody could know that its author wrote it: no model is given it


@MESSAGES.entry("message.opened", counts=count_message, opens=True)
class MessageOpened(Body, frozen=True):
    """An assistant's message begins; its chunks follow. The entry's id is the message's."""

    turn_id: str
    role: Role = Role.ASSISTANT


@MESSAGES.entry("message.sealed", seals=read_seal, blobs=list_blobs)
class MessageSealed(Body, frozen=True):
    """An open message is finished: its parts are the concatenation of its chunks, byte for byte."""

    message_id: str
    status: Status
    parts: tuple[Part, ...]


@MESSAGES.entry("message.edited")
class MessageEdited(Body, frozen=True):
    """A person changed on the platform what they had said. The words before stay in the record."""

    message_id: str
    parts: tuple[Part, ...]
    event_id: str = ""


@MESSAGES.entry("message.retracted")
class MessageRetracted(Body, frozen=True):
    """What a person had said was deleted on the platform. The words stay in the record."""

    message_id: str
    event_id: str = ""


@MESSAGES.entry("messages.undone")
class MessagesUndone(Body, frozen=True):
    """Messages were taken back: they leave the transcript and the context, not the record."""

    message_ids: tuple[str, ...]


@MESSAGES.entry("messages.restored")
class MessagesRestored(Body, frozen=True):
    """Messages that were taken back are there again, each at its old place. The last word on a message counts."""

    message_ids: tuple[str, ...]


@MESSAGES.entry("file.fetched", blobs=lambda body: [body.blob])
class FileFetched(Body, frozen=True):
    """A file of a message is kept from now on, in `blob`; or, in `failure`, why it is not. `file`: which one."""

    message_id: str
    file: str
    blob: str = ""
    size_bytes: int = 0
    failure: str = ""


@MESSAGES.entry("file.transcribed")
class FileTranscribed(Body, frozen=True):
    """A voice note of a message was written down by a model; or, in `failure`, why it was not. It is tried once."""

    message_id: str
    blob: str
    text: str = ""
    model: str = ""
    failure: str = ""


def is_spoken(body: MessageAdded) -> bool:
    """Return whether a person said this to the agent, here."""
    return bool(body.author) and body.role == Role.USER and not body.observed and not body.imported


# Entries and chunks as callers see them. Their field names are what `--json` prints.


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One immutable fact of a journal."""

    id: str
    session_id: str
    seq: int
    kind: str
    body: Body
    at_microseconds: int = 0
    position: str = "0"

    @property
    def text(self) -> str:
        """The words of a whole message; empty for everything else, openings and seals included."""
        return join_text(self.body.parts) if isinstance(self.body, MessageAdded) else ""

    @property
    def at(self) -> datetime:
        """When it was recorded. A label: order is `seq`."""
        return datetime.fromtimestamp(self.at_microseconds / 1_000_000, UTC)


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of an open message, from `offset` on, counted in UTF-8 bytes of all its chunks."""

    message_id: str
    offset: int
    text: str
    position: str
    part: str = "text"


def entry_value(session_id: str, seq: int, entry_id: str, kind: str, at: int, body: Body, position: str = "") -> Entry:  # noqa: PLR0917
    """Return an entry as callers see it."""
    return Entry(
        id=entry_id,
        session_id=session_id,
        seq=seq,
        kind=kind,
        body=body,
        at_microseconds=at,
        position=position or str(seq),
    )


def chunk(stream_id: str, offset: int, text: str, position: str, part: str) -> Chunk:
    """Return a piece of an open message as callers see it."""
    return Chunk(message_id=stream_id, offset=offset, text=text, position=position, part=part)


SHAPES: Shapes[Entry | Chunk] = Shapes(entry_value, chunk)
