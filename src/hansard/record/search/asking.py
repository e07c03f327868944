"""Search: what the index has, and whatever it does not have yet, read entry by entry; ranked, with neighbours.

Reads: search.db and state.db, in short snapshots, one after the other. Writes: nothing.
Invariants: the results are those of a scan by the rule of hansard.domain.search, whether the index is whole, behind,
being made or absent. What was committed before the search began is found; others' commits do not make it longer.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from hansard.domain.limits import (
    CONTEXT_MESSAGES_MAX,
    HITS_MAX,
)
from hansard.domain.messages import Message, Role
from hansard.domain.search import Query, is_match, parse_query, tokens
from hansard.domain.text import clean_text, read_state
from hansard.journal.reading import SEQ_BITS, Stretch
from hansard.journal.reading import SQL as JOURNAL
from hansard.record.messages import operations as views
from hansard.record.search.docs import SEARCH, SEARCHES, SEQ_MASK, Doc, Scanner
from hansard.record.search.index import DELETED, UNDONE, IndexState
from hansard.record.search.loading import Loader
from hansard.record.sessions import owners_of

if TYPE_CHECKING:
    from hansard.domain.messages import Message
    from hansard.journal.backend import Reads, Snapshots
    from hansard.record.search.index import SearchIndex

SAID_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM)
MATCHES_WEIGHED_MAX = 2000
"""More matches than this are taken by time: to weigh them, all of them would have to be looked at."""

INDEX_ATTEMPTS_MAX = 3
"""How often an index that is begun anew meanwhile is asked; after that, every entry is read."""

HALF_LIFE_MICROSECONDS = 90 * 86_400_000_000.0
"""After so long a message counts half as much as a new one."""

AT_MIN, AT_MAX = -(2**62), 2**62
"""Any time at all: imported words may be older than the clock of computers."""


class Search(NamedTuple):
    """What is looked for, and where."""

    query: str
    limit: int = 20
    context: int = 0
    roles: tuple[Role, ...] = SAID_ROLES
    owner: str | None = None
    source: str | None = None
    session_id: str | None = None
    title: str | None = None
    since: int = AT_MIN
    until: int = AT_MAX
    tool: str = ""
    tools: bool = False
    undone: bool = False


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was found, and its neighbours in its session.

    `undone_ids` names those of the neighbours that were undone; there are some only when everything was asked for. What
    was edited or deleted in a chat says so itself: a message that was deleted is here with the last words that it had.
    """

    session_id: str
    seq: int
    message: Message
    before: tuple[Message, ...] = ()
    after: tuple[Message, ...] = ()
    undone: bool = False
    undone_ids: tuple[str, ...] = ()
    score: float = 0.0


class Candidate(NamedTuple):
    """A message that matches."""

    key: int
    weight: float
    at: int
    undone: bool = False
    deleted: bool = False


class UnindexedStretch(NamedTuple):
    """Entries of a journal that the index does not have."""

    journal: int
    after: int
    head_seq: int


class IndexPosition(NamedTuple):
    """Where the index stands as a search begins: which one it is, "" for none, and what it does not have.

    `found` is what it finds, when it has everything.
    """

    database_id: str
    made: str
    beyond: list[UnindexedStretch]
    found: list[Candidate] | None = None


class Scan(NamedTuple):
    """What was found by reading: when each match was said, what was undone, or is so no longer, and what was deleted.

    Messages are named by the keys of their first words.
    """

    matches: dict[int, int]
    undone: dict[int, bool]
    deleted: set[int]


class SearchPlan(NamedTuple):
    """One search, as everything below needs it."""

    wanted: Search
    query: Query
    journals: frozenset[int] | None
    now: int

    def allows(self, journal: int) -> bool:
        """Return whether a journal is looked into."""
        return self.journals is None or journal in self.journals


def search(index: SearchIndex, readers: Snapshots, wanted: Search, now: int) -> list[Hit]:
    """Return the messages that match, the best first."""
    query = parse_query(wanted.query)
    if not query or wanted.limit <= 0:
        return []
    database_id, candidates = gather(index, readers, SearchPlan(wanted, query, find_journals(readers, wanted), now))
    ranked = sorted(candidates, key=lambda each: (-score(each, now), -each.key))[: wanted.limit]
    loader = Loader(readers, database_id, wanted.context, undone=wanted.undone)
    return [
        Hit(**found._asdict(), undone=each.undone, score=score(each, now))
        for each, found in zip(ranked, loader.load([each.key for each in ranked]), strict=True)
        if found is not None and (wanted.undone or not found.message.is_retracted)
    ]


def find_journals(readers: Snapshots, wanted: Search) -> frozenset[int] | None:
    """Return the journals of the sessions that are looked into; None for all."""
    filters = (wanted.source, wanted.session_id, wanted.title)
    if wanted.owner is None and all(each is None for each in filters):
        return None

    def read(snapshot: Reads) -> list[tuple[int]]:
        return snapshot.rows(SEARCHES.queries.filter_journals, (owners_of(snapshot, wanted.owner), *filters))

    return frozenset(journal for (journal,) in readers.read(read))


def score(candidate: Candidate, now: int) -> float:
    """Return how good a match is: its weight, halved every so many days."""
    return float(candidate.weight * 0.5 ** (max(0, now - candidate.at) / HALF_LIFE_MICROSECONDS))


def gather(index: SearchIndex, readers: Snapshots, asking: SearchPlan) -> tuple[str, list[Candidate]]:
    """Return the database's id, what matches beyond the index, and the best of what the index finds.

    The index is let go while entries are read. Asked after that, it may have grown, but must be the same one: then
    both together have everything, and what the entries undid does not take the place of others.
    """
    for attempt in range(INDEX_ATTEMPTS_MAX):
        last = attempt == INDEX_ATTEMPTS_MAX - 1
        start = begin(index, readers, asking, alone=last)
        scan = read_beyond(readers, start, asking)
        room = asking.wanted.limit + len(scan.undone) + len(scan.deleted)
        found = start.found
        if found is None and start.made:
            found = index.read(lambda snapshot: ask_again(snapshot, start.made, asking, room))  # noqa: B023
        if found is not None or not start.made:
            return start.database_id, merge(found or [], scan, asking.wanted)
    raise AssertionError


def begin(index: SearchIndex, readers: Snapshots, asking: SearchPlan, *, alone: bool) -> IndexPosition:
    """Return where the index stands, and what it finds when it has everything; `alone`: without the index."""

    def read_position(snapshot: Reads | None) -> IndexPosition:
        database_id, commits = readers.read(lambda record: record.row(JOURNAL.read_record))
        row = snapshot.row(SEARCH.read_state) if snapshot is not None else None
        state = IndexState(*row) if row is not None else None
        if snapshot is None or state is None or not state.is_of(database_id, commits):
            everything = [UnindexedStretch(place.journal, place.base_seq, place.head_seq) for place in index.behind(0)]
            return IndexPosition(database_id, "", everything)
        beyond = []
        for place in index.behind(state.commits) if state.commits < commits else []:
            done = snapshot.row(SEARCH.read_done_of, (place.journal,))
            beyond.append(UnindexedStretch(place.journal, done[0] if done else place.base_seq, place.head_seq))
        found = None if beyond else ask(snapshot, asking, asking.wanted.limit)
        return IndexPosition(database_id, state.made, beyond, found)

    return read_position(None) if alone else index.read(read_position)


def read_beyond(readers: Snapshots, start: IndexPosition, asking: SearchPlan) -> Scan:
    """Return what matches in entries that the index does not have, and what they undid, brought back or deleted."""
    scan = Scan({}, {}, set())
    for stretch in start.beyond:
        if not asking.allows(stretch.journal):
            continue
        scanner = Scanner(readers, stretch.journal)
        for docs in scanner.pages(stretch.after, stretch.head_seq):
            take_matches(scan, docs, asking)
        scan.undone.update(scanner.undone)
        scan.deleted.update(scanner.deleted)
        changed = scanner.edited | {first for first, undone in scanner.undone.items() if not undone}
        known = [first for first in changed if first & SEQ_MASK <= stretch.after]
        look_again(readers, stretch, known, scan, asking)
    return scan


def look_again(
    readers: Snapshots, stretch: UnindexedStretch, changed: list[int], scan: Scan, asking: SearchPlan
) -> None:
    """Look at messages that the index has and that were edited or brought back since: by all they say, as they are now.

    The index knows neither the one nor the other, and what it hides it does not tell.
    """
    if not changed:
        return
    start = stretch.journal << SEQ_BITS
    own = Stretch(start, start + stretch.head_seq)
    fold = readers.read(lambda snapshot: views.read_fold(snapshot, [own]))
    for first in changed:
        docs = Scanner(readers, stretch.journal).versions(first, fold)
        take_matches(scan, docs, asking)
        for message in [doc.message for doc in docs[:1]]:
            scan.undone[first] = fold.is_undone(message.id)
            scan.deleted.update([first] * fold.now(message).is_retracted)


def take_matches(scan: Scan, docs: list[Doc], asking: SearchPlan) -> None:
    """Add the messages that are looked for."""
    for doc in docs:
        if is_wanted(doc, asking.wanted) and is_match(asking.query, tokens_of(doc, tools=asking.wanted.tools)):
            scan.matches[doc.first] = doc.message.at_microseconds


def tokens_of(doc: Doc, *, tools: bool) -> list[list[str]]:
    """Return the tokens of the fields that are looked into."""
    return [tokens(doc.said), tokens(doc.tools)] if tools else [tokens(doc.said)]


def is_wanted(doc: Doc, wanted: Search) -> bool:
    """Return whether a message passes the filters."""
    message = doc.message
    return (
        message.role in wanted.roles
        and wanted.since <= message.at_microseconds <= wanted.until
        and (not wanted.tool or f"\n{wanted.tool}\n" in doc.tool)
    )


def ask_again(snapshot: Reads | None, made: str, asking: SearchPlan, room: int) -> list[Candidate] | None:
    """Return the best that the index finds; None when it is not the one that the search began with."""
    row = snapshot.row(SEARCH.read_state) if snapshot is not None else None
    if snapshot is None or row is None or IndexState(*row).made != made:
        return None
    return ask(snapshot, asking, room)


def ask(snapshot: Reads, asking: SearchPlan, room: int) -> list[Candidate]:
    """Return the best that the index finds, so many of them."""
    wanted, journals = asking.wanted, asking.journals
    match = match_text(asking.query, tools=wanted.tools)
    many = snapshot.row(SEARCH.count_matches, (match, MATCHES_WEIGHED_MAX + 1))[0] > MATCHES_WEIGHED_MAX
    filters = (
        match,
        msgspec.json.encode(wanted.roles).decode(),
        wanted.since,
        wanted.until,
        UNDONE | DELETED if wanted.undone else 0,
        f"\n{wanted.tool}\n" if wanted.tool else "",
        None if journals is None else msgspec.json.encode(sorted(journals)).decode(),
        room,
    )
    rows = (
        snapshot.rows(SEARCH.by_time, filters)
        if many
        else snapshot.rows(SEARCH.by_weight, (*filters, asking.now, HALF_LIFE_MICROSECONDS))
    )
    return [Candidate(key, weight, at, bool(marks & UNDONE), bool(marks & DELETED)) for key, weight, at, marks in rows]


def match_text(query: Query, *, tools: bool) -> str:
    """Return a query as the index is asked for it."""
    clauses = []
    for clause in query:
        required = " AND ".join(quoted(phrase.tokens, prefix=phrase.prefix) for phrase in clause.required)
        excluded = "".join(f" NOT {quoted(phrase.tokens, prefix=phrase.prefix)}" for phrase in clause.excluded)
        clauses.append(f"(({required}){excluded})")
    return f"{'{said tools}' if tools else 'said'} : ({' OR '.join(clauses)})"


def quoted(parts: tuple[str, ...], *, prefix: bool) -> str:
    """Return a phrase for the index."""
    return f'"{" ".join(parts)}"{" *" if prefix else ""}'


def merge(indexed: list[Candidate], scan: Scan, wanted: Search) -> list[Candidate]:
    """Return what was found in either way; what was read last says whether it was undone or deleted."""
    best = max((each.weight for each in indexed), default=1.0)
    found = {key: Candidate(key, best, at) for key, at in scan.matches.items()}
    found |= {each.key: each for each in indexed}
    marked = [
        each._replace(undone=scan.undone.get(key, each.undone), deleted=each.deleted or key in scan.deleted)
        for key, each in found.items()
    ]
    return [each for each in marked if wanted.undone or not (each.undone or each.deleted)]


class Filters(TypedDict, total=False):
    """Where to search. Times are moments; `everything` finds what was undone, too."""

    role: str
    owner: str
    source: str
    session_id: str
    title: str
    tool: str
    since: datetime
    until: datetime
    tools: bool
    everything: bool


def describe_search(query: str, limit: int, context: int, filters: Filters) -> Search:
    """Check what a caller searches for."""
    role = read_state(Role, filters.get("role"))
    since, until = filters.get("since"), filters.get("until")
    return Search(
        clean_text(query),
        max(0, min(limit, HITS_MAX)),
        max(0, min(context, CONTEXT_MESSAGES_MAX)),
        (role,) if role is not None else SAID_ROLES,
        filters.get("owner"),
        filters.get("source"),
        filters.get("session_id"),
        filters.get("title"),
        AT_MIN if since is None else round(since.timestamp() * 1_000_000),
        AT_MAX if until is None else round(until.timestamp() * 1_000_000),
        filters.get("tool", ""),
        filters.get("tools", False) or bool(filters.get("tool")) or role is Role.TOOL,
        filters.get("everything", False),
    )
