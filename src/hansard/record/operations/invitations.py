"""Invitations: recorded in the commit that receives them, answered later. Facts of the home journal.

Reads: access, intake, invitation, pace, route. Writes: what an invitation is answered with, and that it was.
Invariants: an invitation is taken once; the answer is decided when it is received, and given at least once.
On crash: an invitation that was not answered is still open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.domain.access import HOUR_MICROSECONDS, Action, may
from hansard.domain.arrivals import Invited
from hansard.domain.entries_intake import InvitationAnswered, InvitationReceived
from hansard.domain.ids import new_id
from hansard.domain.people import is_person
from hansard.record.operations.access import decline, grant_of, read_pace, tell_in_chat
from hansard.record.operations.home import RouteMove, find_route, home_journal, move_cursor, move_route
from hansard.record.operations.receive import mark_received
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from hansard.domain.arrivals import Invitation, Rules
    from hansard.record.transaction import Transaction

OPEN_MAX = 1000
"""Invitations that wait for an answer, in all: strangers can send without end. More are left to the platform."""

SOURCE_OPEN_MAX = 20
SOURCE_HOUR_MAX = 60
"""Invitations of one person, or of all strangers of one server, that wait, and that are recorded in an hour."""

STRANGERS = "strangers"


def receive_invitation(tx: Transaction, invitation: Invitation, rules: Rules) -> bool:
    """Record an invitation and what it is answered with; return whether there is anything to answer."""
    event = (invitation.channel, invitation.account, invitation.event_id)
    allowed = may(Action.INVITE, invitation.standing, grant_of(tx, invitation.channel, invitation.identity))
    is_wanted = allowed or not invitation.replaces
    is_open = tx.row(SQL.find_intake, event) is None and is_wanted and has_room(tx, invitation, allowed=allowed)
    if is_open:
        if invitation.replaces:
            lead_on(tx, invitation)
        invited = Invited(invitation.channel, invitation.identity, invitation.standing)
        received = InvitationReceived(
            channel=invitation.channel,
            account=invitation.account,
            event_id=invitation.event_id,
            chat=invitation.chat,
            identity=invitation.identity,
            accept=allowed,
            text="" if allowed else decline(tx, invited, rules),
            source=invitation_source(invitation, allowed=allowed),
            replaces=invitation.replaces,
        )
        home = home_journal(tx)
        tx.add(home, f"~invited:{home.head_seq + 1}", received)
        mark_received(tx, *event)
    move_cursor(tx, invitation.channel, invitation.account, invitation.cursor)
    return is_open


def invitation_source(invitation: Invitation, *, allowed: bool) -> str:
    """Return whose invitations this one is counted with: a person's, or those of all strangers of a server."""
    if allowed:
        return invitation.identity
    return f"{STRANGERS} {invitation.identity.partition(':')[2]}"


def has_room(tx: Transaction, invitation: Invitation, *, allowed: bool) -> bool:
    """Return whether another invitation of this source is taken."""
    source = invitation_source(invitation, allowed=allowed)
    waiting, own = tx.row(SQL.count_invitations, (invitation.channel, invitation.account, source))
    lately = read_pace(tx, f"invited {source}").within(tx.clock.now_microseconds(), HOUR_MICROSECONDS)
    return bool(waiting < OPEN_MAX and own < SOURCE_OPEN_MAX and lately < SOURCE_HOUR_MAX)


def lead_on(tx: Transaction, invitation: Invitation) -> None:
    """Let the new chat lead where the replaced one did, if that is a person's session.

    A room's session belongs to that room: the new room begins its own.
    """
    led = find_route(tx, invitation.replaces)
    if led is None or find_route(tx, invitation.chat) is not None:
        return
    if is_person(tx.session(led.session_id)[1].owner):
        move_route(tx, RouteMove(invitation.chat, led.session_id, "replaced", None, new_id()))


def settle_invitation(tx: Transaction, answered: InvitationAnswered, chat: str, text: str) -> None:
    """Record that an invitation was answered, or cannot be, and tell a chat about it, once."""
    event = (answered.channel, answered.account, answered.event_id)
    if tx.row(SQL.find_invitation, event) is None:
        return
    home = home_journal(tx)
    tx.add(home, f"~answered:{home.head_seq + 1}", answered)
    if text:
        tell_in_chat(tx, chat, text)
