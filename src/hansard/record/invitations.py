"""Invitations: recorded in the commit that receives them, answered later.

Entries (home journal): invitation.received, .answered. Table: invitation. SQL: invitations.sql.
Invariants: an invitation is received once; its answer is decided when it is received, and given at least once.
On crash: an invitation that was not answered is still open.
"""

from __future__ import annotations

from hansard.domain.access import HOUR_MICROSECONDS, Action, may
from hansard.domain.arrivals import IntakeRules, Origin
from hansard.domain.chats import parse_key
from hansard.domain.ids import new_id
from hansard.domain.limits import NAME_CHARACTERS_MAX, REASON_CHARACTERS_MAX
from hansard.domain.notices import Wording
from hansard.domain.people import is_person
from hansard.domain.text import clean_name, clean_text
from hansard.journal.concepts import Body, Concept, EntryPlace, Table
from hansard.journal.transaction import Transaction
from hansard.record import TellingNamespace
from hansard.record.access import decline, grant_of
from hansard.record.intake.events import INTAKE, mark_received, move_cursor
from hansard.record.people import add_at_home, count_pace, list_due, read_pace
from hansard.record.routes import find_route, move_route, tell_in_chat
from hansard.record.sessions import session_journal

INVITATIONS = Concept(
    "invitations",
    "hansard.record",
    tables=(Table(name="invitation", order="channel, account, event_id", of_home=True),),
)
SQL = INVITATIONS.queries


@INVITATIONS.entry("invitation.received")
class InvitationReceived(Body, frozen=True):
    """Somebody asked the agent into a chat, and so it is to be answered. `text` is said with a refusal.

    `source`: whose answers this one takes turns with. `replaces`: the chat that was given up for this one, and whose
    people are told.
    """

    channel: str
    account: str
    event_id: str
    chat: str
    identity: str
    accept: bool
    text: str = ""
    source: str = ""
    replaces: str = ""


@INVITATIONS.entry("invitation.answered")
class InvitationAnswered(Body, frozen=True):
    """An invitation waits no longer. `failure`: why it could not be answered; empty when it was."""

    channel: str
    account: str
    event_id: str
    failure: str = ""


@INVITATIONS.projects(InvitationReceived, InvitationAnswered)
def project_invitation(place: EntryPlace, body: Body) -> None:
    match body:
        case InvitationReceived():
            place.run(SQL.insert_invitation, (body.channel, body.account, body.event_id, body.source, place.seq))
            count_pace(place, f"invited {body.source}")
        case InvitationAnswered():
            place.run(SQL.drop_invitation, (body.channel, body.account, body.event_id))


OPEN_MAX = 1000
"""Invitations that wait for an answer, in all: strangers can send without end. More are left to the platform."""
SOURCE_OPEN_MAX = 20
SOURCE_HOUR_MAX = 60
"""Invitations of one person, or of all strangers of one server, that wait, and that are recorded in an hour."""
STRANGERS = "strangers"


def receive_invitation(tx: Transaction, origin: Origin, replaces: str, rules: IntakeRules, words: Wording) -> bool:
    """Record an invitation and what it is answered with; return whether there is anything to answer."""
    allowed = may(Action.INVITE, origin.standing, grant_of(tx, origin.channel, origin.identity))
    is_wanted = allowed or not replaces
    source = origin.identity if allowed else f"{STRANGERS} {origin.identity.partition(':')[2]}"
    is_open = tx.row(INTAKE.queries.find_intake, origin.event) is None and is_wanted and has_room(tx, origin, source)
    if is_open:
        if replaces:
            lead_on(tx, replaces, origin.chat)
        received = InvitationReceived(
            channel=origin.channel,
            account=origin.account,
            event_id=origin.event_id,
            chat=origin.chat,
            identity=origin.identity,
            accept=allowed,
            text="" if allowed else decline(tx, origin, rules, words),
            source=source,
            replaces=replaces,
        )
        add_at_home(tx, "invited", received)
        mark_received(tx, origin.event)
    move_cursor(tx, origin.channel, origin.account, origin.cursor)
    return is_open


def has_room(tx: Transaction, origin: Origin, source: str) -> bool:
    """Return whether another invitation of a person, or of the strangers of a server, is taken."""
    waiting, own = tx.row(SQL.count_invitations, (origin.channel, origin.account, source))
    lately = read_pace(tx, f"invited {source}").within(tx.clock.now_microseconds(), HOUR_MICROSECONDS)
    return bool(waiting < OPEN_MAX and own < SOURCE_OPEN_MAX and lately < SOURCE_HOUR_MAX)


def lead_on(tx: Transaction, replaced: str, chat: str) -> None:
    """Let the new chat lead where the replaced one did, if that is a person's session.

    A room's session belongs to that room: the new room begins its own.
    """
    led = find_route(tx, replaced)
    if led is None or find_route(tx, chat) is not None:
        return
    if is_person(session_journal(tx, led.session_id)[1].owner):
        move_route(tx, chat, led.session_id, reason="replaced", expect=None, token=new_id())


def settle_invitation(tx: Transaction, answered: InvitationAnswered, chat: str, text: str) -> None:
    event = (answered.channel, answered.account, answered.event_id)
    if tx.row(SQL.find_invitation, event) is None:
        return
    add_at_home(tx, "answered", answered)
    if text:
        tell_in_chat(tx, chat, text)


class Invitations(TellingNamespace):
    """Who asked the agent into a chat, until that is answered."""

    async def receive(self, origin: Origin, rules: IntakeRules, *, replaces: str = "") -> bool:
        """Record that the agent is asked into a chat, or that the chat `replaces` another; with it goes the cursor.

        Return whether there is anything to answer.
        """
        parse_key(origin.chat)
        for name in (origin.channel, origin.account, origin.event_id, origin.identity):
            clean_name(name, "a name of a platform", NAME_CHARACTERS_MAX)
        words = self._words()
        return await self._caller.write(lambda tx: receive_invitation(tx, origin, replaces, rules, words))

    async def list_due(self, channel: str, account: str, *, source_max: int, limit: int) -> list[InvitationReceived]:
        """Return what is to be answered now: so many of one source, the sources in turn."""
        return await self._caller.read(
            lambda snapshot: list_due(
                snapshot, InvitationReceived, SQL.list_invitations, (channel, account), (source_max, limit)
            )
        )

    async def settle_invitation(self, answered: InvitationAnswered, chat: str = "", text: str = "") -> None:
        """Record that an invitation was answered, or why it cannot be; `text` is told in a chat then."""
        failure = clean_text(answered.failure)[:REASON_CHARACTERS_MAX]
        settled = InvitationAnswered(
            channel=answered.channel, account=answered.account, event_id=answered.event_id, failure=failure
        )
        await self._caller.write(lambda tx: settle_invitation(tx, settled, chat, text))
