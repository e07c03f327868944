"""One transaction: journals as they stand under the lock, and entries added to them.

Reads and writes: through a `Group` of the backend.
Invariants: a body is serialised once; what one call adds is one unit; only projections write to a concept's tables.
On crash: the backend rolls back; what was logged is found by the next writer, which adopts or sets it aside.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from hansard.domain.ids import random_bytes
from hansard.errors import IdConflict, PastMissing, WrongState
from hansard.journal.backend import IdTakenError
from hansard.journal.concepts import Base, EntryPlace, encode_body
from hansard.journal.lines import DIGEST_FORMAT, EntryRow, Header, chain_digest
from hansard.journal.reading import SEQ_BITS, SQL, Journal, KnownEntry, inherited_entries

if TYPE_CHECKING:
    from hansard.journal.backend import Group, Unit
    from hansard.journal.concepts import Body
    from hansard.ports import Clock

SALT_BYTES = 16
B = TypeVar("B", bound="Body")


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
                for stretch in reversed(inherited_entries(self, journal)):
                    key = stretch.last >> SEQ_BITS
                    row = self.row(SQL.find_entry, (key, entry_id))
                    if row is not None and (key << SEQ_BITS) + row[0] <= stretch.last:
                        break
                    row = None
        return None if row is None else KnownEntry(*row)

    def find_same(self, journal: Journal, entry_id: str, body: Body, data: bytes) -> KnownEntry | None:
        """Return an earlier entry with this id and the same body; another body is an error (L3)."""
        found = self.find(journal, entry_id)
        if found is None:
            return None
        kind = self.schema.by_body[type(body)]
        if found.kind != kind.name or not self.schema.is_same(kind, found.version, found.body, data):
            message = f"{entry_id!r} in {journal.id} was recorded before with other content (seq {found.seq})"
            raise IdConflict(message)
        return found

    def find_body(self, journal: Journal, entry_id: str, body: type[B]) -> B | None:
        """Return what an earlier entry with this id says, if it is of that kind."""
        found = self.find(journal, entry_id)
        said = None if found is None else self.decode(found)
        return said if isinstance(said, body) else None

    def decode(self, found: KnownEntry) -> Body:
        """Return what an entry says."""
        return self.schema.decode_body(found.kind, found.version, found.body)

    def add_once(self, journal: Journal, entry_id: str, body: Body, data: bytes) -> EntryRow | None:
        """Append an entry unless its id is there already; None then, and nothing is changed (L3)."""
        try:
            return self.add(journal, entry_id, body, data)
        except IdTakenError:
            return None

    def add(
        self, journal: Journal, entry_id: str, body: Body, data: bytes = b"", *, ignorable: bool = False
    ) -> EntryRow:
        """Append one entry: its bytes, its place in the chain, and its effect on the projections."""
        data = data or encode_body(body)
        kind = self.schema.by_body[type(body)]
        at = self.clock.now_microseconds()
        seq = journal.head_seq + 1
        salt = random_bytes(SALT_BYTES)
        header = Header(journal.id, seq, entry_id, kind.name, kind.version, ignorable, at)
        digest = chain_digest(journal.head_digest, header, salt, data)
        row = EntryRow(seq, entry_id, kind.name, kind.version, ignorable, at, DIGEST_FORMAT, salt, digest, data)
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
        """Return the open stream's (part kind, text) pieces."""
        return [(part, text.decode()) for _, _, part, text in self.rows(SQL.read_chunks, (journal.key,))]

    def seal(self, journal: Journal, entry_id: str, body: Body) -> EntryRow:
        """End the open stream: its text is its chunks, byte for byte (rule 7)."""
        kind = self.schema.by_body[type(body)]
        assert kind.seals is not None
        stream_id, pieces = kind.seals(body)
        end = self.group.extend(journal, stream_id, 0, "", "")  # adds nothing: it compares the legs
        if len("".join(text for _, text in pieces).encode()) != end:
            message = f"the parts that seal {stream_id} are not its chunks"
            raise WrongState(message)
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
