"""The fold of a session's entries into messages, and their order for the model."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hansard.domain.messages import RETRACTED, File, Message, Part, Reasoning, Status, Text, ToolCall, ToolResult
from hansard.journal.concepts import Body
from hansard.record.messages.entries import (
    FileFetched,
    FileTranscribed,
    MessageAdded,
    MessageEdited,
    MessageOpened,
    MessageRetracted,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    streamed_pieces,
)

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


def same_words(parts: Sequence[Part], pieces: Iterable[tuple[str, str]]) -> bool:
    """Return whether parts say what was streamed, in the same order, however either is divided."""
    return runs_of(streamed_pieces(parts)) == runs_of(pieces)


def runs_of(pieces: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return pieces with neighbours of one kind joined, and empty ones left out."""
    filled = [piece for piece in pieces if piece[1]]
    return [(part, "".join(text for _, text in run)) for part, run in groupby(filled, key=itemgetter(0))]


def added_message(entry_id: str, at: int, body: MessageAdded) -> Message:
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


def opened_message(entry_id: str, at: int, body: MessageOpened, parts: tuple[Part, ...] = ()) -> Message:
    """Return a message that is being said, with its words so far."""
    return Message(id=entry_id, role=body.role, parts=parts, status=Status.OPEN, at_microseconds=at)


def sealed_message(opened: Message, body: MessageSealed) -> Message:
    """Return an opened message with all its words. Its time stays that of its opening."""
    return msgspec.structs.replace(opened, parts=body.parts, status=body.status)


ChatChange = MessageEdited | MessageRetracted
"""What a person did in a chat to what was said there."""


def change_message(message: Message, body: ChatChange | FileFetched | FileTranscribed) -> Message:
    """Return a message after an entry about it. A retracted message keeps its files and last words, marked."""
    if isinstance(body, MessageRetracted):
        return msgspec.structs.replace(message, is_retracted=True)
    if isinstance(body, MessageEdited):
        if message.is_retracted:
            return message
        files = tuple(part for part in message.parts if isinstance(part, File))
        return msgspec.structs.replace(message, parts=(*body.parts, *files), is_edited=True)
    return msgspec.structs.replace(message, parts=tuple(change_file(part, body) for part in message.parts))


def change_file(part: Part, body: FileFetched | FileTranscribed) -> Part:
    """Return a part after an entry about a file. A file that cannot be fetched is only named."""
    if not isinstance(part, File):
        return part
    if isinstance(body, FileTranscribed):
        return msgspec.structs.replace(part, transcript=body.text) if part.blob == body.blob else part
    size = body.size_bytes or part.size_bytes
    is_this = part.fetch == body.file
    return msgspec.structs.replace(part, blob=body.blob, size_bytes=size, fetch="") if is_this else part


def applies_to(message: Message, body: ChatChange | FileFetched | FileTranscribed) -> bool:
    """Return whether an entry about a message changes it. People edit and retract only what was said in a chat."""
    return bool(message.event_id) or not isinstance(body, ChatChange)


def hide_retracted(message: Message) -> Message:
    """Return a message as it is shown: one that was retracted is a fixed sentence."""
    return msgspec.structs.replace(message, parts=(Text(RETRACTED),)) if message.is_retracted else message


def name_awaited(message: Message) -> Message:
    """Return a message for a reader to whom a file that is still being fetched is one that is only named."""
    if not any(isinstance(part, File) and part.fetch for part in message.parts):
        return message
    parts = [msgspec.structs.replace(part, fetch="") if isinstance(part, File) else part for part in message.parts]
    return msgspec.structs.replace(message, parts=tuple(parts))


FOLDED = (MessageEdited, MessageRetracted, FileFetched, MessagesUndone, MessagesRestored)
"""Entries that say what became of messages."""


class Version(NamedTuple):
    """The parts that a message had from an entry on; None from its retraction on."""

    parts: tuple[Part, ...] | None
    event_id: str
    seq: int


class MessageFold:
    """What became of messages after they were added. It keeps nothing of messages that never changed."""

    def __init__(self) -> None:
        self.undone: dict[str, int] = {}
        """The messages that are undone now, each with the seq of the entry that undid it."""
        self._changes: dict[str, list[tuple[int, ChatChange | FileFetched]]] = {}

    def add(self, body: Body, seq: int = 0) -> None:
        """Fold the next entry in. Words of voice notes are left out: only conversations have them."""
        if isinstance(body, MessageEdited | MessageRetracted | FileFetched):
            self._changes.setdefault(body.message_id, []).append((seq, body))
        elif isinstance(body, MessagesUndone):
            for message_id in body.message_ids:
                self.undone.setdefault(message_id, seq)
        elif isinstance(body, MessagesRestored):
            for message_id in body.message_ids:
                self.undone.pop(message_id, None)

    def is_undone(self, message_id: str) -> bool:
        """Return whether a message is undone, and was not restored since."""
        return message_id in self.undone

    def last_words(self, message: Message) -> Message:
        """Return an added message as it is now; one that was retracted has its last words, and is marked."""
        for _, body in self._changes.get(message.id, ()):
            if applies_to(message, body):
                message = change_message(message, body)
        return message

    def now(self, message: Message) -> Message:
        """Return an added message as it is shown now; one that was retracted is a fixed sentence."""
        return hide_retracted(self.last_words(message))

    def standing(self, messages: list[Message]) -> list[Message]:
        """Return messages as they are shown now, without those that are undone."""
        if self.undone:
            messages = [message for message in messages if message.id not in self.undone]
        if self._changes:
            messages = [self.now(message) if message.id in self._changes else message for message in messages]
        return messages

    def versions(self, message: Message) -> list[Version]:
        """Return the first words of an added message, with its files as they are now, and what each change made of it.

        Empty when nobody changed it in its chat.
        """
        changes = [change for change in self._changes.get(message.id, ()) if applies_to(message, change[1])]
        later = [
            Version(body.parts if isinstance(body, MessageEdited) else None, body.event_id, seq)
            for seq, body in changes
            if isinstance(body, ChatChange)
        ]
        for _, body in changes:
            if isinstance(body, FileFetched):
                message = change_message(message, body)
        return [Version(name_awaited(message).parts, message.event_id, 0), *later] if later else []


def fold_transcript(entries: Iterable[tuple[str, int, Body]], open_parts: tuple[Part, ...] = ()) -> list[Message]:
    """Return the messages of (id, time, body) entries; `open_parts` is what an unsealed message has so far.

    Messages that were undone, and not restored since, are left out. One that was edited has its latest words, and says
    so; one that was retracted is a fixed sentence.
    """
    messages: list[Message] = []
    opened: dict[str, int] = {}
    fold = MessageFold()
    for entry_id, at, body in entries:
        if isinstance(body, MessageAdded):
            messages.append(added_message(entry_id, at, body))
        elif isinstance(body, MessageOpened):
            opened[entry_id] = len(messages)
            messages.append(opened_message(entry_id, at, body, open_parts))
        elif isinstance(body, MessageSealed):
            place = opened.pop(body.message_id)
            messages[place] = sealed_message(messages[place], body)
        elif isinstance(body, FOLDED):
            fold.add(body)
    return fold.standing(messages)


class Placed(NamedTuple):
    """A message where the model was given it, or gave it.

    The turn is the one that it was part of; "" outside of turns. `seq` is where its entry stands in the journal.
    """

    message: Message
    turn_id: str
    seq: int


def calls_of(message: Message) -> set[str]:
    """Return the ids of the tools that a message calls."""
    return {part.id for part in message.parts if isinstance(part, ToolCall)}


class MessageOrder:
    """Messages in the order in which the model was given them, or gave them. An undone one keeps its place."""

    def __init__(self) -> None:
        self._fold = MessageFold()
        self.undone = self._fold.undone
        """The messages that are undone now, each with the seq of the entry that undid it."""
        self.everything: list[Placed] = []
        """What was placed, with what is undone."""
        self.steered: set[str] = set()
        """Messages that go into the running turn with its next results."""
        self._waiting: list[Placed] = []
        self._there: list[Placed] | None = None
        self._open_calls: set[str] = set()

    @property
    def placed(self) -> list[Placed]:
        """What the model was given and gave, without what is undone."""
        if not self.undone:
            return self.everything
        if self._there is None:
            self._there = [each for each in self.everything if each.message.id not in self.undone]
        return self._there

    @property
    def waiting(self) -> list[Placed]:
        """What was said and waits for the next turn, without what is undone."""
        return [each for each in self._waiting if each.message.id not in self.undone]

    def list_waiting(self) -> list[Message]:
        """Return what waits for the next turn, with what is undone."""
        return [each.message for each in self._waiting]

    def add_waiting(self, placed: Placed) -> None:
        """Something was said; it enters later."""
        self._waiting.append(placed)

    def place(self, placed: Placed) -> None:
        """The model was given something, or gave it."""
        self.everything.append(placed)
        if self._there is not None and placed.message.id not in self.undone:
            self._there.append(placed)

    def place_answer(self, placed: Placed) -> None:
        """The model gave a whole message; what it calls is open."""
        self.place(placed)
        self._open_calls = calls_of(placed.message)

    def place_results(self, placed: Placed) -> None:
        """A tool gave results. With the last result of a step, what steers the turn enters."""
        self.place(placed)
        self._open_calls -= {part.call_id for part in placed.message.parts if isinstance(part, ToolResult)}
        if placed.turn_id and not self._open_calls:
            self.place_waiting(placed.turn_id, steered_only=True)

    def place_waiting(self, turn_id: str, *, steered_only: bool = False) -> None:
        """Let messages that wait enter."""
        staying = []
        for waiting in self._waiting:
            if steered_only and waiting.message.id not in self.steered:
                staying.append(waiting)
            else:
                self.place(waiting._replace(turn_id=turn_id))
        self._waiting = staying

    def start_turn(self, turn_id: str) -> None:
        """A turn answers what waits."""
        self._open_calls = set()
        self.place_waiting(turn_id)

    def seal(self, body: MessageSealed) -> None:
        """An answer that was opened has all its words."""
        for index in range(len(self.everything) - 1, -1, -1):
            placed = self.everything[index]
            if placed.message.id == body.message_id:
                sealed = sealed_message(placed.message, body)
                self._replace(index, sealed)
                self._open_calls = calls_of(sealed)
                return

    def change(self, body: ChatChange | FileFetched | FileTranscribed) -> bool:
        """Let a message stand changed where it stood; return whether it is there. People change what is recent."""
        for places in (self._waiting, self.everything):
            for index in range(len(places) - 1, -1, -1):
                placed = places[index]
                if placed.message.id == body.message_id and applies_to(placed.message, body):
                    changed = hide_retracted(change_message(placed.message, body))
                    if places is self.everything:
                        self._replace(index, changed)
                    else:
                        places[index] = placed._replace(message=changed)
                    return True
        return False

    def _replace(self, index: int, message: Message) -> None:
        before = self.everything[index]
        self.everything[index] = before._replace(message=message)
        for place in range(len(self._there or ()) - 1, -1, -1):
            if self._there is not None and self._there[place] is before:
                self._there[place] = self.everything[index]
                return

    def undo(self, body: MessagesUndone | MessagesRestored, seq: int) -> None:
        """Messages are undone, or restored: each keeps its place."""
        self._fold.add(body, seq)
        self._there = None

    def reach(self, through: str) -> list[str]:
        """Return the messages up to one, in their order, with those that are undone."""
        places = [index for index, placed in enumerate(self.everything) if placed.message.id == through]
        return [placed.message.id for placed in self.everything[: places[-1] + 1]] if places else []
