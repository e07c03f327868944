"""Where the entries of a session lie: in its own journal, and, for a fork, in those that it continues.

A fork keeps the digest of the entry that it was made at. Digests are chained, so a parent that holds the entry with
this digest holds the fork's whole past. A parent that was put back to an older state does not, also when it went on
since and has another entry at this place: nothing of it may then be taken for the fork's past.

Reads: rows of journals, digests of entries. Writes: nothing. On crash: nothing to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.errors import PastMissing
from hansard.record.journals import SEQ_BITS, Journal
from hansard.record.lines import log_name
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

    FindRow = Callable[[str, tuple[Any, ...]], Any]
    """Returns the first row of a query, or None: of a snapshot or of a transaction."""


class Stretch(NamedTuple):
    """Entries of one journal that belong to a session: after one key, up to another."""

    after: int
    last: int


def trace_entries(find_row: FindRow, journal: Journal, after: int = 0) -> list[Stretch]:
    """Return where the entries of a journal lie, a fork's inherited ones first.

    Journals that only hold entries up to `after` are left out and not looked at. PastMissing: a journal does not hold
    the entry that a fork continues.
    """
    stretches: list[Stretch] = []
    current, fork, last = journal, journal, journal.head_seq
    while True:
        if last > current.base_seq:
            if current is not fork:
                _check_entry(find_row, journal, fork, current)
            stretches.append(Stretch(current.entry_key(current.base_seq), current.entry_key(last)))
            fork = current
        last = min(last, current.base_seq)
        if current.base_id is None or last <= after:
            return stretches[::-1]
        row = find_row(SQL.read_journal, (current.base_id,))
        if row is None:
            raise past_missing(journal, current.base_id, fork.base_seq, "which is not in the record")
        current = Journal(row)


def inherited_entries(find_row: FindRow, journal: Journal) -> list[Stretch]:
    """Return where the entries lie that a journal inherits, and keep that with it. PastMissing: they are not there."""
    if journal.base_id is None:
        return []
    if journal.past is None:
        stretches = trace_entries(find_row, journal)
        journal.past = [each for each in stretches if each.last >> SEQ_BITS != journal.key]
    return journal.past


def own_entries(journal: Journal) -> list[Stretch]:
    """Return where a journal's own entries lie."""
    return [Stretch(journal.entry_key(journal.base_seq), journal.entry_key(journal.head_seq))]


def _check_entry(find_row: FindRow, journal: Journal, fork: Journal, parent: Journal) -> None:
    """Raise when a journal does not hold the entry that a fork continues."""
    found = find_row(SQL.read_digest, (parent.entry_key(fork.base_seq),))
    if found is None:
        has = f"which has entries 1 to {parent.head_seq} only"
        raise past_missing(journal, parent.id, fork.base_seq, has)
    if found[0] != fork.base_digest:
        raise past_missing(journal, parent.id, fork.base_seq, "which has another entry at that place")


def past_missing(journal: Journal, parent_id: str, at: int, why: str) -> PastMissing:
    """Return the error about a fork whose past is not there."""
    message = (
        f"session {journal.id} goes on from entry {at} of session {parent_id}, {why}: its past is missing, probably "
        f"because the home was put back to an older state. Its own words are safe, from entry "
        f"{journal.base_seq + 1} on"
    )
    hint = (
        f"To have the past again, stop Hansard and put back the newer {log_name(parent_id)}. Until then "
        f"`hansard sessions show {journal.id}` and `hansard export {journal.id}` give the fork's own words."
    )
    return PastMissing(message, hint)
