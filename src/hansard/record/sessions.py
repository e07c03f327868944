"""Sessions: one conversation each, with an owner, a state and maybe a parent.

Entries: session.created, .titled, .linked, .ended, .reopened, .archived, .frozen, .set. Table: session. SQL:
sessions.sql.
Invariants: the first reason of an end stays; creating a session that exists fills empty fields only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from hansard.domain.ids import HOME_JOURNAL, new_id, new_session_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, READ_ROWS_MAX
from hansard.domain.requests import ToolSpec
from hansard.domain.sessions import Link, Parent, Session, SessionState
from hansard.domain.text import clean_name, clean_text, read_state
from hansard.errors import Ambiguous, NotFound, SessionEnded
from hansard.journal.backend import Reads
from hansard.journal.concepts import Base, Body, Concept, EntryPlace, Table
from hansard.journal.entries import Journal
from hansard.journal.transaction import Transaction, read_page
from hansard.record import Namespace
from hansard.record.messages.entries import Entry, MessageOpened, MessageSealed, entry_value
from hansard.record.people import owners_text, read_circle
from hansard.record.turns.entries import end_queued

SESSIONS = Concept("sessions", "hansard.record", tables=(Table(name="session", order="journal"),))

SQL = SESSIONS.queries


def fork_base(body: SessionCreated) -> Base | None:
    return Base(body.parent_id or "", body.at, bytes.fromhex(body.digest)) if body.link == Link.FORK else None


@SESSIONS.entry("session.created", counts=lambda body: body.messages, base=fork_base)
class SessionCreated(Body, frozen=True):
    """The first entry of a session's own journal. A fork names where it continues from."""

    source: str
    owner: str
    title: str | None = None
    parent_id: str | None = None
    link: Link | None = None
    at: int = 0
    digest: str = ""
    messages: int = 0
    reason: str = ""  # why it follows its parent, where the model is to be told: `new`, `idle` or `daily`


@SESSIONS.entry("session.titled")
class SessionTitled(Body, frozen=True):
    """A title was given."""

    title: str


@SESSIONS.entry("session.linked")
class SessionLinked(Body, frozen=True):
    """A parent became known after the session was created."""

    parent_id: str
    link: Link


@SESSIONS.entry("session.ended")
class SessionEnd(Body, frozen=True):
    """The session takes no new words."""

    reason: str


@SESSIONS.entry("session.reopened")
class SessionReopened(Body, frozen=True):
    """The session takes new words again."""


@SESSIONS.entry("session.archived")
class SessionArchived(Body, frozen=True):
    """The session is left out of lists, or, with `archived` false, in them again."""

    archived: bool = True


@SESSIONS.entry("session.frozen")
class SessionFrozen(Body, frozen=True):
    """What the model is told in this session, from its first turn on: later requests begin with the same bytes."""

    system: str
    tools: tuple[ToolSpec, ...] = ()


@SESSIONS.entry("session.set")
class SessionSet(Body, frozen=True):
    """A setting of this session; the last one counts."""

    name: str
    value: str


@SESSIONS.projects(
    SessionCreated,
    SessionTitled,
    SessionLinked,
    SessionEnd,
    SessionReopened,
    SessionArchived,
    MessageOpened,
    MessageSealed,
)
def project_session(place: EntryPlace, body: Body) -> None:
    match body:
        case SessionCreated():
            created = (body.source, body.owner, body.title, body.parent_id, body.link, body.at, place.at)
            place.run(SQL.insert_session, (place.journal, place.journal_id, *created))
        case SessionTitled():
            place.run(SQL.set_session_title, (body.title, place.journal))
        case SessionLinked():
            place.run(SQL.set_session_parent, (body.parent_id, body.link, place.journal))
        case SessionEnd():
            place.run(SQL.set_session_state, ("ended", body.reason, place.journal))
        case SessionReopened():
            place.run(SQL.set_session_state, ("open", None, place.journal))
        case SessionArchived():
            place.run(SQL.set_session_archived, (int(body.archived), place.journal))
        case MessageOpened():
            place.run(SQL.open_session_message, (place.entry_id, body.turn_id, place.journal))
        case MessageSealed():
            place.run(SQL.seal_session_message, (place.journal,))


def session_value(row: SessionRow) -> Session:
    parent = None
    if row.parent_id is not None:
        parent = Parent(session_id=row.parent_id, link=Link(row.parent_link or Link.RESET), at=row.parent_at)
    return Session(
        id=row.id,
        source=row.source,
        owner=row.owner,
        title=row.title,
        state=SessionState(row.state),
        end_reason=row.end_reason,
        parent=parent,
        created_at_microseconds=row.created_at,
        active_at_microseconds=row.active_at,
        messages=row.messages,
        head_seq=row.head_seq,
        archived=bool(row.archived),
    )


def read_session_now(tx: Transaction, session_id: str) -> Session:
    journal, row = session_journal(tx, session_id)
    now = row._replace(head_seq=journal.head_seq, messages=journal.messages, active_at=journal.active_at)
    return session_value(now)


def check_open(row: SessionRow) -> None:
    if row.state == SessionState.ENDED:
        raise SessionEnded(f"session {row.id} has ended ({row.end_reason})")


def create_session(
    tx: Transaction,
    *,
    id: str,
    source: str,
    owner: str,
    token: str,
    is_given: bool = False,
    title: str | None = None,
    parent: Parent | None = None,
    reason: str = "",
) -> Session:
    """Create a session; one that exists is returned, and only its empty fields are filled.

    A given id may exist; a suggested one gives way. The token tells a repeated call from an id that is taken.
    """
    if is_given and tx.find_journal(id) is not None:
        return _fill_session(tx, id, title, parent)
    session_id, exists = choose_id(tx, id, token)
    if exists:
        return read_session_now(tx, session_id)
    if parent is not None:
        session_journal(tx, parent.session_id)
    journal = tx.create_journal(session_id)
    body = SessionCreated(
        source=source,
        owner=owner,
        title=title,
        parent_id=parent.session_id if parent else None,
        link=parent.link if parent else None,
        reason=reason,
    )
    tx.add(journal, f"~created:{token}", body)
    return read_session_now(tx, session_id)


def choose_id(tx: Transaction, suggested: str, token: str) -> tuple[str, bool]:
    """Return an id that is new, and whether an earlier try of the same call made the session already."""
    session_id = suggested
    while (journal := tx.find_journal(session_id)) is not None:
        if tx.find(journal, f"~created:{token}") is not None:
            return session_id, True
        session_id = new_session_id(tx.clock.now_microseconds())
    return session_id, False


def _fill_session(tx: Transaction, session_id: str, title: str | None, parent: Parent | None) -> Session:
    journal, row = session_journal(tx, session_id)
    if row.title is None and title is not None:
        tx.add(journal, f"~title:{journal.head_seq + 1}", SessionTitled(title=title))
    if row.parent_id is None and parent is not None:
        session_journal(tx, parent.session_id)
        linked = SessionLinked(parent_id=parent.session_id, link=parent.link)
        tx.add(journal, f"~link:{journal.head_seq + 1}", linked)
    return read_session_now(tx, row.id)


def set_title(tx: Transaction, session_id: str, title: str) -> Session:
    """Give a session a title; the same title again changes nothing."""
    journal, row = session_journal(tx, session_id)
    if row.title != title:
        tx.add(journal, f"~title:{journal.head_seq + 1}", SessionTitled(title=title))
    return read_session_now(tx, session_id)


def end_session(tx: Transaction, session_id: str, reason: str) -> Session:
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.OPEN:
        # A turn that waits here will never run: say so (L6). One that runs finishes where it is.
        end_queued(tx, journal, "the session ended before it began")
        tx.add(journal, f"~end:{journal.head_seq + 1}", SessionEnd(reason=reason))
    return read_session_now(tx, session_id)


def reopen_session(tx: Transaction, session_id: str) -> Session:
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.ENDED:
        tx.add(journal, f"~reopen:{journal.head_seq + 1}", SessionReopened())
    return read_session_now(tx, session_id)


def archive_session(tx: Transaction, session_id: str, *, archived: bool) -> Session:
    journal, row = session_journal(tx, session_id)
    if bool(row.archived) != archived:
        tx.add(journal, f"~archive:{journal.head_seq + 1}", SessionArchived(archived=archived))
    return read_session_now(tx, session_id)


class SessionRow(NamedTuple):
    """A session as its projection stands."""

    journal: int
    id: str
    source: str
    owner: str
    title: str | None
    state: str
    end_reason: str | None
    parent_id: str | None
    parent_link: str | None
    parent_at: int
    created_at: int
    open_message: str | None
    open_turn: str | None
    messages: int
    active_at: int
    head_seq: int
    archived: int


class SessionMemo:
    """What a transaction remembers of a session, until an entry changes it."""

    row: SessionRow | None = None
    running: tuple[Any, ...] | None = None
    """The running turn; empty when none runs, None when nobody looked yet."""


def read_memo(journal: Journal) -> SessionMemo:
    if journal.memo is None:
        journal.memo = SessionMemo()
    memo: SessionMemo = journal.memo
    return memo


def session_journal(tx: Transaction, session_id: str, *, look: bool = True) -> tuple[Journal, SessionRow]:
    """Return the journal and the row of a session that exists. Chunks do not `look` at the log."""
    journal = tx.find_journal(session_id, look=look)
    if journal is not None:
        memo = read_memo(journal)
        if memo.row is None:
            row = tx.row(SQL.read_session, (session_id,))
            memo.row = SessionRow._make(row) if row is not None else None
        if memo.row is not None:
            return journal, memo.row
    raise NotFound(f"there is no session {session_id}")


SESSIONS.tip = SQL.read_tip


def check_sessions(reads: Reads) -> Iterator[tuple[str, str, str]]:
    """Every journal but the home's is a session's, and every chunk belongs to an open message."""
    for (journal_id,) in reads.rows(SQL.stray_journals, (HOME_JOURNAL,)):
        yield journal_id, "stray", "a journal without a session"
    for journal, message_id in reads.rows(SQL.find_open_chunks):
        yield str(journal), "part", f"chunks of {message_id}, which is not open"


SESSIONS.check_record = check_sessions


CANDIDATES_MAX = 20

ALL_ROWS = -1
"""The limit of a query that gives all it finds."""


def find_session(snapshot: Reads, session_id: str) -> SessionRow:
    row = snapshot.row(SQL.read_session, (session_id,))
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return SessionRow._make(row)


def resolve(snapshot: Reads, text: str, owner: str | None = None) -> Session:
    """Return the session that a text names: an id, a unique beginning of one, or a title."""
    exactly = snapshot.row(SQL.read_session, (text,)) if text else None
    seen = None if owner is None else read_circle(snapshot, owner)
    if exactly is not None and (seen is None or SessionRow._make(exactly).owner in seen):
        return read_session(snapshot, text)
    owners = owners_text(snapshot, owner)
    by_prefix = (
        [row[0] for row in snapshot.rows(SQL.resolve_prefix, (text.lower(), CANDIDATES_MAX, owners))] if text else []
    )
    by_title = snapshot.rows(SQL.resolve_title, (text, CANDIDATES_MAX, owners)) if text else []
    exact = [session_id for session_id, title in by_title if title == text]
    titled = exact or [session_id for session_id, _ in by_title]
    found = list(dict.fromkeys(titled + by_prefix))
    if not found:
        raise NotFound(f"no session has the id or title {text[:80]!r}")
    if len(found) > 1:
        raise Ambiguous(f"{text[:80]!r} names several sessions: {', '.join(found)}", found)
    return read_session(snapshot, found[0])


def read_session(snapshot: Reads, session_id: str) -> Session:
    return session_value(find_session(snapshot, session_id))


class Sessions(Namespace):
    """`record.sessions`: called, it lists sessions; by name, it does what `Record` has no verb for."""

    async def __call__(
        self,
        *,
        owner: str | None = None,
        source: str | None = None,
        state: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        archived: bool | None = None,
    ) -> list[Session]:
        """Return all sessions or `limit` of them, latest activity first; `before` is the last id of the page before."""
        known = None if state is None else read_state(SessionState, state)
        rows_max = ALL_ROWS if limit is None else max(0, limit)
        flag = None if archived is None else int(archived)

        def read(snapshot: Reads) -> list[Session]:
            if before is not None:
                find_session(snapshot, before)
            bindings = (owners_text(snapshot, owner), source, known, before, rows_max, flag)
            return [session_value(SessionRow._make(row)) for row in snapshot.rows(SQL.list_sessions, bindings)]

        return await self._caller.read(read)

    async def read(self, session_id: str) -> Session:
        return await self._caller.read(lambda snapshot: read_session(snapshot, session_id))

    async def read_entries(self, session_id: str, after: int = 0, limit: int = READ_ROWS_MAX) -> list[Entry]:
        """Return entries after a seq, a page at a time."""
        rows_max = max(0, min(limit, READ_ROWS_MAX))

        def read(snapshot: Reads) -> list[Entry]:
            find_session(snapshot, session_id)
            rows = read_page(snapshot, session_id, after, rows_max)
            return [entry_value(session_id, seq, entry_id, kind, at, body) for seq, entry_id, kind, _, at, body in rows]

        return await self._caller.read(read)

    async def archive(self, session_id: str) -> Session:
        """Leave a session out of lists that do not ask for it. Nothing else changes."""
        return await self._caller.write(lambda tx: archive_session(tx, session_id, archived=True))

    async def unarchive(self, session_id: str) -> Session:
        return await self._caller.write(lambda tx: archive_session(tx, session_id, archived=False))

    async def freeze(self, session_id: str, frozen: SessionFrozen) -> SessionFrozen:
        """Fix what the model is told in this session; what was fixed first stays, and is returned."""
        cleaned = msgspec.structs.replace(frozen, system=clean_text(frozen.system))

        def freeze(tx: Transaction) -> SessionFrozen:
            journal, _ = session_journal(tx, session_id)
            known = tx.find_body(journal, "~frozen", SessionFrozen)
            if known is None:
                tx.add(journal, "~frozen", cleaned)
            return known or cleaned

        return await self._caller.write(freeze)

    async def set_setting(self, session_id: str, name: str, value: str) -> None:
        named = clean_name(name, "a setting", NAME_CHARACTERS_MAX)
        setting = SessionSet(name=named, value=clean_name(value, "a value", NAME_CHARACTERS_MAX))
        token = new_id()
        await self._caller.write(lambda tx: tx.add_once(session_journal(tx, session_id)[0], f"~set:{token}", setting))
