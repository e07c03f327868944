"""Entries: the closed, versioned set of facts that a journal holds, and how they are hashed.

A body is serialised once; those bytes are stored, logged and hashed. The digest of an entry covers the digest before
it, so a journal is a chain: digest = H(previous digest ‖ header ‖ H(salt ‖ body)).
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import msgspec

from hansard.domain import entries_agent as agent
from hansard.domain import entries_intake as intake
from hansard.domain import entries_people as people
from hansard.domain.deliveries import DeliveryState, Operation
from hansard.domain.entry_body import Body as Body  # noqa: PLC0414 - everybody knows it from here
from hansard.domain.messages import Part, Role, Status, join_text
from hansard.domain.requests import ToolSpec, Usage
from hansard.domain.sessions import Link
from hansard.domain.turns import By, TurnState
from hansard.errors import RecordTooNew

DIGEST_FORMAT = 1
"""1: SHA-256 for chain and body. Kept with each entry, so that another can follow one day."""


class SessionCreated(Body, frozen=True):
    """The first entry of a session's own journal. A fork names where it continues from."""

    source: str
    owner: str
    title: str | None = None
    parent_id: str | None = None
    link: Link | None = None
    at: int = 0
    digest: str = ""
    messages: int = 0
    reason: str = ""
    """Why it follows its parent, where the model is to be told: `new`, `idle` or `daily`."""


class SessionTitled(Body, frozen=True):
    """A title was given."""

    title: str


class SessionLinked(Body, frozen=True):
    """A parent became known after the session was created."""

    parent_id: str
    link: Link


class SessionEnded(Body, frozen=True):
    """The session takes no new words."""

    reason: str


class SessionReopened(Body, frozen=True):
    """The session takes new words again."""


class SessionArchived(Body, frozen=True):
    """The session is left out of lists, or, with `archived` false, in them again."""

    archived: bool = True


class SessionFrozen(Body, frozen=True):
    """What the model is told in this session, from its first turn on: later requests begin with the same bytes."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


class SessionCompacted(Body, frozen=True):
    """The model is told a summary in place of the messages up to `through`, unless one changed after `read_seq`."""

    summary: str
    through: str
    from_seq: int
    to_seq: int
    read_seq: int
    tokens_before: int = 0
    tokens_after: int = 0
    model: str = ""
    focus: str = ""


class SessionSet(Body, frozen=True):
    """A setting of this session; the last one counts."""

    name: str
    value: str


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


class MessageOpened(Body, frozen=True):
    """An assistant's message begins; its chunks follow. The entry's id is the message's."""

    turn_id: str
    role: Role = Role.ASSISTANT


class MessageSealed(Body, frozen=True):
    """An open message is finished: its parts are the concatenation of its chunks, byte for byte."""

    message_id: str
    status: Status
    parts: tuple[Part, ...]


class MessageEdited(Body, frozen=True):
    """A person changed on the platform what they had said. The words before stay in the record."""

    message_id: str
    parts: tuple[Part, ...]
    event_id: str = ""


class MessageRetracted(Body, frozen=True):
    """What a person had said was deleted on the platform. The words stay in the record."""

    message_id: str
    event_id: str = ""


class MessageDelivered(Body, frozen=True):
    """A message needs no further delivery in a chat: it was shown there, or nobody tries any longer."""

    message_id: str
    chat: str
    outcome: str = "shown"
    """`shown`, `empty` (there was nothing to show), `set_aside` (the chat is gone) or `dropped` (by a person).

    `retried`: a person wants it to be tried again, so it waits for delivery once more.
    """
    reason: str = ""


class MessagesUndone(Body, frozen=True):
    """Messages were taken back: they leave the transcript and the context, not the record."""

    message_ids: tuple[str, ...]


class MessagesRestored(Body, frozen=True):
    """Messages that were taken back are there again, each at its old place. The last word on a message counts."""

    message_ids: tuple[str, ...]


class TurnQueued(Body, frozen=True):
    """A turn waits to run. `chats`: where it is to be shown, besides the chats in which its messages were said.

    `followers`: chats of the same person that lead to the session, where it is shown as long as they do.
    """

    turn_id: str
    chats: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()
    by: tuple[By, ...] | None = None
    """Who asked for it. None: it was queued before that was recorded."""


class TurnStarted(Body, frozen=True):
    """A turn holds the session; its fence is the seq of this entry. With a `purpose` it answers nobody."""

    turn_id: str
    owner: str
    purpose: str = ""
    refused: bool = False
    """Whether a limit of the day ends it at once: it is not counted."""
    by: tuple[By, ...] | None = None
    """Everybody who asked for it. None: it began before that was recorded, and the authors it answers count."""


class TurnStopping(Body, frozen=True):
    """Somebody asks the running turn to stop; its holder does so."""

    turn_id: str
    reason: str = ""


class TurnSteered(Body, frozen=True):
    """A message goes into the running turn, with its next results, instead of waiting for the turn after it.

    `chat` is where it was said: the turn is shown there, too, from now on.
    """

    turn_id: str
    message_id: str
    chat: str = ""


class TurnContinued(Body, frozen=True):
    """The model is asked to go on where a broken connection, or a crash, cut it. `note`: what it is told, if any."""

    turn_id: str
    message_id: str
    note: str = ""


class TurnUsed(Body, frozen=True):
    """What one request of a turn took."""

    turn_id: str
    model: str
    usage: Usage = Usage()
    purpose: str = ""
    """Empty: the answer. Otherwise what else was asked for: `title`, `transcription`."""


class TurnEnded(Body, frozen=True):
    """A turn is over."""

    turn_id: str
    state: TurnState
    reason: str = ""


class DeliveryCreated(Body, frozen=True):
    """A message, or a stretch of it, or one of its files, is to be shown on a channel."""

    delivery_id: str
    channel: str
    target: str
    message_id: str
    operation: Operation = Operation.POST
    start_bytes: int = 0
    end_bytes: int = 0
    file: int = 0
    """The number of the message's file, from 1; 0: its words."""


class DeliveryMoved(Body, frozen=True):
    """A delivery changed its state."""

    delivery_id: str
    state: DeliveryState
    owner: str = ""
    receipt: str = ""
    reason: str = ""
    mark: str = ""  # what is shown above the words from now on, which may be shown twice
    end_bytes: int = 0  # how far its stretch goes from now on, when it was surely not shown before; 0: as it did


class DatabaseCreated(Body, frozen=True):
    """A new database holds this record: at the beginning, or rebuilt from the logs."""

    database_id: str
    rebuilt: bool = False


class RouteMoved(Body, frozen=True):
    """A session key leads to a session from now on. `owner` and `identity`: whose chat it is, where that is one's."""

    key: str
    session_id: str
    generation: int
    reason: str = ""
    owner: str = ""
    identity: str = ""


class CursorMoved(Body, frozen=True):
    """A platform's stream was received up to here."""

    channel: str
    account: str
    value: str


class IntakeAccepted(Body, frozen=True):
    """A platform's event was received. It is never taken in again."""

    channel: str
    account: str
    event_id: str
    entries: tuple[tuple[str, str], ...] = ()
    turns: tuple[tuple[str, str], ...] = ()


class AccessAsked(Body, frozen=True):
    """A person who may not talk here was shown a one-time code; the admin may approve it until it expires."""

    channel: str
    identity: str
    code: str
    expires_at: int
    chat: str = ""


class AccessTried(Body, frozen=True):
    """Somebody tried to approve a code that was not given to anyone, or no longer counts. The code is not kept."""

    by: str = ""


class AccessChanged(Body, frozen=True):
    """A person was allowed to talk, or is so no longer. `code` is the one that was approved."""

    channel: str
    identity: str
    allowed: bool
    by: str = ""
    code: str = ""


KINDS: dict[str, tuple[int, type[Body]]] = {
    "session.created": (1, SessionCreated),
    "session.titled": (1, SessionTitled),
    "session.linked": (1, SessionLinked),
    "session.ended": (1, SessionEnded),
    "session.reopened": (1, SessionReopened),
    "session.archived": (1, SessionArchived),
    "session.frozen": (1, SessionFrozen),
    "session.set": (1, SessionSet),
    "session.compacted": (1, SessionCompacted),
    "message.added": (1, MessageAdded),
    "message.opened": (1, MessageOpened),
    "message.sealed": (1, MessageSealed),
    "message.edited": (1, MessageEdited),
    "message.retracted": (1, MessageRetracted),
    "message.delivered": (1, MessageDelivered),
    "messages.undone": (1, MessagesUndone),
    "messages.restored": (1, MessagesRestored),
    "turn.queued": (1, TurnQueued),
    "turn.asked": (1, agent.TurnAsked),
    "turn.started": (1, TurnStarted),
    "turn.stopping": (1, TurnStopping),
    "turn.steered": (1, TurnSteered),
    "turn.continued": (1, TurnContinued),
    "turn.used": (1, TurnUsed),
    "turn.ended": (1, TurnEnded),
    "delivery.created": (1, DeliveryCreated),
    "delivery.moved": (1, DeliveryMoved),
    "database.created": (1, DatabaseCreated),
    "route.moved": (1, RouteMoved),
    "cursor.moved": (1, CursorMoved),
    "intake.accepted": (1, IntakeAccepted),
    "intake.held": (1, intake.IntakeHeld),
    "invitation.received": (1, intake.InvitationReceived),
    "invitation.answered": (1, intake.InvitationAnswered),
    "file.awaited": (1, intake.FileAwaited),
    "file.settled": (1, intake.FileSettled),
    "quota.used": (1, intake.QuotaUsed),
    "access.asked": (1, AccessAsked),
    "access.tried": (1, AccessTried),
    "access.changed": (1, AccessChanged),
    "memory.noted": (1, agent.MemoryNoted),
    "memory.edited": (1, agent.MemoryEdited),
    "memory.forgotten": (1, agent.MemoryForgotten),
    "file.fetched": (1, intake.FileFetched),
    "file.transcribed": (1, agent.FileTranscribed),
    "tool.decided": (1, agent.ToolDecided),
    "question.asked": (1, agent.QuestionAsked),
    "question.shown": (1, agent.QuestionShown),
    "question.answered": (1, agent.QuestionAnswered),
    "question.guessed": (1, agent.QuestionGuessed),
    "permission.granted": (1, agent.PermissionGranted),
    "permission.revoked": (1, agent.PermissionRevoked),
    "people.declared": (1, people.PeopleDeclared),
    "rules.declared": (1, people.RulesDeclared),
    "person.linked": (1, people.PersonLinked),
    "person.unlinked": (1, people.PersonUnlinked),
    "link.shown": (1, people.LinkShown),
    "link.tried": (1, people.LinkTried),
    "link.voided": (1, people.LinkVoided),
    "identity.confirmed": (1, people.IdentityConfirmed),
}
"""Each kind, its newest version, and the body of that version. A kind's old versions stay readable for ever."""

KIND_OF: dict[type[Body], str] = {body: kind for kind, (_, body) in KINDS.items()}
DECODERS = {kind: msgspec.json.Decoder(body) for kind, (_, body) in KINDS.items()}
ENCODER = msgspec.json.Encoder()


class Unknown(Body, frozen=True):
    """A body of a newer Hansard that says of itself that it may be ignored."""


def check_kind(kind: str, version: int, *, ignorable: bool) -> bool:
    """Return whether this Hansard understands the entry; refuse what it neither understands nor may ignore."""
    known = KINDS.get(kind)
    if known is not None and version <= known[0]:
        return True
    if ignorable:
        return False
    message = f"the record holds entries of kind {kind!r} version {version}, written by a newer Hansard"
    raise RecordTooNew(message)


def decode_body(kind: str, version: int, body: bytes, *, ignorable: bool = False) -> Body:
    """Return the body of an entry."""
    decoder = DECODERS.get(kind)
    if decoder is not None and version == KINDS[kind][0]:
        return decoder.decode(body)
    check_kind(kind, version, ignorable=ignorable)
    return Unknown()


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


class Header(msgspec.Struct, frozen=True):
    """What an entry's digest covers besides its body."""

    journal_id: str
    seq: int
    id: str
    kind: str
    version: int
    ignorable: bool
    at: int


def chain_start(journal_id: str) -> bytes:
    """Return the digest that a journal's first entry continues."""
    return hashlib.sha256(f"hansard {DIGEST_FORMAT} {journal_id}".encode()).digest()


def chain_digest(previous: bytes, header: Header, salt: bytes, body: bytes) -> bytes:
    """Return an entry's digest."""
    head = (
        f"{header.journal_id}\n{header.seq}\n{header.id}\n{header.kind}\n{header.version}\n"
        f"{int(header.ignorable)}\n{header.at}\n"
    )
    body_hash = hashlib.sha256(salt + body).digest()
    return hashlib.sha256(previous + head.encode() + body_hash).digest()


def same_body(kind: str, version: int, stored: bytes, offered: bytes) -> bool:
    """Return whether two bodies say the same; when it was said and how it came here are labels, and do not count."""
    if stored == offered:
        return True
    first, second = decode_body(kind, version, stored), decode_body(kind, version, offered)
    if isinstance(first, MessageAdded) and isinstance(second, MessageAdded):
        labels = {"said_at": 0, "imported": False, "follows": False}
        first, second = (msgspec.structs.replace(body, **labels) for body in (first, second))
    return first == second
