"""What a journal has to know of the things that are written to it: their kinds, tables, projections and recovery.

A **concept** is one noun of the program above: its entries, the tables that are folded from them, and the SQL file
beside its module. A **schema** merges all concepts of a record, once, before a store is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar, Unpack

import msgspec

from hansard.domain.limits import ENTRY_BYTES_MAX
from hansard.errors import RecordTooNew, TooLarge
from hansard.journal.backend import Reads, UnreadableError

if TYPE_CHECKING:
    from hansard.journal.entries import Journal
    from hansard.journal.store import AnyStore
    from hansard.journal.transaction import Transaction

ENCODER = msgspec.json.Encoder()


class Body(msgspec.Struct, gc=False, frozen=True, kw_only=True, omit_defaults=True):
    """The base of what an entry says. The order of a body's fields is hashed: it never changes.

    A value that never changes is part of no cycle: Python need not look for one each time that many are read (`gc`).
    """


class UnknownBody(Body, frozen=True):
    """A body of a newer Hansard that says of itself that it may be ignored."""


BodyType = TypeVar("BodyType", bound=type[Body])
Function = TypeVar("Function", bound=Callable[..., Any])


class Base(NamedTuple):
    """What a fork continues: an entry of another journal, with its digest."""

    journal_id: str
    seq: int
    digest: bytes


class Seal(NamedTuple):
    """The end of a stream: the stream's id, and all its text as (part, text) pieces."""

    stream_id: str
    pieces: Sequence[tuple[str, str]]


class Companion(Protocol):
    """Something that lives as long as an open store and follows it, such as an index in a file of its own."""

    def start(self) -> None:
        """Begin to work in the background."""

    def finish(self, *, wrote: bool) -> None:
        """End the work. `wrote`: this process added entries."""

    def check(self) -> list[str]:
        """Return what a verification has to say of it; a companion that is wrong is made anew."""


class EntryPlace:
    """Where an entry stands. `run` changes the tables that are folded from it."""

    __slots__ = ("at", "entry_id", "journal", "journal_id", "run", "seq")

    def __init__(self, run: Callable[..., Any], journal: Journal, seq: int, entry_id: str, at: int) -> None:
        self.run = run
        self.journal: int = journal.key
        self.journal_id: str = journal.id
        self.seq = seq
        self.entry_id = entry_id
        self.at = at


Projection = Callable[[EntryPlace, Any], None]
IsAlive = Callable[[str], bool]
EndLost = Callable[[tuple[Any, ...], IsAlive], Callable[["Transaction"], object]]
CheckJournal = Callable[[Reads, "Journal"], Iterable[tuple[str, str]]]
CheckRecord = Callable[[Reads], Iterable[tuple[str, str, str]]]
Refold = Callable[[Reads, Callable[..., Any]], AbstractContextManager[None]]


class KindOptions(TypedDict, total=False):
    """What is special about a kind of entry. Each default means: nothing."""

    labels: dict[str, Any]
    """Fields that sameness ignores, with the values that are compared in their place."""
    counts: Callable[[Any], int]
    """How much the entry adds to its journal's counter."""
    projected_if: Callable[[Any], bool]
    """Whether the entry changes a table; asked before a projection is run."""
    keeps_memo: bool
    """Whether what is remembered of the journal stays true."""
    opens: bool
    """The entry opens a stream that has the entry's id."""
    seals: Callable[[Any], Seal]
    """The entry ends the open stream."""
    base: Callable[[Any], Base | None]
    """What the journal continues, if the entry is the first of a fork."""
    blobs: Callable[[Any], Iterable[str]]
    """The blobs that the entry names."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of entry: its name, its newest version, and the body of that version."""

    name: str
    version: int
    body: type[Body]
    labels: dict[str, Any] | None = None
    counts: Callable[[Any], int] | None = None
    projected_if: Callable[[Any], bool] | None = None
    keeps_memo: bool = False
    opens: bool = False
    seals: Callable[[Any], Seal] | None = None
    base: Callable[[Any], Base | None] | None = None
    blobs: Callable[[Any], Iterable[str]] | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is a fold of entries, and how a verification reads it."""

    name: str
    order: str
    of_home: bool = False
    """Folded from the home journal alone. Otherwise each row names its journal."""
    columns: str = "*"


NAME = re.compile(r"^-- name: (\w+)\n(?:--.*\n)+", re.MULTILINE)


class Queries:
    """The tables and the named queries of a `.sql` file; a misspelt name fails at once."""

    def __init__(self, text: str) -> None:
        """Split the file at its names. What stands before the first one creates the tables."""
        starts = list(NAME.finditer(text))
        ends = [*(start.start() for start in starts), len(text)]
        self.tables = text[: ends[0]]
        self.names = [start[1] for start in starts]
        for start, end in zip(starts, ends[1:], strict=True):
            setattr(self, start[1], text[start.end() : end].strip())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> str:
            """Every query is text."""


def load_queries(package: str, name: str) -> Queries:
    return Queries(read_sql(package, name))


def read_sql(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


class Concept:
    """One noun: its kinds, tables, projections, and what else the journal does for it."""

    def __init__(self, name: str, package: str = "", *, tables: Sequence[Table] = ()) -> None:
        """Its queries stand in `NAME.sql` in the package; without one it has none."""
        self.name = name
        self.tables = tuple(tables)
        self.queries = load_queries(package, f"{name}.sql") if package else Queries("")
        self.kinds: list[Kind] = []
        self.projections: list[tuple[tuple[type[Body], ...], Projection]] = []
        self.tip = ""
        """The query that gives key, head and open stream of a journal, if this concept knows which stream is open."""
        self.owned = ""
        """The query of what owners have open; the last column is the owner."""
        self.end_lost: EndLost | None = None
        self.check_journal: CheckJournal | None = None
        """Gives (what, detail) for each finding in one journal."""
        self.check_record: CheckRecord | None = None
        """Gives (journal id, what, detail) for each finding in all journals at once."""
        self.refold: Refold | None = None
        """What surrounds a fold of all entries into empty tables."""
        self.companion: Callable[[AnyStore], Companion] | None = None

    def entry(self, name: str, version: int = 1, **options: Unpack[KindOptions]) -> Callable[[BodyType], BodyType]:

        def register(body: BodyType) -> BodyType:
            self.kinds.append(Kind(name=name, version=version, body=body, **options))
            return body

        return register

    def projects(self, *bodies: type[Body]) -> Callable[[Function], Function]:
        """Register what entries, of this or another concept, change in this concept's tables."""

        def register(function: Function) -> Function:
            self.projections.append((bodies, function))
            return function

        return register

    def recovers(self, owned: str) -> Callable[[Function], Function]:
        """Register what makes the operation that ends a row of the query `owned`, once its owner is dead."""

        def register(function: Function) -> Function:
            self.owned, self.end_lost = owned, function
            return function

        return register


class Schema:
    """All concepts of a record: what its journals may hold, and what is folded from them."""

    def __init__(
        self, concepts: Sequence[Concept], migrations: Sequence[str] = (), noun: str = "journal", own_words: str = ""
    ) -> None:
        """Merge concepts. Projections of one entry run in the order of the concepts. `noun`: the word for a journal.

        A migration leads from the version of its index to the next one; the tables are of the version after the last.
        """
        self.concepts = tuple(concepts)
        self.migrations = tuple(migrations)
        self.version = max(1, len(self.migrations))
        self.noun = noun
        self.own_words = own_words
        """What a person is told of a fork whose past is missing: how to read its own entries. `{id}` is the fork."""
        self.kinds = {kind.name: kind for concept in concepts for kind in concept.kinds}
        self.by_body = {kind.body: kind for kind in self.kinds.values()}
        self.tables = [table for concept in concepts for table in concept.tables]
        self.tip = next((concept.tip for concept in concepts if concept.tip), "")
        self._decoders = {kind.name: msgspec.json.Decoder(kind.body) for kind in self.kinds.values()}
        self._projections: dict[type[Body], tuple[Projection, ...]] = {}
        for concept in concepts:
            for bodies, function in concept.projections:
                for body in bodies:
                    self._projections[body] = (*self._projections.get(body, ()), function)

    def create_tables(self) -> str:
        return "\n".join(concept.queries.tables for concept in self.concepts)

    def check_kind(self, name: str, version: int, *, ignorable: bool) -> bool:
        """Return whether this Hansard understands an entry; refuse what it neither understands nor may ignore."""
        known = self.kinds.get(name)
        if known is not None and version <= known.version:
            return True
        if ignorable:
            return False
        raise RecordTooNew(f"the record holds entries of kind {name!r} version {version}, written by a newer Hansard")

    def decode_body(self, name: str, version: int, data: bytes, *, ignorable: bool = False) -> Body:
        decoder = self._decoders.get(name)
        if decoder is not None and version == self.kinds[name].version:
            try:
                return decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UnreadableError(f"an entry of kind {name}") from error
        self.check_kind(name, version, ignorable=ignorable)
        return UnknownBody()

    def is_same(self, kind: Kind, version: int, stored: bytes, offered: bytes) -> bool:
        """Return whether two bodies say the same. Labels do not count: when it was said, how it came here."""
        if stored == offered:
            return True
        first, second = (self.decode_body(kind.name, version, data) for data in (stored, offered))
        if kind.labels and isinstance(first, kind.body) and isinstance(second, kind.body):
            first, second = (msgspec.structs.replace(body, **kind.labels) for body in (first, second))
        return first == second

    def find_lost(self, reads: Reads, is_alive: IsAlive) -> Iterator[tuple[Concept, tuple[Any, ...]]]:
        """Yield what dead owners left open: the concept, and a row of its query `owned`."""
        for concept in self.concepts:
            for row in reads.rows(concept.owned) if concept.owned else ():
                if not is_alive(row[-1]):
                    yield concept, row

    def count(self, body: Body) -> int:
        kind = self.by_body.get(type(body))
        return kind.counts(body) if kind is not None and kind.counts is not None else 0

    def project(self, place: EntryPlace, body: Body) -> None:
        """Apply one entry to the tables. An ignorable entry of a newer version changes none."""
        for function in self._projections.get(type(body), ()):
            function(place, body)


def encode_body(body: Body) -> bytes:
    """Serialise a body, once; refuse one that is too large."""
    data = ENCODER.encode(body)
    if len(data) > ENTRY_BYTES_MAX:
        raise TooLarge(f"an entry of {len(data)} bytes; the limit is {ENTRY_BYTES_MAX}")
    return data
