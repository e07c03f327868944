"""Verify: prove that both legs agree, that the chains hold, and that every projection is the fold of its entries.

Reads: everything. Writes: nothing.
Invariants: the record stays in use; a difference is reported only when it is still there under the write lock, where
nothing is in flight. On crash: nothing to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from hansard.domain.ids import HOME_JOURNAL
from hansard.domain.limits import READ_ROWS_MAX
from hansard.errors import HansardError, LogUnwritable, PastMissing, RecordDamaged
from hansard.journal.backend import DamageError, Fold, Leg, Reads, ReplacedError
from hansard.journal.causes import Cause, framed, tell
from hansard.journal.concepts import Body, EntryPlace
from hansard.journal.entries import (
    SEQ_BITS,
    EntryRow,
    Journal,
    LogLine,
    decode_line,
    decode_part,
    log_name,
    part_name,
    row_digest,
    tail_name,
)
from hansard.journal.store import AnyStore
from hansard.journal.transaction import SQL, decode_text, open_stream, trace_entries

RECHECKS_MAX = 3
"""How often a difference is looked at again. The lock settles it the first time; reading only, there is none."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it must be."""

    session_id: str
    what: str
    detail: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification saw."""

    findings: list[Finding]
    notes: list[str]
    sessions: int
    entries: int

    @property
    def ok(self) -> bool:
        return not self.findings


class JournalCheck:
    """Compares one journal with its log and its projections, in short snapshots."""

    def __init__(self, store: AnyStore, fold: Fold, journal_id: str) -> None:
        self._store = store
        self._schema = store.schema
        self._leg = store.backend.leg
        self._failures: tuple[type[Exception], ...] = (HansardError, DamageError, *store.backend.failures)
        self._files = store.backend.leg.files
        self._fold = fold
        self._id = journal_id
        self._lines = self._read_lines()
        self._offset = 0
        self._log_broken = False
        self._seq = 0
        self._digest = b""
        self._messages = 0
        self._active_at = 0
        self.findings: list[Finding] = []
        self.entries = 0

    def find(self, what: str, detail: str) -> None:
        """Note a difference; one of the log names its file."""
        name = log_name(self._id)
        named = detail if what != "log" or name in detail else f"{detail} ({name})"
        self.findings.append(Finding(self._id, what, named))

    def run(self) -> None:
        """Walk the entries in pages; the last page comes with head, projections and chunks of the same moment."""
        self._fold.begin()
        after: int | None = None
        while after is None or after >= 0:
            after = self._leg.snapshot(lambda snapshot: self._page(snapshot, after))  # noqa: B023

    def _page(self, snapshot: Reads, after: int | None) -> int:
        journal = Journal(snapshot.row(SQL.read_journal, (self._id,)))
        if after is None:
            self._seq, self._digest = journal.base_seq, journal.base_digest
            self._check_base(snapshot, journal)
        start = journal.entry_key(journal.base_seq if after is None else after)
        rows = snapshot.rows(SQL.read_full_entries, (start, ((journal.key + 1) << SEQ_BITS) - 1, READ_ROWS_MAX))
        for row in map(EntryRow._make, rows):
            self._check_entry(journal, row)
        if len(rows) == READ_ROWS_MAX and self._seq > (-1 if after is None else after):
            return self._seq
        self._check_end(snapshot, journal)
        return -1

    def _check_base(self, snapshot: Reads, journal: Journal) -> None:
        """A fork's chain must continue what its parent holds at that place."""
        try:
            trace_entries(snapshot, journal)
        except PastMissing as error:
            self.find("lineage", str(error))

    def _check_entry(self, journal: Journal, row: EntryRow) -> None:
        self.entries += 1
        if row.seq != self._seq + 1:
            self.find("contiguity", f"state.db is wrong, not the log: seq {row.seq} follows {self._seq}")
            self._log_broken = True  # the log has what is missing here, and must not be blamed for it
        if row_digest(journal.id, self._digest, row) != row.digest:
            self.find("chain", f"the digest of seq {row.seq} ({row.id}) does not continue the one before")
        self._seq, self._digest = row.seq, row.digest
        self._check_line(row)
        try:
            body = self._schema.decode_body(row.kind, row.version, row.body, ignorable=bool(row.ignorable))
            self._schema.project(EntryPlace(self._fold.run, journal, row.seq, row.id, row.at), body)
        except self._failures as error:
            self.find("entry", f"seq {row.seq} ({row.kind}): {error}")
            return
        self._messages += self._schema.count(body)
        self._active_at = row.at
        self._check_blobs(row, body)

    def _check_blobs(self, row: EntryRow, body: Body) -> None:
        kind = self._schema.by_body.get(type(body))
        blobs = kind.blobs(body) if kind is not None and kind.blobs is not None else ()
        for blob in filter(None, blobs):
            try:
                self._store.backend.blobs.get(blob)
            except HansardError as error:
                self.find("blob", f"seq {row.seq}: {error}")

    # The log leg.

    def _read_lines(self) -> Iterator[tuple[int, LogLine | None]]:
        try:
            self._files.stat_file(log_name(self._id))
            for end, data in self._files.read_lines(log_name(self._id), 0, 1 << 62):
                yield end, decode_line(data)
        except (RecordDamaged, LogUnwritable, OSError) as error:
            self._log_broken = True
            self.find("log", str(error))

    def _check_line(self, row: EntryRow) -> None:
        """Compare an entry with its log line; after the first difference there is no more to say."""
        if self._log_broken:
            return
        end, line = next(self._lines, (self._offset, None))
        if self._log_broken:
            return
        if line is None:
            self._log_broken = True
            self.find(
                "log", f"seq {row.seq} ({row.id}) is not in the log: missing or damaged after byte {self._offset}"
            )
        elif (line.seq, line.digest, line.id) != (row.seq, row.digest.hex(), row.id) or bytes(line.body) != row.body:
            self._log_broken = True
            there = f"entry {line.seq} ({line.id}, {line.digest[:16]})"
            here = f"entry {row.seq} ({row.id}, {row.digest.hex()[:16]})"
            self.find("log", f"the log has {there} where the database has {here}")
        self._offset = end

    def _check_end(self, snapshot: Reads, journal: Journal) -> None:
        if (journal.messages, journal.active_at) != (self._messages, self._active_at):
            told, counted = (journal.messages, journal.active_at), (self._messages, self._active_at)
            self.find("projection", f"messages and last activity are {told}; the entries give {counted}")
        if (journal.head_seq, journal.head_digest) != (self._seq, self._digest):
            self.find(
                "head",
                f"state.db is wrong, not the log: its head is seq {journal.head_seq}, its entries end at {self._seq}; "
                f"move state.db, state.db-wal and state.db-shm away together and open the record again: the database "
                f"is rebuilt from the logs",
            )
        elif not self._log_broken:
            if self._offset != journal.log_end:
                self.find("log", f"the log's lines end at byte {self._offset}, the database says {journal.log_end}")
            elif (look := self._files.stat_file(log_name(self._id))) is not None and look.size > journal.log_end:
                self._find_more_lines()
        self._check_tables(snapshot, journal)
        self._check_part(snapshot, journal)

    def _check_tables(self, snapshot: Reads, journal: Journal) -> None:
        """Compare the rows of the tables that have any for this journal, stored or folded: most have none."""
        filled = (self._fold.filled, (journal.key,))
        names = {name for (name,) in snapshot.rows(*filled) + self._fold.dump(*filled)}
        for table in self._schema.tables:
            if table.name not in names and not (table.of_home and self._id == HOME_JOURNAL):
                continue
            query, bindings = self._fold.query(table), () if table.of_home else (journal.key,)
            stored, folded = snapshot.rows(query, bindings), self._fold.dump(query, bindings)
            if stored != folded:
                self.find("projection", f"{table.name} is {stored!r:.300}; the entries give {folded!r:.300}")

    def _find_more_lines(self) -> None:
        """Tell what the log holds beyond the database: another chain, or an unfinished write."""
        _, line = next(self._lines, (0, None))
        told = "lines that cannot be read" if line is None else f"entry {line.seq} ({line.id}, {line.digest[:16]})"
        self.find("log", f"after entry {self._seq} the log goes on with {told}")

    def _check_part(self, snapshot: Reads, journal: Journal) -> None:
        chunks = snapshot.rows(SQL.read_chunks, (journal.key,))
        stream_id = open_stream(snapshot, self._id)
        if any(message_id != stream_id for _, message_id, _, _ in chunks):
            self.find("part", "there are chunks of a message that is not open")
        for concept in self._schema.concepts:
            for what, detail in concept.check_journal(snapshot, journal) if concept.check_journal is not None else ():
                self.find(what, detail)
        try:
            stored = [(message_id, part, decode_text(text)) for _, message_id, part, text in chunks]
            lines = list(self._files.read_lines(part_name(self._id), 0, journal.part_end))
        except (LogUnwritable, DamageError) as error:
            self.find("part", str(error))
            return
        except OSError as error:
            self.find("part", f"{part_name(self._id)} cannot be read: {error.strerror}")
            return
        parts = [decode_part(data) for _, data in lines]
        logged = [(line.message, line.part, line.text) if line is not None else None for line in parts]
        end = lines[-1][0] if lines else 0
        if (end, logged) != (journal.part_end, stored):
            self.find("part", f"the part file holds {len(logged)} chunks; the database {len(stored)}")


def verify_record(store: AnyStore) -> Report:
    """Check every journal, and that nothing lies around that no journal accounts for. Blocking."""
    backend = store.backend
    try:
        return _verify(store)
    except ReplacedError:
        raise tell(Cause.REPLACED, backend.place) from None
    except backend.failures as error:
        raise framed(backend.explain(error), "the record could not be verified") from error


def _verify(store: AnyStore) -> Report:
    leg = store.backend.leg
    findings = [Finding("", "repair", store.note)] if store.note else []
    findings += leg.snapshot(lambda reads: _check_database(reads, leg.self_check))
    fold = leg.make_fold()
    for (table,) in leg.snapshot(lambda reads: reads.rows(fold.orphaned)):
        findings.append(
            Finding("", "projection", f"{table} in state.db has rows of a {store.schema.noun} that is not there")
        )
    entries = sessions = 0
    known = set()
    after = 0
    while rows := leg.snapshot(lambda s: s.rows(SQL.list_journals, (after, READ_ROWS_MAX))):  # noqa: B023
        if rows[-1][0] <= after:
            findings.append(Finding("", "database", "state.db is damaged: journals are not in the order of their keys"))
            break
        after = rows[-1][0]
        for row in rows:
            check = _check_journal(store, fold, row[1])
            known.add(row[1])
            findings += check.findings
            entries += check.entries
            sessions += row[1] != HOME_JOURNAL
    logs = list(leg.list_logs())
    for log in logs:
        is_known = log.suffix != "jsonl" or log.journal_id in known or not log.size_bytes
        if not is_known and not _known_now(leg, log.journal_id):
            findings.append(Finding(log.journal_id, "stray", _explain_stray(leg, log_name(log.journal_id))))
    notes = [note for companion in store.companions.values() for note in companion.check()] + [
        f"{tail_name(journal_id)} keeps lines that are not in the record"
        for journal_id in sorted(known.union(log.journal_id for log in logs))
        if os.path.exists(leg.files.path(tail_name(journal_id)))
    ]
    return Report(findings=findings, notes=notes, sessions=sessions, entries=entries)


def _explain_stray(leg: Leg, name: str) -> str:
    try:
        leg.files.stat_file(name)
        next(iter(leg.files.read(name, 0, 1)), b"")
    except (HansardError, OSError) as error:
        return str(error)
    return f"{name} cannot be read as the log of a session"


def _known_now(leg: Leg, journal_id: str) -> bool:
    return leg.snapshot(lambda snapshot: snapshot.row(SQL.read_journal, (journal_id,))) is not None


def _check_database(snapshot: Reads, self_check: str) -> list[Finding]:
    findings = [Finding("", "database", problem) for (problem,) in snapshot.rows(self_check) if problem != "ok"]
    for kind, version, ignorable in snapshot.rows(SQL.list_kinds):
        try:
            snapshot.schema.check_kind(kind, version, ignorable=bool(ignorable))
        except HansardError as error:
            findings.append(Finding("", "kind", str(error)))
    for concept in snapshot.schema.concepts:
        if concept.check_record is not None:
            findings += [Finding(*found) for found in concept.check_record(snapshot)]
    return findings


def _check_journal(store: AnyStore, fold: Fold, journal_id: str) -> JournalCheck:
    """Check a journal while it is in use; what seems wrong is looked at again under the write lock."""
    check = JournalCheck(store, fold, journal_id)
    check.run()
    if not check.findings:
        return check
    for _ in range(RECHECKS_MAX):
        with store.backend.leg.settled():
            check = JournalCheck(store, fold, journal_id)
            check.run()
        if not check.findings:
            break
    return check
