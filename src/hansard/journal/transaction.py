"""One transaction: journals as they stand under the lock, and entries added to them; and reads of entries.

This is the only code that adds an entry, and that refuses an id which was recorded before with another body (L3).

A fork keeps the digest of the entry that it was made at. Digests are chained, so a parent that holds the entry with
this digest holds the fork's whole past. A parent that was put back to an older state does not, also when it went on
since and has another entry at this place: nothing of it may then be taken for the fork's past.

Reads and writes: through a `Group` of the backend; reads also through a snapshot.
Invariants: a body is serialised once; what one call adds is one unit; only projections write to a concept's tables.
On crash: the backend rolls back; what was logged is found by the next writer, which adopts or sets it aside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from hansard.domain.ids import HOME_JOURNAL, random_bytes
from hansard.errors import IdConflict, PastMissing, WrongState
from hansard.journal.backend import EntriesGoneError, Group, Reads, Unit, UnreadableError
from hansard.journal.concepts import Base, Body, Concept, EntryPlace, Schema, encode_body, load_queries
from hansard.journal.entries import (
    DIGEST_FORMAT,
    SEQ_BITS,
    EntryRow,
    Journal,
    KnownEntry,
    Stretch,
    log_name,
    row_digest,
)
from hansard.ports import Clock

SQL = load_queries("hansard.journal", "journal.sql")

Known = TypeVar("Known", bound=Body)

SALT_BYTES = 16


class Transaction:
    """What one group commit, or one reconciliation, does."""

    def __init__(self, group: Group, clock: Clock) -> None:
        """The backend has begun the transaction and commits it."""
        self.group = group
        self.schema = group.schema
        self.clock = clock
        # The backend's own functions, without a frame of ours in between.
        self.run = group.run
        self.rows = group.rows
        self.row = group.row
        self.units: list[Unit] = []
        self._unit: Unit = []
        self._wrote = False

    # Journals.

    def find_journal(self, journal_id: str, *, look: bool = True) -> Journal | None:
        """Return a journal whose log is as the database says (rule 1), or None when neither of them knows it.

        Chunks do not touch the log and do not look at it.
        """
        return self.group.head(journal_id, log=look)

    def create_journal(self, journal_id: str, base: Base | None = None) -> Journal:
        """Return a new journal; a fork's continues its parent's chain."""
        self._wrote = True
        return self.group.create(journal_id, base)

    # Entries.

    def find(self, journal: Journal, entry_id: str) -> KnownEntry | None:
        """Return an entry by its id, a fork's inherited prefix included (rule 15), unless that is missing."""
        row = self.row(SQL.find_entry, (journal.key, entry_id))
        if row is None and journal.base_id is not None:
            with contextlib.suppress(PastMissing):
                found = find_entry_in(self, inherited_entries(self, journal), entry_id)
                return None if found is None else found[1]
        return None if row is None else KnownEntry._make(row)

    def find_same(self, journal: Journal, entry_id: str, body: Body, data: bytes) -> KnownEntry | None:
        """Return an earlier entry with this id and the same body; another body is an error (L3)."""
        found = self.find(journal, entry_id)
        if found is None:
            return None
        kind = self.schema.by_body[type(body)]
        if found.kind != kind.name or not self.schema.is_same(kind, found.version, found.body, data):
            raise IdConflict(f"{entry_id!r} in {journal.id} was recorded before with other content (seq {found.seq})")
        return found

    def decode(self, found: KnownEntry) -> Body:
        return self.schema.decode_body(found.kind, found.version, found.body)

    def find_body(self, journal: Journal, entry_id: str, kind: type[Known]) -> Known | None:
        """Return what an entry says, if it is there and of that kind."""
        found = self.find(journal, entry_id)
        body = None if found is None else self.decode(found)
        return body if isinstance(body, kind) else None

    def add_once(self, journal: Journal, entry_id: str, body: Body) -> None:
        """Append an entry, unless its id is there already (L3)."""
        if self.find(journal, entry_id) is None:
            self.add(journal, entry_id, body)

    def add(
        self, journal: Journal, entry_id: str, body: Body, data: bytes = b"", *, ignorable: bool = False
    ) -> EntryRow:
        """Append one entry: its bytes, its place in the chain, and its effect on the projections."""
        data = data or encode_body(body)
        kind = self.schema.by_body[type(body)]
        row = EntryRow(
            seq=journal.head_seq + 1,
            id=entry_id,
            kind=kind.name,
            version=kind.version,
            ignorable=ignorable,
            at=self.clock.now_microseconds(),
            digest_format=DIGEST_FORMAT,
            salt=random_bytes(SALT_BYTES),
            digest=b"",
            body=data,
        )
        row = row._replace(digest=row_digest(journal.id, journal.head_digest, row))
        self.insert(journal, row, body)
        self._unit.append((journal, row))
        return row

    def insert(self, journal: Journal, row: EntryRow, body: Body) -> None:
        """Store an entry that has its place in the chain already."""
        kind = self.schema.by_body.get(type(body))
        self.group.add(journal, row)
        self._wrote = True
        journal.head_seq = row.seq
        journal.head_digest = row.digest
        journal.active_at = row.at
        if kind is not None and kind.counts is not None:
            journal.messages += kind.counts(body)
        if kind is not None and (kind.projected_if is None or kind.projected_if(body)):
            self.schema.project(EntryPlace(self.run, journal, row.seq, row.id, row.at), body)
        if kind is None or not kind.keeps_memo:
            journal.forget()

    # Open streams.

    def add_chunk(self, journal: Journal, stream_id: str, start: int, part: str, text: str) -> int:
        """Append to the open stream; what is there already is skipped. Return where the stream ends."""
        end = self.group.extend(journal, stream_id, start, part, text)
        self._wrote = True
        return end

    def open_pieces(self, journal: Journal) -> list[tuple[str, str]]:
        return [(part, decode_text(text)) for _, _, part, text in self.rows(SQL.read_chunks, (journal.key,))]

    def seal(self, journal: Journal, entry_id: str, body: Body) -> EntryRow:
        """End the open stream: its text is its chunks, byte for byte (rule 7)."""
        kind = self.schema.by_body[type(body)]
        assert kind.seals is not None
        stream_id, pieces = kind.seals(body)
        end = self.group.extend(journal, stream_id, 0, "", "")  # adds nothing: it compares the legs
        if len("".join(text for _, text in pieces).encode()) != end:
            raise WrongState(f"the parts that seal {stream_id} are not its chunks")
        row = self.add(journal, entry_id, body)
        self.group.end_stream(journal)
        return row

    # The end of a unit.

    def finish_unit(self) -> None:
        """Let what one call added stand or fall together."""
        if self._unit:
            self.units.append(self._unit)
            self._unit = []
        self._wrote = False

    def wrote(self) -> bool:
        """Return whether the present call has written anything: if so, it cannot fail without the whole batch."""
        return self._wrote


# Reads of the journal's own tables: entries, and where those of a fork lie.


def decode_text(data: bytes) -> str:
    """Return the text of a chunk."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError("a piece of an unfinished message") from error


def open_stream(reads: Reads, journal_id: str) -> str | None:
    tip = reads.row(reads.schema.tip, (journal_id,)) if reads.schema.tip else None
    return None if tip is None else tip[2]


def trace_entries(reads: Reads, journal: Journal, after: int = 0) -> list[Stretch]:
    """Return where the entries of a journal lie, a fork's inherited ones first.

    Journals that only hold entries up to `after` are left out and not looked at. PastMissing: a journal does not hold
    the entry that a fork continues.
    """
    own = Stretch(journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq))
    stretches = [own] if own.last > own.after else []
    first, digest = journal.base_seq, journal.base_digest
    past = reads.rows(SQL.trace_past, (journal.base_id, first, after)) if first > after else []
    for parent_id, last, key, base_seq, base_digest, head_seq, found in past:
        if key is None:
            raise past_missing(reads.schema, journal, parent_id, last, "which is not in the record")
        if last <= base_seq:
            continue
        if found is None:
            raise past_missing(reads.schema, journal, parent_id, last, f"which has entries 1 to {head_seq} only")
        if found != digest:
            raise past_missing(reads.schema, journal, parent_id, last, "which has another entry at that place")
        stretches.append(Stretch((key << SEQ_BITS) + base_seq, (key << SEQ_BITS) + last))
        first, digest = base_seq, base_digest
    if first > after:
        raise EntriesGoneError(journal.id, first)
    return stretches[::-1]


def inherited_entries(reads: Reads, journal: Journal) -> list[Stretch]:
    """Return where the entries lie that a journal inherits, and keep that with it. PastMissing: they are not there."""
    if journal.base_id is None:
        return []
    if journal.past is None:
        stretches = trace_entries(reads, journal)
        journal.past = [each for each in stretches if each.last >> SEQ_BITS != journal.key]
    return journal.past


def read_lineage(reads: Reads, journal_id: str, after: int = 0) -> list[Stretch]:
    """Return where a journal's entries after a seq lie, a fork's inherited ones first; PastMissing if some are gone."""
    row = reads.row(SQL.read_journal, (journal_id,))
    return [] if row is None else trace_entries(reads, Journal(row), after)


def known_lineage(reads: Reads, journal_id: str) -> list[Stretch]:
    """Return where a journal's entries lie; of a fork whose past is missing, its own ones."""
    try:
        return read_lineage(reads, journal_id)
    except PastMissing:
        own = Journal(reads.row(SQL.read_journal, (journal_id,)))
        return [Stretch(own.entry_key(own.base_seq), own.entry_key(own.head_seq))]


def find_entry_in(
    reads: Reads | Group | Transaction, stretches: Sequence[Stretch], entry_id: str
) -> tuple[int, KnownEntry] | None:
    """Return the journal and the row of an entry of a session: what a fork's parent had after the fork is not one."""
    lasts = {stretch.last >> SEQ_BITS: stretch.last for stretch in stretches}
    for journal, *row in reads.rows(SQL.find_entries, (msgspec.json.encode(list(lasts)).decode(), entry_id)):
        if (journal << SEQ_BITS) + row[0] <= lasts[journal]:
            return journal, KnownEntry._make(row)
    return None


def read_page(reads: Reads, journal_id: str, after: int, limit: int) -> list[tuple[int, str, str, int, int, Body]]:
    """Return up to `limit` entries after a seq: (seq, id, kind, version, time, body).

    They follow one another and reach the head, or the limit: a shorter page would be a shorter history, in silence.
    """
    found: list[tuple[int, str, str, int, int, Body]] = []
    for stretch in read_lineage(reads, journal_id, after):
        start = max(stretch.after, (stretch.after >> SEQ_BITS << SEQ_BITS) + after)
        if start >= stretch.last or len(found) >= limit:
            continue
        rows = reads.rows(SQL.read_entries, (start, stretch.last, limit - len(found)))
        _check_contiguous(journal_id, [row[0] for row in rows], stretch._replace(after=start), limit - len(found))
        for seq, entry_id, kind, version, ignorable, at, data in rows:
            try:
                body = reads.schema.decode_body(kind, version, data, ignorable=bool(ignorable))
            except UnreadableError as error:
                raise UnreadableError(f"entry {seq} of {journal_id}") from error
            found.append((seq, entry_id, kind, version, at, body))
    return found


def _check_contiguous(journal_id: str, seqs: list[int], stretch: Stretch, limit: int) -> None:
    base = stretch.after >> SEQ_BITS << SEQ_BITS
    count = min(limit, stretch.last - stretch.after)
    for expected, seq in zip(range(stretch.after - base + 1, stretch.after - base + 1 + count), seqs, strict=False):
        if seq != expected:
            raise EntriesGoneError(journal_id, expected)
    if len(seqs) < count:
        raise EntriesGoneError(journal_id, stretch.after - base + len(seqs) + 1)


def past_missing(schema: Schema, journal: Journal, parent_id: str, at: int, why: str) -> PastMissing:
    message = (
        f"{schema.noun} {journal.id} goes on from entry {at} of {schema.noun} {parent_id}, {why}: its past is "
        f"missing, probably because the home was put back to an older state. Its own words are safe, from entry "
        f"{journal.base_seq + 1} on"
    )
    hint = f"To have the past again, stop Hansard and put back the newer {log_name(parent_id)}."
    return PastMissing(message, f"{hint} {schema.own_words.format(id=journal.id)}".rstrip())


# The home journal: facts that belong to no other journal. Its first entry names the database.

HOME = Concept("home")


@HOME.entry("database.created")
class DatabaseCreated(Body, frozen=True):
    """A new database holds this record: at the beginning, or rebuilt from the logs."""

    database_id: str
    rebuilt: bool = False


def home_journal(tx: Transaction, database_id: str = "", *, rebuilt: bool = False) -> Journal:
    """Return the home journal; a new database makes itself known in it."""
    journal = tx.find_journal(HOME_JOURNAL) or tx.create_journal(HOME_JOURNAL)
    if database_id and tx.find(journal, f"~database:{database_id}") is None:
        body = DatabaseCreated(database_id=database_id, rebuilt=rebuilt)
        tx.add(journal, f"~database:{database_id}", body)
    return journal
