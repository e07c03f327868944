"""Forks: sessions that share the beginning of another one. An open message at the fork's end reads as interrupted."""

from __future__ import annotations

from hansard.domain.messages import Status
from hansard.domain.sessions import Link, Session
from hansard.errors import IdConflict, InvalidInput
from hansard.journal.concepts import Base
from hansard.journal.entries import SEQ_MASK, Journal, Stretch
from hansard.journal.transaction import SQL as JOURNAL
from hansard.journal.transaction import Transaction, inherited_entries
from hansard.record.messages.entries import MessageSealed, join_chunks
from hansard.record.sessions import SQL, SessionCreated, choose_id, read_session_now, session_journal


def fork_session(
    tx: Transaction, parent_id: str, *, at: int | None, id: str, is_given: bool, token: str, title: str | None
) -> Session:
    """Make a session that shares its parent's entries up to `at` and goes its own way after."""
    parent, parent_row = session_journal(tx, parent_id)
    if is_given and tx.find_journal(id) is not None:
        return _existing_fork(tx, parent_id, at, id)
    at = parent.head_seq if at is None else at
    if not 1 <= at <= parent.head_seq:
        raise InvalidInput(f"session {parent.id} has entries 1 to {parent.head_seq}; there is no {at} to fork at")
    session_id, exists = choose_id(tx, id, token)
    if exists:
        return read_session_now(tx, session_id)
    lineage = [*inherited_entries(tx, parent), Stretch(parent.entry_key(parent.base_seq), parent.entry_key(at))]
    while lineage[-1].after & SEQ_MASK >= at:
        lineage.pop()
    end = (lineage[-1].after & ~SEQ_MASK) + at
    lineage[-1] = lineage[-1]._replace(last=end)
    digest: bytes = tx.row(JOURNAL.read_digest, (end,))[0]
    journal = tx.create_journal(session_id, Base(parent.id, at, digest))
    journal.past = lineage
    body = SessionCreated(
        source=parent_row.source,
        owner=parent_row.owner,
        title=title,
        parent_id=parent.id,
        link=Link.FORK,
        at=at,
        digest=digest.hex(),
        messages=_count_at(tx, parent, lineage, at),
    )
    tx.add(journal, f"~created:{token}", body)
    cut = parent_row.open_message if at == parent.head_seq else _open_at(tx, parent, lineage, at)
    if cut is not None:
        _interrupt_cut_message(tx, parent, cut, journal)
    return read_session_now(tx, session_id)


def _existing_fork(tx: Transaction, parent_id: str, at: int | None, id: str) -> Session:
    """Return the fork that was made with this id before; an id that is something else is a conflict."""
    session = read_session_now(tx, id)
    parent = session.parent
    if parent is None or parent.link != Link.FORK or parent.session_id != parent_id or at not in {None, parent.at}:
        raise IdConflict(f"session {id} exists and is not this fork")
    return session


def _count_at(tx: Transaction, parent: Journal, lineage: list[Stretch], at: int) -> int:
    """Return how many messages a journal has up to an entry, counted from its nearer end: none at its head."""
    if at > parent.base_seq and parent.head_seq - at < at:
        after: int = tx.row(SQL.count_messages, (parent.entry_key(at), parent.entry_key(parent.head_seq)))[0]
        return int(parent.messages) - after
    return sum(tx.row(SQL.count_messages, stretch)[0] for stretch in lineage)


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
    sealed = tx.find_body(parent, f"~seal:{message_id}", MessageSealed)
    parts = join_chunks(tx.open_pieces(parent)) if sealed is None else sealed.parts
    interrupted = MessageSealed(message_id=message_id, status=Status.INTERRUPTED, parts=parts)
    tx.add(child, f"~seal:{message_id}", interrupted)
