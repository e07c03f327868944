"""Routes: which session a session key leads to, and the chats that follow a session.

Entries (home journal): route.moved. Table: route. SQL: routes.sql.
Invariants: a route moves with its generation, in one commit. Which chats follow is decided in the commit that says
something, and stands in the session's own journal: so what they are shown is a fold of it. Whether they still follow
is asked again before anything is shown.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from hansard.domain.access import Grant, is_same_owner, is_shared
from hansard.domain.arrivals import Arrival, ArrivalKind, Origin, RouteChange
from hansard.domain.chats import Began, Resting, due
from hansard.domain.ids import check_session_id, new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from hansard.domain.messages import File, Message, Role, Text, join_text
from hansard.domain.notices import Wording
from hansard.domain.people import ADMIN, is_person, quote_id, quoted
from hansard.domain.sessions import Link, Parent, Route, SessionState, TurnState
from hansard.domain.settings import Resets
from hansard.domain.text import clean_name, clean_text
from hansard.errors import WrongState
from hansard.journal.backend import Reads
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import Transaction, home_journal
from hansard.record import Namespace
from hansard.record.messages.entries import MessageAdded
from hansard.record.messages.operations import append, offer
from hansard.record.people import read_circle
from hansard.record.sessions import create_session, end_session, session_journal
from hansard.record.turns.entries import TURNS, answers_nobody, find_turn

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


def list_following_chats(tx: Transaction, session_id: str, said_in: Collection[str]) -> tuple[str, ...]:
    """Return the other chats of whoever speaks in some chats, or, in none, at the terminal, that lead to a session.

    In somebody's chat nobody else goes on with their session; at the terminal the admin may, who is somebody else
    unless they are linked: nobody is shown then that they said something.
    """
    leading = [(chat, owner) for chat, owner in tx.rows(SQL.list_followers, (session_id,)) if chat not in said_in]
    circle = read_circle(tx, session_journal(tx, session_id)[1].owner) if leading else ()
    is_same = bool(said_in) or ADMIN in circle
    return tuple(chat for chat, owner in leading if is_same and owner in circle)


def list_turn_followers(tx: Transaction, session_id: str, chat: str = "") -> tuple[str, ...]:
    """Return where the next turn of a session is shown although nothing that it answers was said there."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return ()
    journal, _ = session_journal(tx, session_id)
    answered = {each for (each,) in tx.rows(TURNS.queries.list_waiting_chats, (journal.key,))}
    return list_following_chats(tx, session_id, answered | ({chat} if chat else set()))


def tell_followers(tx: Transaction, session_id: str, message_ids: tuple[str, ...], words: Wording) -> None:
    """Show the same person elsewhere what they said here: an answer alone would come from nowhere."""
    if not tx.rows(SQL.list_followers, (session_id,)):
        return
    journal, _ = session_journal(tx, session_id)
    for message_id in message_ids:
        body = tx.find_body(journal, message_id, MessageAdded)
        if body is None or body.role is not Role.USER:
            continue
        files = sum(isinstance(part, File) for part in body.parts)
        text = quoted(words, body.chat, join_text(body.parts), files)
        for chat in list_following_chats(tx, session_id, (body.chat,) if body.chat else ()):
            told = MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat, follows=True)
            tx.add_once(journal, quote_id(message_id, chat), told)


def find_route(reads: Reads, key: str) -> Route | None:
    row = reads.row(SQL.find_route, (key,))
    return None if row is None else Route(key=row[0], session_id=row[1], generation=row[2], reason=row[3])


def move_route(
    tx: Transaction,
    key: str,
    session_id: str,
    *,
    reason: str,
    expect: int | None,
    token: str,
    owner: str = "",
    identity: str = "",
) -> Route:
    """Move a route and bump its generation; refused when somebody else moved it since the generation `expect`.

    `owner` and `identity`: whose chat it is; it follows the session if it is a person's.
    """
    home = home_journal(tx)
    moved = tx.find_body(home, f"~route:{token}", RouteMoved)
    if moved is None:
        session_journal(tx, session_id)
        now = find_route(tx, key)
        generation = now.generation if now is not None else 0
        if expect is not None and expect != generation:
            raise WrongState(f"route {key} is at generation {generation}, not {expect}")
        moved = RouteMoved(
            key=key, session_id=session_id, generation=generation + 1, reason=reason, owner=owner, identity=identity
        )
        tx.add(home, f"~route:{token}", moved)
    return Route(key=moved.key, session_id=moved.session_id, generation=moved.generation, reason=moved.reason)


def move_chat(tx: Transaction, origin: Origin, session_id: str, reason: str, generation: int) -> None:
    """Let a chat lead to a session; it is noted whose chat it is, as only a person's own follows."""
    move_route(
        tx,
        origin.key,
        session_id,
        reason=reason,
        expect=generation,
        token=new_id(),
        owner=origin.owner,
        identity=origin.identity if is_person(origin.owner) else "",
    )


# Which session a chat leads to: /new, resets.


def choose_session(tx: Transaction, arrival: Arrival, resets: Resets, id: str) -> tuple[str, RouteChange | None]:
    """Return the session that an arrival goes to: the one that it names, or the one that its chat leads to.

    A chat leads to a first one, to the present one, or, when a reset is due, to the next one. Overheard messages and
    `/new` do not cause a reset. But a session never goes on among other people than those whom it belongs to. `id` is
    for a session that begins.
    """
    origin = arrival.origin
    if origin.is_local:
        return arrival.said[0][0] if arrival.said else "", None
    route = find_route(tx, origin.key)
    if route is None:
        return start_session(tx, origin, "first", 0, id), None
    _, row = session_journal(tx, route.session_id)
    if not may_go_on(tx, origin, row.owner):
        is_one = is_person(origin.owner) or not is_shared(origin.owner)
        began = Began.PARTED if is_one and is_person(row.owner) == is_person(origin.owner) else Began.OTHERS
        started = start_session(tx, origin, began, route.generation, id)
        return started, RouteChange(reason=began, old="", new=started)
    if arrival.kind not in {ArrivalKind.ASK, ArrivalKind.LATE}:
        return route.session_id, None
    reason = due(read_resting(tx, route), resets, tx.clock.now_microseconds())
    if reason is None:
        return route.session_id, None
    moved = start_next_session(tx, arrival, route.session_id, reason, id)
    return moved.new, moved


def may_go_on(tx: Transaction, origin: Origin, session_owner: str) -> bool:
    """Return whether a chat's session may go on: it is the chat's own, or belongs to the same person."""
    is_same = is_same_owner(session_owner, origin.owner, origin.person)
    return is_same or session_owner in read_circle(tx, origin.owner)


def read_resting(tx: Transaction, route: Route) -> Resting:
    journal, _ = session_journal(tx, route.session_id)
    runs = find_turn(tx, journal, TurnState.RUNNING) is not None and not answers_nobody(tx, journal)
    (led_since,) = tx.row(SQL.find_route_age, (route.key,))
    return Resting(
        messages=journal.messages,
        active_at=journal.active_at,
        led_since=led_since,
        has_turn=runs or find_turn(tx, journal, TurnState.QUEUED) is not None,
    )


def start_session(tx: Transaction, origin: Origin, reason: str, generation: int, id: str) -> str:
    """Begin a session that follows none, and let the chat lead to it."""
    started = create_session(tx, id=id, source=origin.channel, owner=origin.owner, token=new_id())
    move_chat(tx, origin, started.id, reason, generation)
    return started.id


def start_next_session(tx: Transaction, arrival: Arrival, session_id: str, reason: Began, id: str) -> RouteChange:
    """Begin the session after another, by `/new` or a reset: the old one ends, unless it goes on elsewhere.

    In a chat the route moves. At the terminal there is none, the model is told no reason, and the message that asked
    for the session tells a repeat.
    """
    origin = arrival.origin
    route = None if origin.is_local else find_route(tx, origin.key)
    started = create_session(
        tx,
        id=id,
        source=origin.channel,
        owner=origin.owner,
        token=arrival.said[0][1].id if origin.is_local else new_id(),
        title=arrival.title or None,
        parent=Parent(session_id=session_id, link=Link.RESET),
        reason=reason if route is not None else "",
    )
    if not has_other_chats(tx, session_id, origin.key):
        end_session(tx, session_id, reason)
    if route is not None:
        move_chat(tx, origin, started.id, reason, route.generation)
    return RouteChange(reason=reason, old=session_id, new=started.id)


def has_other_chats(reads: Reads, session_id: str, key: str) -> bool:
    """Return whether another chat of the same person leads to a session: then it goes on there."""
    return any(each != key for each, _ in reads.rows(SQL.list_followers, (session_id,)))


# Notices.


def tell_at_home(tx: Transaction, chat: str, text: str, id: str = "") -> str:
    """Tell something in a chat that has no session: a notice of the home journal."""
    message_id = id or new_id()
    tx.add(home_journal(tx), message_id, MessageAdded(role=Role.NOTICE, parts=(Text(text),), chat=chat))
    return message_id


def tell_in_chat(tx: Transaction, chat: str, text: str) -> None:
    """Tell something in a chat: in the session that it leads to, so that it stands in that session's transcript.

    A chat that leads to no open session is told in the home journal.
    """
    route = find_route(tx, chat)
    if route is None:
        tell_at_home(tx, chat, text)
    else:
        tell_of_session(tx, route.session_id, chat, text)


def tell_of_session(tx: Transaction, session_id: str, chat: str, text: str) -> None:
    """Tell something about a session in a chat: in the session, or, when it has ended, in the home journal."""
    if session_journal(tx, session_id)[1].state == SessionState.ENDED:
        tell_at_home(tx, chat, text)
    else:
        append(tx, session_id, offer(Message.notice(text, chat=chat)))


class Follower(NamedTuple):
    """Whose chat leads to a session, what the platform calls them, and what the record says of their access."""

    owner: str
    identity: str
    grant: Grant


class Routes(Namespace):
    """`record.routes`: where session keys lead, and which chats follow a session."""

    async def read(self, key: str) -> Route | None:
        return await self._caller.read(lambda snapshot: find_route(snapshot, key))

    async def move(self, key: str, session_id: str, *, reason: str = "", expect: int | None = None) -> Route:
        """Let a session key lead to a session; with `expect`, only if nobody moved it since that generation."""
        move = partial(
            move_route,
            key=clean_name(key, "a session key", NAME_CHARACTERS_MAX),
            session_id=check_session_id(session_id),
            reason=clean_text(reason)[:REASON_CHARACTERS_MAX],
            expect=expect,
            token=new_id(),
        )
        return await self._caller.write(move)

    async def find_follower(self, session_id: str, chat: str) -> Follower | None:
        """Return whose chat follows a session now, or None: it leads elsewhere, or is no longer the same person's."""

        def read(snapshot: Reads) -> Follower | None:
            row = snapshot.row(SQL.find_follower, (chat, session_id, chat.partition(":")[0]))
            if row is None or row[0] not in read_circle(snapshot, row[2]):
                return None
            return Follower(row[0], row[1], Grant(row[3] or Grant.NONE))

        return await self._caller.read(read)

    async def has_other_followers(self, session_id: str, chat: str) -> bool:
        return await self._caller.read(lambda snapshot: has_other_chats(snapshot, session_id, chat))
