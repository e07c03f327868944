"""Two toy concepts for the journal: counters, which are folded from entries, and scrolls, which are streamed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hansard.journal.backend import Reads
from hansard.journal.concepts import Base, Body, Concept, EntryPlace, IsAlive, Schema, Seal, Table, encode_body
from hansard.journal.entries import EntryRow, Journal
from hansard.journal.follow import Shapes
from hansard.journal.transaction import HOME, Transaction

COUNTERS = Concept("counters", "tests.journal", tables=(Table(name="counter", order="journal"),))
SCROLLS = Concept("scrolls", "tests.journal", tables=(Table(name="scroll", order="journal"),))
SCROLLS.tip = SCROLLS.queries.read_tip


@COUNTERS.entry("counter.added", labels={"note": ""}, counts=lambda _body: 1)
class CounterAdded(Body, frozen=True):
    """A counter grew. The note is a label."""

    amount: int
    note: str = ""


@COUNTERS.entry("counter.forked", base=lambda body: Base(body.parent, body.seq, bytes.fromhex(body.digest)))
class CounterForked(Body, frozen=True):
    """The first entry of a journal that continues another one."""

    parent: str
    seq: int
    digest: str


@SCROLLS.entry("scroll.opened", opens=True)
class ScrollOpened(Body, frozen=True):
    """A text begins."""

    writer: str


@SCROLLS.entry("scroll.sealed", seals=lambda body: Seal(body.scroll_id, [("text", body.text)]))
class ScrollSealed(Body, frozen=True):
    """A text is finished."""

    scroll_id: str
    text: str
    by: str = ""


@COUNTERS.projects(CounterAdded)
def project_added(place: EntryPlace, body: CounterAdded) -> None:
    """Fold an amount."""
    place.run(COUNTERS.queries.add_to_counter, (place.journal, body.amount))


@SCROLLS.projects(ScrollOpened)
def project_opened(place: EntryPlace, body: ScrollOpened) -> None:
    """Note what is open."""
    place.run(SCROLLS.queries.open_scroll, (place.journal, place.entry_id, body.writer))


@SCROLLS.projects(ScrollSealed)
def project_sealed(place: EntryPlace, _body: ScrollSealed) -> None:
    """Note that nothing is open."""
    place.run(SCROLLS.queries.seal_scroll, (place.journal,))


@SCROLLS.recovers(SCROLLS.queries.open_scrolls)
def seal_lost_scroll(scroll: tuple[Any, ...], _is_alive: IsAlive) -> Callable[[Transaction], object]:
    """Finish the text of a dead writer."""
    journal_id, scroll_id, _ = scroll
    return partial(seal_scroll, journal_id=journal_id, scroll_id=scroll_id, by="recovery")


SCHEMA = Schema((HOME, COUNTERS, SCROLLS))


def journal_of(tx: Transaction, journal_id: str) -> Journal:
    """Return a journal, new or not."""
    return tx.find_journal(journal_id) or tx.create_journal(journal_id)


def add_amount(tx: Transaction, journal_id: str, entry_id: str, amount: int, note: str = "") -> int:
    """Add to a counter, once for each id; return the seq."""
    journal, body = journal_of(tx, journal_id), CounterAdded(amount=amount, note=note)
    found = tx.find_same(journal, entry_id, body, encode_body(body))
    return found.seq if found is not None else tx.add(journal, entry_id, body).seq


def fork(tx: Transaction, parent_id: str, child_id: str) -> EntryRow:
    """Begin a journal that continues another one from its head."""
    parent = journal_of(tx, parent_id)
    base = Base(parent.id, parent.head_seq, parent.head_digest)
    child = tx.create_journal(child_id, base)
    return tx.add(child, "forked", CounterForked(parent=parent.id, seq=base.seq, digest=base.digest.hex()))


def open_scroll(tx: Transaction, journal_id: str, scroll_id: str, writer: str) -> None:
    """Begin a text."""
    tx.add(journal_of(tx, journal_id), scroll_id, ScrollOpened(writer=writer))


def extend_scroll(tx: Transaction, journal_id: str, scroll_id: str, start: int, text: str) -> int:
    """Add to the open text; return where it ends."""
    return tx.add_chunk(journal_of(tx, journal_id), scroll_id, start, "text", text)


def seal_scroll(tx: Transaction, journal_id: str, scroll_id: str, by: str = "") -> str:
    """Finish the open text with what is there of it."""
    journal = journal_of(tx, journal_id)
    text = "".join(piece for _, piece in tx.open_pieces(journal))
    tx.seal(journal, f"seal-{scroll_id}", ScrollSealed(scroll_id=scroll_id, text=text, by=by))
    return text


def read_total(reads: Reads, journal_id: str) -> int:
    """Return a counter."""
    row = reads.row("SELECT c.total FROM counter c JOIN journal j ON j.key = c.journal WHERE j.id = ?1", (journal_id,))
    return 0 if row is None else row[0]


Told = tuple[str, str]
SHAPES: Shapes[Told] = Shapes(
    lambda _journal, _seq, entry_id, kind, _at, _body, _position: (kind, entry_id),
    lambda _stream, _offset, text, _position, _part: ("chunk", text),
)
