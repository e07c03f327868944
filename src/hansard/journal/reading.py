"""Reads of the journal's own tables: journals, their entries, and where the entries of a fork lie.

A fork keeps the digest of the entry that it was made at. Digests are chained, so a parent that holds the entry with
this digest holds the fork's whole past. A parent that was put back to an older state does not, also when it went on
since and has another entry at this place: nothing of it may then be taken for the fork's past.

Reads: rows of journals, digests of entries. Writes: nothing. On crash: nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hansard.domain.ids import HOME_JOURNAL
from hansard.errors import PastMissing
from hansard.journal.backend import EntriesGoneError
from hansard.journal.concepts import Body, Concept, load_queries
from hansard.journal.lines import log_name

if TYPE_CHECKING:
    from hansard.journal.backend import Reads
    from hansard.journal.concepts import Schema
    from hansard.journal.files import FileStat
    from hansard.journal.transaction import Transaction

SQL = load_queries("hansard.journal", "journal.sql")

SEQ_BITS = 32


class KnownEntry(NamedTuple):
    """An entry that was recorded before."""

    seq: int
    kind: str
    version: int
    at: int
    body: bytes


class Journal:
    """A journal as it stands under the lock. The writer keeps it for as long as nobody else commits."""

    __slots__ = (
        "active_at",
        "base_digest",
        "base_id",
        "base_seq",
        "head_digest",
        "head_seq",
        "id",
        "key",
        "log",
        "log_end",
        "log_look",
        "log_seen",
        "log_synced",
        "memo",
        "messages",
        "open_end",
        "part",
        "part_end",
        "part_look",
        "part_reset",
        "part_seen",
        "past",
    )

    def __init__(self, row: tuple[Any, ...]) -> None:
        """Take a row of `read_journal`."""
        (
            self.key,
            self.id,
            self.base_id,
            self.base_seq,
            self.base_digest,
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.log_synced,
            self.part_end,
            self.messages,
            self.active_at,
        ) = row
        self.past: list[Stretch] | None = None
        self.forget()
        self.reset_changes()

    def forget(self) -> None:
        """Read again what entries of this transaction may have changed."""
        self.memo: Any = None
        self.open_end = -1

    def reset_changes(self) -> None:
        """Begin a transaction: nothing is to be written, and no file was looked at."""
        self.log: list[bytes] = []
        self.part: list[bytes] = []
        self.part_reset = False
        self.log_seen = False
        self.part_seen = False
        self.log_look: FileStat | None = None
        self.part_look: FileStat | None = None

    def head_row(self, commits: int) -> tuple[Any, ...]:
        """Return what `update_journal` stores."""
        return (
            self.head_seq,
            self.head_digest,
            self.log_end,
            self.part_end,
            self.messages,
            self.active_at,
            commits,
            self.key,
        )

    def entry_key(self, seq: int) -> int:
        """Return where an entry of this journal lies."""
        key: int = (self.key << SEQ_BITS) + seq
        return key


class Stretch(NamedTuple):
    """Entries of one journal that belong to a session: after one key, up to another."""

    after: int
    last: int


def open_stream(reads: Reads, journal_id: str) -> str | None:
    """Return the id of a journal's open stream; None when none is open."""
    tip = reads.row(reads.schema.tip, (journal_id,)) if reads.schema.tip else None
    return None if tip is None else tip[2]


def trace_entries(reads: Reads, journal: Journal, after: int = 0) -> list[Stretch]:
    """Return where the entries of a journal lie, a fork's inherited ones first.

    Journals that only hold entries up to `after` are left out and not looked at. PastMissing: a journal does not hold
    the entry that a fork continues.
    """
    stretches: list[Stretch] = []
    current, fork, last = journal, journal, journal.head_seq
    while True:
        if last > current.base_seq:
            if current is not fork:
                _check_entry(reads, journal, fork, current)
            stretches.append(Stretch(current.entry_key(current.base_seq), current.entry_key(last)))
            fork = current
        last = min(last, current.base_seq)
        if current.base_id is None or last <= after:
            return stretches[::-1]
        row = reads.row(SQL.read_journal, (current.base_id,))
        if row is None:
            raise past_missing(reads.schema, journal, current.base_id, fork.base_seq, "which is not in the record")
        current = Journal(row)


def inherited_entries(reads: Reads, journal: Journal) -> list[Stretch]:
    """Return where the entries lie that a journal inherits, and keep that with it. PastMissing: they are not there."""
    if journal.base_id is None:
        return []
    if journal.past is None:
        stretches = trace_entries(reads, journal)
        journal.past = [each for each in stretches if each.last >> SEQ_BITS != journal.key]
    return journal.past


def own_entries(journal: Journal) -> list[Stretch]:
    """Return where a journal's own entries lie."""
    return [Stretch(journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq))]


def _check_entry(reads: Reads, journal: Journal, fork: Journal, parent: Journal) -> None:
    """Raise when a journal does not hold the entry that a fork continues."""
    found = reads.row(SQL.read_digest, (parent.entry_key(fork.base_seq),))
    if found is None:
        has = f"which has entries 1 to {parent.head_seq} only"
        raise past_missing(reads.schema, journal, parent.id, fork.base_seq, has)
    if found[0] != fork.base_digest:
        raise past_missing(reads.schema, journal, parent.id, fork.base_seq, "which has another entry at that place")


def read_lineage(reads: Reads, journal_id: str, after: int = 0) -> list[Stretch]:
    """Return where a journal's entries after a seq lie, a fork's inherited ones first; PastMissing if some are gone."""
    row = reads.row(SQL.read_journal, (journal_id,))
    return [] if row is None else trace_entries(reads, Journal(row), after)


def known_lineage(reads: Reads, journal_id: str) -> list[Stretch]:
    """Return where a journal's entries lie; of a fork whose past is missing, its own ones."""
    try:
        return read_lineage(reads, journal_id)
    except PastMissing:
        return own_entries(Journal(reads.row(SQL.read_journal, (journal_id,))))


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
            except msgspec.DecodeError:  # the page was torn or overwritten
                raise EntriesGoneError(journal_id, seq) from None
            found.append((seq, entry_id, kind, version, at, body))
    return found


def _check_contiguous(journal_id: str, seqs: list[int], stretch: Stretch, limit: int) -> None:
    """Raise when a page lacks entries of a stretch."""
    base = stretch.after >> SEQ_BITS << SEQ_BITS
    count = min(limit, stretch.last - stretch.after)
    for expected, seq in zip(range(stretch.after - base + 1, stretch.after - base + 1 + count), seqs, strict=False):
        if seq != expected:
            raise EntriesGoneError(journal_id, expected)
    if len(seqs) < count:
        raise EntriesGoneError(journal_id, stretch.after - base + len(seqs) + 1)


def past_missing(schema: Schema, journal: Journal, parent_id: str, at: int, why: str) -> PastMissing:
    """Return the error about a fork whose past is not there."""
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
