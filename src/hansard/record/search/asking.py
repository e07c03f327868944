"""Search: bring the index up to date, ask it, and read what was found with its neighbours.

Reads: search.db and state.db, in short snapshots. Writes: nothing; the index fills itself.
Invariants: the results are those of a scan by the rule of hansard.domain.search, whatever became of the index. What was
committed before the search began is found; others' commits do not make it longer. Journals that the index cannot have
now are read entry by entry. Neighbours are of the same session, a fork's past included; those that were undone or
deleted are told on request only. What was edited has the words that it has now.
"""

from __future__ import annotations

import time
from datetime import datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from hansard.domain.limits import CONTEXT_MESSAGES_MAX, HITS_MAX, INDEX_BATCH_ENTRIES, READ_ROWS_MAX
from hansard.domain.messages import Message, Role
from hansard.domain.search import Query, is_match, parse_query, tokens
from hansard.domain.text import clean_text, read_state
from hansard.journal.backend import Reads, ReplacedError, Snapshots
from hansard.journal.entries import SEQ_BITS, SEQ_MASK, Stretch
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import known_lineage
from hansard.record.messages.entries import (
    MessageAdded,
    MessageFold,
    MessageOpened,
    MessageSealed,
    added_message,
    name_awaited,
    opened_message,
    read_fold,
)
from hansard.record.people import owners_text
from hansard.record.search.docs import (
    DELETED,
    SEARCH,
    SEARCHES,
    UNDONE,
    Doc,
    Scanner,
    read_opened,
    sealed_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hansard.record.search.index import Behind, Comparison, SearchIndex

    Row = tuple[int, str, str, int, int, int, bytes]
    FindOpened = Callable[[str], Message | None]

SAID_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL, Role.SYSTEM)
MATCHES_WEIGHED_MAX = 2000
"""More matches than this are taken by time: to weigh them, all of them would have to be looked at."""

HALF_LIFE_MICROSECONDS = 90 * 86_400_000_000.0
"""After so long a message counts half as much as a new one."""

AT_MIN, AT_MAX = -(2**62), 2**62
"""Any time at all: imported words may be older than the clock of computers."""


WORD_KINDS = frozenset({"message.added", "message.sealed"})
"""Entries that hold the first words of a message."""

FILL_SECONDS_MAX = 5.0
"""How long a search brings the index up to date. Then it reads the entries that the index still lacks."""

ENTRIES_FOR_ONE = 3
"""Entries that are read at first for each neighbour wanted: a turn has some that hold no words."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
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


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A message that matches."""

    key: int
    weight: float
    at: int
    undone: bool = False
    deleted: bool = False


class SearchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One search, as everything below needs it."""

    wanted: Search
    query: Query
    journals: frozenset[int] | None
    now: int

    def allows(self, journal: int) -> bool:
        return self.journals is None or journal in self.journals


def search(index: SearchIndex, readers: Snapshots, wanted: Search, now: int) -> list[Hit]:
    query = parse_query(wanted.query)
    if not query or wanted.limit <= 0:
        return []
    plan = SearchPlan(wanted=wanted, query=query, journals=find_journals(readers, wanted), now=now)
    database_id, candidates = gather(index, readers, plan)
    ranked = sorted(candidates, key=lambda each: (-score(each, now), -each.key))[: wanted.limit]
    loader = Loader(readers, database_id, wanted.context, undone=wanted.undone)
    return [
        msgspec.structs.replace(found, undone=each.undone, score=score(each, now))
        for each, found in zip(ranked, loader.load([each.key for each in ranked]), strict=True)
        if found is not None and (wanted.undone or not found.message.is_retracted)
    ]


def find_journals(readers: Snapshots, wanted: Search) -> frozenset[int] | None:
    filters = (wanted.source, wanted.session_id, wanted.title)
    if wanted.owner is None and all(each is None for each in filters):
        return None
    query = SEARCHES.queries.filter_journals
    rows = readers.read(lambda snapshot: snapshot.rows(query, (owners_text(snapshot, wanted.owner), *filters)))
    return frozenset(journal for (journal,) in rows)


def score(candidate: Candidate, now: int) -> float:
    """Return how good a match is: its weight, halved every so many days."""
    return float(candidate.weight * 0.5 ** (max(0, now - candidate.at) / HALF_LIFE_MICROSECONDS))


def gather(index: SearchIndex, readers: Snapshots, plan: SearchPlan) -> tuple[str, list[Candidate]]:
    """Return the database's id and what matches: the best of the index, and all of what the index cannot have now."""
    comparison, found = index.read(lambda snapshot: ask_whole(index, snapshot, plan, None))
    last = time.monotonic() + FILL_SECONDS_MAX
    while found is None and pays_to_fill(comparison, plan, last) and index.fill_index(comparison):
        since = comparison
        comparison, found = index.read(lambda snapshot: ask_whole(index, snapshot, plan, since))  # noqa: B023
    if found is None:
        comparison, found, weights = index.read(lambda snapshot: ask_rest(index, snapshot, plan, comparison))
        best = max((each.weight for each in found), default=max(weights.values(), default=1.0))
        scanned = [each for behind in comparison.behind for each in scan_journal(readers, behind, plan)]
        found += [msgspec.structs.replace(each, weight=weights.get(each.key, best)) for each in scanned]
    return comparison.record.database_id, found


def pays_to_fill(comparison: Comparison, plan: SearchPlan, last: float) -> bool:
    """Return whether to bring the index up to date before it is asked.

    Not when it lacks much of others' journals, and little has to be read of those that are looked into; nor for longer
    than a person waits: others may write as fast as it is filled.
    """
    backlog = sum(each.head_seq - each.after for each in comparison.behind)
    to_read = sum(each.head_seq for each in comparison.behind if plan.allows(each.journal))
    return time.monotonic() < last and (backlog <= INDEX_BATCH_ENTRIES or to_read > INDEX_BATCH_ENTRIES)


def ask_whole(
    index: SearchIndex, snapshot: Reads | None, plan: SearchPlan, since: Comparison | None
) -> tuple[Comparison, list[Candidate] | None]:
    """Return what the index finds; None when it lacks anything that is looked into."""
    comparison = index.compare_heads(snapshot, since)
    if snapshot is None or not comparison.made or any(plan.allows(each.journal) for each in comparison.behind):
        return comparison, None
    return comparison, ask(snapshot, plan)


def ask_rest(
    index: SearchIndex, snapshot: Reads | None, plan: SearchPlan, since: Comparison
) -> tuple[Comparison, list[Candidate], dict[int, float]]:
    """Return what the index finds in the journals that it has whole, and the weights that it knows in others."""
    comparison = index.compare_heads(snapshot, since)
    if snapshot is None or not comparison.made:
        return comparison, [], {}
    behind = [each.journal for each in comparison.behind if plan.allows(each.journal)]
    known = ask(snapshot, msgspec.structs.replace(plan, journals=frozenset(behind)), limit=MATCHES_WEIGHED_MAX)
    return comparison, ask(snapshot, plan, left_out=behind), {each.key: each.weight for each in known}


def scan_journal(readers: Snapshots, behind: Behind, plan: SearchPlan) -> list[Candidate]:
    """Return what matches in a journal, by reading its entries."""
    if not plan.allows(behind.journal):
        return []
    scanner = Scanner(readers, behind.journal)
    matches = {
        doc.first: doc.message.at_microseconds
        for docs in scanner.pages(0, behind.head_seq)
        for doc in docs
        if is_wanted(doc, plan.wanted) and is_match(plan.query, tokens_of(doc, tools=plan.wanted.tools))
    }
    found = [
        Candidate(key=key, weight=1.0, at=at, undone=scanner.undone.get(key, False), deleted=key in scanner.deleted)
        for key, at in matches.items()
    ]
    return [each for each in found if plan.wanted.undone or not (each.undone or each.deleted)]


def tokens_of(doc: Doc, *, tools: bool) -> list[list[str]]:
    return [tokens(doc.said), tokens(doc.tools)] if tools else [tokens(doc.said)]


def is_wanted(doc: Doc, wanted: Search) -> bool:
    message = doc.message
    return (
        message.role in wanted.roles
        and wanted.since <= message.at_microseconds <= wanted.until
        and (not wanted.tool or f"\n{wanted.tool}\n" in doc.tool)
    )


def ask(
    snapshot: Reads, plan: SearchPlan, *, left_out: Sequence[int] = (), limit: int | None = None
) -> list[Candidate]:
    """Return the best that the index finds, apart from some journals."""
    wanted, journals = plan.wanted, plan.journals
    match = match_text(plan.query, tools=wanted.tools)
    many = snapshot.row(SEARCH.count_matches, (match, MATCHES_WEIGHED_MAX + 1))[0] > MATCHES_WEIGHED_MAX
    filters = (
        match,
        msgspec.json.encode(wanted.roles).decode(),
        wanted.since,
        wanted.until,
        UNDONE | DELETED if wanted.undone else 0,
        f"\n{wanted.tool}\n" if wanted.tool else "",
        None if journals is None else msgspec.json.encode(sorted(journals)).decode(),
        msgspec.json.encode(left_out).decode() if left_out else None,
        wanted.limit if limit is None else limit,
    )
    rows = (
        snapshot.rows(SEARCH.by_time, filters)
        if many
        else snapshot.rows(SEARCH.by_weight, (*filters, plan.now, HALF_LIFE_MICROSECONDS))
    )
    return [
        Candidate(key=key, weight=weight, at=at, undone=bool(marks & UNDONE), deleted=bool(marks & DELETED))
        for key, weight, at, marks in rows
    ]


def match_text(query: Query, *, tools: bool) -> str:
    clauses = []
    for clause in query:
        required = " AND ".join(quoted(phrase.tokens, prefix=phrase.prefix) for phrase in clause.required)
        excluded = "".join(f" NOT {quoted(phrase.tokens, prefix=phrase.prefix)}" for phrase in clause.excluded)
        clauses.append(f"(({required}){excluded})")
    return f"{'{said tools}' if tools else 'said'} : ({' OR '.join(clauses)})"


def quoted(parts: tuple[str, ...], *, prefix: bool) -> str:
    return f'"{" ".join(parts)}"{" *" if prefix else ""}'


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
    given = filters.get("role")
    role = None if given is None else read_state(Role, given)
    since, until = filters.get("since"), filters.get("until")
    return Search(
        query=clean_text(query),
        limit=max(0, min(limit, HITS_MAX)),
        context=max(0, min(context, CONTEXT_MESSAGES_MAX)),
        roles=(role,) if role is not None else SAID_ROLES,
        owner=filters.get("owner"),
        source=filters.get("source"),
        session_id=filters.get("session_id"),
        title=filters.get("title"),
        since=AT_MIN if since is None else round(since.timestamp() * 1_000_000),
        until=AT_MAX if until is None else round(until.timestamp() * 1_000_000),
        tool=filters.get("tool", ""),
        tools=filters.get("tools", False) or bool(filters.get("tool")) or role is Role.TOOL,
        undone=filters.get("everything", False),
    )


class Past(NamedTuple):
    """Where a session's entries lie, and what became of its messages after they were said."""

    session_id: str
    stretches: list[Stretch]
    fold: MessageFold


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A message and the nearest around it, the nearest first; None where those that were read were not enough."""

    seq: int
    message: Message
    before: list[Message] | None
    after: list[Message] | None


class Loader:
    """Reads hits; what it learned of a session serves the next hit there."""

    def __init__(self, readers: Snapshots, database_id: str, context: int, *, undone: bool) -> None:
        self._readers = readers
        self._database_id = database_id
        self._context = context
        self._undone = undone
        self._pasts: dict[int, Past] = {}

    def load(self, keys: list[int]) -> list[Hit | None]:
        """Return messages with their neighbours, None for one that is no longer there."""
        size = max(1, READ_ROWS_MAX // (1 + 2 * ENTRIES_FOR_ONE * self._context))
        found: list[Hit | None] = []
        for start in range(0, max(1, len(keys)), size):
            found += self._load_some(keys[start : start + size])
        return found

    def _load_some(self, keys: list[int]) -> list[Hit | None]:
        """Read hits in one snapshot; what lies far from them is read after it, page by page."""

        def read(snapshot: Reads) -> list[Near | None]:
            if snapshot.row(JOURNAL.read_record)[0] != self._database_id:
                raise ReplacedError  # numbers of journals may be others now, too
            self._read_pasts(snapshot, {key >> SEQ_BITS for key in keys} - self._pasts.keys())
            return [self._near(snapshot, key) for key in keys]

        return [self._complete(key, near) for key, near in zip(keys, self._readers.read(read), strict=True)]

    def _near(self, snapshot: Reads, key: int) -> Near | None:
        """Return a message and what lies near it, in one look."""
        journal = key >> SEQ_BITS
        past, around = self._pasts.get(journal), ENTRIES_FOR_ONE * self._context
        if past is None:
            return None
        own = past.stretches[-1]
        first, last = max(own.after, key - 1 - around), min(own.last, key + around)
        rows: list[Row] = snapshot.rows(JOURNAL.read_entries, (first, last, 2 * around + 1))
        place = key - first - 1
        row = rows[place] if 0 <= place < len(rows) else None
        decode = self._decoder(rows, partial(read_opened, snapshot, journal))
        message = None if row is None or row[0] != key & SEQ_MASK else decode(row)
        if row is None or message is None:
            return None
        more_before = [None] if first > own.after or len(past.stretches) > 1 else []
        more_after = [None] if last < own.last else []
        message = name_awaited(past.fold.last_words(message))
        before = self._nearest(past, chain(filter(None, map(decode, rows[:place][::-1])), more_before))
        after = self._nearest(past, chain(filter(None, map(decode, rows[place + 1 :])), more_after))
        return Near(seq=row[0], message=message, before=before, after=after)

    def _complete(self, key: int, near: Near | None) -> Hit | None:
        """Read on where what lay near was not enough."""
        past = self._pasts.get(key >> SEQ_BITS)
        if near is None or past is None:
            return None
        before = self._nearest(past, self._back(past, key)) if near.before is None else near.before
        onward = self._pages(JOURNAL.read_entries, key, past.stretches[-1].last)
        after = self._nearest(past, onward) if near.after is None else near.after
        assert before is not None
        assert after is not None
        undone_ids = tuple(each.id for each in (*before[::-1], *after) if past.fold.is_undone(each.id))
        return Hit(
            session_id=past.session_id,
            seq=near.seq,
            message=near.message,
            before=tuple(before[::-1]),
            after=tuple(after),
            undone_ids=undone_ids,
        )

    def _read_pasts(self, snapshot: Reads, journals: set[int]) -> None:
        """Learn of sessions what their hits need. Of one that is not there, nothing is known."""
        wanted = (msgspec.json.encode(sorted(journals)).decode(),)
        for journal, session_id, base_id, base_seq, head_seq, is_changed in snapshot.rows(
            SEARCHES.queries.sessions_of_journals, wanted
        ):
            start = journal << SEQ_BITS
            stretches, fold = [Stretch(start + base_seq, start + head_seq)], MessageFold()
            if base_id is not None and self._context:
                stretches = known_lineage(snapshot, session_id)
            if is_changed or len(stretches) > 1:
                fold = read_fold(snapshot, stretches)
            self._pasts[journal] = Past(session_id, stretches, fold)

    def _nearest(self, past: Past, messages: Iterable[Message | None]) -> list[Message] | None:
        """Return the first messages that are told as neighbours; None when more has to be read for it."""
        found: list[Message] = []
        for said in messages if self._context else ():
            if said is None:
                return None
            if said.role == Role.NOTICE:
                continue
            message = name_awaited(past.fold.last_words(said))
            if not self._undone and (message.is_retracted or past.fold.is_undone(message.id)):
                continue
            found.append(message)
            if len(found) == self._context:
                break
        return found

    def _back(self, past: Past, key: int) -> Iterator[Message]:
        """Yield the messages before one, the nearest first, into the past that a fork shares."""
        for stretch in reversed(past.stretches):
            is_own = stretch.last >> SEQ_BITS == key >> SEQ_BITS
            yield from self._pages(JOURNAL.entries_before, key if is_own else stretch.last + 1, stretch.after)

    def _pages(self, query: str, key: int, end: int) -> Iterator[Message]:
        journal = key >> SEQ_BITS

        def find_opened(message_id: str) -> Message | None:
            return self._readers.read(lambda snapshot: read_opened(snapshot, journal, message_id))

        while True:
            rows: list[Row] = self._readers.read(lambda snapshot: snapshot.rows(query, (key, end, READ_ROWS_MAX)))  # noqa: B023
            yield from filter(None, map(self._decoder(rows, find_opened), rows))
            if len(rows) < READ_ROWS_MAX:
                return
            key = (journal << SEQ_BITS) + rows[-1][0]

    def _decoder(self, rows: list[Row], find_opened: FindOpened) -> Callable[[Row], Message | None]:
        """Return what gives the message whose first words a row holds. Most replies were opened in one of the rows."""
        decode_body = self._readers.schema.decode_body
        bodies = ((row, decode_body(row[2], row[3], row[6])) for row in rows if row[2] == "message.opened")
        opened = {
            row[1]: opened_message(row[1], row[5], body) for row, body in bodies if isinstance(body, MessageOpened)
        }

        def decode(row: Row) -> Message | None:
            _, entry_id, kind, version, ignorable, at, data = row
            if kind not in WORD_KINDS:
                return None
            body = decode_body(kind, version, data, ignorable=bool(ignorable))
            if isinstance(body, MessageSealed):
                return sealed_reply(opened.get(body.message_id) or find_opened(body.message_id), at, body)
            return added_message(entry_id, at, body) if isinstance(body, MessageAdded) else None

        return decode
