"""Import of a Hermes home: every session of every source, merged, once; and a report of what Hermes lost.

Reads: the Hermes home, which is never changed. Writes: sessions and messages, by ids that follow from Hermes' own.
Invariants: a second import changes nothing; a message that is there is never written again nor changed.
On crash, or Ctrl-C: what was written is whole messages in order; the next import goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hansard.domain.arrivals import Intake
from hansard.domain.limits import READ_ROWS_MAX, UNIT_ENTRIES_MAX
from hansard.domain.messages import clean_part
from hansard.domain.sessions import Link, Parent, SessionState
from hansard.errors import InvalidInput
from hansard.interop.hermes_parts import (
    ROLES,
    Carried,
    Copy,
    Facts,
    HermesFinding,
    HermesSource,
    carry,
    owner_of,
    session_id_of,
    settings_of,
    short_words,
    source_of,
    title_of,
)
from hansard.interop.hermes_sources import open_hermes
from hansard.interop.transcripts import order_parents_first
from hansard.record.api import Record
from hansard.record.messages import operations as importing
from hansard.record.messages.entries import MessageAdded, MessagesUndone
from hansard.record.sessions import SessionArchived, SessionEnd, SessionSet

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Messages of this size together are one commit, and fewer than the record's own limit of entries."""

NOT_CARRIED: Final = frozenset({"unreadable", "refused"})
"""Findings that name something which could not be read, or not be recorded, and is not in the record therefore."""

UNDO_IDS_MAX: Final = 1000
"""Messages that one entry undoes."""


class ImportProgress(NamedTuple):
    """How far an import is."""

    sessions: int
    sessions_all: int
    messages: int

    def describe(self) -> str:
        return f"{self.sessions:,} of {self.sessions_all:,} sessions, {self.messages:,} messages"


class HermesImported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of Hermes' sessions."""

    hermes_id: str
    id: str
    sources: tuple[str, ...]
    messages: int
    added: int


class HermesReport(msgspec.Struct, kw_only=True):
    """What an import did, what a person should look at, and what Hermes had lost before."""

    dry_run: bool = False
    sessions: int = 0
    messages: int = 0
    added: int = 0
    imported: list[HermesImported] = []
    findings: list[HermesFinding] = []
    gaps: list[HermesFinding] = []

    @property
    def complete(self) -> bool:
        return not any(finding.kind in NOT_CARRIED for finding in self.findings)


async def import_hermes(
    record: Record | None,
    path: Path,
    *,
    owner: str | None = None,
    progress: Callable[[ImportProgress], None] = lambda _: None,
) -> HermesReport:
    """Import a Hermes home into a record; without a record, only report what would be imported.

    `owner` takes all sessions; otherwise each belongs to the person, or the room, that Hermes names.
    """
    report = HermesReport(dry_run=record is None)
    with open_hermes(path) as home:
        known = {facts.id: facts for facts in home.sessions()}
        ordered, circles = order_parents_first({facts.id: facts.parent_id for facts in known.values()})
        for number, facts in enumerate(known[each] for each in ordered):
            progress(ImportProgress(number, len(ordered), report.added))
            merged = home.messages(facts)
            report.gaps += find_gaps(facts, merged.messages, home.kinds)
            report.findings += (
                HermesFinding(kind="ambiguous place", session=facts.id, detail=doubt) for doubt in merged.ambiguities
            )
            parent_id = facts.parent_id if facts.parent_id in known and facts.id not in circles else ""
            if facts.parent_id and not parent_id:
                detail = f"its parent {facts.parent_id} is not in the home, or descends from it"
                report.gaps.append(HermesFinding(kind="parent missing", session=facts.id, detail=detail))
            carried = carry(facts, merged.messages)
            report.findings += _unknown_roles(facts, merged.messages)
            added = 0
            if record is not None:
                writing = Writing(
                    record=record,
                    facts=facts,
                    carried=carried,
                    owner=owner or owner_of(facts),
                    parent=Parent(session_id=session_id_of(parent_id), link=Link.IMPORT) if parent_id else None,
                    report=report,
                    so_far=ImportProgress(number, len(ordered), 0),
                    progress=progress,
                )
                added = await writing.run()
            report.added += added
            report.messages += len(carried)
            report.imported.append(
                HermesImported(
                    hermes_id=facts.id,
                    id=session_id_of(facts.id),
                    sources=tuple(facts.sources),
                    messages=len(carried),
                    added=added,
                )
            )
            await asyncio.sleep(0)
        report.sessions = len(ordered)
        report.findings += home.findings
        progress(ImportProgress(len(ordered), len(ordered), report.added))
    return report


def _unknown_roles(facts: Facts, copies: list[Copy]) -> Iterator[HermesFinding]:
    for number, copy in enumerate(copies, 1):
        if copy.role not in ROLES:
            detail = f"the role {copy.role!r} is not known; it is kept as a notice"
            yield HermesFinding(kind="unknown role", session=facts.id, where=f"message {number}", detail=detail)


class Before(msgspec.Struct, kw_only=True):
    """What the record has of a session already."""

    bodies: dict[str, MessageAdded] = {}
    undone: set[str] = set()
    settings: dict[str, str] = {}
    ended: bool = False
    archived: bool = False


class Writing(msgspec.Struct, kw_only=True):
    """One session on its way into the record."""

    record: Record
    facts: Facts
    carried: list[Carried]
    owner: str
    parent: Parent | None
    report: HermesReport
    so_far: ImportProgress
    progress: Callable[[ImportProgress], None]
    added: int = 0

    @property
    def id(self) -> str:
        return session_id_of(self.facts.id)

    async def run(self) -> int:
        """Write what is not there yet, and return how many messages that were."""
        facts = self.facts
        session = await self.record.create_session(
            id=self.id, source=source_of(facts), owner=self.owner, title=title_of(facts), parent=self.parent
        )
        before = await self._read_before()
        if before.settings.get("hermes.session_id", facts.id) != facts.id:
            self._find("refused", f"session {self.id} was imported from another session of Hermes")
            return 0
        for name, value in settings_of(facts).items():
            if name not in before.settings:
                await self.record.sessions.set_setting(self.id, name, value)
        new = [each for each in self.carried if each.message.id not in before.bodies]
        self._compare(before)
        reopened = bool(new) and session.state == SessionState.ENDED
        if reopened:
            await self.record.reopen_session(self.id)
        await self._add(new)
        await self._take_back(before)
        if (facts.ended and not before.ended) or reopened:
            await self.record.end_session(self.id, facts.end_reason or session.end_reason or "ended in Hermes")
        if facts.archived and not before.archived:
            await self.record.sessions.archive(self.id)
        return self.added

    async def _read_before(self) -> Before:
        before = Before()
        after = 0
        while page := await self.record.sessions.read_entries(self.id, after, READ_ROWS_MAX):
            after = page[-1].seq
            for entry in page:
                if isinstance(entry.body, MessageAdded):
                    before.bodies[entry.id] = entry.body
                elif isinstance(entry.body, MessagesUndone):
                    before.undone.update(entry.body.message_ids)  # and what was restored here since stays so
                elif isinstance(entry.body, SessionSet):
                    before.settings[entry.body.name] = entry.body.value
                elif isinstance(entry.body, SessionEnd):
                    before.ended = True
                elif isinstance(entry.body, SessionArchived):
                    before.archived = True
        return before

    def _compare(self, before: Before) -> None:
        """Report what an earlier import wrote otherwise, and what now comes after words that it precedes in Hermes."""
        late = 0
        absent = 0
        for each in self.carried:
            body = before.bodies.get(each.message.id)
            if body is None:
                absent += 1
                continue
            late, absent = late + absent, 0
            if body.parts != tuple(clean_part(part) for part in each.message.parts):
                self._find("changed since", "an earlier import recorded other fields; they stay", each.message.id)
        if late:
            self._find("placed late", f"{late} messages follow words that they precede in Hermes")

    def _find(self, kind: str, detail: str, where: str = "") -> None:
        finding = HermesFinding(kind=kind, session=self.facts.id, where=where, detail=detail)
        self.report.findings.append(finding)

    async def _add(self, new: list[Carried]) -> None:
        events: dict[str, int] = {}
        for batch in batches(new):
            try:
                await self._add_together(batch, events)
            except InvalidInput:
                for each in batch:
                    # The one that cannot be recorded is listed.
                    try:
                        await self._add_together([each], events)
                    except InvalidInput as error:
                        self._find("refused", str(error), each.message.id)
            self.progress(self.so_far._replace(messages=self.report.added + self.added))

    async def _add_together(self, batch: list[Carried], events: dict[str, int]) -> None:
        for each in batch:
            for blob in each.blobs:
                await self.record.blobs.put(blob)
        if batch[0].platform_id:
            await self._add_event(batch[0], events)
        else:
            await self.record.messages.import_messages(
                self.id, [importing.ImportedMessage(each.message) for each in batch]
            )
        self.added += len(batch)

    async def _add_event(self, each: Carried, events: dict[str, int]) -> None:
        """Record a message together with the id that its platform gave it."""
        nth = events[each.platform_id] = events.get(each.platform_id, 0) + 1
        event_id = each.platform_id if nth == 1 else f"{each.platform_id}#{nth}"
        channel = f"hermes:{source_of(self.facts)}"
        said = [(self.id, msgspec.structs.replace(each.message, is_imported=True))]
        accepted = await self.record.accept(said, Intake(channel=channel, account=self.id, event_id=event_id))
        if all(entry.id != each.message.id for entry in accepted.entries):
            # An earlier import knew the event by other words: these are new.
            await self.record.accept(said)

    async def _take_back(self, before: Before) -> None:
        refused = {finding.where for finding in self.report.findings if finding.kind == "refused"}
        ids = [each.message.id for each in self.carried if each.undone]
        open_ids = [message_id for message_id in ids if message_id not in before.undone | refused]
        for start in range(0, len(open_ids), UNDO_IDS_MAX):
            await self.record.messages.undo(self.id, open_ids[start : start + UNDO_IDS_MAX])


def batches(carried: Iterable[Carried]) -> Iterator[list[Carried]]:
    """Yield messages in order, as many together as fit into one commit; one with a platform's id alone."""
    batch: list[Carried] = []
    size_bytes = 0
    for each in carried:
        own = sum(len(getattr(part, "text", "")) for part in each.message.parts)
        full = len(batch) == UNIT_ENTRIES_MAX or size_bytes + own > BATCH_BYTES
        if batch and (full or each.platform_id or batch[0].platform_id):
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += own
    if batch:
        yield batch


def find_gaps(facts: Facts, messages: Sequence[Copy], kinds: set[HermesSource]) -> Iterator[HermesFinding]:
    """Yield what is missing in a session: replies, rows, results, whole messages, or a copy of it all."""
    if not messages:
        claimed = f"Hermes counted {facts.claimed}" if facts.claimed else "Hermes counted none either"
        yield HermesFinding(kind="empty session", session=facts.id, detail=f"no message in any source; {claimed}")
    elif facts.claimed > len(messages):
        detail = f"Hermes counted {facts.claimed}, and {len(messages)} are in its files"
        yield HermesFinding(kind="missing messages", session=facts.id, detail=detail)
    if len(kinds) > 1 and len(facts.sources) == 1:
        missing = ", ".join(sorted(kinds - set(facts.sources)))
        detail = f"only in {facts.sources[0]}, not in {missing}"
        yield HermesFinding(kind="one source only", session=facts.id, detail=detail)
    standing = [message for message in messages if not message.undone]
    yield from _unanswered(facts, standing)
    yield from _loose_tools(facts, standing)


def _unanswered(facts: Facts, messages: Sequence[Copy]) -> Iterator[HermesFinding]:
    """Find runs of what people said that no row replies to: between two messages of theirs, or at the end."""
    run: list[tuple[int, Copy]] = []
    for number, message in enumerate(messages, 1):
        if message.role == "user":
            run.append((number, message))
        elif message.role in {"assistant", "tool"}:
            if len(run) > 1:
                yield _describe_run(facts, run[:-1], "before the next message")
            run = []
    if run:
        yield _describe_run(facts, run, "up to the end")


def _describe_run(facts: Facts, run: list[tuple[int, Copy]], until: str) -> HermesFinding:
    first, last = run[0][0], run[-1][0]
    short = short_words(run[0][1].words)
    where = f"message {first}" if first == last else f"messages {first} to {last}"
    detail = f"{len(run)} without a reply {until}: {short!r}"
    return HermesFinding(kind="no reply", session=facts.id, where=where, detail=detail)


def _loose_tools(facts: Facts, messages: Sequence[Copy]) -> Iterator[HermesFinding]:
    """Find results whose call is not there, and calls whose result is not."""
    waiting: dict[str, int] = {}
    for number, message in enumerate(messages, 1):
        for call in message.calls:
            waiting[call.id] = number
        if message.role == "tool" and waiting.pop(message.tool_call_id, None) is None:
            named = f"{message.tool_name or 'a tool'}, call {message.tool_call_id or 'without an id'}"
            yield HermesFinding(kind="result without a call", session=facts.id, where=f"message {number}", detail=named)
    for call_id, number in waiting.items():
        yield HermesFinding(kind="call without a result", session=facts.id, where=f"message {number}", detail=call_id)
