"""Projections: each entry's effect on the tables that are folds of the entries.

Reads: nothing. Writes: session, turn, delivery, route, cursor, intake. (How many messages a journal has and when it was
last active stand in its own row, which changes with every entry anyway.)
Invariants: a pure function of (journal, entry); the same code serves commits, adoption, rebuild and verify (L9).
On crash: nothing to do; projections commit with their entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hansard.domain import entries as e
from hansard.domain.messages import Role
from hansard.domain.turns import TurnState
from hansard.record.sqlite.queries import SQL

if TYPE_CHECKING:
    from collections.abc import Callable

Run = Any
"""A cursor's `execute`."""


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


def _message_opened(run: Run, place: Place, body: e.MessageOpened) -> None:
    run(SQL.open_session_message, (place.entry_id, body.turn_id, place.journal))


def _message_sealed(run: Run, place: Place, _body: e.MessageSealed) -> None:
    run(SQL.seal_session_message, (place.journal,))


def _turn_queued(run: Run, place: Place, body: e.TurnQueued) -> None:
    run(SQL.put_turn, (place.journal, body.turn_id, TurnState.QUEUED, place.seq, ""))


def _turn_started(run: Run, place: Place, body: e.TurnStarted) -> None:
    run(SQL.put_turn, (place.journal, body.turn_id, TurnState.RUNNING, place.seq, body.owner))


def _turn_ended(run: Run, place: Place, body: e.TurnEnded) -> None:
    run(SQL.end_turn, (body.state, body.reason, place.journal, body.turn_id))


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
        ),
    )


def _delivery_moved(run: Run, place: Place, body: e.DeliveryMoved) -> None:
    run(SQL.move_delivery, (body.state, body.owner, body.receipt, body.reason, place.journal, body.delivery_id))


def _route_moved(run: Run, _place: Place, body: e.RouteMoved) -> None:
    run(SQL.put_route, (body.key, body.session_id, body.generation, body.reason))


def _cursor_moved(run: Run, _place: Place, body: e.CursorMoved) -> None:
    run(SQL.put_cursor, (body.channel, body.account, body.value))


def _intake_accepted(run: Run, place: Place, body: e.IntakeAccepted) -> None:
    run(SQL.insert_intake, (body.channel, body.account, body.event_id, place.seq))


APPLY: dict[type[e.Body], Callable[[Run, Place, Any], None]] = {
    e.SessionCreated: _session_created,
    e.SessionTitled: _session_titled,
    e.SessionLinked: _session_linked,
    e.SessionEnded: _session_ended,
    e.SessionReopened: _session_reopened,
    e.SessionArchived: _session_archived,
    e.MessageOpened: _message_opened,
    e.MessageSealed: _message_sealed,
    e.TurnQueued: _turn_queued,
    e.TurnStarted: _turn_started,
    e.TurnEnded: _turn_ended,
    e.DeliveryCreated: _delivery_created,
    e.DeliveryMoved: _delivery_moved,
    e.RouteMoved: _route_moved,
    e.CursorMoved: _cursor_moved,
    e.IntakeAccepted: _intake_accepted,
}
