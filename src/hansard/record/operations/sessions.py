"""Sessions: create, title, end, reopen, fork."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain import entries as e
from hansard.domain.ids import new_session_id
from hansard.domain.messages import Part, Status
from hansard.domain.sessions import Link, Parent, Session, SessionState
from hansard.domain.transcript import join_chunks
from hansard.domain.turns import TurnState
from hansard.errors import IdConflict, InvalidInput
from hansard.errors import SessionEnded as SessionEndedError
from hansard.record.journals import SEQ_BITS
from hansard.record.lineage import Stretch, trace_entries
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.record.journals import Journal, SessionRow
    from hansard.record.transaction import Transaction


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


def read_session(tx: Transaction, session_id: str) -> Session:
    """Return a session as it stands in this transaction."""
    journal, row = tx.session(session_id)
    now = {"head_seq": journal.head_seq, "messages": journal.messages, "active_at": journal.active_at}
    return session_value(row._replace(**now))


def check_open(row: SessionRow) -> None:
    """Refuse new words in an ended session."""
    if row.state == SessionState.ENDED:
        message = f"session {row.id} has ended ({row.end_reason})"
        raise SessionEndedError(message)


def create_session(tx: Transaction, new: NewSession) -> Session:
    """Create a session; one that exists is returned, and only its empty fields are filled."""
    if new.given and tx.find_journal(new.id) is not None:
        return _fill_session(tx, new)
    session_id, exists = _choose_id(tx, new.id, new.token)
    if exists:
        return read_session(tx, session_id)
    if new.parent is not None:
        tx.session(new.parent.session_id)
    journal = tx.create_journal(session_id)
    body = e.SessionCreated(
        source=new.source,
        owner=new.owner,
        title=new.title,
        parent_id=new.parent.session_id if new.parent else None,
        link=new.parent.link if new.parent else None,
        reason=new.reason,
    )
    tx.add(journal, f"~created:{new.token}", body)
    return read_session(tx, session_id)


def _choose_id(tx: Transaction, suggested: str, token: str) -> tuple[str, bool]:
    """Return an id that is new, and whether an earlier try of the same call made the session already."""
    session_id = suggested
    while (journal := tx.find_journal(session_id)) is not None:
        if tx.find(journal, f"~created:{token}") is not None:
            return session_id, True
        session_id = new_session_id(tx.clock.now_microseconds())
    return session_id, False


def _fill_session(tx: Transaction, new: NewSession) -> Session:
    journal, row = tx.session(new.id)
    if row.title is None and new.title is not None:
        tx.add(journal, f"~title:{journal.head_seq + 1}", e.SessionTitled(title=new.title))
    if row.parent_id is None and new.parent is not None:
        tx.session(new.parent.session_id)
        linked = e.SessionLinked(parent_id=new.parent.session_id, link=new.parent.link)
        tx.add(journal, f"~link:{journal.head_seq + 1}", linked)
    return read_session(tx, row.id)


def set_title(tx: Transaction, session_id: str, title: str) -> Session:
    """Give a session a title; the same title again changes nothing."""
    journal, row = tx.session(session_id)
    if row.title != title:
        tx.add(journal, f"~title:{journal.head_seq + 1}", e.SessionTitled(title=title))
    return read_session(tx, session_id)


def end_session(tx: Transaction, session_id: str, reason: str) -> Session:
    """End a session; the first reason stays."""
    journal, row = tx.session(session_id)
    if row.state == SessionState.OPEN:
        _end_queued(tx, journal)
        tx.add(journal, f"~end:{journal.head_seq + 1}", e.SessionEnded(reason=reason))
    return read_session(tx, session_id)


def _end_queued(tx: Transaction, journal: Journal) -> None:
    """A turn that waits in a session that ends will never run: say so (L6). One that runs finishes where it is."""
    waiting = tx.row(SQL.find_turn_in_state, (journal.key, TurnState.QUEUED))
    if waiting is not None:
        ended = e.TurnEnded(turn_id=waiting[0], state=TurnState.INTERRUPTED, reason="the session ended before it began")
        tx.add(journal, f"~ended:{waiting[0]}", ended)


def reopen_session(tx: Transaction, session_id: str) -> Session:
    """Let an ended session take new words."""
    journal, row = tx.session(session_id)
    if row.state == SessionState.ENDED:
        tx.add(journal, f"~reopen:{journal.head_seq + 1}", e.SessionReopened())
    return read_session(tx, session_id)


def archive_session(tx: Transaction, session_id: str, *, archived: bool) -> Session:
    """Leave a session out of lists, or have it in them again; the same again changes nothing."""
    journal, row = tx.session(session_id)
    if bool(row.archived) != archived:
        tx.add(journal, f"~archive:{journal.head_seq + 1}", e.SessionArchived(archived=archived))
    return read_session(tx, session_id)


class Fork(NamedTuple):
    """What a caller asks of a fork."""

    parent_id: str
    at: int | None
    id: str
    given: bool
    token: str
    title: str | None


def fork(tx: Transaction, new: Fork) -> Session:
    """Make a session that shares its parent's entries up to `at` and goes its own way after."""
    parent, parent_row = tx.session(new.parent_id)
    if new.given and tx.find_journal(new.id) is not None:
        return _existing_fork(tx, new)
    at = parent.head_seq if new.at is None else new.at
    if not 1 <= at <= parent.head_seq:
        message = f"session {parent.id} has entries 1 to {parent.head_seq}; there is no {at} to fork at"
        raise InvalidInput(message)
    session_id, exists = _choose_id(tx, new.id, new.token)
    if exists:
        return read_session(tx, session_id)
    lineage = trace_lineage(tx, parent, at)
    digest = _digest_at(tx, lineage, at)
    journal = tx.create_journal(session_id, parent.id, at, digest)
    body = e.SessionCreated(
        source=parent_row.source,
        owner=parent_row.owner,
        title=new.title,
        parent_id=parent.id,
        link=Link.FORK,
        at=at,
        digest=digest.hex(),
        messages=_count_at(tx, parent, lineage, at),
    )
    tx.add(journal, f"~created:{new.token}", body)
    cut = parent_row.open_message if at == parent.head_seq else _open_at(tx, parent, lineage, at)
    if cut is not None:
        _interrupt_cut_message(tx, parent, cut, journal)
    return read_session(tx, session_id)


def _existing_fork(tx: Transaction, new: Fork) -> Session:
    """Return the fork that was made with this id before; an id that is something else is a conflict."""
    session = read_session(tx, new.id)
    parent = session.parent
    if (
        parent is None
        or parent.link != Link.FORK
        or parent.session_id != new.parent_id
        or new.at not in {None, parent.at}
    ):
        message = f"session {new.id} exists and is not this fork"
        raise IdConflict(message)
    return session


def trace_lineage(tx: Transaction, journal: Journal, at: int) -> list[Stretch]:
    """Return where the entries of a journal up to `at` lie, the oldest first."""
    starts = ((stretch, stretch.after >> SEQ_BITS << SEQ_BITS) for stretch in trace_entries(tx.row, journal))
    return [Stretch(each.after, min(each.last, start + at)) for each, start in starts if each.after < start + at]


def _count_at(tx: Transaction, parent: Journal, lineage: list[Stretch], at: int) -> int:
    """Return how many messages a journal has up to an entry, counted from its nearer end: none at its head."""
    if at > parent.base_seq and parent.head_seq - at < at:
        after: int = tx.row(SQL.count_messages, (parent.entry_key(at), parent.entry_key(parent.head_seq)))[0]
        return int(parent.messages) - after
    return sum(tx.row(SQL.count_messages, stretch)[0] for stretch in lineage)


def _digest_at(tx: Transaction, lineage: list[Stretch], at: int) -> bytes:
    digest: bytes = tx.row(SQL.read_digest, ((lineage[-1][1] >> 32 << 32) + at,))[0]
    return digest


def _open_at(tx: Transaction, parent: Journal, lineage: list[Stretch], at: int) -> str | None:
    """Return the message that was open at an entry: the last that was opened before it, if it was sealed later."""
    for stretch in reversed(lineage):
        opened = tx.row(SQL.last_opened, stretch)
        if opened is not None:
            message_id: str = opened[0]
            seal = tx.find(parent, f"~seal:{message_id}")
            return message_id if seal is None or seal.seq > at else None
    return None


def _interrupt_cut_message(tx: Transaction, parent: Journal, message_id: str, child: Journal) -> None:
    """Seal, in the child, a message that was open at the fork point: it reads as interrupted there (rule 19)."""
    seal = tx.find(parent, f"~seal:{message_id}")
    parts: tuple[Part, ...]
    if seal is None:
        parts = join_chunks(tx.open_pieces(parent))
    else:
        sealed = e.decode_body(seal.kind, seal.version, seal.body)
        parts = sealed.parts if isinstance(sealed, e.MessageSealed) else ()
    interrupted = e.MessageSealed(message_id=message_id, status=Status.INTERRUPTED, parts=parts)
    tx.add(child, f"~seal:{message_id}", interrupted)
