"""Followers: chats of the same person that lead to a session in which something is said elsewhere.

Reads: routes, circles. Writes: what was said, as a notice for each of them.
Invariants: which chats follow is decided in the commit that says something, and stands in the session's own journal:
so what they are shown is a fold of it. Whether they still follow is asked again before anything is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.domain import entries as e
from hansard.domain.messages import File, Role, Text, join_text
from hansard.domain.people import ADMIN, is_person, quote_id, quoted
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from hansard.record.transaction import Transaction

    Rows = Callable[[str, tuple[Any, ...]], list[Any]]
    """Of a transaction, or of a snapshot."""


def read_circle(rows: Rows, owner: str) -> tuple[str, ...]:
    """Return everybody who is one person with an owner, that owner included. A room is only itself."""
    return tuple(each for (each,) in rows(SQL.read_circle, (owner,))) if is_person(owner) else (owner,)


def owners_text(rows: Rows, owner: str) -> str:
    """Return all who are one person with an owner, as queries take them."""
    return msgspec.json.encode(read_circle(rows, owner)).decode()


def leading_to(tx: Transaction, session_id: str, said_in: Collection[str]) -> tuple[str, ...]:
    """Return the other chats of whoever speaks in some chats, or, in none, at the terminal, that lead to a session.

    In somebody's chat nobody else goes on with their session; at the terminal the admin may, who is somebody else
    unless they are linked: nobody is shown then that they said something.
    """
    leading = [(chat, owner) for chat, owner in tx.rows(SQL.list_followers, (session_id,)) if chat not in said_in]
    circle = read_circle(tx.rows, tx.session(session_id)[1].owner) if leading else ()
    is_same = bool(said_in) or ADMIN in circle
    return tuple(chat for chat, owner in leading if is_same and owner in circle)


def followers_of(tx: Transaction, session_id: str, chat: str = "") -> tuple[str, ...]:
    """Return where the next turn of a session is shown although nothing that it answers was said there."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return ()
    journal, _ = tx.session(session_id)
    answered = {each for (each,) in tx.rows(SQL.list_waiting_chats, (journal.key,))}
    return leading_to(tx, session_id, answered | ({chat} if chat else set()))


def tell_followers(tx: Transaction, session_id: str, message_ids: tuple[str, ...]) -> None:
    """Show the same person elsewhere what they said here: an answer alone would come from nowhere."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return
    journal, _ = tx.session(session_id)
    for message_id in message_ids:
        found = tx.find(journal, message_id)
        body = e.decode_body(found.kind, found.version, found.body) if found is not None else None
        if not isinstance(body, e.MessageAdded) or body.role is not Role.USER:
            continue
        files = sum(isinstance(part, File) for part in body.parts)
        for chat in leading_to(tx, session_id, (body.chat,) if body.chat else ()):
            text = quoted(tx.notices_of(chat), body.chat, join_text(body.parts), files)
            told = e.MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat, follows=True)
            if tx.find(journal, quote_id(message_id, chat)) is None:
                tx.add(journal, quote_id(message_id, chat), told)
