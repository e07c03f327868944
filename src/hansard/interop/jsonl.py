"""Hansard's own export: everything that was said in a session, to be carried to another home and read back there.

    {"type":"hansard","version":1}                       the first line of a file
    {"type":"session","id":…,"source":…,"owner":…,…}      a session begins
    {"type":"blob","digest":…,"data":…,"last":true}       an attachment in base64, before the first message that has it
    {"type":"message","session_id":…,"id":…,"role":…,…}   its messages in order, whatever became of them marked
    {"type":"end","session_id":…,"messages":…}            the session is complete
    {"type":"notice","id":…,"chat":…,"text":…,…}          after all sessions: what a chat was told that had none
    {"type":"fact","session_id":…,"seq":…,"kind":…,…}     with --facts: what happened, without the words; "" is the home

Every line stands alone. The same record gives the same bytes. What another Hansard wrote differently is not guessed at.
The export reads a session a page at a time. `jsonl_import` is the way back in.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.domain.limits import LINE_BYTES_MAX, MIB
from hansard.domain.messages import File, Message, Part, Role, Status, ToolResult
from hansard.domain.sessions import Link, Session, SessionState
from hansard.errors import InvalidInput, NotFound, RecordDamaged
from hansard.interop.transcripts import (
    Exporter,
    TranscriptItem,
    json_line,
    missing_past,
    read_items,
    shared_beginning,
    survey_known,
    words_of,
)
from hansard.record.api import Record
from hansard.record.messages.entries import Entry

VERSION = 1
"""Of the lines. A file of a higher one is refused: it may say what this Hansard cannot keep."""


class ExportLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """The base of every line. A field that is not known makes a line foreign."""


class FileLine(ExportLine, frozen=True, tag="hansard"):
    """What the file is."""

    version: int


class ParentLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a session came from. A fork says how many messages it shares, with a digest of them."""

    session_id: str
    link: Link
    messages: int = 0
    digest: str = ""


class SessionLine(ExportLine, frozen=True, tag="session"):
    """A session, as it stood."""

    id: str
    source: str
    owner: str
    title: str | None = None
    state: SessionState = SessionState.OPEN
    end_reason: str | None = None
    archived: bool = False
    parent: ParentLine | None = None
    created_at_microseconds: int = 0
    active_at_microseconds: int = 0


class BlobLine(ExportLine, frozen=True, tag="blob"):
    """A piece of an attachment, in base64; the last piece says so."""

    digest: str
    data: str
    last: bool = False


class ChangeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a person did in a chat to a message: its words from then on, or, without any, that it was deleted."""

    parts: tuple[Part, ...] | None = None
    event_id: str = ""


class MessageLine(ExportLine, frozen=True, tag="message"):
    """A message, whole, as the transcript has it; one that was changed in its chat has its first words as well."""

    session_id: str
    id: str
    role: Role
    parts: tuple[Part, ...]
    status: Status = Status.COMPLETE
    at_microseconds: int = 0
    author: str = ""
    chat: str = ""
    event_id: str = ""
    observed: bool = False
    undone: bool = False
    edited: bool = False
    deleted: bool = False
    first: tuple[Part, ...] = ()
    changes: tuple[ChangeLine, ...] = ()
    unverified: bool = False


class EndLine(ExportLine, frozen=True, tag="end"):
    """A session is complete: so many messages were its own and its parents'."""

    session_id: str
    messages: int


class NoticeLine(ExportLine, frozen=True, tag="notice"):
    """What Hansard told in a chat that had no session. It belongs to the home where it was told."""

    id: str
    chat: str
    text: str
    at_microseconds: int = 0


class FactLine(ExportLine, frozen=True, tag="fact"):
    """One entry of a journal, for an auditor: who asked, what was decided, delivered and answered, and in which order.

    `body` is without words (the message lines have them) and without one-time codes.
    """

    session_id: str
    """Empty: the journal of the home."""
    seq: int
    id: str
    kind: str
    at_microseconds: int = 0
    body: dict[str, Any] = msgspec.field(default_factory=dict)


AnyLine = FileLine | SessionLine | BlobLine | MessageLine | EndLine | NoticeLine | FactLine

DECODER = msgspec.json.Decoder(AnyLine)


def encode(line: AnyLine) -> bytes:
    return json_line(line) + b"\n"


class Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file: its number, how far into the file it reaches, and what it says or why it cannot be read."""

    number: int
    end_bytes: int
    line: AnyLine | None
    trouble: str = ""


def read_lines(path: Path) -> Iterator[Numbered]:
    """Yield the lines of a file. Whatever is in it, no more than one line is held."""
    try:
        with path.open("rb") as file:
            number = end = 0
            while data := file.readline(LINE_BYTES_MAX):
                number += 1
                end += len(data)
                if len(data) == LINE_BYTES_MAX and not data.endswith(b"\n"):
                    end += skip_line(file.readline)
                    yield Numbered(
                        number=number, end_bytes=end, line=None, trouble=f"longer than {LINE_BYTES_MAX} bytes"
                    )
                elif data.strip():
                    yield decode(number, end, data)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None


def file_bytes(path: Path) -> int:
    return path.stat().st_size


def skip_line(readline: Callable[[int], bytes]) -> int:
    """Read on to the end of a line; return how much that was."""
    skipped = 0
    while data := readline(MIB):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def decode(number: int, end: int, data: bytes) -> Numbered:
    try:
        return Numbered(number=number, end_bytes=end, line=DECODER.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        torn = "" if data.endswith(b"\n") else "torn: "
        return Numbered(number=number, end_bytes=end, line=None, trouble=f"{torn}{error}")


def check_file(first: Numbered | None, path: Path) -> None:
    """Refuse a file that is something else: a thousand foreign lines help nobody."""
    line = first.line if first else None
    if not isinstance(line, FileLine):
        raise InvalidInput(f"{path} is not an export of Hansard: its first line does not say so")
    if line.version > VERSION:
        raise InvalidInput(f"{path} was written by a newer Hansard (version {line.version} of its lines)")


BLOB_PIECE_BYTES = 1 * MIB
"""An attachment is cut into lines of this size, so that no line is longer than an entry may be."""


WORDS: Final = frozenset({"parts", "system", "tools", "summary", "text", "title", "raw", "code", "reference"})
"""Fields of entries that facts leave out: what was said stands in the message lines, and codes are not handed on."""

NOT_FACTS: Final = frozenset({"cursor.moved", "database.created"})
"""Kinds that say nothing about people."""


class JsonlExport(Exporter):
    """Writes sessions as lines."""

    def __init__(self, report: Callable[[str], None], *, blobs: bool = True, facts: bool = False) -> None:
        """`report` hears of an attachment that cannot be read; the messages are written all the same."""
        self._report = report
        self._blobs = blobs
        self._facts = facts
        self._written: set[str] = set()

    def begin(self, sessions: list[Session]) -> bytes:
        del sessions
        return encode(FileLine(version=VERSION))

    async def session(self, record: Record, session: Session) -> AsyncIterator[bytes]:
        yield encode(await self._describe(record, session))
        known = await survey_known(record, session)
        count = 0
        async for item in read_items(record, session, known):
            if isinstance(item, TranscriptItem):
                if self._blobs:
                    async for piece in self._attachments(record, item):
                        yield piece
                yield encode(message_line(session.id, item))
                count += 1
        yield encode(EndLine(session_id=session.id, messages=count))
        if self._facts:
            async for fact in session_facts(record, session):
                yield fact

    def notice(self, message: Message) -> bytes:
        text, at = words_of(message), message.at_microseconds
        return encode(NoticeLine(id=message.id, chat=message.chat, text=text, at_microseconds=at))

    @staticmethod
    async def _describe(record: Record, session: Session) -> SessionLine:
        parent = None
        if session.parent is not None:
            parent = ParentLine(session_id=session.parent.session_id, link=session.parent.link)
            if session.parent.link == Link.FORK and await missing_past(record, session) is None:
                shared = await shared_beginning(record, session, up_to=session.parent.at)
                parent = msgspec.structs.replace(parent, messages=shared.messages, digest=shared.digest)
        return SessionLine(
            id=session.id,
            source=session.source,
            owner=session.owner,
            title=session.title,
            state=session.state,
            end_reason=session.end_reason,
            archived=session.archived,
            parent=parent,
            created_at_microseconds=session.created_at_microseconds,
            active_at_microseconds=session.active_at_microseconds,
        )

    async def _attachments(self, record: Record, item: TranscriptItem) -> AsyncIterator[bytes]:
        """Yield what a message refers to, and did before it was deleted, unless the file has it already."""
        parts = (*item.message.parts, *item.first)
        for digest in (part.blob for part in parts if isinstance(part, File | ToolResult)):
            if not digest or digest in self._written:
                continue
            self._written.add(digest)
            try:
                data = await record.blobs.read(digest)
            except (NotFound, RecordDamaged, InvalidInput) as error:
                self._report(f"message {item.message.id}: {error}")
                continue
            starts = range(0, max(1, len(data)), BLOB_PIECE_BYTES)
            for start in starts:
                piece = base64.b64encode(data[start : start + BLOB_PIECE_BYTES]).decode("ascii")
                yield encode(BlobLine(digest=digest, data=piece, last=start == starts[-1]))


async def session_facts(record: Record, session: Session) -> AsyncIterator[bytes]:
    """Yield what happened in a session. Of a fork, its own entries: those that it shares are its parent's facts."""
    parent = session.parent
    after = parent.at if parent is not None and parent.link == Link.FORK else 0
    while page := await record.sessions.read_entries(session.id, after):
        for entry in page:
            yield encode(fact_line(entry))
        after = page[-1].seq


async def home_facts(record: Record) -> AsyncIterator[bytes]:
    """Yield what happened in the home: who may talk, who is one person with whom, what events became, routes."""
    after = 0
    while page := await record.messages.read_home_entries(after):
        for entry in page:
            if entry.kind not in NOT_FACTS:
                yield encode(fact_line(entry))
        after = page[-1].seq


def fact_line(entry: Entry) -> FactLine:
    body = msgspec.to_builtins(entry.body)
    return FactLine(
        session_id=entry.session_id,
        seq=entry.seq,
        id=entry.id,
        kind=entry.kind,
        at_microseconds=entry.at_microseconds,
        body={name: value for name, value in body.items() if name not in WORDS},
    )


def message_line(session_id: str, item: TranscriptItem) -> MessageLine:
    message = item.message
    return MessageLine(
        session_id=session_id,
        id=message.id,
        role=message.role,
        parts=message.parts,
        status=message.status,
        at_microseconds=message.at_microseconds,
        author=message.author,
        chat=message.chat,
        event_id=message.event_id,
        observed=message.is_observed,
        undone=item.undone,
        edited=message.is_edited,
        deleted=message.is_retracted,
        first=item.first if item.versions else (),
        changes=tuple(ChangeLine(parts=each.parts, event_id=each.event_id) for each in item.versions[1:]),
        unverified=message.is_unverified,
    )
