"""The entries of messages, and their folds: what a message says now, and in which order the model was given messages.

The order of fields is hashed: it never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import msgspec

from hansard.domain.messages import (
    RETRACTED,
    File,
    Message,
    Part,
    Reasoning,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    join_text,
)
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, Seal
from hansard.journal.entries import Stretch
from hansard.journal.follow import Shapes
from hansard.journal.transaction import Transaction

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
    return [part.blob for part in body.parts if isinstance(part, File | ToolResult) and part.blob]


def streamed_pieces(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Return the (part kind, text) pieces of a sealed message that were streamed as chunks, in order."""
    return [
        ("text" if isinstance(part, Text) else "reasoning", part.text)
        for part in parts
        if isinstance(part, Text | Reasoning)
    ]


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


@MESSAGES.entry(
    "message.sealed", seals=lambda body: Seal(body.message_id, streamed_pieces(body.parts)), blobs=list_blobs
)
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
    """Messages were undone: they leave the transcript and the context, not the record."""

    message_ids: tuple[str, ...]


@MESSAGES.entry("messages.restored")
class MessagesRestored(Body, frozen=True):
    """Messages that were undone are there again, each at its old place. The last word on a message counts."""

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
    return Chunk(message_id=stream_id, offset=offset, text=text, position=position, part=part)


SHAPES: Shapes[Entry | Chunk] = Shapes(entry_value, chunk)


# What entries say about messages, folded.

PART_KINDS: dict[str, type[Text | Reasoning]] = {"text": Text, "reasoning": Reasoning}


def join_chunks(pieces: Iterable[tuple[str, str]]) -> tuple[Part, ...]:
    """Return the parts that (part kind, text) pieces add up to: one part for each run of a kind."""
    runs = groupby(pieces, key=itemgetter(0))
    return tuple(PART_KINDS[part](text="".join([text for _, text in run])) for part, run in runs)


def same_words(parts: Sequence[Part], pieces: Iterable[tuple[str, str]]) -> bool:
    """Return whether parts say what was streamed, in the same order, however either is divided."""
    given, streamed = ([piece for piece in each if piece[1]] for each in (streamed_pieces(parts), pieces))
    return join_chunks(given) == join_chunks(streamed)


def added_message(entry_id: str, at: int, body: MessageAdded) -> Message:
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


def read_fold(reading: Reads | Transaction, stretches: Sequence[Stretch]) -> MessageFold:
    fold = MessageFold()
    for stretch in stretches:
        for kind, version, data in reading.rows(MESSAGES.queries.changing_entries, stretch):
            fold.add(reading.schema.decode_body(kind, version, data))
    return fold


class Placed(NamedTuple):
    """A message where the model was given it, or gave it.

    The turn is the one that it was part of; "" outside of turns. `seq` is where its entry stands in the journal.
    """

    message: Message
    turn_id: str
    seq: int


def calls_of(message: Message) -> Counter[str]:
    """Return how often each id of a call is named: models name two calls alike."""
    return Counter(part.id for part in message.parts if isinstance(part, ToolCall))


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
        self.unplaced: list[Placed] = []
        """What was said and waits for the next turn, with what is undone."""
        self._there: list[Placed] | None = None
        self._open_calls = Counter[str]()

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
        return [each for each in self.unplaced if each.message.id not in self.undone]

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
        self._open_calls -= Counter(part.call_id for part in placed.message.parts if isinstance(part, ToolResult))
        if placed.turn_id and not self._open_calls:
            self.place_waiting(placed.turn_id, steered_only=True)

    def place_waiting(self, turn_id: str, *, steered_only: bool = False) -> None:
        staying = []
        for waiting in self.unplaced:
            if steered_only and waiting.message.id not in self.steered:
                staying.append(waiting)
            else:
                self.place(waiting._replace(turn_id=turn_id))
        self.unplaced = staying

    def start_turn(self, turn_id: str) -> None:
        self._open_calls = Counter()
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
        for places in (self.unplaced, self.everything):
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
        self._fold.add(body, seq)
        self._there = None

    def reach(self, through: str) -> list[str]:
        """Return the messages up to one, in their order, with those that are undone."""
        places = [index for index, placed in enumerate(self.everything) if placed.message.id == through]
        return [placed.message.id for placed in self.everything[: places[-1] + 1]] if places else []
