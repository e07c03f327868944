"""Hansard's own export on its way back in: lines are taken into the record, one session after another.

A hundred messages are one commit: cut off at any point, an import has taken a beginning, and a second run takes the
rest.

Reads: what the record has of a session. Writes: sessions, messages, what became of them, ends. Invariants: an id that
is there is never written again; a message is at its place or the report says where it went; two sessions that only
share an id are never mixed; nothing is shown to anybody. On crash: a beginning was taken, which the next import finds
and goes on from.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hansard.domain.limits import BLOB_BYTES_MAX, MIB, UNIT_ENTRIES_MAX
from hansard.domain.messages import Message, Status
from hansard.domain.sessions import Link, Parent, Session, SessionState
from hansard.errors import IdConflict, InvalidInput, NotFound
from hansard.interop.jsonl import (
    BlobLine,
    ChangeLine,
    EndLine,
    FactLine,
    FileLine,
    MessageLine,
    NoticeLine,
    Numbered,
    SessionLine,
    check_file,
    file_bytes,
    read_lines,
)
from hansard.interop.transcripts import TranscriptItem, fingerprint, read_items, shared_beginning, survey
from hansard.record.api import Record
from hansard.record.messages.entries import ChatChange, MessageEdited, MessageRetracted, Version
from hansard.record.messages.operations import ImportedMessage

BATCH_BYTES_MAX = 4 * MIB
"""What may wait for one commit."""

FINDINGS_MAX = 1000
"""Findings that are listed; a file with more of them has another problem."""


class ImportFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the file that is not in the record, or not where it was."""

    line: int
    session_id: str
    what: str

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "the file"
        return f"{place}: {self.session_id}: {self.what}" if self.session_id else f"{place}: {self.what}"


class ImportReport(msgspec.Struct, kw_only=True):
    """What an import did: sessions that are new, messages that are new, messages that were there, and what is wrong.

    Notes are for people; everything that was said is here all the same.
    """

    sessions: int = 0
    messages: int = 0
    skipped: int = 0
    findings: tuple[ImportFinding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything in the file is in the record."""
        return not self.findings


class KnownMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says first, and what was changed of it, as digests. An open message has none yet."""

    first: bytes
    changes: tuple[bytes, ...] = ()
    is_imported: bool = True
    """Whether it came by an import. The words of others are changed by no file."""


class PendingImport(msgspec.Struct, frozen=True, kw_only=True):
    """A message on its way into the record, or only what was changed of one that is there; from which line."""

    number: int
    imported: ImportedMessage
    is_new: bool


class Taking:
    """One session on its way into the record."""

    def __init__(self, line: SessionLine) -> None:
        self.line = line
        self.refused = False
        self.complete = False
        self.was_ended = False
        self.ended_once = False
        self.archived_once = False
        self.there: dict[str, KnownMessage] = {}
        self.taken: dict[str, KnownMessage] = {}
        self.undone: frozenset[str] = frozenset()
        self.settled: set[str] = set()
        self.to_undo: list[str] = []
        self.to_restore: list[str] = []
        self.read = 0
        self.met = 0
        self.misplaced = False
        self.added = 0
        self.waiting: list[PendingImport] = []
        self.waiting_entries = 0
        self.waiting_bytes = 0


class Taker:
    """Takes line after line, and counts."""

    def __init__(self, record: Record) -> None:
        self.report = ImportReport()
        self._record = record
        self._current: Taking | None = None
        self._unlinked: list[SessionLine] = []
        self._pieces: list[bytes] = []
        self._pieces_digest = ""
        self._number = 0

    async def take_line(self, numbered: Numbered) -> None:
        self._number = numbered.number
        line = numbered.line
        if line is None:
            self._find(f"cannot be read: {numbered.trouble}")
        elif isinstance(line, SessionLine):
            await self._leave()
            self._current = await self._enter(line)
        elif isinstance(line, MessageLine):
            await self._message(line)
        elif isinstance(line, BlobLine):
            await self._blob(line)
        elif isinstance(line, EndLine):
            await self._end(line)
        else:
            # Files that were joined; notices of chats, which another home never showed; facts, which happened there.
            assert isinstance(line, FileLine | NoticeLine | FactLine)

    async def finish(self) -> None:
        """Finish the last session, and link those whose parents came after them."""
        await self._leave()
        notes: list[str] = []
        for line in self._unlinked:
            assert line.parent is not None
            if await self._find_session(line.parent.session_id) is None:
                notes.append(f"{line.id}: the session that it came from is not here: {line.parent.session_id}")
                continue
            await self._record.create_session(id=line.id, source=line.source, owner=line.owner, parent=parent_of(line))
        self.report.notes = tuple(notes)

    def _find(self, what: str, session_id: str = "") -> None:
        count = len(self.report.findings)
        if count == FINDINGS_MAX:
            session_id, what = "", "and more, which are not listed"
        if count <= FINDINGS_MAX:
            self.report.findings += (ImportFinding(line=self._number, session_id=session_id, what=what),)

    async def _find_session(self, session_id: str) -> Session | None:
        try:
            return await self._record.sessions.read(session_id)
        except NotFound:
            return None

    # Sessions.

    async def _enter(self, line: SessionLine) -> Taking:
        """Find the session in the record, or make it."""
        taking = Taking(line)
        session = await self._find_session(line.id)
        if session is None:
            try:
                session = await self._create(line)
            except InvalidInput as error:
                taking.refused = True
                self._find(f"the session cannot be recorded: {error}", line.id)
                return taking
            self.report.sessions += 1
        elif (session.owner, session.source) != (line.owner, line.source):
            taking.refused = True
            there = f"{session.owner} from {session.source}"
            self._find(f"the id is taken by a session of {there}; nothing of this one was taken", line.id)
            return taking
        else:
            if session.title is None and line.title is not None:
                await self._record.set_title(line.id, line.title)
            if session.parent is None and line.parent is not None:
                self._unlinked.append(line)
        known = await survey(self._record, session)
        taking.was_ended = session.state == SessionState.ENDED
        taking.ended_once, taking.archived_once = known.ended_once, known.archived_once
        taking.undone, taking.settled = frozenset(known.fold.undone), set(known.settled)
        async for item in read_items(self._record, session, known):
            if isinstance(item, TranscriptItem):
                taking.there[item.message.id] = known_of(item)
        return taking

    async def _create(self, line: SessionLine) -> Session:
        """Make a session: a fork where the parent is here and begins the same, otherwise one of its own."""
        at = await self._fork_point(line)
        if at is not None and line.parent is not None:
            return await self._record.fork(line.parent.session_id, at, id=line.id, title=line.title)
        parent = None
        if line.parent is not None:
            if await self._find_session(line.parent.session_id) is None:
                self._unlinked.append(line)
            else:
                parent = parent_of(line)
        return await self._record.create_session(
            id=line.id, source=line.source, owner=line.owner, title=line.title, parent=parent
        )

    async def _fork_point(self, line: SessionLine) -> int | None:
        """Return the entry of the parent up to which it is what the fork shares, or None."""
        if line.parent is None or line.parent.link != Link.FORK:
            return None
        parent = await self._find_session(line.parent.session_id)
        if parent is None or (parent.owner, parent.source) != (line.owner, line.source):
            return None
        shared = await shared_beginning(self._record, parent, up_to=parent.head_seq, messages_max=line.parent.messages)
        same = (shared.messages, shared.digest) == (line.parent.messages, line.parent.digest)
        return shared.last_seq or None if same else None

    async def _end(self, line: EndLine) -> None:
        taking = self._current
        if taking is None or taking.line.id != line.session_id:
            self._find("the end of a session that did not begin", line.session_id)
            return
        taking.complete = True
        if taking.read != line.messages:
            self._find(f"{taking.read} of {line.messages} messages could be read", line.session_id)

    async def _leave(self) -> None:
        """Write what waits, and leave the session as the file says that it stood."""
        taking, self._current = self._current, None
        if taking is None or taking.refused:
            return
        line = taking.line
        await self._write(taking)
        if taking.to_undo:
            await self._record.messages.undo(line.id, taking.to_undo)
        if taking.to_restore:
            await self._record.messages.restore(line.id, taking.to_restore)
        if not taking.complete:
            self._find("the file has no end of this session: more may have been said", line.id)
        ended_anew = taking.added and taking.was_ended
        if line.state == SessionState.ENDED and (ended_anew or not taking.ended_once):
            await self._record.end_session(line.id, line.end_reason or "")
        if line.archived and not taking.archived_once:
            await self._record.sessions.archive(line.id)

    # Messages.

    async def _message(self, line: MessageLine) -> None:
        taking = self._current
        if taking is None or taking.line.id != line.session_id:
            self._find(f"message {line.id} stands outside of its session", line.session_id)
            return
        taking.read += 1
        if taking.refused:
            return
        imported = imported_of(line)
        offered = KnownMessage(first=fingerprint(imported.message), changes=digests(imported.changes))
        taking.met += line.id in taking.there
        before = taking.there.get(line.id, taking.taken.get(line.id))
        if before is None:
            if not self._place(taking):
                return
            taking.taken[line.id] = offered
            await self._wait(taking, PendingImport(number=self._number, imported=imported, is_new=True))
        elif before.first in {b"", offered.first}:
            self.report.skipped += 1
            await self._changes(taking, imported, before, offered)
        else:
            self._find(f"message {line.id} is in the record with other content, which stays", line.session_id)
            return
        if line.id not in taking.settled and line.undone != (line.id in taking.undone):
            taking.settled.add(line.id)  # what was undone or restored here stays: a second import changes nothing
            (taking.to_undo if line.undone else taking.to_restore).append(line.id)

    async def _changes(
        self, taking: Taking, imported: ImportedMessage, before: KnownMessage, offered: KnownMessage
    ) -> None:
        """Take what was changed since of a message that is here. What was changed here stays so."""
        shared = min(len(before.changes), len(offered.changes))
        if before.changes[:shared] != offered.changes[:shared]:
            what = f"message {imported.message.id} was changed otherwise in its chat, and stays as it is here"
            self._find(what, taking.line.id)
        elif len(offered.changes) > shared and not before.is_imported:
            what = f"message {imported.message.id} was said here, and stays as it is: the file has changes of it"
            self._find(what, taking.line.id)
        elif len(offered.changes) > shared:
            changed = imported._replace(known=shared)
            await self._wait(taking, PendingImport(number=self._number, imported=changed, is_new=False))

    async def _wait(self, taking: Taking, waiting: PendingImport) -> None:
        """Let a message wait for a commit with others, unless enough wait already."""
        taking.waiting.append(waiting)
        taking.waiting_entries += 1 + len(waiting.imported.changes)
        parts = waiting.imported.message.parts
        taking.waiting_bytes += sum(len(getattr(part, "text", "")) for part in parts)
        if taking.waiting_entries >= UNIT_ENTRIES_MAX or taking.waiting_bytes >= BATCH_BYTES_MAX:
            await self._write(taking)

    def _place(self, taking: Taking) -> bool:
        """Say whether a new message may be appended; tell when it cannot stand where it stood."""
        if taking.met < len(taking.there) and not taking.misplaced:
            if taking.met == 0:
                taking.refused = True
                self._find("the id is taken by another conversation; nothing of this one was taken", taking.line.id)
                return False
            taking.misplaced = True
            self._find("went on in the record: what is new in the file stands after that", taking.line.id)
        return True

    async def _write(self, taking: Taking) -> None:
        """Commit what waits; where that is refused, one by one, so that the report can name which."""
        waiting, taking.waiting, taking.waiting_entries, taking.waiting_bytes = taking.waiting, [], 0, 0
        if not waiting:
            return
        session_id = taking.line.id
        is_new = any(each.is_new for each in waiting)
        if is_new and taking.was_ended and not taking.added:
            await self._record.reopen_session(session_id)
        try:
            await self._record.messages.import_messages(session_id, [each.imported for each in waiting])
            taken = sum(each.is_new for each in waiting)
        except (IdConflict, InvalidInput, NotFound):
            taken = await self._write_each(taking, waiting)
        taking.added += taken
        self.report.messages += taken

    async def _write_each(self, taking: Taking, waiting: list[PendingImport]) -> int:
        taken = 0
        for each in waiting:
            message_id = each.imported.message.id
            try:
                await self._record.messages.import_messages(taking.line.id, [each.imported])
                taken += each.is_new
            except (IdConflict, InvalidInput, NotFound) as error:
                self._number = each.number
                self._find(f"message {message_id} was not taken: {error}", taking.line.id)
                if message_id in taking.to_undo:
                    taking.to_undo.remove(message_id)
        return taken

    # Attachments.

    async def _blob(self, line: BlobLine) -> None:
        """Gather the pieces of an attachment; store it when it is whole and what it says that it is."""
        if line.digest != self._pieces_digest:
            self._pieces, self._pieces_digest = [], line.digest
        try:
            self._pieces.append(base64.b64decode(line.data, validate=True))
        except ValueError as error:  # also binascii.Error
            self._find(f"a piece of attachment {line.digest} cannot be read: {error}")
        if sum(map(len, self._pieces)) > BLOB_BYTES_MAX:
            self._pieces = []
            self._find(f"attachment {line.digest} is larger than {BLOB_BYTES_MAX} bytes")
        if not line.last:
            return
        data, self._pieces, self._pieces_digest = b"".join(self._pieces), [], ""
        if hashlib.sha256(data).hexdigest() == line.digest:
            await self._record.blobs.put(data)
        else:
            self._find(f"attachment {line.digest} is not whole")


def parent_of(line: SessionLine) -> Parent | None:
    """Return where a session came from. A fork that shares nothing here is linked as imported."""
    if line.parent is None:
        return None
    link = Link.IMPORT if line.parent.link == Link.FORK else line.parent.link
    return Parent(session_id=line.parent.session_id, link=link)


def imported_of(line: MessageLine) -> ImportedMessage:
    """Return the message of a line, and what was changed of it. One that was open when it was exported ends there."""
    message = Message(
        id=line.id,
        role=line.role,
        parts=line.first if line.changes else line.parts,
        status=Status.INTERRUPTED if line.status == Status.OPEN else line.status,
        at_microseconds=line.at_microseconds,
        author=line.author,
        chat=line.chat,
        event_id=line.event_id,
        is_observed=line.observed,
        is_unverified=line.unverified,
    )
    return ImportedMessage(message, tuple(change_of(line.id, each) for each in line.changes))


def change_of(message_id: str, change: ChangeLine) -> ChatChange:
    if change.parts is None:
        return MessageRetracted(message_id=message_id, event_id=change.event_id)
    return MessageEdited(message_id=message_id, parts=change.parts, event_id=change.event_id)


def known_of(item: TranscriptItem) -> KnownMessage:
    if item.message.status == Status.OPEN:
        return KnownMessage(first=b"", is_imported=item.message.is_imported)
    said = msgspec.structs.replace(item.message, parts=item.first)
    return KnownMessage(
        first=fingerprint(said), changes=digests(item.versions[1:]), is_imported=item.message.is_imported
    )


def digests(changes: Iterable[ChatChange | Version]) -> tuple[bytes, ...]:
    """Return what changes say, as digests; a retraction says nothing."""
    parts = [getattr(change, "parts", None) for change in changes]
    return tuple(b"" if each is None else hashlib.sha256(msgspec.json.encode(each)).digest() for each in parts)


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
    return taker.report
