"""Routes: which session a session key leads to, and the chats that follow a session.

Entries (home journal): route.moved. Table: route. SQL: routes.sql.
Invariants: a route moves with its generation, in one commit. Which chats follow is decided in the commit that says
something, and stands in the session's own journal: so what they are shown is a fold of it. Whether they still follow
is asked again before anything is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hansard.domain.ids import check_session_id, new_id
from hansard.domain.limits import (
    NAME_CHARACTERS_MAX,
    REASON_CHARACTERS_MAX,
)
from hansard.domain.messages import File, Role, Text, join_text
from hansard.domain.people import ADMIN, quote_id, quoted
from hansard.domain.sessions import Link, Parent, Route
from hansard.domain.text import clean_name, clean_text
from hansard.errors import NotFound, WrongState
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.reading import home_journal
from hansard.record.circles import read_circle
from hansard.record.messages.entries import MessageAdded
from hansard.record.sessions import NewSession, create_session, end_session, session_journal
from hansard.record.turns.entries import TURNS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from hansard.domain.notices import Wording
    from hansard.journal.backend import Reads
    from hansard.journal.transaction import Transaction

ROUTES = Concept("routes", "hansard.record", tables=(Table(name="route", order="key", of_home=True),))
SQL = ROUTES.queries


@ROUTES.entry("route.moved")
class RouteMoved(Body, frozen=True):
    """A session key leads to a session from now on. `owner` and `identity`: whose chat it is, where that is one's."""

    key: str
    session_id: str
    generation: int
    reason: str = ""
    owner: str = ""
    identity: str = ""


@ROUTES.projects(RouteMoved)
def project_route_moved(place: EntryPlace, body: RouteMoved) -> None:
    moved = (body.key, body.session_id, body.generation, body.reason, place.at)
    place.run(SQL.put_route, (*moved, body.owner, body.identity))


if TYPE_CHECKING:
    Rows = Callable[[str, tuple[Any, ...]], list[Any]]
if TYPE_CHECKING:
    "Of a transaction, or of a snapshot."


def leading_to(tx: Transaction, session_id: str, said_in: Collection[str]) -> tuple[str, ...]:
    """Return the other chats of whoever speaks in some chats, or, in none, at the terminal, that lead to a session.

    In somebody's chat nobody else goes on with their session; at the terminal the admin may, who is somebody else
    unless they are linked: nobody is shown then that they said something.
    """
    leading = [(chat, owner) for chat, owner in tx.rows(SQL.list_followers, (session_id,)) if chat not in said_in]
    circle = read_circle(tx.rows, session_journal(tx, session_id)[1].owner) if leading else ()
    is_same = bool(said_in) or ADMIN in circle
    return tuple(chat for chat, owner in leading if is_same and owner in circle)


def followers_of(tx: Transaction, session_id: str, chat: str = "") -> tuple[str, ...]:
    """Return where the next turn of a session is shown although nothing that it answers was said there."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return ()
    journal, _ = session_journal(tx, session_id)
    answered = {each for (each,) in tx.rows(TURNS.queries.list_waiting_chats, (journal.key,))}
    return leading_to(tx, session_id, answered | ({chat} if chat else set()))


def tell_followers(tx: Transaction, session_id: str, message_ids: tuple[str, ...], words: Wording) -> None:
    """Show the same person elsewhere what they said here: an answer alone would come from nowhere."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return
    journal, _ = session_journal(tx, session_id)
    for message_id in message_ids:
        found = tx.find(journal, message_id)
        body = tx.decode(found) if found is not None else None
        if not isinstance(body, MessageAdded) or body.role is not Role.USER:
            continue
        files = sum(isinstance(part, File) for part in body.parts)
        text = quoted(words, body.chat, join_text(body.parts), files)
        for chat in leading_to(tx, session_id, (body.chat,) if body.chat else ()):
            told = MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat, follows=True)
            if tx.find(journal, quote_id(message_id, chat)) is None:
                tx.add(journal, quote_id(message_id, chat), told)


def find_route(reads: Reads, key: str) -> Route | None:
    """Return where a session key leads, or None."""
    row = reads.row(ROUTES.queries.find_route, (key,))
    return None if row is None else Route(key=row[0], session_id=row[1], generation=row[2], reason=row[3])


class RouteMove(NamedTuple):
    """Where a session key is to lead. `expect` is the generation that the caller decided on.

    `owner` and `identity`: whose chat it is; it follows the session if it is a person's.
    """

    key: str
    session_id: str
    reason: str
    expect: int | None
    operation_id: str
    owner: str = ""
    identity: str = ""


def move_route(tx: Transaction, move: RouteMove) -> Route:
    """Move a route and bump its generation; refused when somebody else moved it first."""
    home = home_journal(tx)
    done = tx.find(home, f"~route:{move.operation_id}")
    if done is not None:
        body = tx.decode(done)
        if isinstance(body, RouteMoved):
            return Route(key=body.key, session_id=body.session_id, generation=body.generation, reason=body.reason)
    session_journal(tx, move.session_id)
    now = find_route(tx, move.key)
    generation = now.generation if now is not None else 0
    if move.expect is not None and move.expect != generation:
        message = f"route {move.key} is at generation {generation}, not {move.expect}"
        raise WrongState(message)
    body = RouteMoved(
        key=move.key,
        session_id=move.session_id,
        generation=generation + 1,
        reason=move.reason,
        owner=move.owner,
        identity=move.identity,
    )
    tx.add(home, f"~route:{move.operation_id}", body)
    return Route(key=move.key, session_id=move.session_id, generation=generation + 1, reason=move.reason)


def reset_route(tx: Transaction, key: str, new: NewSession, reason: str, operation_id: str) -> Route:
    """End the session that a key leads to, begin its successor, and move the route: one commit."""
    home = home_journal(tx)
    now = find_route(tx, key)
    if tx.find(home, f"~route:{operation_id}") is not None and now is not None:
        return now
    if now is None:
        message = f"no route {key}"
        raise NotFound(message)
    parent = Parent(session_id=now.session_id, link=Link.RESET)
    child = create_session(tx, new._replace(parent=parent))
    end_session(tx, now.session_id, reason)
    move = RouteMove(key, child.id, reason, now.generation, operation_id)
    return move_route(tx, move)


def describe_route_move(key: str, session_id: str, reason: str, expect: int | None) -> RouteMove:
    """Check and clean where a session key is to lead."""
    return RouteMove(
        clean_name(key, "a session key", NAME_CHARACTERS_MAX),
        check_session_id(session_id),
        clean_text(reason)[:REASON_CHARACTERS_MAX],
        expect,
        new_id(),
    )
