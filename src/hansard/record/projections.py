"""Projections: each entry's effect on the tables that are folds of the entries.

Reads: what earlier entries of the same journal made of turn, turn_chat, turn_by and person. Writes: session, turn,
turn_chat, turn_by, turn_person, outbox, delivery, question, route, cursor, intake, held, invitation, fetch, access,
pace, person, link_code. (How many messages a journal has and when it was last active stand in its own row.)
Invariants: a fold of one journal's entries; the same code serves commits, adoption, rebuild and verify (L9).
On crash: nothing to do; projections commit with their entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.domain import entries as e
from hansard.domain.access import DAY_MICROSECONDS, HOUR_MICROSECONDS, Grant, stranger_source
from hansard.domain.chats import asker_owner, person_owner
from hansard.domain.entries_agent import (
    MemoryEdited,
    MemoryForgotten,
    MemoryNoted,
    PermissionGranted,
    PermissionRevoked,
    QuestionAnswered,
    QuestionAsked,
    QuestionGuessed,
    TurnAsked,
)
from hansard.domain.entries_intake import (
    FileAwaited,
    FileSettled,
    IntakeHeld,
    InvitationAnswered,
    InvitationReceived,
    QuotaUsed,
)
from hansard.domain.entries_people import LinkShown, LinkTried, LinkVoided, PeopleDeclared, PersonLinked, PersonUnlinked
from hansard.domain.messages import Role
from hansard.domain.questions import guess_name
from hansard.domain.quotas import Brought, pace_name
from hansard.domain.turns import How, TurnState
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

Run = Any
"""A cursor's `execute`."""

SHOWN_ROLES = frozenset({Role.ASSISTANT, Role.NOTICE})
"""What is said to people."""


class Place:
    """Where an entry stands."""

    __slots__ = ("at", "entry_id", "journal", "journal_id", "seq")

    def __init__(self, journal: int, journal_id: str, seq: int, entry_id: str, at: int) -> None:
        """Keep the entry's header."""
        self.journal = journal
        self.journal_id = journal_id
        self.seq = seq
        self.entry_id = entry_id
        self.at = at


def count_messages(body: e.Body) -> int:
    """Return how many messages an entry adds to its session: notices are not counted, a fork inherits its parent's."""
    if isinstance(body, e.MessageAdded | e.MessageOpened):
        return int(body.role != Role.NOTICE)
    return body.messages if isinstance(body, e.SessionCreated) else 0


def project(run: Run, place: Place, body: e.Body) -> None:
    """Apply one entry. An ignorable entry of a newer version changes no table."""
    apply = APPLY.get(type(body))
    if apply is not None:
        apply(run, place, body)


def _session_created(run: Run, place: Place, body: e.SessionCreated) -> None:
    run(
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


def _session_titled(run: Run, place: Place, body: e.SessionTitled) -> None:
    run(SQL.set_session_title, (body.title, place.journal))


def _session_linked(run: Run, place: Place, body: e.SessionLinked) -> None:
    run(SQL.set_session_parent, (body.parent_id, body.link, place.journal))


def _session_ended(run: Run, place: Place, body: e.SessionEnded) -> None:
    run(SQL.set_session_state, ("ended", body.reason, place.journal))


def _session_reopened(run: Run, place: Place, _body: e.SessionReopened) -> None:
    run(SQL.set_session_state, ("open", None, place.journal))


def _session_archived(run: Run, place: Place, body: e.SessionArchived) -> None:
    run(SQL.set_session_archived, (int(body.archived), place.journal))


def is_projected(body: e.MessageAdded) -> bool:
    """Return whether a whole message changes a table: most have no chat, and nothing runs for them."""
    return not body.imported and (bool(body.chat) or bool(body.author) or body.role in SHOWN_ROLES)


def _message_added(run: Run, place: Place, body: e.MessageAdded) -> None:
    """What a person says to the agent in a chat is answered there; what is told in a turn is shown where the turn is.

    A notice with an author is a command, as a person wrote it: it is on the platform already. What came by an import
    was said elsewhere: nobody is shown it, or answered, because it is here now.
    """
    if body.imported:
        return
    if body.author and body.role == Role.USER and not body.observed:
        run(SQL.add_turn_by, (place.journal, "", body.author, body.chat, How.MESSAGE))
        if body.chat:
            run(SQL.add_turn_chat, (place.journal, "", body.chat, 0))
            run(SQL.add_turn_person, (place.journal, person_owner(body.chat.partition(":")[0], body.author)))
    if not body.author and body.role in SHOWN_ROLES:
        if body.chat:
            run(SQL.add_outbox, (place.journal, place.entry_id, body.chat, place.seq, int(body.follows)))
        else:
            run(SQL.add_outbox_of_running, (place.journal, place.entry_id, place.seq))


def _message_opened(run: Run, place: Place, body: e.MessageOpened) -> None:
    run(SQL.open_session_message, (place.entry_id, body.turn_id, place.journal))
    run(SQL.add_outbox_of_turn, (place.journal, body.turn_id, place.entry_id, place.seq))


def _message_sealed(run: Run, place: Place, _body: e.MessageSealed) -> None:
    run(SQL.seal_session_message, (place.journal,))


def _message_delivered(run: Run, place: Place, body: e.MessageDelivered) -> None:
    if body.outcome == "retried":
        run(SQL.add_outbox, (place.journal, body.message_id, body.chat, place.seq, 0))
    else:
        run(SQL.drop_outbox, (place.journal, body.message_id, body.chat))


def _turn_queued(run: Run, place: Place, body: e.TurnQueued) -> None:
    run(SQL.put_turn, (place.journal, body.turn_id, TurnState.QUEUED, place.seq, "", ""))
    for follows, chats in enumerate((body.chats, body.followers)):
        for chat in chats:
            run(SQL.add_turn_chat, (place.journal, "", chat, follows))
    for each in body.by or ():
        run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


def _turn_asked(run: Run, place: Place, body: TurnAsked) -> None:
    for each in body.by:
        run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))


def _turn_started(run: Run, place: Place, body: e.TurnStarted) -> None:
    """What waits to be answered goes on waiting while a turn runs that answers nobody."""
    run(SQL.put_turn, (place.journal, body.turn_id, TurnState.RUNNING, place.seq, body.owner, body.purpose))
    if not body.purpose:
        run(SQL.take_turn_chats, (place.journal, body.turn_id))
        if body.by is None:
            run(SQL.take_turn_by, (place.journal, body.turn_id))
        run(SQL.drop_next_by, (place.journal,))
    for each in body.by or ():
        run(SQL.add_turn_by, (place.journal, body.turn_id, each.person, each.chat, each.how))
    _count_turn(run, place, body)


def _count_turn(run: Run, place: Place, body: e.TurnStarted) -> None:
    """Who asked for a turn, and so whose day it counts to.

    One that nobody asked for counts to its session's owner. One that answers nobody, and that nobody asked for, counts
    to those whom the turn before it answered. So does one that began before it was recorded who asks.
    """
    counted = (place.journal, body.turn_id, place.at, int(not body.purpose and not body.refused))
    if body.by is not None and not body.purpose:
        run(SQL.drop_turn_persons, (place.journal,))
    for person in sorted({asker_owner(*each.place) for each in body.by or ()}):
        run(SQL.count_turn_person, (*counted, person))
    if body.by is not None and not body.purpose:
        run(SQL.take_turn_owner, counted)
    elif not body.purpose:
        run(SQL.take_turn_persons, counted)
    run(SQL.repeat_turn_persons, counted)
    run(SQL.take_turn_owner, counted)
    run(SQL.take_turn_everybody, counted)


def _turn_used(run: Run, place: Place, body: e.TurnUsed) -> None:
    used = body.usage
    figures = (used.input_tokens, used.output_tokens, used.cost_micros or 0)
    run(SQL.use_turn_person, (place.journal, body.turn_id, *figures))


def _turn_steered(run: Run, place: Place, body: e.TurnSteered) -> None:
    """The turn that runs is shown there, too; so is the next one, which answers when this one never comes to it."""
    if body.chat:
        run(SQL.add_turn_chat, (place.journal, body.turn_id, body.chat, 0))


def _turn_ended(run: Run, place: Place, body: e.TurnEnded) -> None:
    run(SQL.end_turn, (body.state, body.reason, place.journal, body.turn_id))
    if body.state in {TurnState.COMPLETED, TurnState.FAILED}:
        run(SQL.spare_turn_persons, (place.journal, body.turn_id))
    if body.state == TurnState.LOST:
        run(SQL.leave_turn_chats, (place.journal, body.turn_id))
    run(SQL.drop_turn_chats, (place.journal, body.turn_id))
    run(SQL.drop_question, (place.journal, body.turn_id))


def _question_asked(run: Run, place: Place, body: QuestionAsked) -> None:
    for author, chat in body.people:
        run(SQL.add_question, (place.journal, body.turn_id, author, chat, body.message_id, " ".join(body.scopes)))


def _question_answered(run: Run, place: Place, body: QuestionAnswered) -> None:
    run(SQL.drop_question, (place.journal, body.turn_id))


def _question_guessed(run: Run, place: Place, body: QuestionGuessed) -> None:
    run(SQL.add_pace, (guess_name(body.person), place.at, HOUR_MICROSECONDS, 1))


def _delivery_created(run: Run, place: Place, body: e.DeliveryCreated) -> None:
    run(
        SQL.insert_delivery,
        (
            place.journal,
            body.delivery_id,
            body.channel,
            body.target,
            body.message_id,
            body.operation,
            body.start_bytes,
            body.end_bytes,
            body.file,
        ),
    )


def _delivery_moved(run: Run, place: Place, body: e.DeliveryMoved) -> None:
    place_of = (place.journal, body.delivery_id)
    run(SQL.move_delivery, (body.state, body.owner, body.receipt, body.reason, *place_of, body.mark, body.end_bytes))


def _route_moved(run: Run, place: Place, body: e.RouteMoved) -> None:
    moved = (body.key, body.session_id, body.generation, body.reason, place.at)
    run(SQL.put_route, (*moved, body.owner, body.identity))


def _cursor_moved(run: Run, _place: Place, body: e.CursorMoved) -> None:
    run(SQL.put_cursor, (body.channel, body.account, body.value))


def _intake_accepted(run: Run, place: Place, body: e.IntakeAccepted) -> None:
    run(SQL.insert_intake, (body.channel, body.account, body.event_id, place.seq))
    run(SQL.drop_held, (body.channel, body.account, body.event_id))


def _intake_held(run: Run, place: Place, body: IntakeHeld) -> None:
    event = (body.channel, body.account, body.event_id, body.chat, place.seq)
    run(SQL.insert_held, (*event, body.identity, len(body.raw.encode()), place.at))


def _invitation_received(run: Run, place: Place, body: InvitationReceived) -> None:
    run(SQL.insert_invitation, (body.channel, body.account, body.event_id, body.source, place.seq))
    run(SQL.add_pace, (f"invited {body.source}", place.at, HOUR_MICROSECONDS, 1))


def _invitation_answered(run: Run, _place: Place, body: InvitationAnswered) -> None:
    run(SQL.drop_invitation, (body.channel, body.account, body.event_id))


def _file_awaited(run: Run, place: Place, body: FileAwaited) -> None:
    file = (body.session_id, body.message_id, body.file)
    run(SQL.insert_fetch, (*file, body.channel, body.account, body.person, place.seq))


def _file_settled(run: Run, place: Place, body: FileSettled) -> None:
    run(SQL.drop_fetch, (body.session_id, body.message_id, body.file))
    if body.size_bytes:
        run(SQL.add_pace, (pace_name(Brought.BYTES, body.person), place.at, HOUR_MICROSECONDS, body.size_bytes))


def _quota_used(run: Run, place: Place, body: QuotaUsed) -> None:
    for brought, count in ((Brought.FILES, body.files), (Brought.SESSIONS, body.sessions)):
        if count:
            run(SQL.add_pace, (pace_name(brought, body.person), place.at, HOUR_MICROSECONDS, count))


def _access_asked(run: Run, place: Place, body: e.AccessAsked) -> None:
    asked = (body.channel, body.identity, body.code, body.expires_at, body.chat)
    run(SQL.ask_access, (*asked, place.at, DAY_MICROSECONDS))
    for name in ("asked", f"asked {stranger_source(body.channel, body.identity, body.chat)}"):
        run(SQL.add_pace, (name, place.at, HOUR_MICROSECONDS, 1))


def _access_tried(run: Run, place: Place, _body: e.AccessTried) -> None:
    run(SQL.add_pace, ("tried", place.at, HOUR_MICROSECONDS, 1))


def _access_changed(run: Run, place: Place, body: e.AccessChanged) -> None:
    state = Grant.ALLOWED if body.allowed else Grant.REVOKED
    run(SQL.change_access, (body.channel, body.identity, state, place.at, body.by))
    if not body.allowed:
        run(SQL.drop_permissions_of, (body.identity, f"{body.channel}:", f"{body.channel};"))


def _permission_granted(run: Run, place: Place, body: PermissionGranted) -> None:
    allowed = (body.permission_id, body.tool, body.person, body.place, body.session_id)
    run(SQL.add_permission, (*allowed, place.seq, place.at, body.by))


def _permission_revoked(run: Run, _place: Place, body: PermissionRevoked) -> None:
    run(SQL.drop_permission, (body.permission_id,))


def _memory_noted(run: Run, place: Place, body: MemoryNoted) -> None:
    run(SQL.insert_note, (body.note_id, body.owner, body.text, place.seq, place.at))


def _memory_edited(run: Run, place: Place, body: MemoryEdited) -> None:
    run(SQL.edit_note, (body.note_id, body.text, place.at))


def _memory_forgotten(run: Run, _place: Place, body: MemoryForgotten) -> None:
    run(SQL.delete_note, (body.note_id,))


def _people_declared(run: Run, _place: Place, body: PeopleDeclared) -> None:
    run(SQL.drop_named)
    for name, owners in body.people.items():
        for owner in owners:
            run(SQL.add_person, (owner, f"named:{name}"))


def _person_linked(run: Run, place: Place, body: PersonLinked) -> None:
    circle = f"linked:{place.seq}"
    for owner in body.owners:
        run(SQL.join_linked, (circle, owner))
        run(SQL.add_person, (owner, circle))
        run(SQL.drop_link_code, (owner,))


def _person_unlinked(run: Run, _place: Place, body: PersonUnlinked) -> None:
    for owner in body.owners:
        run(SQL.leave_linked, (owner,))
    run(SQL.drop_lonely)


def _link_shown(run: Run, place: Place, body: LinkShown) -> None:
    run(SQL.put_link_code, (body.owner, body.code, body.expires_at, body.identity, body.chat))
    run(SQL.add_pace, (f"link shown {body.owner}", place.at, HOUR_MICROSECONDS, 1))


def _link_tried(run: Run, place: Place, body: LinkTried) -> None:
    run(SQL.add_pace, (f"link tried {body.owner}", place.at, HOUR_MICROSECONDS, 1))


def _link_voided(run: Run, _place: Place, body: LinkVoided) -> None:
    run(SQL.drop_link_code, (body.owner,))


APPLY: dict[type[e.Body], Callable[[Run, Place, Any], None]] = {
    e.SessionCreated: _session_created,
    e.SessionTitled: _session_titled,
    e.SessionLinked: _session_linked,
    e.SessionEnded: _session_ended,
    e.SessionReopened: _session_reopened,
    e.SessionArchived: _session_archived,
    e.MessageAdded: _message_added,
    e.MessageOpened: _message_opened,
    e.MessageSealed: _message_sealed,
    e.MessageDelivered: _message_delivered,
    e.TurnQueued: _turn_queued,
    TurnAsked: _turn_asked,
    e.TurnStarted: _turn_started,
    e.TurnSteered: _turn_steered,
    e.TurnUsed: _turn_used,
    e.TurnEnded: _turn_ended,
    e.DeliveryCreated: _delivery_created,
    e.DeliveryMoved: _delivery_moved,
    e.RouteMoved: _route_moved,
    e.CursorMoved: _cursor_moved,
    e.IntakeAccepted: _intake_accepted,
    IntakeHeld: _intake_held,
    InvitationReceived: _invitation_received,
    InvitationAnswered: _invitation_answered,
    FileAwaited: _file_awaited,
    FileSettled: _file_settled,
    QuotaUsed: _quota_used,
    e.AccessAsked: _access_asked,
    e.AccessTried: _access_tried,
    e.AccessChanged: _access_changed,
    QuestionAsked: _question_asked,
    QuestionAnswered: _question_answered,
    QuestionGuessed: _question_guessed,
    PermissionGranted: _permission_granted,
    PermissionRevoked: _permission_revoked,
    MemoryNoted: _memory_noted,
    MemoryEdited: _memory_edited,
    MemoryForgotten: _memory_forgotten,
    PeopleDeclared: _people_declared,
    PersonLinked: _person_linked,
    PersonUnlinked: _person_unlinked,
    LinkShown: _link_shown,
    LinkTried: _link_tried,
    LinkVoided: _link_voided,
}
