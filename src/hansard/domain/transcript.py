"""The fold of a session's entries into messages."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from hansard.domain.entries import (
    Body,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
)
from hansard.domain.entries_intake import FileFetched
from hansard.domain.messages import RETRACTED, File, Message, Part, Reasoning, Status, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PART_KINDS: dict[str, type[Text | Reasoning]] = {"text": Text, "reasoning": Reasoning}


def join_chunks(pieces: Iterable[tuple[str, str]]) -> tuple[Part, ...]:
    """Return the parts that (part kind, text) pieces add up to: one part for each run of a kind."""
    runs: list[tuple[str, list[str]]] = []
    for part, text in pieces:
        if runs and runs[-1][0] == part:
            runs[-1][1].append(text)
        else:
            runs.append((part, [text]))
    return tuple(PART_KINDS[part]("".join(texts)) for part, texts in runs)


def streamed_pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the (part kind, text) pieces of a sealed message that were streamed as chunks, in order."""
    return [
        ("text" if isinstance(part, Text) else "reasoning", part.text)
        for part in parts
        if isinstance(part, Text | Reasoning)
    ]


def same_words(parts: Sequence[Part], pieces: Iterable[tuple[str, str]]) -> bool:
    """Return whether parts say what was streamed, in the same order, however either is divided."""
    return runs_of(streamed_pieces(parts)) == runs_of(pieces)


def runs_of(pieces: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pieces with neighbours of one kind joined, and empty ones left out."""
    filled = [piece for piece in pieces if piece[1]]
    return [(part, "".join(text for _, text in run)) for part, run in groupby(filled, key=itemgetter(0))]


def edited(message: Message, parts: tuple[Part, ...]) -> Message:
    """Return a message with its author's later words; what was deleted stays so, and files stay."""
    if message.is_retracted:
        return message
    files = tuple(part for part in message.parts if isinstance(part, File))
    return msgspec.structs.replace(message, parts=(*parts, *files), is_edited=True)


def retracted(message: Message) -> Message:
    """Return what is seen of a message that was deleted in its chat."""
    return msgspec.structs.replace(message, parts=(Text(RETRACTED),), is_retracted=True)


def transcribed(message: Message, blob: str, text: str) -> Message:
    """Return a message with the words of one of its voice notes."""
    parts = tuple(
        msgspec.structs.replace(part, transcript=text) if isinstance(part, File) and part.blob == blob else part
        for part in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


def is_awaited(part: Part) -> bool:
    """Return whether a part is a file that is still being fetched."""
    return isinstance(part, File) and bool(part.fetch)


def fetched(message: Message, body: FileFetched) -> Message:
    """Return a message with a file that was fetched, or that cannot be: then it is only named."""
    parts = tuple(
        msgspec.structs.replace(part, blob=body.blob, size_bytes=body.size_bytes or part.size_bytes, fetch="")
        if isinstance(part, File) and part.fetch == body.file
        else part
        for part in message.parts
    )
    return msgspec.structs.replace(message, parts=parts)


class Changes:
    """What became of messages after they were said: a fold of the entries about them."""

    def __init__(self) -> None:
        """Nothing happened yet."""
        self.undone: set[str] = set()
        """Messages that are taken back now."""
        self.by_message: dict[str, list[MessageEdited | MessageRetracted]] = {}
        """What people changed in their chats, in order."""
        self.files: dict[str, list[FileFetched]] = {}
        """What became of files that were fetched after their messages."""

    def take(self, body: Body) -> None:
        """Take the next entry in."""
        if isinstance(body, MessagesUndone):
            self.undone.update(body.message_ids)
        elif isinstance(body, MessagesRestored):
            self.undone.difference_update(body.message_ids)
        elif isinstance(body, MessageEdited | MessageRetracted):
            self.by_message.setdefault(body.message_id, []).append(body)
        elif isinstance(body, FileFetched):
            self.files.setdefault(body.message_id, []).append(body)

    def of(self, message: Message) -> list[MessageEdited | MessageRetracted]:
        """Return the changes of a message. Only what was said in a chat can be changed there."""
        return self.by_message.get(message.id, []) if message.event_id else []

    def is_deleted(self, message: Message) -> bool:
        """Return whether a message was deleted in its chat."""
        return any(isinstance(each, MessageRetracted) for each in self.of(message))

    def with_files(self, message: Message) -> Message:
        """Return a message with its files as they are now. One that is still being fetched is only named."""
        for body in self.files.get(message.id, []):
            message = fetched(message, body)
        if not any(map(is_awaited, message.parts)):
            return message
        parts = [msgspec.structs.replace(part, fetch="") if isinstance(part, File) else part for part in message.parts]
        return msgspec.structs.replace(message, parts=tuple(parts))

    def last_words(self, message: Message) -> Message:
        """Return a message with the words that it has now; one that was deleted, with the last that it had, marked."""
        message = self.with_files(message)
        for change in self.of(message):
            if isinstance(change, MessageEdited):
                message = edited(message, change.parts)
            else:
                message = msgspec.structs.replace(message, is_retracted=True)
        return message


def said_message(entry_id: str, at: int, body: MessageAdded) -> Message:
    """Return the message of an entry, as it was said."""
    return Message(
        id=entry_id,
        role=body.role,
        parts=body.parts,
        status=body.status,
        at_microseconds=body.said_at or at,
        author=body.author,
        chat=body.chat,
        event_id=body.event_id,
        is_observed=body.observed,
        is_imported=body.imported,
        is_unverified=body.unverified,
    )


def fold_transcript(entries: Iterable[tuple[str, int, Body]], open_parts: tuple[Part, ...] = ()) -> list[Message]:
    """Return the messages of (id, time, body) entries; `open_parts` is what an unsealed message has so far.

    Messages that were undone, and not restored since, are left out. One that was edited has its latest words, and says
    so; one that was deleted in its chat is a fixed sentence.
    """
    messages: list[Message] = []
    said_at: dict[str, int] = {}
    open_at: dict[str, int] = {}
    undone: set[str] = set()
    for entry_id, at, body in entries:
        if isinstance(body, MessageAdded):
            if body.event_id:
                said_at[entry_id] = len(messages)
            messages.append(said_message(entry_id, at, body))
        elif isinstance(body, MessageOpened):
            open_at[entry_id] = len(messages)
            messages.append(
                Message(id=entry_id, role=body.role, parts=open_parts, status=Status.OPEN, at_microseconds=at)
            )
        elif isinstance(body, MessageSealed):
            place = open_at.pop(body.message_id)
            opened = messages[place]
            messages[place] = Message(
                id=opened.id,
                role=opened.role,
                parts=body.parts,
                status=body.status,
                at_microseconds=opened.at_microseconds,
            )
        elif isinstance(body, MessageEdited | MessageRetracted) and body.message_id in said_at:
            place = said_at[body.message_id]
            changed = (
                edited(messages[place], body.parts) if isinstance(body, MessageEdited) else retracted(messages[place])
            )
            messages[place] = changed
        elif isinstance(body, FileFetched) and body.message_id in said_at:
            place = said_at[body.message_id]
            messages[place] = fetched(messages[place], body)
        elif isinstance(body, MessagesUndone):
            undone.update(body.message_ids)
        elif isinstance(body, MessagesRestored):
            undone.difference_update(body.message_ids)
    return [message for message in messages if message.id not in undone] if undone else messages
