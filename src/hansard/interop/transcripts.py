"""What the exports share: a session read page by page, as a person or a program would want to be told it.

Reads: entries, up to where the session stood when reading began. Writes: nothing. A page is held at a time, and of an
answer that is still being given only what was said meanwhile.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from hansard.domain.messages import File, Message, Part, Reasoning, Role, Status, Text, ToolCall, ToolResult
from hansard.domain.sessions import Link, Session, TurnState
from hansard.errors import PastMissing
from hansard.journal.concepts import Body
from hansard.record.api import Record
from hansard.record.messages.entries import (
    Entry,
    MessageAdded,
    MessageFold,
    MessageOpened,
    MessageSealed,
    MessagesRestored,
    MessagesUndone,
    Version,
    added_message,
    name_awaited,
    opened_message,
    sealed_message,
)
from hansard.record.sessions import SessionArchived, SessionCreated, SessionEnd, SessionReopened
from hansard.record.turns.entries import TurnEnded

PAGE_ENTRIES = 250
"""Entries that are in memory at once."""

EPOCH = datetime.fromtimestamp(0, UTC)

ROLE_NAMES = {role: role.value.title() for role in Role} | {Role.NOTICE: "Hansard"}
"""Who speaks, for readers. A notice is Hansard's own word."""

LINE_SEPARATORS = {sign.encode(): f"\\u{ord(sign):04x}".encode() for sign in "\x85\u2028\u2029"}
"""Characters that some readers take for the end of a line, and how JSON writes them otherwise."""

TURN_ENDINGS = {
    TurnState.INTERRUPTED: "the answer was interrupted",
    TurnState.FAILED: "the turn failed",
    TurnState.LOST: "the process that answered was lost",
}
"""How a turn can end otherwise than well, for readers."""


TOLD_AT_HOME = "Told in chats that had no session"
NO_CHAT = "told as the reason why an invitation was declined"
"""How what was told outside of sessions is introduced, for readers."""


class Exporter(ABC):
    """One format: a beginning, each session, what was told in chats that had none, an end; empty unless it has more."""

    def begin(self, sessions: list[Session]) -> bytes:
        del sessions
        return b""

    @abstractmethod
    def session(self, record: Record, session: Session) -> AsyncIterator[bytes]: ...

    def notice(self, message: Message) -> bytes:
        del message
        return b""

    def end(self) -> bytes:
        return b""


class TranscriptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message where it stands in the transcript, with the words that it has there.

    `seq` is the entry that began it, `last_seq` the one that finished it: a streamed answer has two. `versions` is
    empty unless people changed it in its chat.
    """

    message: Message
    seq: int
    last_seq: int
    undone: bool = False
    versions: tuple[Version, ...] = ()

    @property
    def first(self) -> tuple[Part, ...]:
        """The words that it had before people changed it in its chat."""
        return (self.versions[0].parts if self.versions else self.message.parts) or ()

    @property
    def before(self) -> list[tuple[Part, ...]]:
        """What it said before, the oldest first; of one that was retracted, all that it ever said."""
        said = [version.parts for version in self.versions if version.parts is not None]
        return said if self.message.is_retracted else said[:-1]


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with its result. None: a result whose call is not there, or a call without a result."""

    call: ToolCall | None = None
    result: ToolResult | None = None
    seq: int
    undone: bool = False


class Happened(NamedTuple):
    """An event between messages that a reader has to know."""

    text: str
    at_microseconds: int
    seq: int


Item = TranscriptItem | Used | Happened


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of a session before its first message can be told.

    `settled` are the messages that the session itself undid or restored at some time; a fork may inherit more.
    """

    head_seq: int
    fold: MessageFold
    settled: frozenset[str]
    ended_once: bool
    archived_once: bool
    after: int = 0
    """The entries up to this one are not read: they are a fork's past, and missing."""

    missing: str = ""
    """Why they are not there."""


async def missing_past(record: Record, session: Session) -> PastMissing | None:
    """Return why the past of a fork cannot be read; None when it can, or when the session is no fork."""
    if session.parent is None or session.parent.link != Link.FORK:
        return None
    try:
        await record.sessions.read_entries(session.id, 0, 1)
    except PastMissing as error:
        return error
    return None


async def first_known(record: Record, session: Session) -> int:
    """Return the entry after which a session can be read: 0, or where a fork begins whose past is missing."""
    is_missing = await missing_past(record, session) is not None
    return session.parent.at if is_missing and session.parent is not None else 0


async def read_entries(record: Record, session_id: str, last_seq: int, after: int = 0) -> AsyncIterator[Entry]:
    """Yield a session's entries after one and up to another, a fork's inherited ones first."""
    while after < last_seq:
        page = await record.sessions.read_entries(session_id, after, min(PAGE_ENTRIES, last_seq - after))
        if not page:
            return
        for entry in page:
            yield entry
        after = page[-1].seq


async def read_notices(record: Record) -> AsyncIterator[Message]:
    """Yield what was told in chats that had no session, the oldest first."""
    after = 0
    while found := await record.messages.list_home_notices(after):
        for _, message in found:
            yield message
        after = found[-1][0]


async def survey_known(record: Record, session: Session) -> Survey:
    """Read as much of a session as there is: of a fork whose past is missing, its own entries."""
    missing = await missing_past(record, session)
    after = session.parent.at if missing is not None and session.parent is not None else 0
    return await survey(record, session, after, str(missing or ""))


async def survey(record: Record, session: Session, after: int = 0, missing: str = "") -> Survey:
    """Read a session once, for what is said about messages after them."""
    fold = MessageFold()
    settled: set[str] = set()
    ended = archived = False
    async for entry in read_entries(record, session.id, session.head_seq, after):
        fold.add(entry.body, entry.seq)
        if isinstance(entry.body, MessagesUndone | MessagesRestored):
            settled.update(entry.body.message_ids)
        elif isinstance(entry.body, SessionCreated):  # what happened to a fork's parent is not its own
            ended = archived = False
            settled = set()
        ended = ended or isinstance(entry.body, SessionEnd)
        archived = archived or isinstance(entry.body, SessionArchived)
    return Survey(
        head_seq=session.head_seq,
        fold=fold,
        settled=frozenset(settled),
        ended_once=ended,
        archived_once=archived,
        after=after,
        missing=missing,
    )


async def read_items(record: Record, session: Session, known: Survey) -> AsyncIterator[TranscriptItem | Happened]:
    """Yield messages in the order of the transcript, undone ones marked, and what happened between them."""
    held: list[TranscriptItem | Happened] = []
    if known.missing:
        yield Happened(known.missing, session.created_at_microseconds, known.after)
    async for entry in read_entries(record, session.id, known.head_seq, known.after):
        if isinstance(entry.body, MessageSealed):
            held = [sealed(each, entry.body, entry.seq) for each in held]
        elif (item := item_of(entry, known)) is not None:
            held.append(item)
        if not any(map(is_open, held)):
            for each in held:
                yield each
            held = []
    for each in await with_open_text(record, session.id, held):
        yield each


def is_open(item: TranscriptItem | Happened) -> bool:
    return isinstance(item, TranscriptItem) and item.message.status == Status.OPEN


def sealed(item: TranscriptItem | Happened, seal: MessageSealed, seq: int) -> TranscriptItem | Happened:
    if not isinstance(item, TranscriptItem) or item.message.id != seal.message_id:
        return item
    return msgspec.structs.replace(item, message=sealed_message(item.message, seal), last_seq=seq)


async def with_open_text(
    record: Record, session_id: str, held: list[TranscriptItem | Happened]
) -> list[TranscriptItem | Happened]:
    """Return the items with what an open message says so far."""
    if not any(is_open(item) for item in held):
        return held
    now = {message.id: message for message in await record.load_transcript(session_id)}
    return [
        msgspec.structs.replace(item, message=now.get(item.message.id, item.message))
        if isinstance(item, TranscriptItem)
        else item
        for item in held
    ]


def item_of(entry: Entry, known: Survey) -> TranscriptItem | Happened | None:
    body, undone = entry.body, known.fold.is_undone(entry.id)
    if isinstance(body, MessageAdded):
        said = added_message(entry.id, entry.at_microseconds, body)
        versions = tuple(known.fold.versions(said))
        message = name_awaited(known.fold.now(said))
        return TranscriptItem(message=message, seq=entry.seq, last_seq=entry.seq, undone=undone, versions=versions)
    if isinstance(body, MessageOpened):
        message = opened_message(entry.id, entry.at_microseconds, body)
        return TranscriptItem(message=message, seq=entry.seq, last_seq=entry.seq, undone=undone)
    text = event_text(body)
    return Happened(text, entry.at_microseconds, entry.seq) if text else None


def event_text(body: Body) -> str:
    """Return what happened, for readers; empty for what they need not know."""
    if isinstance(body, TurnEnded) and body.state in TURN_ENDINGS:
        return with_reason(TURN_ENDINGS[body.state], body.reason)
    if isinstance(body, SessionEnd):
        return with_reason("the session ended", body.reason)
    if isinstance(body, SessionReopened):
        return "the session was opened again"
    if isinstance(body, SessionCreated) and body.link == Link.FORK:
        return f"a fork of {body.parent_id} begins here; what stands above is shared with it"
    if isinstance(body, MessagesUndone | MessagesRestored):
        count = len(body.message_ids)
        became = "taken back" if isinstance(body, MessagesUndone) else "restored"
        return f"{count} {'message was' if count == 1 else 'messages were'} {became}"
    return ""


def with_reason(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


async def fold_tools(items: AsyncIterator[TranscriptItem | Happened]) -> AsyncIterator[Item]:
    """Put each tool's result to its call. A call that never got one is told before the model speaks again."""
    waiting: dict[str, Used] = {}
    async for item in items:
        if isinstance(item, Happened):
            yield item
            continue
        if item.message.role == Role.TOOL:
            for part in item.message.parts:
                if isinstance(part, ToolResult):
                    # The call that is answered waits no more.
                    called = waiting.pop(part.call_id, Used(seq=item.seq))
                    yield Used(call=called.call, result=part, seq=item.seq, undone=item.undone)
            if not any(isinstance(part, Text | File) for part in item.message.parts):
                continue
        elif item.message.role == Role.ASSISTANT:
            for used in waiting.values():
                yield used
            calls = (part for part in item.message.parts if isinstance(part, ToolCall))
            waiting = {call.id: Used(call=call, seq=item.seq, undone=item.undone) for call in calls}
        yield item
    for used in waiting.values():
        yield used


async def read_transcript(record: Record, session: Session, *, full: bool) -> AsyncIterator[Item]:
    """Yield a session for reading; without `full`, what was undone is left out."""
    known = await survey_known(record, session)
    async for item in fold_tools(read_items(record, session, known)):
        if full or isinstance(item, Happened) or not item.undone:
            yield item


def words_of(message: Message) -> str:
    """Return the words of a message: its text parts, without reasoning, calls, results and files."""
    return words_in(message.parts)


def words_in(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


def reasoning_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning))


def files_of(message: Message) -> list[File]:
    return [part for part in message.parts if isinstance(part, File)]


def marks_of(item: TranscriptItem) -> list[str]:
    """Return what is unusual about a message, for readers."""
    message = item.message
    marks = (
        (str(message.status), message.status != Status.COMPLETE),
        ("taken back", item.undone),
        ("edited", message.is_edited),
        ("deleted", message.is_retracted),
        ("said among people", message.is_observed),
        ("sender not verified", message.is_unverified),
    )
    return [mark for mark, is_so in marks if is_so]


class Earlier(NamedTuple):
    """What a message said before: what to call it, the words of each version, and files that went with a deletion."""

    name: str
    words: list[str]
    files: list[File]


def earlier_of(item: TranscriptItem) -> Earlier:
    """Return what a message said before, for readers who ask for everything."""
    deleted = item.message.is_retracted
    files = [part for part in item.first if isinstance(part, File)] if deleted else []
    return Earlier("deleted words" if deleted else "earlier words", [words_in(each) for each in item.before], files)


def says_something(message: Message, *, full: bool) -> bool:
    """Return whether a message has anything to show: one that only calls tools is told by its calls."""
    is_whole = message.parts and message.status == Status.COMPLETE
    return bool(not is_whole or words_of(message) or files_of(message) or (full and reasoning_of(message)))


def json_line(value: object) -> bytes:
    """Return a value as JSON on one line, also for readers who end lines at more than a newline."""
    data = msgspec.json.encode(value)
    if not data.isascii():
        for character, escaped in LINE_SEPARATORS.items():
            data = data.replace(character, escaped)
    return data


def fingerprint(message: Message) -> bytes:
    """Return a digest of what a message says. The time is a label and does not count."""
    said = msgspec.json.encode((message.id, message.role, message.parts, message.status, message.author))
    return hashlib.sha256(said).digest()


class Shared(NamedTuple):
    """The beginning that a fork shares with its parent: how many messages, and a digest of them."""

    messages: int
    digest: str
    last_seq: int


async def shared_beginning(record: Record, session: Session, *, up_to: int, messages_max: int | None = None) -> Shared:
    """Return a digest of the first messages of a session: those begun up to an entry, or so many.

    What was changed of them later belongs to them. Where that was after other messages had begun, no entry ends the
    beginning, and `last_seq` is 0.
    """
    known = await survey(record, session)
    total = hashlib.sha256()
    count, last_seq, next_seq = 0, 1, known.head_seq + 1
    async for item in read_items(record, session, known):
        if item.seq > up_to or (count == messages_max and isinstance(item, TranscriptItem)):
            next_seq = item.seq
            break
        if isinstance(item, TranscriptItem):
            total.update(fingerprint(item.message))
            count += 1
            last_seq = max(last_seq, item.last_seq, *(version.seq for version in item.versions))
    return Shared(count, total.hexdigest(), last_seq if last_seq < next_seq else 0)


def parents_first(sessions: Iterable[Session]) -> list[Session]:
    """Return sessions in the order given, but each after the session that it came from."""
    by_id = {session.id: session for session in sessions}
    parents = {session.id: session.parent.session_id if session.parent else "" for session in by_id.values()}
    return [by_id[each] for each in order_parents_first(parents)[0]]


def order_parents_first(parents: Mapping[str, str]) -> tuple[list[str], set[str]]:
    """Return ids so that each follows its parent, and those whose ancestors lead back to themselves."""
    ordered: dict[str, None] = {}
    circles: set[str] = set()
    for each in parents:
        line: dict[str, None] = {}
        current = each
        while current in parents and current not in ordered:
            if current in line:
                circles.add(next(reversed(line)))  # the first of its circle: its parent cannot stand before it
                break
            line[current] = None
            current = parents[current]
        ordered.update(reversed(line.items()))
    return list(ordered), circles


async def all_sessions(record: Record) -> list[Session]:
    """Return every session, archived ones too, the one that rested longest first."""
    found: list[Session] = []
    while page := await record.sessions(archived=None, before=found[-1].id if found else None):
        found += page
    return found[::-1]


def utc(at_microseconds: int) -> str:
    """Return a time for an export: the same wherever it is made. A label beyond the calendar stays a number."""
    try:
        moment = EPOCH + timedelta(microseconds=at_microseconds)
    except OverflowError:
        return str(at_microseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def who(message: Message) -> str:
    name = ROLE_NAMES[message.role]
    return f"{name} ({message.named_author})" if message.named_author else name


def tool_facts(item: Used) -> tuple[str, str]:
    """Return a tool's name and what became of the call."""
    name = item.call.name if item.call else "(its call is not in the record)"
    return name, "no result" if item.result is None else item.result.outcome.replace("_", " ")


def session_facts(session: Session, time: Callable[[int], str] = utc) -> list[tuple[str, str]]:
    """Return what a reader is told of a session before its first word."""
    ended = f"{session.state}: {session.end_reason}" if session.end_reason else str(session.state)
    facts = [
        ("session", session.id),
        ("source", session.source),
        ("owner", session.owner),
        ("state", ended),
        ("created", time(session.created_at_microseconds)),
        ("last active", time(session.active_at_microseconds)),
    ]
    if session.parent is not None:
        facts.append(("came from", f"{session.parent.session_id} ({session.parent.link})"))
    if session.archived:
        facts.append(("archived", "yes"))
    return facts
