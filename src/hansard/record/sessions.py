"""Sessions: one conversation each, with an owner, a state and maybe a parent.

Entries: session.created, .titled, .linked, .ended, .reopened, .archived, .frozen, .set. Table: session. SQL:
sessions.sql.
Invariants: the first reason of an end stays; creating a session that exists fills empty fields only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.domain.ids import HOME_JOURNAL, check_session_id, new_id, new_session_id
from hansard.domain.limits import (
    NAME_CHARACTERS_MAX,
    TITLE_CHARACTERS_MAX,
)
from hansard.domain.requests import ToolSpec
from hansard.domain.sessions import Link, Parent, Session, SessionState
from hansard.domain.text import clean_name
from hansard.domain.turns import TurnState
from hansard.errors import Ambiguous, InvalidInput, NotFound, SessionEnded
from hansard.journal.concepts import Base, Body, Concept, EntryPlace, Table
from hansard.record.circles import owners_text, read_circle
from hansard.record.messages.entries import (
    MessageOpened,
    MessageSealed,
)
from hansard.record.turns.entries import TURNS, TurnEnded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hansard.journal.backend import Reads
    from hansard.journal.reading import Journal
    from hansard.journal.transaction import Transaction

SESSIONS = Concept("sessions", "hansard.record", tables=(Table(name="session", order="journal"),))

SQL = SESSIONS.queries


def fork_base(body: SessionCreated) -> Base | None:
    """Return what a session continues, if it is a fork."""
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


@SESSIONS.projects(SessionCreated)
def project_session_created(place: EntryPlace, body: SessionCreated) -> None:
    place.run(
        SQL.insert_session,
        (
            place.journal,
            place.journal_id,
            body.source,
            body.owner,
            body.title,
            body.parent_id,
            body.link,
            body.at,
            place.at,
        ),
    )


@SESSIONS.projects(SessionTitled)
def project_session_titled(place: EntryPlace, body: SessionTitled) -> None:
    place.run(SQL.set_session_title, (body.title, place.journal))


@SESSIONS.projects(SessionLinked)
def project_session_linked(place: EntryPlace, body: SessionLinked) -> None:
    place.run(SQL.set_session_parent, (body.parent_id, body.link, place.journal))


@SESSIONS.projects(SessionEnd)
def project_session_ended(place: EntryPlace, body: SessionEnd) -> None:
    place.run(SQL.set_session_state, ("ended", body.reason, place.journal))


@SESSIONS.projects(SessionReopened)
def project_session_reopened(place: EntryPlace, _body: SessionReopened) -> None:
    place.run(SQL.set_session_state, ("open", None, place.journal))


@SESSIONS.projects(SessionArchived)
def project_session_archived(place: EntryPlace, body: SessionArchived) -> None:
    place.run(SQL.set_session_archived, (int(body.archived), place.journal))


@SESSIONS.projects(MessageOpened)
def project_message_opened(place: EntryPlace, body: MessageOpened) -> None:
    place.run(SQL.open_session_message, (place.entry_id, body.turn_id, place.journal))


@SESSIONS.projects(MessageSealed)
def project_message_sealed(place: EntryPlace, _body: MessageSealed) -> None:
    place.run(SQL.seal_session_message, (place.journal,))


class NewSession(NamedTuple):
    """What a caller says of a session. A given id may exist; a suggested one gives way.

    The token tells a repeated call from an id that is taken.
    """

    id: str
    given: bool
    token: str
    source: str
    owner: str
    title: str | None
    parent: Parent | None
    reason: str = ""


def session_value(row: SessionRow) -> Session:
    """Return the session of a row."""
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
    """Return a session as it stands in this transaction."""
    journal, row = session_journal(tx, session_id)
    now = {"head_seq": journal.head_seq, "messages": journal.messages, "active_at": journal.active_at}
    return session_value(row._replace(**now))


def check_open(row: SessionRow) -> None:
    """Refuse new words in an ended session."""
    if row.state == SessionState.ENDED:
        message = f"session {row.id} has ended ({row.end_reason})"
        raise SessionEnded(message)


def create_session(tx: Transaction, new: NewSession) -> Session:
    """Create a session; one that exists is returned, and only its empty fields are filled."""
    if new.given and tx.find_journal(new.id) is not None:
        return _fill_session(tx, new)
    session_id, exists = choose_id(tx, new.id, new.token)
    if exists:
        return read_session_now(tx, session_id)
    if new.parent is not None:
        session_journal(tx, new.parent.session_id)
    journal = tx.create_journal(session_id)
    body = SessionCreated(
        source=new.source,
        owner=new.owner,
        title=new.title,
        parent_id=new.parent.session_id if new.parent else None,
        link=new.parent.link if new.parent else None,
        reason=new.reason,
    )
    tx.add(journal, f"~created:{new.token}", body)
    return read_session_now(tx, session_id)


def choose_id(tx: Transaction, suggested: str, token: str) -> tuple[str, bool]:
    """Return an id that is new, and whether an earlier try of the same call made the session already."""
    session_id = suggested
    while (journal := tx.find_journal(session_id)) is not None:
        if tx.find(journal, f"~created:{token}") is not None:
            return session_id, True
        session_id = new_session_id(tx.clock.now_microseconds())
    return session_id, False


def _fill_session(tx: Transaction, new: NewSession) -> Session:
    journal, row = session_journal(tx, new.id)
    if row.title is None and new.title is not None:
        tx.add(journal, f"~title:{journal.head_seq + 1}", SessionTitled(title=new.title))
    if row.parent_id is None and new.parent is not None:
        session_journal(tx, new.parent.session_id)
        linked = SessionLinked(parent_id=new.parent.session_id, link=new.parent.link)
        tx.add(journal, f"~link:{journal.head_seq + 1}", linked)
    return read_session_now(tx, row.id)


def set_title(tx: Transaction, session_id: str, title: str) -> Session:
    """Give a session a title; the same title again changes nothing."""
    journal, row = session_journal(tx, session_id)
    if row.title != title:
        tx.add(journal, f"~title:{journal.head_seq + 1}", SessionTitled(title=title))
    return read_session_now(tx, session_id)


def end_session(tx: Transaction, session_id: str, reason: str) -> Session:
    """End a session; the first reason stays."""
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.OPEN:
        _end_queued(tx, journal)
        tx.add(journal, f"~end:{journal.head_seq + 1}", SessionEnd(reason=reason))
    return read_session_now(tx, session_id)


def _end_queued(tx: Transaction, journal: Journal) -> None:
    """A turn that waits in a session that ends will never run: say so (L6). One that runs finishes where it is."""
    waiting = tx.row(TURNS.queries.find_turn_in_state, (journal.key, TurnState.QUEUED))
    if waiting is not None:
        ended = TurnEnded(turn_id=waiting[0], state=TurnState.INTERRUPTED, reason="the session ended before it began")
        tx.add(journal, f"~ended:{waiting[0]}", ended)


def reopen_session(tx: Transaction, session_id: str) -> Session:
    """Let an ended session take new words."""
    journal, row = session_journal(tx, session_id)
    if row.state == SessionState.ENDED:
        tx.add(journal, f"~reopen:{journal.head_seq + 1}", SessionReopened())
    return read_session_now(tx, session_id)


def archive_session(tx: Transaction, session_id: str, *, archived: bool) -> Session:
    """Leave a session out of lists, or have it in them again; the same again changes nothing."""
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
    archived: int = 0


class SessionMemo:
    """What a transaction remembers of a session, until an entry changes it."""

    __slots__ = ("row", "running")

    def __init__(self) -> None:
        """Begin with nothing."""
        self.row: SessionRow | None = None
        self.running: tuple[Any, ...] | None = None
        """The running turn; empty when none runs, None when nobody looked yet."""


def read_memo(journal: Journal) -> SessionMemo:
    """Return what is remembered of a session."""
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
            memo.row = SessionRow(*row) if row is not None else None
        if memo.row is not None:
            return journal, memo.row
    message = f"there is no session {session_id}"
    raise NotFound(message)


SESSIONS.tip = SQL.read_tip


@SESSIONS.checks_record
def check_sessions(reads: Reads) -> Iterator[tuple[str, str, str]]:
    """Every journal but the home's is a session's, and every chunk belongs to an open message."""
    for (journal_id,) in reads.rows(SQL.stray_journals, (HOME_JOURNAL,)):
        yield journal_id, "stray", "a journal without a session"
    for journal, message_id in reads.rows(SQL.find_open_chunks):
        yield str(journal), "part", f"chunks of {message_id}, which is not open"


CANDIDATES_MAX = 20

ALL_ROWS = -1
"""The limit of a query that gives all it finds."""


def find_session(snapshot: Reads, session_id: str) -> SessionRow:
    """Return a session's row."""
    row = snapshot.row(SQL.read_session, (session_id,))
    if row is None:
        message = f"there is no session {session_id}"
        raise NotFound(message)
    return SessionRow(*row)


class SessionFilter(NamedTuple):
    """Which sessions to list."""

    owner: str | None
    source: str | None
    state: str | None
    before: str | None
    limit: int | None
    archived: bool | None


def owners_of(snapshot: Reads, owner: str | None) -> str | None:
    """Return all who are one person with an owner, as the queries take them; None: everybody."""
    return None if owner is None else owners_text(snapshot.rows, owner)


def list_sessions(snapshot: Reads, wanted: SessionFilter) -> list[Session]:
    """Return sessions, latest activity first."""
    if wanted.before is not None:
        find_session(snapshot, wanted.before)
    archived = None if wanted.archived is None else int(wanted.archived)
    owners = owners_of(snapshot, wanted.owner)
    limit = ALL_ROWS if wanted.limit is None else max(0, wanted.limit)
    bindings = (owners, wanted.source, wanted.state, wanted.before, limit, archived)
    return [session_value(SessionRow(*row)) for row in snapshot.rows(SQL.list_sessions, bindings)]


def resolve(snapshot: Reads, text: str, owner: str | None = None) -> Session:
    """Return the session that a text names: an id, a unique beginning of one, or a title."""
    exactly = snapshot.row(SQL.read_session, (text,)) if text else None
    seen = None if owner is None else read_circle(snapshot.rows, owner)
    if exactly is not None and (seen is None or SessionRow(*exactly).owner in seen):
        return read_session(snapshot, text)
    owners = owners_of(snapshot, owner)
    by_prefix = (
        [row[0] for row in snapshot.rows(SQL.resolve_prefix, (text.lower(), CANDIDATES_MAX, owners))] if text else []
    )
    by_title = snapshot.rows(SQL.resolve_title, (text, CANDIDATES_MAX, owners)) if text else []
    exact = [session_id for session_id, title in by_title if title == text]
    titled = exact or [session_id for session_id, _ in by_title]
    found = list(dict.fromkeys(titled + by_prefix))
    if not found:
        message = f"no session has the id or title {text[:80]!r}"
        raise NotFound(message)
    if len(found) > 1:
        message = f"{text[:80]!r} names several sessions: {', '.join(found)}"
        raise Ambiguous(message, found)
    return read_session(snapshot, found[0])


def read_session(snapshot: Reads, session_id: str) -> Session:
    """Return a session."""
    return session_value(find_session(snapshot, session_id))


def freeze(tx: Transaction, session_id: str, frozen: SessionFrozen) -> SessionFrozen:
    """Fix what the model is told in this session; what was fixed first stays, and is returned."""
    journal, _ = session_journal(tx, session_id)
    found = tx.find(journal, "~frozen")
    if found is not None:
        body = tx.decode(found)
        return body if isinstance(body, SessionFrozen) else frozen
    tx.add(journal, "~frozen", frozen)
    return frozen


def set_setting(tx: Transaction, session_id: str, setting: SessionSet, token: str) -> None:
    """Change a setting of a session."""
    journal, _ = session_journal(tx, session_id)
    if tx.find(journal, f"~set:{token}") is None:
        tx.add(journal, f"~set:{token}", setting)


def describe_session(
    id: str | None, source: str, owner: str, title: str | None, parent: str | Parent | None, *, now: int
) -> NewSession:
    """Check and clean what a caller says of a session. Without an id it gets one from the time."""
    parent = Parent(session_id=parent) if isinstance(parent, str) else parent
    if parent is not None:
        check_session_id(parent.session_id)
        if parent.link == Link.FORK:
            message = "a fork is made by Record.fork, which shares the parent's entries"
            raise InvalidInput(message)
    return NewSession(
        new_session_id(now) if id is None else check_session_id(id),
        id is not None,
        new_id(),
        clean_name(source, "a source", NAME_CHARACTERS_MAX),
        clean_name(owner, "an owner", NAME_CHARACTERS_MAX),
        None if title is None else clean_name(title, "a title", TITLE_CHARACTERS_MAX),
        parent,
    )


def describe_setting(name: str, value: str) -> SessionSet:
    """Check and clean a setting of a session."""
    return SessionSet(
        name=clean_name(name, "a setting", NAME_CHARACTERS_MAX), value=clean_name(value, "a value", NAME_CHARACTERS_MAX)
    )
