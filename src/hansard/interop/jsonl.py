"""Hansard's own export, and its way back in. What a file looks like stands in `jsonl_lines`.

Export reads a session a page at a time. Import writes a hundred messages a commit: cut off at any point, it has taken a
beginning, and a second run takes the rest.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import msgspec

from hansard.domain.limits import MIB
from hansard.domain.messages import File, ToolResult
from hansard.domain.sessions import Link
from hansard.errors import InvalidInput, NotFound, RecordDamaged
from hansard.interop.jsonl_lines import (
    VERSION,
    BlobLine,
    ChangeLine,
    EndLine,
    FactLine,
    FileLine,
    MessageLine,
    NoticeLine,
    ParentLine,
    SessionLine,
    check_file,
    encode,
    file_bytes,
    read_lines,
)
from hansard.interop.jsonl_taking import ImportFinding, Taker
from hansard.interop.transcripts import (
    TranscriptItem,
    missing_past,
    read_items,
    shared_beginning,
    survey_known,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from hansard.domain.messages import Message
    from hansard.domain.sessions import Session
    from hansard.record.api import Record
    from hansard.record.messages.entries import Entry

BLOB_PIECE_BYTES = 1 * MIB
"""An attachment is cut into lines of this size, so that no line is longer than an entry may be."""


WORDS: Final = frozenset({"parts", "system", "tools", "summary", "text", "title", "raw", "code", "reference"})
"""Fields of entries that facts leave out: what was said stands in the message lines, and codes are not handed on."""

NOT_FACTS: Final = frozenset({"cursor.moved", "database.created"})
"""Kinds that say nothing about people."""


def blobs_of(item: TranscriptItem) -> list[str]:
    """Return the digests of what a message refers to, and of what it did before it was deleted."""
    parts = (*item.message.parts, *item.first)
    return [part.blob for part in parts if isinstance(part, File | ToolResult) and part.blob]


class JsonlExport:
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
        """Return the line of what a chat was told that had no session."""
        text, at = words_of(message), message.at_microseconds
        return encode(NoticeLine(id=message.id, chat=message.chat, text=text, at_microseconds=at))

    def end(self) -> bytes:
        return b""

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
        """Yield the attachments of a message that the file does not have yet."""
        for digest in blobs_of(item):
            if digest in self._written:
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


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did: sessions that are new, messages that are new, messages that were there, and what is wrong.

    Notes are for people; everything that was said is here all the same.
    """

    sessions: int
    messages: int
    skipped: int
    findings: tuple[ImportFinding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything in the file is in the record."""
        return not self.findings


async def import_file(record: Record, path: Path, progress: Callable[[int, int], None] | None = None) -> ImportReport:
    """Take a file into the record; what is there already stays as it is. `progress` hears bytes done, and of how many.

    A line that cannot be read, and a message whose id is taken by another, are findings. Nothing is written over.
    """
    lines = read_lines(path)
    first = next(lines, None)
    check_file(first, path)
    size_bytes = file_bytes(path)
    taker = Taker(record)
    for numbered in lines:
        await taker.take_line(numbered)
        if progress is not None:
            progress(numbered.end_bytes, size_bytes)
    await taker.finish()
    return ImportReport(
        sessions=taker.sessions,
        messages=taker.messages,
        skipped=taker.skipped,
        findings=tuple(taker.findings),
        notes=tuple(taker.notes),
    )
